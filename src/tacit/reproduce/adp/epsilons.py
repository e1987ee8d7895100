"""Table 1's column of epsilons: what sigma = 5 costs where sigma = 1 costs 4.22, for every sampling probability."""

from __future__ import annotations

import functools
from collections.abc import Callable

from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.reproduce.adp.scale import DELTA
from tacit.reproduce.writing import Row

__all__ = ["PRINTED", "epsilon_rows"]

PRINTED = {1.0: 4.22, 5.0: 0.1}
"""Of DP-SGD, by sigma. The paper names no delta, sampling probability or number of steps."""

_PROBABILITIES = (0.003, 0.01, 0.03, 0.1, 0.3)


@functools.cache
def epsilon_rows() -> tuple[Row, ...]:
    """A row for each sampling probability: the most steps that cost at most 4.22 at sigma = 1, and their epsilon at both."""
    return tuple(_row(probability) for probability in _PROBABILITIES)


def _row(probability: float) -> Row:
    def epsilon(sigma: float, steps: int) -> float:
        return joint_epsilon([Spend(PoissonGaussian(probability, sigma), steps)], DELTA)

    steps = _most(lambda steps: epsilon(1.0, steps) <= PRINTED[1.0])
    return {
        "sampling_probability": probability,
        "steps": steps,
        "delta": DELTA,
        "epsilon_sigma_1": epsilon(1.0, steps),
        "epsilon_sigma_5": epsilon(5.0, steps),
    }


def _most(holds: Callable[[int], bool]) -> int:
    """The largest number for which it holds, up to a hundredth: it holds for 1 and for all below one for which it does."""
    low, high = 1, 2
    while holds(high):
        low, high = high, 2 * high
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
