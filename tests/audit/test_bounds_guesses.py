"""The law of right guesses, against the best attack of all (a linear programme), leaks, and the published term for delta."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom
from tests.audit.audits import best_attack

from tacit.audit.bounds.guesses import most_right, refuted_epsilon

SMALL = [(1, 2, 1), (1, 4, 1), (2, 2, 2), (2, 2, 1), (2, 3, 2), (2, 3, 1), (3, 2, 3), (3, 2, 2), (3, 2, 1)]
"""(secrets, candidates, guesses)"""


def published_term(right: int, guesses: int, secrets: int, epsilon: float, delta: float) -> float:
    """Theorem 5.2 of Steinke et al. 2023, as their published code has it."""
    accuracy = 1 / (1 + math.exp(-epsilon))
    by_chance = binom.sf(right - 1, guesses, accuracy)
    slack = (binom.sf(right - 1 - i, guesses, accuracy) - by_chance for i in range(1, right + 1))
    return float(by_chance + 2 * secrets * delta * max(each / (i + 1) for i, each in enumerate(slack)))


@pytest.mark.parametrize(("secrets", "candidates", "guesses"), SMALL)
@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (1.0, 0.02), (0.3, 0.1), (0.0, 0.05)])
def test_no_mechanism_beats_the_law(secrets: int, candidates: int, guesses: int, epsilon: float, delta: float) -> None:
    for right in range(1, guesses + 1):
        best = best_attack(secrets, candidates, guesses, right, [(epsilon, delta)])
        bound = most_right(right, guesses, secrets, epsilon, delta, candidates)
        assert best <= bound + 1e-7
        assert bound <= best + 0.005  # tight: most of these are equal
        if delta:  # a version that ignores delta is caught
            assert best > most_right(right, guesses, secrets, epsilon, 0.0, candidates) + 1e-3


@pytest.mark.parametrize(
    ("right", "guesses", "candidates"), [(9, 12, 2), (2, 12, 2), (12, 12, 2), (1, 12, 5), (6, 7, 5)]
)
def test_the_term_for_delta_is_the_one_that_is_proved(right: int, guesses: int, candidates: int) -> None:
    for epsilon in (0.0, 1.0, 3.0):
        accuracy = math.exp(epsilon) / (math.exp(epsilon) + candidates - 1)
        peaks = [
            max(binom.pmf(i, guesses - j, accuracy) for i in range(max(0, right - j), right))
            for j in range(1, guesses + 1)
        ]
        wanted = binom.sf(right - 1, guesses, accuracy) + 20 * 1e-3 * (1 - accuracy) * np.mean(peaks)
        assert most_right(right, guesses, 20, epsilon, 1e-3, candidates) == pytest.approx(min(1, wanted), rel=1e-9)


@pytest.mark.parametrize(("guesses", "epsilon", "right"), [(200, 1.0, 158), (200, 3.0, 196), (60, 0.5, 45)])
def test_a_leak_of_every_size_keeps_to_the_law(guesses: int, epsilon: float, right: int) -> None:
    """With probability chance, a random set of ``told`` secrets is told: each secret's delta is chance * told / guesses."""
    chance, accuracy = 0.05, 1 / (1 + math.exp(-epsilon))
    shares = []
    for told in (1, 2, 5, 10, 20, 40):
        delta = chance * told / guesses
        reached = (1 - chance) * binom.sf(right - 1, guesses, accuracy)
        reached += chance * binom.sf(right - 1 - told, guesses - told, accuracy)
        by_chance = binom.sf(right - 1, guesses, accuracy)
        law = most_right(right, guesses, guesses, epsilon, delta)
        assert reached <= law
        shares.append((reached - by_chance) / (law - by_chance))
    assert max(shares) > 0.15  # within a small factor of it


@pytest.mark.parametrize(
    ("right", "guesses", "secrets"), [(85, 100, 1000), (700, 1000, 1000), (18, 20, 100), (60, 60, 90)]
)
@pytest.mark.parametrize("epsilon", [0.5, 1.5, 4.0])
def test_in_the_tail_the_term_for_delta_is_at_most_the_published_one(
    right: int, guesses: int, secrets: int, epsilon: float
) -> None:
    if right <= guesses / (1 + math.exp(-epsilon)):
        return
    for delta in (0.0, 1e-5, 1e-3):
        published = published_term(right, guesses, secrets, epsilon, delta)
        assert most_right(right, guesses, secrets, epsilon, delta) <= published * (1 + 1e-6)


