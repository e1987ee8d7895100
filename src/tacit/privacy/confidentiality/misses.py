"""What screening misses, as far as it enters a statement: shares with upper bounds from labels, and what they do to epsilon.

A share is a number that is taken at its word, or `Labels`: secrets labelled by hand, of which a policy missed some. With gamma,
the share that the balanced policy misses, and delta_2, the share that both policies miss, epsilon' is taken at
`missed_delta` and then becomes `amplified_epsilon` (proposition 6 of Zhao, Li and Wang 2022; docs/confidentiality.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from scipy import special

from tacit.errors import UsageError
from tacit.privacy.checks import require_fraction

__all__ = ["Labels", "amplified_epsilon", "check_share", "labels_needed", "missed_delta", "upper_share"]


@dataclass(frozen=True)
class Labels:
    """Secrets that were labelled by hand, drawn independently from mu, and how many of them a policy missed."""

    labelled: int
    missed: int

    def __post_init__(self) -> None:
        if not 0 <= self.missed <= self.labelled or self.labelled < 1:
            raise UsageError(
                f"{self.missed} missed of {self.labelled} labelled secrets; give 1 or more labels and at most as many misses"
            )

    @property
    def share(self) -> float:
        """The point estimate. It is too small in about half of all measurements, so no statement is made with it."""
        return self.missed / self.labelled

    def upper(self, confidence: float) -> float:
        """The one-sided upper bound of Clopper and Pearson (1934): the true share lies above it with chance 1 - confidence."""
        require_fraction("confidence", confidence)
        if self.missed == self.labelled:
            return 1.0
        return float(special.betaincinv(self.missed + 1, self.labelled - self.missed, confidence))


def labels_needed(share: float, confidence: float = 0.95) -> int:
    """How many labels without a single miss bound the missed share by ``share``."""
    require_fraction("confidence", confidence)
    require_fraction("share", share)
    return math.ceil(math.log1p(-confidence) / math.log1p(-share))


def upper_share(name: str, share: float | Labels, confidence: float) -> float:
    """The bound from labels, or the number as it was given.

    Raises:
        UsageError: it is no share.
    """
    value = share.upper(confidence) if isinstance(share, Labels) else share
    check_share(name, value)
    return value


def missed_delta(delta: float, gamma: float, delta_2: float = 0.0) -> float:
    """delta' = (delta - delta_2) / gamma, at which epsilon' is to be taken so that the whole statement has delta.

    Raises:
        UsageError: gamma or delta_2 is no share; nothing of delta is left; delta' is 1 or more.
    """
    check_share("gamma", gamma)
    check_share("delta_2", delta_2)
    if delta_2 >= delta:
        raise UsageError(
            f"delta_2 {delta_2:.4g} is not below delta {delta:g}: label more secrets, let everything be private, or raise delta"
        )
    if gamma == 0 or delta - delta_2 >= gamma:
        raise UsageError(
            f"gamma {gamma:.4g} is not above delta {delta - delta_2:.4g}: no epsilon is needed; lower delta"
        )
    return (delta - delta_2) / gamma


def check_share(name: str, value: float) -> None:
    """Raise `UsageError` unless the value is a share."""
    if not 0 <= value <= 1:
        raise UsageError(f"{name} is {value!r}; it is a share of misses, from 0 to 1")


def amplified_epsilon(found: float, gamma: float) -> float:
    """log(1 + gamma (e^epsilon' - 1)), the epsilon of proposition 6; zero when nothing is missed."""
    if found > 700 and gamma > 0:
        return found + math.log(gamma) + 1e-12  # e^found is beyond a double, and the 1 - gamma beside it below one
    return math.log1p(gamma * math.expm1(found)) if gamma > 0 else 0.0
