"""The search for epsilon gives what plain bisection gives, to the last bit, from half of the evaluations."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from tacit.privacy.accounting.composition import Account
from tacit.privacy.accounting.falling import smallest_epsilon
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
    assert smallest_epsilon(CURVES[name], delta) == bisected(CURVES[name], delta)


@pytest.mark.parametrize(("probability", "noise", "steps"), [(0.01, 1.0, 100), (0.1, 1.0, 10), (1.0, 1.0, 3)])
def test_of_an_account_with_half_the_evaluations(probability: float, noise: float, steps: int) -> None:
    curve = Account((Spend(PoissonGaussian(probability, noise), steps),), "add-or-remove", 1e-3)._curve(0)
    ours, plain = Counted(curve), Counted(curve)
    for delta in (1e-3, 1e-5, 1e-7, 1e-9, 1e-11):
        found = smallest_epsilon(ours, delta)
        assert found == bisected(plain, delta)
        assert curve(found) <= delta < curve(found - 2e-7 * max(1.0, found))
    assert ours.asked < 0.6 * plain.asked
