"""One run under f-differential privacy (Mahloujifar, Melis and Chaudhuri 2024, arXiv 2410.22235), for Gaussian trade-off curves.

m examples with fair coins, exactly r guesses, C of them right. g(y) = Phi(Phi^-1(y) - mu): an event of probability y has at least
g(y) under a neighbour of a mu-GDP mechanism. Take the event "example i is guessed right, and at least l - 1 of the others": with
the ith coin turned it is "guessed wrong, and at least l - 1 are right". Averaged over coins and examples, g being convex:

    E[(r - C) 1(C >= l - 1)] / m  >=  g( E[C 1(C >= l)] / m )       for l = 1..r.

With P_l = P[C >= l] and U_l = P_l + ... + P_r the two sides are ((r - l + 1) P_(l-1) - U_l) / m and g((l P_l + U_(l+1)) / m). So

    P_(l-1)  >=  (U_l + m g((l P_l + U_(l+1)) / m)) / (r - l + 1),          P_(l-1) >= P_l.

If P[C >= v] were at least the level, then P_v >= level, and going down from P_(v+1) = ... = P_r = 0 with equality gives the
smallest P_l that can be, one after the other: the right sides grow with every P that is already there. P_0 above 1 is impossible,
which refutes mu. This is the paper's recursion with another proof, and its published code gives the same numbers
(tests/audit/test_bounds_one_run_fdp.py).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

from scipy import special

from tacit.audit.bounds.bound import largest
from tacit.audit.bounds.evidence import Scores
from tacit.audit.bounds.guessing import GuessingBound
from tacit.audit.bounds.tradeoff import gaussian_epsilon

__all__ = ["OneRunFdp", "least_total", "refuted_mu"]


@dataclass(frozen=True)
class OneRunFdp(GuessingBound):
    """A lower bound on mu from the right guesses of one run, and from it on epsilon at delta."""

    name: ClassVar[str] = "one-run-f-dp"
    reads: ClassVar[type] = Scores
    model_based: ClassVar[bool] = True
    assumes: ClassVar[str] = "the trade-off curve is that of a Gaussian mechanism"
    needs_delta: ClassVar[bool] = True

    def of_guesses(self, right: int, guesses: int, size: int, delta: float, level: float) -> float:
        return gaussian_epsilon(refuted_mu(right, guesses, size, level), delta)


def least_total(right: int, guesses: int, size: int, mu: float, level: float) -> float:
    """P_0 if P[C >= right] = ``level`` under mu-GDP; above 1 (and not computed to its end) it is impossible."""
    reached, above = level, 0.0  # P_l and U_(l+1)
    for count in range(right, 0, -1):
        counted = (count * reached + above) / size
        above += reached
        least = (above + size * float(special.ndtr(special.ndtri(counted) - mu))) / (guesses - count + 1)
        if least <= reached:
            return reached  # counted, and with it all that follows, stays as it is
        reached = least
        if reached > 1:
            break
    return reached


@functools.lru_cache(maxsize=4096)  # repeated audits meet the same counts
def refuted_mu(right: int, guesses: int, size: int, level: float) -> float:
    """The largest mu under which so many right guesses have a probability below ``level``; 0 if there is none."""
    if right == 0 or least_total(right, guesses, size, 0.0, level) <= 1:
        return 0.0
    high = 1.0
    while least_total(right, guesses, size, high, level) > 1:
        high *= 2
    return largest(lambda mu: least_total(right, guesses, size, mu, level) > 1, 0.0, high)