def test_the_published_term_is_too_small_outside_the_tail() -> None:
    """Two coins and guesses, by which of them are right: this law is (1, 0.1)-DP, and at least one is right too often."""
    law = np.array([[0.0383, 0.2038], [0.2038, 0.5541]])
    for turned in (law[::-1], law[:, ::-1]):
        assert np.maximum(0, law - math.e * turned).sum() <= 0.1
    assert law.sum() == pytest.approx(1)
    assert 1 - law[0, 0] > published_term(1, 2, 2, 1.0, 0.1)
    best = best_attack(2, 2, 2, 1, [(1.0, 0.1)])
    assert best == pytest.approx(0.96180, abs=1e-5)
    assert most_right(1, 2, 2, 1.0, 0.1) == pytest.approx(best, abs=1e-7)
    assert published_term(1, 2, 2, 1.0, 0.1) == pytest.approx(0.95660, abs=1e-5)


def test_all_right_has_a_closed_form() -> None:
    """All m right: q^m = (level - delta) / (1 - delta), which is what "all is told with probability delta" reaches."""
    for size in (10, 1000, 10**6):
        for delta in (0.0, 1e-5, 0.01):
            accuracy = ((0.05 - delta) / (1 - delta)) ** (1 / size)
            wanted = math.log(accuracy / (1 - accuracy))
            assert refuted_epsilon(size, size, size, delta, 0.05) == pytest.approx(max(0, wanted), rel=1e-6)


def test_pure_epsilon_is_a_clopper_pearson_limit() -> None:
    """The share of right guesses under which 85 of 100 or more have a probability of 5 %."""
    accuracy = 1 / (1 + math.exp(-refuted_epsilon(85, 100, 100, 0.0, 0.05)))
    assert binom.sf(84, 100, accuracy) == pytest.approx(0.05, rel=1e-9)
    assert refuted_epsilon(85, 100, 10**6, 0.0, 0.05) == refuted_epsilon(85, 100, 100, 0.0, 0.05)


def test_what_is_refuted_is_next_to_what_is_not() -> None:
    for right, guesses, secrets, candidates, units in ((85, 100, 1000, 2, 1), (40, 50, 50, 10, 1), (40, 50, 50, 10, 3)):
        epsilon = refuted_epsilon(right, guesses, secrets, 1e-4, 0.05, candidates, units)
        below, above = (
            most_right(right, guesses, secrets, near, 1e-4, candidates, units) for near in (epsilon, epsilon + 1e-6)
        )
        assert below <= 0.05 < above
    assert refuted_epsilon(0, 10, 10, 1e-5, 0.05) == 0
    assert refuted_epsilon(5, 10, 10, 1e-5, 0.05) == 0


def test_a_group_has_the_group_s_guarantee() -> None:
    """Three units: 3 epsilon, and delta (1 + e^epsilon + e^(2 epsilon))."""
    delta = 1e-3 * (1 + math.e + math.e**2)
    assert most_right(9, 10, 10, 1.0, 1e-3, 5, 3) == pytest.approx(most_right(9, 10, 10, 3.0, delta, 5), rel=1e-12)
    pure = [refuted_epsilon(9, 10, 10, 0.0, 0.05, 100, units) for units in (1, 2, 3)]
    assert pure == pytest.approx([pure[0], pure[0] / 2, pure[0] / 3])


@pytest.mark.parametrize(("candidates", "delta"), [(2, 0.0), (2, 1e-3), (16, 0.0), (16, 1e-3)])
def test_randomised_response_is_not_accused(candidates: int, delta: float) -> None:
    """Exactly: the probability of a bound above the truth, for guesses that are as good as the guarantee allows."""
    secrets, epsilon = 300, 1.5
    accuracy = math.exp(epsilon) / (math.exp(epsilon) + candidates - 1)
    counts = np.arange(1, secrets + 1)
    accused = [refuted_epsilon(int(n), secrets, secrets, delta, 0.05, candidates) > epsilon for n in counts]
    told = delta + (1 - delta) * accuracy  # each secret is told with probability delta
    rate = binom.pmf(counts, secrets, told)[accused].sum()
    assert 0.005 < rate <= 0.05
