"""The confidentiality account of confidentially redacted training (CRT; Zhao, Li and Wang 2022), corrected.

The claim compares two worlds: the corpus D, and D' in which a secret is replaced by <MASK> (definition 2). Two statements:

    worst case   (epsilon at delta) for r *replaced* records: the secret's record, times what deduplication changes with it;
    Bayesian     the secret is drawn from mu, of which the balanced policy misses at most gamma and the conservative one
                 delta_2: first epsilon' at delta' = (delta - delta_2) / gamma, then log(1 + gamma (e^epsilon' - 1)).

Neither is the DP epsilon of the corpus, and neither is added to it: all are computed from the same spends. Proofs, and where
the paper differs, are in docs/confidentiality.md; r and what it costs, in replacement.py; gamma and delta_2, in misses.py; the
paper's numbers, in crt_paper.py.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tacit.errors import UsageError
from tacit.privacy.accounting.replacement import (
    Claim,
    Screening,
    Stability,
    counted,
    replacement_epsilon,
    screening_assumptions,
    stability,
)
from tacit.privacy.checks import require_fraction
from tacit.privacy.confidentiality.misses import Labels, amplified_epsilon, missed_delta, upper_share
from tacit.privacy.events import Spend
from tacit.privacy.rounded import upper
from tacit.privacy.strict_json import write_number

__all__ = [
    "APART",
    "Confidentiality",
    "Statement",
    "Status",
    "bayesian",
    "common_assumptions",
    "confidentiality",
    "indistinguishable",
    "whom",
    "worst_case",
]

Status = Literal["proved", "measured", "heuristic"]

APART = "This is not the DP epsilon of the corpus and is never added to it; both come from the same spends."


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
    require_fraction("confidence", confidence)
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
        steps=(
            f"epsilon = {upper(found)} at delta {upper(delta, '.3g')}, {counted(records, 'record')} replaced",
            exempt,
        ),
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
        last = f"epsilon = log(1 + {upper(missing)} (e^{upper(epsilon_missed)} - 1)) = {upper(found)}"
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
        sentence=indistinguishable(f"For {whom(claim)}, {drawn(changed, delta_2)},", found, delta),
        steps=(
            f"epsilon' = {upper(epsilon_missed)} at delta' = {upper(delta_missed, '.3g')}, {counted(records, 'record')} replaced",
            last,
        ),
        assumptions=(*_share_assumptions(gamma, delta_2, confidence, changed, size), *common),
    )


def hides_the_record(changed: Stability, delta_2: float | Labels | None) -> bool:
    """Whether the Bayesian statement needs a reader who does not know the record that holds the secret either.

    A policy that reads context misses another share of mu in each record, and delta_2 is the mean over records
    (docs/confidentiality.md, caught without a trace): one that labels each token by itself has no trace, and one share for all.
    """
    return changed.caught > 0 and delta_2 is not None


def drawn(changed: Stability, delta_2: float | Labels | None) -> str:
    """How the secret of the Bayesian statement came about, and what the reader does not know."""
    if hides_the_record(changed, delta_2):
        return "drawn from mu together with the record that holds it, neither otherwise known to the reader"
    return "drawn from mu and not otherwise known to the reader"


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
        f"seen in the release by at most a factor of e^{upper(found)}, give or take {upper(delta, '.3g')}."
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


def _share_assumptions(
    gamma: float | Labels, delta_2: float | Labels | None, confidence: float, changed: Stability, size: int
) -> tuple[str, ...]:
    lines = ["The secret is drawn from mu; the reader knows mu and everything else, but not the secret."]
    if changed.caught == 0:
        lines.append(
            "It is drawn independently of everything else: not even the record that holds it tells more than mu does."
        )
        if size > 1:
            lines.append("Each of these data points holds one secret of the group.")
    if hides_the_record(changed, delta_2):
        lines = [
            "The secret and the record that holds it are drawn from mu together, independently of all other records, as those that "
            "were labelled; the reader knows mu and all other records, but neither of these. In a record that the reader knows, "
            "both policies may miss any share of the secrets."
        ]
    for name, policy, share in (("gamma", "balanced", gamma), ("delta_2", "conservative", delta_2)):
        if isinstance(share, Labels):
            lines.append(
                f"{name} <= {upper(share.upper(confidence))} with confidence {confidence:g}: the {policy} policy missed "
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
