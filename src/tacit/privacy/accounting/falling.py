"""Where a falling curve, delta over epsilon, comes down to a given delta."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from scipy import optimize

from tacit.errors import UsageError

__all__ = ["WHAT_TO_CHANGE", "Falling", "as_delta", "smallest_epsilon"]


WHAT_TO_CHANGE = "raise the noise (noise_stddev, noise_multiplier), or lower what a unit adds (max_words)"
"""Of events that protect nothing."""


def as_delta(found: float) -> float:
    """What an account has found for a delta, within 0 and 1.

    Raises:
        UsageError: it is not a number, which every comparison would take for a delta that is small enough.
    """
    if math.isnan(found):
        raise UsageError(f"no delta can be computed of these events, whose epsilon is very large: {WHAT_TO_CHANGE}")
    return min(1.0, max(0.0, found))


@dataclass(frozen=True)
class Falling:
    """A falling curve, of which it may be known cheaply between which numbers a value is.

    Args:
        at: its value.
        between: two numbers for an epsilon, ``at`` of which is neither below the first nor above the second; None: not known.
    """

    at: Callable[[float], float]
    between: Callable[[float], tuple[float, float]] | None = None

    def __call__(self, epsilon: float) -> float:
        return self.at(epsilon)

    def exceeds(self, epsilon: float, delta: float) -> bool:
        """Whether ``at(epsilon)`` is above ``delta``."""
        if self.between is not None:
            least, most = self.between(epsilon)
            if least > delta or most <= delta:
                return least > delta
        return self.at(epsilon) > delta

    def then(self, rising: Callable[[float], float], shift: float = 0.0) -> Falling:
        """The curve ``rising(self(epsilon + shift))``, where ``rising`` never falls."""
        at, between = self.at, self.between

        def also_between(epsilon: float) -> tuple[float, float]:
            assert between is not None
            least, most = between(epsilon + shift)
            return rising(least), rising(most)

        return Falling(lambda epsilon: rising(at(epsilon + shift)), None if between is None else also_between)


def smallest_epsilon(curve: Falling, delta: float) -> float:
    """The smallest epsilon >= 0 at which a falling curve is at most delta, to 1e-7, rounded up.

    By bisection, whose every answer is that of an evaluation of the curve. Where evaluations are all that is known, a faster search
    goes before it, so that most questions of the bisection are answered by then: the same result from half of them.
    """
    if not curve.exceeds(0.0, delta):
        return 0.0
    low, high = 0.0, 1.0
    while curve.exceeds(high, delta):
        low, high = high, high * 2
        if high > 2000:
            return math.inf
    above, below = _near(curve.at, delta, low, high) if curve.between is None else (low, high)
    while high - low > 1e-7 * max(1.0, high):
        middle = (low + high) / 2
        is_above = middle <= above or (middle < below and curve.exceeds(middle, delta))
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
