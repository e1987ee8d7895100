"""Where a falling curve, delta over epsilon, comes down to a given delta."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import cast

from scipy import optimize

__all__ = ["smallest_epsilon"]


def smallest_epsilon(delta_at: Callable[[float], float], delta: float) -> float:
    """The smallest epsilon >= 0 at which a falling curve is at most delta, to 1e-7, rounded up.

    By bisection, whose every answer is an evaluation of the curve. A faster search goes before it, so that most questions of the
    bisection are answered by then, of a curve that falls: the same result from half of the evaluations.
    """
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_at(high) > delta:
        low, high = high, high * 2
        if high > 2000:
            return math.inf
    above, below = _near(delta_at, delta, low, high)
    while high - low > 1e-7 * max(1.0, high):
        middle = (low + high) / 2
        is_above = middle <= above or (middle < below and delta_at(middle) > delta)
        low, high = (middle, high) if is_above else (low, middle)
    return high


def _near(delta_at: Callable[[float], float], delta: float, low: float, high: float) -> tuple[float, float]:
    """(where a falling curve is above delta, where it is not), close to each other; it was evaluated at both."""
    heights: dict[float, float] = {}

    def height(epsilon: float) -> float:
        if epsilon not in heights:
            heights[epsilon] = math.log(max(delta_at(epsilon), 1e-300) / delta)
        return heights[epsilon]

    if height(high) < 0:
        step = 1e-8 * max(1.0, high)
        root = cast(float, optimize.brentq(height, low, high, xtol=step))
        for beside in (root - 2 * step, root + 2 * step):
            if low < beside < high:
                height(beside)
    above = max((epsilon for epsilon, value in heights.items() if value > 0), default=low)
    return above, min((epsilon for epsilon, value in heights.items() if value <= 0), default=high)
