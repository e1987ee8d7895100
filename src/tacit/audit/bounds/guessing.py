"""Guesses from scores: the highest scores are guessed in, the lowest out, and the rest is left open.

*The number of guesses.* A number that is chosen after seeing which guesses are right makes the bound wrong. So several numbers
are fixed beforehand, as shares of m, each is tested at level / (how many numbers), and the best result counts (Bonferroni).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tacit.audit.bounds.bound import Bound
from tacit.audit.bounds.evidence import Scores
from tacit.errors import UsageError

__all__ = ["GuessingBound", "right_guesses"]


@dataclass(frozen=True)
class GuessingBound(Bound[Scores]):
    """A bound from a number of right guesses.

    Args:
        shares: guesses over examples, in (0, 1]. Few guesses are surest, and only many can show a large epsilon.

    Raises:
        UsageError: no share, or one that is not in (0, 1].
    """

    shares: tuple[float, ...] = (0.1, 0.3, 1.0)

    def __post_init__(self) -> None:
        if not self.shares or not all(0 < share <= 1 for share in self.shares):
            raise UsageError("the shares of examples that are guessed must be numbers above 0 and at most 1")

    @abstractmethod
    def of_guesses(self, right: int, guesses: int, size: int, delta: float, level: float) -> float:
        """The epsilon that ``right`` of ``guesses`` refute, among ``size`` examples."""

    def numbers(self, size: int) -> list[int]:
        """The different numbers of guesses for so many examples."""
        return sorted({max(1, round(share * size)) for share in self.shares})

    def size(self, evidence: Scores) -> int:
        return len(evidence.scores_m)

    def at_level(self, evidence: Scores, delta: float, level: float) -> tuple[float, Mapping[str, int | float]]:
        numbers, size = self.numbers(self.size(evidence)), self.size(evidence)
        found = [(guesses, right_guesses(evidence, guesses)) for guesses in numbers]
        epsilons = [self.of_guesses(right, guesses, size, delta, level / len(numbers)) for guesses, right in found]
        best = int(np.argmax(epsilons))
        return epsilons[best], {"guesses": found[best][0], "right": found[best][1], "numbers tried": len(numbers)}

    def perfect(self, size: int, delta: float, level: float) -> float:
        numbers = self.numbers(size)
        return max(self.of_guesses(guesses, guesses, size, delta, level / len(numbers)) for guesses in numbers)


def right_guesses(evidence: Scores, guesses: int) -> int:
    """How many guesses are right: the upper half (one more if odd) in, the others out.

    Where a tie must be broken the wrong ones are guessed first: no fewer can be right, whatever the order of the examples.
    """
    into, out = (guesses + 1) // 2, guesses // 2
    return _right(evidence.scores_m, evidence.included_m, into) + _right(-evidence.scores_m, ~evidence.included_m, out)


def _right(scores_m: np.ndarray, is_right_m: np.ndarray, taken: int) -> int:
    if taken == 0:
        return 0
    last = np.partition(scores_m, -taken)[-taken]
    above_m, tied_m = scores_m > last, scores_m == last
    wrong_tied = np.count_nonzero(tied_m & ~is_right_m)
    still = taken - np.count_nonzero(above_m)
    return int(np.count_nonzero(above_m & is_right_m) + max(0, still - wrong_tied))
