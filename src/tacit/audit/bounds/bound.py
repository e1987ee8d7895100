"""What a lower bound is: a statement that holds with a stated confidence, and the family's common part.

A member says how it gets epsilon at one *level* (1 - confidence), from evidence and for a perfect attack. The rest is here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Generic, TypeVar

from tacit.audit.bounds.evidence import Ranks, Scores
from tacit.errors import UsageError
from tacit.privacy.checks import require_fraction, require_positive, require_whole
from tacit.privacy.events.base import Relation

__all__ = ["MOST_COINS", "Bound", "LowerBound", "largest"]

EvidenceT = TypeVar("EvidenceT", Scores, Ranks)

MOST_COINS = 2**20
"""More audit examples than this are not looked for."""


@dataclass(frozen=True)
class LowerBound:
    """A lower bound: with probability ``confidence`` no (epsilon', delta) guarantee with a smaller epsilon' is true.

    Args:
        bound: the member of `BOUNDS`.
        epsilon: the lower bound; 0 says nothing.
        delta, relation: of the guarantee that is tested.
        confidence: over the coins and the training's noise, before anybody looked.
        capacity: the most that an attack on as many examples could have shown.
        model_based: the trade-off curve is assumed to be of one family: a bound on epsilon within that family alone.
        assumes: what must be true besides the coins; "" for nothing.
        counted: what was counted, by name.
    """

    bound: str
    epsilon: float
    delta: float
    relation: Relation
    confidence: float
    capacity: float
    model_based: bool
    assumes: str
    counted: Mapping[str, int | float] = field(default_factory=dict)


class Bound(ABC, Generic[EvidenceT]):
    """How to get a lower bound from evidence. Members are frozen dataclasses; their options are chosen before anybody looks."""

    name: ClassVar[str]
    reads: ClassVar[type]
    """`Scores` or `Ranks`."""
    model_based: ClassVar[bool] = False
    assumes: ClassVar[str] = ""
    needs_delta: ClassVar[bool] = False
    """Whether it says nothing at delta 0, and is refused there."""

    @abstractmethod
    def size(self, evidence: EvidenceT) -> int:
        """How many examples, or secrets, there are."""

    @abstractmethod
    def at_level(self, evidence: EvidenceT, delta: float, level: float) -> tuple[float, Mapping[str, int | float]]:
        """(epsilon, what was counted): the truth is below epsilon with probability at most ``level``."""

    @abstractmethod
    def perfect(self, size: int, delta: float, level: float) -> float:
        """The bound that an attack which is always right would give."""

    def lower_bound(self, evidence: EvidenceT, delta: float, confidence: float = 0.95) -> LowerBound:
        """The bound with its capacity.

        Raises:
            UsageError: delta is not in [0, 1) or not for this bound, confidence is not in (0, 1), or the evidence lacks a part.
        """
        self._check(delta, confidence)
        epsilon, counted = self.at_level(evidence, delta, 1 - confidence)
        return LowerBound(
            bound=self.name,
            epsilon=epsilon,
            delta=delta,
            relation=evidence.relation,
            confidence=confidence,
            capacity=self.capacity(self.size(evidence), delta, confidence),
            model_based=self.model_based,
            assumes=self.assumes,
            counted=counted,
        )

    def capacity(self, size: int, delta: float, confidence: float = 0.95) -> float:
        """What a perfect attack on ``size`` examples shows: a claim above it cannot be contradicted, whatever the model.

        Raises:
            UsageError: as `lower_bound`, or ``size`` is below 1.
        """
        self._check(delta, confidence)
        require_whole("the number of audit examples", size, at_least=1)
        return self.perfect(size, delta, 1 - confidence)

    def coins_needed(self, epsilon: float, delta: float, confidence: float = 0.95) -> int:
        """The fewest examples with a capacity of at least ``epsilon``.

        Raises:
            UsageError: as `capacity`; epsilon is not positive, or more than `MOST_COINS` would be needed.
        """
        self._check(delta, confidence)
        require_positive("epsilon", epsilon)
        level, enough = 1 - confidence, 1
        while self.perfect(enough, delta, level) < epsilon:
            enough *= 2
            if enough > MOST_COINS:
                raise UsageError(
                    f"no audit of at most {MOST_COINS} examples can contradict epsilon {epsilon:g} by {self.name}"
                )
        too_few = enough // 2
        while enough - too_few > 1:
            middle = (too_few + enough) // 2
            too_few, enough = (middle, enough) if self.perfect(middle, delta, level) < epsilon else (too_few, middle)
        return enough

    def _check(self, delta: float, confidence: float) -> None:
        require_fraction("confidence", confidence)
        if not 0 <= delta < 1:
            raise UsageError(f"delta is {delta!r}; it must be at least 0 and below 1")
        if self.needs_delta and delta == 0:
            raise UsageError(
                f"the bound {self.name} needs a delta above 0: no Gaussian mechanism has a finite epsilon at delta 0"
            )


def largest(is_refuted: Callable[[float], bool], low: float, high: float) -> float:
    """A number next to where a condition that is true at ``low`` stops to be true, from below; within 1e-9 of (high - low)."""
    for _ in range(math.ceil(math.log2(1e9))):
        middle = (low + high) / 2
        low, high = (middle, high) if is_refuted(middle) else (low, middle)
    return low
