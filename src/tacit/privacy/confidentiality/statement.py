"""What a run can say of a secret in its private text, from public constants and from measured misses.

Three lines, the one to rely on first (definitions of Zhao, Li and Wang 2022; proofs in docs/confidentiality.md):

    worst case   definition 2, or 3 for a group: every secret was missed. Infinite if a missed one can be in the public stream.
    screened     the same definition, with the misses that were measured. A fixed secret is missed or caught: gamma says of how
                 many secrets which epsilon holds, and of a group how many are missed. No epsilon is multiplied by it.
    Bayesian     definition 4: the secret is drawn from mu, so that gamma amplifies: log(1 + gamma (e^epsilon' - 1)).

The numbers are those of confidentiality.py (misses: misses.py), the paper's those of crt_paper.py. None is added to the DP epsilon.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tacit.errors import RefusedError, UsageError
from tacit.privacy.accounting.replacement import Claim, Stability
from tacit.privacy.confidentiality.account import (
    APART,
)
from tacit.privacy.confidentiality.lines import Basis, Line, bayesian_line, screened_line, worst_case_line
from tacit.privacy.confidentiality.misses import Labels
from tacit.privacy.events import PoissonGaussian, Spend

__all__ = ["ConfidentialityStatement", "Share", "statement_of_run", "training_steps"]


@dataclass(frozen=True)
class Share:
    """A bound on what a policy misses, as it entered the statement, and how well it is known.

    Args:
        name: gamma, what the balanced policy misses, or delta_2, what both miss.
        value: the bound.
        label: measured on labels, or assumed: stated in the configuration, or by nobody (then it is 1).
        labelled, missed, confidence: secrets labelled, those missed, and the confidence of the bound; where it was measured.
        measurement: SHA-256 of the measurement that says so, if there is a file of it.
    """

    name: Literal["gamma", "delta_2"]
    value: float
    label: Literal["measured", "assumed"]
    labelled: int | None = None
    missed: int | None = None
    confidence: float | None = None
    measurement: str | None = None


@dataclass(frozen=True)
class ConfidentialityStatement:
    """What a run says of a secret: the worst case first, then the lines that rest on a measured screening.

    Args:
        apart: that none of this is the DP epsilon, or is ever added to it.
        records: size of the private stream, as the plan's public constant.
        group_size: data points in which the secrets of a group occur.
        stability: records of the training that one masked secret changes.
        worst_case, screened, bayesian: the lines; the last two are None without a gamma.
        shares: the bounds on the misses that the lines rest on.
    """

    records: int
    group_size: int
    stability: Stability
    worst_case: Line
    screened: Line | None
    bayesian: Line | None
    shares: tuple[Share, ...] = ()
    apart: str = APART

    @property
    def lines(self) -> tuple[Line, ...]:
        """The lines that there are, in the order in which they should be read."""
        return tuple(line for line in (self.worst_case, self.screened, self.bayesian) if line is not None)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values, in the order in which they should be read."""
        return {
            "apart": self.apart,
            "records": self.records,
            "group_size": self.group_size,
            "stability": dataclasses.asdict(self.stability),
            "worst_case": self.worst_case.to_dict(),
            "screened": None if self.screened is None else self.screened.to_dict(),
            "bayesian": None if self.bayesian is None else self.bayesian.to_dict(),
            "shares": [dataclasses.asdict(share) for share in self.shares],
        }


def training_steps(spends: Sequence[Spend]) -> tuple[PoissonGaussian, int, list[Spend]] | None:
    """(the private phases' step, how many of it, all else that reads private records with noise); None where nothing is trained.

    Steps of other sampling or noise than the first one's are among the rest.
    """
    paid = [spend for spend in spends if spend.event.is_private]
    steps: dict[PoissonGaussian, int] = {}
    for spend in paid:
        if isinstance(spend.event, PoissonGaussian):
            steps[spend.event] = steps.get(spend.event, 0) + spend.count
    if not steps:
        return None
    event, *others = steps
    rest = [spend for spend in paid if not isinstance(spend.event, PoissonGaussian)]
    return event, steps[event], [Spend(other, steps[other]) for other in others] + rest


def statement_of_run(
    *,
    records: int,
    sampling_probability: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
    stability: Stability,
    gamma: float | Labels | None = None,
    delta_2: float | Labels | None = None,
    confidence: float = 0.95,
    group_size: int = 1,
    others: Sequence[Spend] = (),
    measurement: str | None = None,
) -> ConfidentialityStatement:
    """The confidentiality of a run. Nothing here is computed from the private text, but for counts of labelled secrets.

    Args:
        records: units of the private stream, as the plan's public constant; each data point is a unit.
        sampling_probability, noise_multiplier, steps: of the private phases.
        delta: of each line; below 1 / records.
        stability: records that change with one masked secret, from the deduplication: ``Stability(factor, 0)`` if redaction
            goes first and labels each token by itself, ``Stability(factor, factor)`` if a caught secret may leave a trace
            (`tacit.privacy.accounting.replacement.stability` has the cases).
        gamma: upper bound on the share of secrets that the balanced policy misses, or the labels that bound it; a bare number
            is taken at its word. None: not measured, so there is the worst case alone.
        delta_2: the same for what both policies miss. None: all records are in the private stream. 1: nobody measured it.
        confidence: of each bound from labels.
        group_size: data points in which the secrets of one group occur.
        others: all else that read private records, from the ledger: vocabulary, evaluation.
        measurement: digest of the file that the labels come from, if there is one.

    Raises:
        UsageError: a number is impossible, or gamma is not above delta, so that no epsilon is needed.
        RefusedError: ``delta-too-large``, ``near-duplicates-before-claim`` (an infinite stability) or ``noise-too-small``.
    """
    _check(records, delta, stability)
    claim = Claim(group_size)
    training = Spend(PoissonGaussian(sampling_probability, noise_multiplier), steps)
    run = Basis((training, *others), delta, claim, stability, delta_2, confidence)
    worst = worst_case_line(run)
    screened, drawn = (None, None) if gamma is None else (screened_line(run, gamma), bayesian_line(run, gamma))
    first = () if gamma is None else (_share("gamma", gamma, confidence, measurement),)
    second = () if delta_2 is None else (_share("delta_2", delta_2, confidence, measurement),)
    shares = (*first, *second)
    return ConfidentialityStatement(records, group_size, stability, worst, screened, drawn, shares)


def _share(
    name: Literal["gamma", "delta_2"], share: float | Labels, confidence: float, measurement: str | None
) -> Share:
    if not isinstance(share, Labels):
        return Share(name, share, "assumed")
    return Share(name, share.upper(confidence), "measured", share.labelled, share.missed, confidence, measurement)


def _check(records: int, delta: float, stability: Stability) -> None:
    if records < 1:
        raise UsageError(f"records is {records}; it must be at least 1")
    if delta >= 1 / records:
        raise RefusedError(
            "delta-too-large",
            f"delta is {delta:g} but must be below 1/records = {1 / records:.3g}: a larger delta allows publishing a record",
        )
    if math.isinf(stability.missed):
        raise RefusedError(
            "near-duplicates-before-claim",
            "the deduplication has no finite stability: use exact deduplication, not near-duplicate removal",
        )
    if not 0 <= stability.caught <= stability.missed or stability.missed < 1:
        raise UsageError(
            f"stability is {stability.missed} missed, {stability.caught} caught; a missed secret changes at least 1 record, and "
            "a caught one no more than a missed one"
        )
