"""The privacy probability of a record: how surprising a public language model finds it (Wu et al. 2022, section 4.1, made exact).

    rho = clip((ln PPL - a) / (b - a), 0, 1)

Text that the model finds likely is everybody's, so rho is near 0; text that it finds unlikely may be one person's, so rho is near
1. The paper normalises by what it finds in the private batch; here a and b are public constants (`tacit score --fit-public`), so
that the rho of a record depends on this record and on public numbers alone. (The paper's section 4.1 says "in direct
proportion to the frequency" where it means inversely, as its equation 4 has it.)

The paper normalises the perplexity; here it is its logarithm, the mean nats of a token, because perplexities spread over orders of
magnitude: the largest would press all others to 0, which is to say, leave them without protection.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit.errors import DataError, UsageError

__all__ = ["PrivacyProbability", "checked_rho"]


@dataclass(frozen=True)
class PrivacyProbability:
    """rho as a function of a record's mean nats a token. It grows with it, so ``upper`` and above is the most private.

    Args:
        lower: a: at this ln PPL and below rho is 0. A public constant.
        upper: b: at this ln PPL and above rho is 1. A public constant.

    Raises:
        UsageError: a bound is no finite number, or ``lower`` is not below ``upper``.
    """

    lower: float
    upper: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lower) and math.isfinite(self.upper)):
            raise UsageError(
                f"adaptive: lower is {self.lower:g} and upper {self.upper:g}; both must be finite numbers, the ln PPL of public "
                "text (`tacit score --fit-public`)"
            )
        if not self.lower < self.upper:
            raise UsageError(
                f"adaptive: lower is {self.lower:g} and must be below upper, {self.upper:g}; `tacit score --fit-public` finds both"
            )
        if not math.isfinite(self.upper - self.lower):
            raise UsageError(
                "adaptive: lower and upper are too far apart for a float; `tacit score --fit-public` finds both"
            )

    def of(self, log_perplexity: ArrayLike) -> NDArray[np.float64]:
        """rho of each ln PPL, in float64 and in the shape that is given.

        What is not finite has rho = 1: a record that could not be scored is protected like the most private one. That is minus
        infinity too, which no model with finite logits gives.

        >>> PrivacyProbability(2.0, 6.0).of([1.0, 3.0, 9.0, float("nan")])
        array([0.  , 0.25, 1.  , 1.  ])
        """
        values = np.asarray(log_perplexity, dtype=np.float64)
        finite = np.isfinite(values)
        # Clipped before the difference, which could overflow: the result is the same.
        inside = np.clip(np.where(finite, values, self.upper), self.lower, self.upper)
        return np.where(finite, (inside - self.lower) / (self.upper - self.lower), 1.0)


def checked_rho(rho: ArrayLike, place: str) -> NDArray[np.float64]:
    """Privacy probabilities that somebody else made, in float64.

    Args:
        rho: any shape.
        place: where they stand, for the error; it names no value, since each one is of a private record.

    Raises:
        DataError: one is below 0, above 1, or no number.
    """
    values = np.asarray(rho, dtype=np.float64)
    if not bool(((values >= 0) & (values <= 1)).all()):
        raise DataError(f"{place}: a rho lies outside [0, 1]; score the records again with `tacit score`")
    return values
