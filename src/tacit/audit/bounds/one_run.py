"""One run (Steinke, Nasr and Jagielski 2023, arXiv 2305.08846): what a single training shows, with nothing assumed but the coins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tacit.audit.bounds.evidence import Scores
from tacit.audit.bounds.guesses import refuted_epsilon
from tacit.audit.bounds.guessing import GuessingBound

__all__ = ["OneRun"]


@dataclass(frozen=True)
class OneRun(GuessingBound):
    """The right guesses of one run are at most those of randomised response, and a term for delta (`tacit.audit.bounds.guesses`)."""

    name: ClassVar[str] = "one-run"
    reads: ClassVar[type] = Scores

    def of_guesses(self, right: int, guesses: int, size: int, delta: float, level: float) -> float:
        return refuted_epsilon(right, guesses, size, delta, level)
