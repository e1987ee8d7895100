"""What a lower bound says of a proven epsilon. Never "pass": an attack that finds nothing proves nothing."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from tacit.audit.bounds.bound import Bound, LowerBound
from tacit.audit.bounds.evidence import Ranks, Scores
from tacit.errors import UsageError
from tacit.privacy.events.base import Relation

__all__ = ["Claim", "Verdict", "has_power", "judge"]

EvidenceT = TypeVar("EvidenceT", Scores, Ranks)


@dataclass(frozen=True)
class Claim:
    """The guarantee that was proved; epsilon is infinite where none was.

    Raises:
        UsageError: epsilon is negative or no number.
    """

    epsilon: float
    delta: float
    relation: Relation

    def __post_init__(self) -> None:
        if not self.epsilon >= 0:
            raise UsageError(f"the proven epsilon is {self.epsilon!r}; it must be at least 0")


class Verdict(StrEnum):
    """The verdict of one audit.

    - NOT_CONTRADICTED: the attack could have contradicted the claim, and did not.
    - INCONCLUSIVE: a perfect attack could not have contradicted it; or the bound is above it, but rests on an assumption.
    - VIOLATED: the lower bound is above the proven epsilon.
    - UNDECIDED: the attack finds nothing in its positive control either.
    """

    NOT_CONTRADICTED = "not contradicted"
    INCONCLUSIVE = "inconclusive"
    VIOLATED = "violated"
    UNDECIDED = "undecided: no power"


def has_power(bound: Bound[EvidenceT], control: EvidenceT, delta: float, confidence: float = 0.95) -> bool:
    """Whether the attack finds its positive control (the same training without noise, or without DP): its epsilon is above 0.

    Chance is epsilon 0, so this is the test that the control's interval excludes chance.

    Raises:
        UsageError: as `Bound.lower_bound`.
    """
    return bound.lower_bound(control, delta, confidence).epsilon > 0


def judge(bound: LowerBound, claim: Claim, powerful: bool, granted: bool = False) -> Verdict:
    """What the bound says of the claim. A violation needs no control.

    Args:
        bound: the one that was chosen before anybody looked.
        powerful: `has_power` of the same attack and bound.
        granted: whether `LowerBound.assumes` is known to hold here. Without it such a bound contradicts nothing.

    Raises:
        UsageError: the bound is for another delta or relation than the claim.
    """
    if (bound.delta, bound.relation) != (claim.delta, claim.relation):
        raise UsageError(
            f"the lower bound is for delta {bound.delta:g} under {bound.relation}, the claim for delta {claim.delta:g} "
            f"under {claim.relation}; they cannot be compared"
        )
    if bound.epsilon > claim.epsilon:
        return Verdict.VIOLATED if granted or not bound.assumes else Verdict.INCONCLUSIVE
    if not powerful:
        return Verdict.UNDECIDED
    return Verdict.INCONCLUSIVE if bound.capacity < claim.epsilon else Verdict.NOT_CONTRADICTED
