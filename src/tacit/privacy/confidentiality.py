"""The confidentiality account of confidentially redacted training (CRT; Zhao, Li and Wang 2022), corrected.

The claim compares two worlds: the corpus D, and D' in which a secret is replaced by <MASK> (definition 2). Two statements:

    worst case   (epsilon at delta) for r *replaced* records: the secret's record, times what deduplication changes with it;
    Bayesian     the secret is drawn from mu, of which the balanced policy misses at most gamma and the conservative one
                 delta_2: first epsilon' at delta' = (delta - delta_2) / gamma, then log(1 + gamma (e^epsilon' - 1)).

Neither is the DP epsilon of the corpus, and neither is added to it: all are computed from the same spends. Proofs, and where
the paper differs, are in docs/confidentiality.md; r and what it costs, in replacement.py; the paper's numbers, in crt_paper.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from scipy import special

from tacit.errors import UsageError
from tacit.privacy.certificate import write_number
from tacit.privacy.events import Spend
from tacit.privacy.replacement import (
    Claim,
    Screening,
    Stability,
    counted,
    replacement_epsilon,
    screening_assumptions,
    stability,
)

__all__ = [
    "APART",
    "Claim",
    "Confidentiality",
    "Labels",
    "Screening",
    "Stability",
    "Statement",
    "Status",
    "amplified_epsilon",
    "bayesian",
    "check_share",
    "common_assumptions",
    "confidentiality",
    "indistinguishable",
    "labels_needed",
    "missed_delta",
    "replacement_epsilon",
    "stability",
    "upper_share",
    "whom",
    "worst_case",
]

Status = Literal["proved", "measured", "heuristic"]

APART = "This is not the DP epsilon of the corpus and is never added to it; both come from the same spends."


# What the policies miss --------------------------------------------------------------------------------------------------


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
        _check_confidence(confidence)
        if self.missed == self.labelled:
            return 1.0
        return float(special.betaincinv(self.missed + 1, self.labelled - self.missed, confidence))


def labels_needed(share: float, confidence: float = 0.95) -> int:
    """How many labels without a single miss bound the missed share by ``share``."""
    _check_confidence(confidence)
    if not 0 < share < 1:
        raise UsageError(f"share is {share!r}; it must be above 0 and below 1")
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


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise UsageError(f"confidence is {confidence!r}; it must be above 0 and below 1")


def amplified_epsilon(found: float, gamma: float) -> float:
    """log(1 + gamma (e^epsilon' - 1)), the epsilon of proposition 6; zero when nothing is missed."""
    if found > 700 and gamma > 0:
        return found + math.log(gamma) + 1e-12  # e^found is beyond a double, and the 1 - gamma beside it below one
    return math.log1p(gamma * math.expm1(found)) if gamma > 0 else 0.0


# The two statements ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    """One statement: its numbers, the sentence, what it assumes, and the steps by which epsilon was found.

    ``records`` were replaced at ``delta_missed`` for ``epsilon_missed``; the worst case has no gamma. ``confidence`` is that
    with which all bounds from labels hold together.
    """

    kind: Literal["worst-case", "bayesian"]
    status: Status
    epsilon: float
    delta: float
    records: int
    epsilon_missed: float
    delta_missed: float
    gamma: float | None
    delta_2: float
    confidence: float | None
    sentence: str
    steps: tuple[str, ...]
    assumptions: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; infinity is a word."""
        values = dataclasses.asdict(self)
        return values | {name: write_number(values[name]) for name in ("epsilon", "epsilon_missed")}


@dataclass(frozen=True)
class Confidentiality:
    """The account: the worst case first, then the Bayesian statement where gamma was given."""

    worst_case: Statement
    bayesian: Statement | None
    stability: Stability
    apart: str = APART

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "worst_case": self.worst_case.to_dict(),
            "bayesian": None if self.bayesian is None else self.bayesian.to_dict(),
            "stability": dataclasses.asdict(self.stability),
            "apart": self.apart,
        }


def confidentiality(
    spends: Sequence[Spend],
    delta: float,
    *,
    gamma: float | Labels | None = None,
    delta_2: float | Labels | None = None,
    confidence: float = 0.95,
    screening: Screening | None = None,
    claim: Claim | None = None,
) -> Confidentiality:
    """The confidentiality of a training whose private stream, and all else that read private records, cost ``spends``.

    Args:
        spends: everything in the ledger (`Ledger.spends`), whatever its relation: it is accounted again under replacement.
        delta: of each statement.
        gamma: share of the secrets that the balanced policy misses; None: no Bayesian statement. A bare number is taken at
            its word, which makes the statement a heuristic.
        delta_2: share that the conservative policy misses; None: every record is in the private stream.
        confidence: of each upper bound from labels.
        screening: how the corpus was screened.
        claim: whom the statement is about.

    Raises:
        UsageError: a number is impossible, or nothing can be stated with these.
        RefusedError: the screening has no proof.
    """
    screening, claim = screening or Screening(), claim or Claim()
    _check_confidence(confidence)
    changed = stability(screening, claim.all_copies)
    common = common_assumptions(claim, screening_assumptions(screening, changed))
    worst = worst_case(spends, delta, claim, changed, common, delta_2 is None)
    if gamma is None:
        if delta_2 is not None:
            raise UsageError(
                "delta_2 alone states nothing: give gamma, the share that the balanced policy misses, as well"
            )
        return Confidentiality(worst, None, changed)
    found = bayesian(spends, delta, gamma, delta_2, confidence, claim, changed, common)
    return Confidentiality(worst, found, changed)


def worst_case(
    spends: Sequence[Spend], delta: float, claim: Claim, changed: Stability, common: tuple[str, ...], everything: bool
) -> Statement:
    """The statement of `confidentiality` for given records a secret; ``everything`` is in the private stream, or what is marked."""
    records = claim.records(changed)
    found = replacement_epsilon(spends, delta, records)
    exempt = f"a secret that the balanced policy catches changes {counted(changed.caught, 'record')}" + (
        ": epsilon 0" if changed.caught == 0 else ": being caught does not exempt it"
    )
    coverage = (
        "Every record of the private corpus is in the private stream, trained with DP."
        if everything
        else "The conservative policy marks the record of the secret. Of a secret that both policies miss nothing is said."
    )
    group = () if claim.missed is None else (f"The balanced policy misses at most {claim.missed} of the group.",)
    return Statement(
        kind="worst-case",
        status="heuristic" if math.isinf(found) else "proved",
        epsilon=found,
        delta=delta,
        records=records,
        epsilon_missed=found,
        delta_missed=delta,
        gamma=None,
        delta_2=0.0,
        confidence=None,
        sentence=indistinguishable(f"For {whom(claim)}, whatever the reader knows,", found, delta),
        steps=(f"epsilon = {found:.4g} at delta {delta:.3g}, {counted(records, 'record')} replaced", exempt),
        assumptions=(coverage, *group, *common),
    )


def bayesian(
    spends: Sequence[Spend],
    delta: float,
    gamma: float | Labels,
    delta_2: float | Labels | None,
    confidence: float,
    claim: Claim,
    changed: Stability,
    common: tuple[str, ...],
) -> Statement:
    """The statement of `confidentiality` for given records a secret."""
    size = claim.group_size
    used = [share for share in (None if changed.caught else gamma, delta_2) if share is not None]
    # Some secret of a group is missed with probability at most size * gamma, however the misses depend on each other.
    missing = min(1.0, size * upper_share("gamma", gamma, confidence))
    both = 0.0 if delta_2 is None else min(1.0, size * upper_share("delta_2", delta_2, confidence))
    records = size * changed.missed
    found, epsilon_missed, delta_missed = _bayesian_epsilon(spends, delta, missing, both, records, changed)
    if changed.caught:
        last = f"no amplification: a caught secret still changes {counted(changed.caught, 'record')}"
    else:
        last = f"epsilon = log(1 + {missing:.4g} (e^{epsilon_missed:.4g} - 1)) = {found:.4g}"
    bounds = sum(isinstance(share, Labels) for share in used)
    status: Status = "proved" if not used else "measured" if bounds == len(used) else "heuristic"
    return Statement(
        kind="bayesian",
        status="heuristic" if math.isinf(found) else status,
        epsilon=found,
        delta=delta,
        records=records,
        epsilon_missed=epsilon_missed,
        delta_missed=delta_missed,
        gamma=missing,
        delta_2=both,
        confidence=max(0.0, 1 - bounds * (1 - confidence)) if bounds else None,
        sentence=indistinguishable(
            f"For {whom(claim)}, drawn from mu and not otherwise known to the reader,", found, delta
        ),
        steps=(
            f"epsilon' = {epsilon_missed:.4g} at delta' = {delta_missed:.3g}, {counted(records, 'record')} replaced",
            last,
        ),
        assumptions=(*_share_assumptions(gamma, delta_2, confidence), *common),
    )


def _bayesian_epsilon(
    spends: Sequence[Spend], delta: float, gamma: float, delta_2: float, records: int, changed: Stability
) -> tuple[float, float, float]:
    """(epsilon, epsilon', delta'); without amplification when a caught secret leaves a trace."""
    if gamma == 0 and delta_2 < delta and not changed.caught:
        return 0.0, 0.0, delta - delta_2
    left = missed_delta(delta, 1.0 if changed.caught else gamma, delta_2)
    found = replacement_epsilon(spends, left, records)
    return (found if changed.caught else amplified_epsilon(found, gamma)), found, left


def whom(claim: Claim) -> str:
    """The claim's secrets, in words."""
    one = "one secret" if claim.group_size == 1 else f"a group of secrets in at most {claim.group_size} data points"
    return one + (" in all copies of its sentence" if claim.all_copies else "")


def indistinguishable(who: str, found: float, delta: float) -> str:
    """Definition 2 in one sentence, which begins with ``who``."""
    if math.isinf(found):
        return f"{who} nothing is guaranteed: a release without a finite epsilon is among the spends."
    return (
        f"{who} training on the secret and training on <MASK> in its place differ in the probability of anything that can be "
        f"seen in the release by at most a factor of e^{found:.4g}, give or take {delta:.3g}."
    )


def common_assumptions(claim: Claim, screening: tuple[str, ...]) -> tuple[str, ...]:
    """What both statements rest on, given what is assumed of the screening."""
    once = " (copies counted once)" if claim.all_copies else ""
    return (
        f"The secret, or the group, occurs in at most {counted(claim.group_size, 'data point')}{once}.",
        *screening,
        "Every record that holds <MASK> is in the private stream; text is split into data points before it is screened.",
        "Steps, sampling, noise, clip and normaliser were fixed without looking at the private text.",
    )


def _share_assumptions(gamma: float | Labels, delta_2: float | Labels | None, confidence: float) -> tuple[str, ...]:
    lines = ["The secret is drawn from mu; the reader knows mu and everything else, but not the secret."]
    for name, policy, share in (("gamma", "balanced", gamma), ("delta_2", "conservative", delta_2)):
        if isinstance(share, Labels):
            lines.append(
                f"{name} <= {share.upper(confidence):.4g} with confidence {confidence:g}: the {policy} policy missed "
                f"{share.missed} of {share.labelled} secrets, drawn independently from mu and labelled rightly."
            )
        elif share is not None:
            lines.append(f"{name} = {share:.4g}: the {policy} policy misses this share of mu. Nothing was measured.")
    if delta_2 is None:
        lines.append("Every record of the private corpus is in the private stream (delta_2 = 0).")
    lines.append(
        "A secret is caught only if redaction leaves the very text in which it is masked; anything else is a miss."
    )
    return tuple(lines)
