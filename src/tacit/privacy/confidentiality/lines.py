"""The three lines of what a run can say of a secret: the worst case, what was screened, and a secret that is drawn.

Each is computed from what all share, a `Basis`: what was spent, the claim, and how many records one masked secret changes.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal

from tacit.privacy.accounting.replacement import Claim, Stability, counted, replacement_epsilon
from tacit.privacy.confidentiality.account import (
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
from tacit.privacy.events import Spend
from tacit.privacy.rounded import upper
from tacit.privacy.strict_json import write_number

__all__ = ["TOKEN_BY_TOKEN", "Basis", "Line", "bayesian_line", "screened_line", "worst_case_line"]

TOKEN_BY_TOKEN = (
    "Both policies mark a token, which is what stands between white space, from that token alone, and no private text made them; "
    "marked tokens in a row become one mask. The secret is whole tokens of one data point."
)
"""The assumption under which a secret that is caught leaves no trace (docs/confidentiality.md, token by token)."""


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
class Basis:
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
        """Where the secret is, in words."""
        size = self.claim.group_size
        return (
            "the secret is in one data point" if size == 1 else f"the group's secrets are in at most {size} data points"
        )

    def coverage(self) -> str:
        """What is covered of the private stream, in words."""
        if self.delta_2 is None:
            return "every record of the private corpus is in the private stream"
        return "the conservative policy marks the record of every secret that the balanced policy misses"

    def common(self) -> tuple[str, ...]:
        """Assumptions of all lines."""
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
        """What holds where every secret of the claim was missed."""
        return worst_case(self.spends, self.delta, claim, self.changed, self.common(), self.delta_2 is None)


def worst_case_line(run: Basis) -> Line:
    """Every secret was missed; infinite where a missed one can be in the public stream."""
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


def screened_line(run: Basis, gamma: float | Labels) -> Line:
    """The line of the screened text, with the misses that were measured, or stated."""
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
        known = (
            f"measured, with confidence {run.confidence:g}" if isinstance(gamma, Labels) else "as stated, not measured"
        )
        rest = f"A secret that it catches has epsilon {upper(caught)}; it misses at most a share {upper(share)} of mu ({known})."
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


def _unbounded(run: Basis, gamma: float | Labels, claim: Claim) -> Line:
    """The line of a secret that one policy misses, where nobody bounds how often the other one misses it too."""
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


def bayesian_line(run: Basis, gamma: float | Labels) -> Line:
    """The secret is drawn, so that gamma amplifies."""
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
