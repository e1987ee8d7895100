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
from tacit.privacy.accounting.replacement import Claim, Stability, counted, replacement_epsilon
from tacit.privacy.certificate import write_number
from tacit.privacy.confidentiality.account import (
    APART,
    Statement,
    Status,
    bayesian,
    common_assumptions,
    hides_the_record,
    indistinguishable,
    whom,
    worst_case,
)
from tacit.privacy.confidentiality.crt_paper import PaperNumber, paper_bayesian, paper_group
from tacit.privacy.confidentiality.misses import Labels, upper_share
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.privacy.rounded import upper

__all__ = ["TOKEN_BY_TOKEN", "ConfidentialityStatement", "Line", "Share", "statement_of_run", "training_steps"]

TOKEN_BY_TOKEN = (
    "Both policies mark a token, which is what stands between white space, from that token alone, and no private text made them; "
    "marked tokens in a row become one mask. The secret is whole tokens of one data point."
)
"""What a caught secret's leaving no trace rests on (docs/confidentiality.md, token by token)."""


@dataclass(frozen=True)
class Line:
    """One line of the statement.

    Args:
        kind, definition: which line, and which definition of the paper it is about.
        status: proved, measured or heuristic (docs/confidentiality.md).
        epsilon, delta: what is guaranteed; an infinite epsilon: nothing is.
        epsilon_missed, delta_missed: of a secret (or group) that is missed, its records in the private stream.
        epsilon_caught: at ``delta``, of one that the balanced policy catches wholly; only where the line tells them apart.
        sentence: what holds.
        assumption: what it rests on, in one sentence; ``assumptions`` has every detail.
        paper: the paper's own number, and why ours is another.
    """

    kind: Literal["worst-case", "screened", "bayesian"]
    definition: Literal["definition 2", "definition 3", "definition 4"]
    status: Status
    epsilon: float
    delta: float
    epsilon_missed: float
    delta_missed: float
    epsilon_caught: float | None
    sentence: str
    assumption: str
    assumptions: tuple[str, ...]
    paper: PaperNumber

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; infinity is a word."""
        caught = None if self.epsilon_caught is None else write_number(self.epsilon_caught)
        return dataclasses.asdict(self) | {
            "epsilon": write_number(self.epsilon),
            "epsilon_missed": write_number(self.epsilon_missed),
            "epsilon_caught": caught,
            "assumptions": list(self.assumptions),
            "paper": self.paper.to_dict(),
        }


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
        """Those that there are, in the order in which they should be read."""
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
        delta: of each line; below 1 / records. What a Bloom filter's deduplication may fail with is taken off beforehand.
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
    run = _Run((training, *others), delta, claim, stability, delta_2, confidence)
    worst = _worst_case(run)
    screened, drawn = (None, None) if gamma is None else (_screened(run, gamma), _bayesian(run, gamma))
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


@dataclass(frozen=True)
class _Run:
    """What all lines are computed from."""

    spends: tuple[Spend, ...]
    delta: float
    claim: Claim
    changed: Stability
    delta_2: float | Labels | None
    confidence: float

    @property
    def is_local(self) -> bool:
        """Whether a caught secret leaves no trace, which only a policy that labels each token by itself can say."""
        return self.changed.caught == 0

    def place(self) -> str:
        size = self.claim.group_size
        return (
            "the secret is in one data point" if size == 1 else f"the group's secrets are in at most {size} data points"
        )

    def coverage(self) -> str:
        if self.delta_2 is None:
            return "every record of the private corpus is in the private stream"
        return "the conservative policy marks the record of every secret that the balanced policy misses"

    def common(self) -> tuple[str, ...]:
        changed = (
            f"Masking one secret changes at most {counted(self.changed.missed, 'record')}, each a unit of the training"
        )
        return common_assumptions(
            self.claim,
            (
                f"{changed}, and {self.changed.caught} if the balanced policy catches it.",
                *((TOKEN_BY_TOKEN,) if self.is_local else ()),
            ),
        )

    def worst_case(self, claim: Claim) -> Statement:
        return worst_case(self.spends, self.delta, claim, self.changed, self.common(), self.delta_2 is None)


def _worst_case(run: _Run) -> Line:
    found, public = run.worst_case(run.claim), run.delta_2 is not None
    who = f"For {whom(run.claim)}, whatever the reader knows and whatever the screening missed,"
    if public:
        said = (
            f"{who} nothing is guaranteed: what both policies miss is in the public stream, trained on without noise."
        )
        assumption = "Nothing is assumed of the screening, so a missed secret can be in the public stream."
    else:
        said = indistinguishable(who, found.epsilon, run.delta)
        assumption = f"Assumed: {run.coverage()}, and {run.place()}; nothing is assumed of what the policies find."
    return Line(
        kind="worst-case",
        definition="definition 2" if run.claim.group_size == 1 else "definition 3",
        status="heuristic" if public else found.status,
        epsilon=math.inf if public else found.epsilon,
        delta=run.delta,
        epsilon_missed=found.epsilon,
        delta_missed=run.delta,
        epsilon_caught=None,
        sentence=said,
        assumption=assumption,
        assumptions=() if public else found.assumptions,
        paper=paper_group(run.spends, run.delta, run.claim, run.changed, public_stream=public),
    )


def _screened(run: _Run, gamma: float | Labels) -> Line:
    size, share = run.claim.group_size, upper_share("gamma", gamma, run.confidence)
    # Rounded up, so that a fixed secret is never taken for a tenth of one; 0.1 of 30 secrets are 3, in spite of the last digit.
    missed = min(size, math.ceil(size * share * (1 - 1e-12)))
    claim = dataclasses.replace(run.claim, missed=missed)
    if run.delta_2 is not None and upper_share("delta_2", run.delta_2, run.confidence) >= 1:
        return _unbounded(run, gamma, claim)
    found = run.worst_case(claim)
    caught = replacement_epsilon(run.spends, run.delta, size * run.changed.caught)
    if size == 1:
        which = f"which the balanced policy {'misses' if missed else 'catches'}"
        rest = f"A secret that it catches has epsilon {upper(caught)}; it misses at most a share {upper(share)} of mu."
        doubt = "gamma says how many secrets are missed, not whether this one is"
    else:
        which = f"of which the balanced policy misses at most {missed}"
        rest = f"A group that it catches wholly has epsilon {upper(caught)}."
        doubt = (
            f"at most {missed} of them are missed, which gamma, an average over mu, does not prove of a single group"
        )
    said = indistinguishable(f"For {whom(claim)}, {which}, whatever the reader knows,", found.epsilon, run.delta)
    return Line(
        kind="screened",
        definition="definition 2" if size == 1 else "definition 3",
        status=found.status if missed == size else "heuristic",
        epsilon=found.epsilon,
        delta=run.delta,
        epsilon_missed=replacement_epsilon(run.spends, run.delta, size * run.changed.missed),
        delta_missed=run.delta,
        epsilon_caught=caught,
        sentence=f"{said} {rest}",
        assumption=f"Assumed: {run.coverage()}, and {run.place()}; {doubt}.",
        assumptions=found.assumptions,
        paper=paper_group(run.spends, run.delta, claim, run.changed, gamma),
    )


def _unbounded(run: _Run, gamma: float | Labels, claim: Claim) -> Line:
    """Of a secret that one policy misses, where nobody bounds how often the other one misses it too."""
    return Line(
        kind="screened",
        definition="definition 2" if claim.group_size == 1 else "definition 3",
        status="heuristic",
        epsilon=math.inf,
        delta=run.delta,
        epsilon_missed=math.inf,
        delta_missed=run.delta,
        epsilon_caught=None,
        sentence=f"For {whom(claim)}, nothing is guaranteed: what both policies miss is in the public stream, trained on "
        "without noise, and nothing bounds how many secrets that are.",
        assumption="Nothing is assumed of what both policies miss: delta_2 is 1.",
        assumptions=(),
        paper=paper_group(run.spends, run.delta, claim, run.changed, gamma),
    )


def _bayesian(run: _Run, gamma: float | Labels) -> Line:
    size = run.claim.group_size
    both = 0.0 if run.delta_2 is None else min(1.0, size * upper_share("delta_2", run.delta_2, run.confidence))
    missing = min(1.0, size * upper_share("gamma", gamma, run.confidence))
    arguments = (run.spends, run.delta, gamma, run.delta_2)
    found = None
    if both < run.delta:
        found = bayesian(*arguments, run.confidence, run.claim, run.changed, run.common())
    secret, it = ("the secret is", "it") if size == 1 else ("the group's secrets are", "some of them")
    both_miss = f"both policies miss {it} with probability {upper(both)} at most"
    public = run.coverage() if run.delta_2 is None else both_miss
    if run.is_local:
        how = "whole tokens, drawn from mu independently of all other text and not known to the reader, who may know all of that"
    elif hides_the_record(run.changed, run.delta_2):
        how = "drawn from mu with the record that holds it, neither known to the reader, who may know all other records"
    else:
        how = "drawn from mu and not known to the reader, who may know all else"
    return Line(
        kind="bayesian",
        definition="definition 4",
        status="heuristic" if found is None else found.status,
        epsilon=math.inf if found is None else found.epsilon,
        delta=run.delta,
        epsilon_missed=math.inf if found is None else found.epsilon_missed,
        delta_missed=0.0 if found is None else found.delta_missed,
        epsilon_caught=None,
        sentence=f"For {whom(run.claim)}, drawn from mu, nothing is guaranteed: both policies may miss {it} with probability "
        f"{both:.4g}, which is not below delta {run.delta:.3g}."
        if found is None
        else found.sentence + (_amplified(found, missing) if run.is_local else ""),
        assumption=f"Assumed: {secret} {how}, the balanced policy "
        f"misses {it} with probability {upper(missing)} at most, {public}, and {run.place()}.",
        assumptions=() if found is None else found.assumptions,
        paper=paper_bayesian(*arguments, run.claim, run.changed),
    )


def _amplified(found: Statement, gamma: float) -> str:
    """How the epsilon of theorem 8.3 comes about, and whom it says nothing of."""
    return (
        f" This is log(1 + {upper(gamma)} (e^{upper(found.epsilon_missed)} - 1)), an average over mu (theorem 8.3): of a secret that "
        "the reader knows it says nothing, but the screened line does."
    )
