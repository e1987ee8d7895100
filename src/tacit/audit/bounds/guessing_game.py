"""Exposure as a guessing game: secrets drawn from k candidates, and how many of them the attacker puts first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from tacit.audit.bounds.bound import Bound
from tacit.audit.bounds.evidence import Ranks
from tacit.audit.bounds.guesses import refuted_epsilon
from tacit.errors import UsageError
from tacit.privacy.checks import require_whole

__all__ = ["GuessingGame"]


@dataclass(frozen=True)
class GuessingGame(Bound[Ranks]):
    """A secret drawn from k candidates is guessed with probability at most e^epsilon / (e^epsilon + k - 1), for delta 0.

    Proof, also for many secrets in one run and with delta: `tacit.audit.bounds.guesses`. Its neighbours are two values of one
    secret, so **the guarantee that is tested is the one under replacement** of the units that hold it; an epsilon for adding or
    removing is about half of that. The proof needs independent secrets, in different units.

    Args:
        candidates: k; each secret is ranked among exactly those that it was drawn from.
        units: how many units hold one secret. Epsilon is that of one unit: a group of c has c epsilon, and a larger delta.

    Raises:
        UsageError: fewer than 2 candidates, or no unit.
    """

    candidates: int
    units: int = 1

    name: ClassVar[str] = "guessing-game"
    reads: ClassVar[type] = Ranks

    def __post_init__(self) -> None:
        require_whole("the number of candidates", self.candidates, at_least=2)
        require_whole("the number of units that hold a secret", self.units, at_least=1)

    def size(self, evidence: Ranks) -> int:
        return len(evidence.ranks_T)

    def at_level(self, evidence: Ranks, delta: float, level: float) -> tuple[float, Mapping[str, int | float]]:
        if (evidence.ranks_T > self.candidates).any():
            raise UsageError("a rank of the guessing game is above the number of candidates")
        size, found = self.size(evidence), int(np.count_nonzero(evidence.ranks_T == 1))
        epsilon = refuted_epsilon(found, size, size, delta, level, self.candidates, self.units)
        return epsilon, {"secrets": size, "found": found, "candidates": self.candidates, "units": self.units}

    def perfect(self, size: int, delta: float, level: float) -> float:
        return refuted_epsilon(size, size, size, delta, level, self.candidates, self.units)
