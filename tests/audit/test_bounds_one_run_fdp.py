"""The recursion of one run under f-DP, against the best attack of all Gaussian curves and the numbers of published code."""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.audit.audits import best_attack

from tacit.audit.bounds.one_run_fdp import least_total, refuted_mu
from tacit.audit.bounds.tradeoff import gaussian_epsilon
from tacit.privacy.accounting.histogram import gaussian_delta


def most_right_under(right: int, guesses: int, size: int, mu: float) -> float:
    """The largest level that is not impossible."""
    low, high = 0.0, 1.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (low, middle) if least_total(right, guesses, size, mu, middle) > 1 else (middle, high)
    return high


@pytest.mark.parametrize(("right", "guesses", "size"), [(1, 1, 1), (2, 2, 2), (1, 1, 2)])
@pytest.mark.parametrize("mu", [0.5, 1.0])
def test_no_gaussian_curve_allows_more(right: int, guesses: int, size: int, mu: float) -> None:
    curve = [(epsilon, float(gaussian_delta(epsilon, mu))) for epsilon in np.linspace(0, 4 * mu, 65)]
    best = best_attack(size, 2, guesses, right, curve)
    assert most_right_under(right, guesses, size, mu) == pytest.approx(best, abs=3e-5)


@pytest.mark.parametrize(
    ("size", "guesses", "right", "level", "epsilon"),
    [
        (1000, 100, 85, 0.05, 1.86745),
        (1000, 300, 240, 0.05 / 3, 1.63203),
        (1000, 1000, 690, 0.05, 1.28836),
        (200, 200, 200, 0.05, 9.51396),
        (500, 50, 50, 0.01, 3.42813),
    ],
)
def test_jax_privacy_has_the_same_numbers(size: int, guesses: int, right: int, level: float, epsilon: float) -> None:
    """Epsilon at delta 1e-5 by the published recursion, as jax_privacy/auditing.py computes it at commit 03a095e."""
    assert gaussian_epsilon(refuted_mu(right, guesses, size, level), 1e-5) == pytest.approx(epsilon, abs=2e-5)


def test_one_guess_of_one_example_has_a_closed_form() -> None:
    """One coin: right with probability at most Phi(mu / 2)."""
    assert most_right_under(1, 1, 1, 1.0) == pytest.approx(0.5 * (1 + math.erf(0.5 / math.sqrt(2))), abs=1e-9)


def test_abstaining_is_paid_for() -> None:
    """Who may choose the surest ten of a thousand shows less by them than who must guess all ten."""
    chosen, all_ten = refuted_mu(10, 10, 1000, 0.05), refuted_mu(10, 10, 10, 0.05)
    assert 0 < chosen < all_ten


def test_the_bound_is_monotone() -> None:
    by_right = [refuted_mu(right, 100, 500, 0.05) for right in (0, 40, 60, 75, 90, 100)]
    assert by_right == sorted(by_right)
    assert by_right[0] == by_right[1] == 0 < by_right[-2] < by_right[-1]
    assert refuted_mu(90, 100, 500, 0.01) < refuted_mu(90, 100, 500, 0.05)
