"""The search for epsilon gives what plain bisection gives, to the last bit, from half of the evaluations, or next to none."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tacit.privacy.accounting.composition import Account
from tacit.privacy.accounting.falling import Falling, smallest_epsilon
from tacit.privacy.events import PoissonGaussian, Spend


def bisected(delta_at: Callable[[float], float], delta: float) -> float:
    """The oracle: every question is put to the curve."""
    if delta_at(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while delta_at(high) > delta:
        low, high = high, high * 2
        if high > 2000:
            return math.inf
    while high - low > 1e-7 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high


class Counted:
    def __init__(self, curve: Callable[[float], float]) -> None:
        self.curve, self.asked = curve, 0

    def __call__(self, epsilon: float) -> float:
        self.asked += 1
        return self.curve(epsilon)


CURVES: dict[str, Callable[[float], float]] = {
    "a straight line": lambda epsilon: max(0.0, 0.9 - epsilon / 3),
    "it ends": lambda epsilon: 0.5 if epsilon < 0.7 else 0.0,
    "steps": lambda epsilon: math.exp(-math.floor(4 * epsilon)),
    "flat, then steep": lambda epsilon: 0.1 / (1 + math.exp(40 * (epsilon - 6))),
    "infinite mass": lambda epsilon: 1e-4 + math.exp(-epsilon),
    "large": lambda epsilon: math.exp(-epsilon / 50),
}


@pytest.mark.parametrize("name", CURVES)
@pytest.mark.parametrize("delta", [0.3, 1e-2, 1e-4, 1e-5, 1e-9, 1e-12])
def test_of_any_falling_curve(name: str, delta: float) -> None:
    curve = CURVES[name]
    assert smallest_epsilon(Falling(curve), delta) == bisected(curve, delta)
    wide = Falling(curve, lambda epsilon: (0.9 * curve(epsilon), 1.1 * curve(epsilon)))
    assert smallest_epsilon(wide, delta) == bisected(curve, delta)


def test_bounds_that_do_not_hold_give_another_epsilon() -> None:
    """Known wrong: what lies between them is not the value."""
    curve = CURVES["large"]
    low = Falling(curve, lambda epsilon: (0.9 * curve(epsilon), 0.99 * curve(epsilon)))
    assert smallest_epsilon(low, 1e-2) < bisected(curve, 1e-2)


def test_what_is_made_of_values_is_made_of_their_bounds() -> None:
    curve = CURVES["flat, then steep"]
    made = Falling(curve, lambda epsilon: (curve(epsilon) - 1e-3, curve(epsilon) + 1e-3)).then(
        lambda delta: min(1.0, 0.1 + 0.9 * delta), shift=-0.5
    )
    for epsilon in (0.0, 5.9, 6.5, 7.0, 20.0):
        value = min(1.0, 0.1 + 0.9 * curve(epsilon - 0.5))
        assert made(epsilon) == value
        assert made.between is not None
        least, most = made.between(epsilon)
        assert least <= value <= most <= least + 2e-3
        for delta in (value, 0.999 * value, 1.001 * value):
            assert made.exceeds(epsilon, delta) == (value > delta)


@pytest.mark.parametrize(("probability", "noise", "steps"), [(0.01, 1.0, 100), (0.1, 1.0, 10), (1.0, 1.0, 3)])
def test_of_an_account_with_half_the_evaluations(probability: float, noise: float, steps: int) -> None:
    curve = Account((Spend(PoissonGaussian(probability, noise), steps),), "add-or-remove", 1e-3)._curve(0)
    ours, bounded, plain = (Counted(curve.at) for _ in range(3))
    for delta in (1e-3, 1e-5, 1e-7, 1e-9, 1e-11):
        found = smallest_epsilon(Falling(ours), delta)
        assert found == smallest_epsilon(Falling(bounded, curve.between), delta) == bisected(plain, delta)
        assert curve(found) <= delta < curve(found - 2e-7 * max(1.0, found))
    assert ours.asked < 0.6 * plain.asked
    assert bounded.asked <= 2
