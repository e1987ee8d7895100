"""The proved trade-off curve is below the true one, and close to it; so is what it proves of groups."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.accounting.falling import Falling, smallest_epsilon
from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.accounting.tradeoff import PrivacyCurve, group_epsilon, privacy_curve, within_unit_epsilon
from tacit.privacy.events import (
    BandedPoissonGaussian,
    Gaussian,
    NonPrivate,
    PoissonGaussian,
    Relation,
    Spend,
    ThresholdedHistogram,
)
from tacit.privacy.textbook.mechanisms import group_privacy

DELTA = 1e-5
RATES = np.concatenate([np.geomspace(1e-6, 1e-2, 200), np.linspace(0.01, 0.999, 400)])


def curve_of(spends: list[Spend], delta: float = DELTA, relation: Relation = "add-or-remove") -> PrivacyCurve:
    found = privacy_curve(spends, delta, relation)
    assert found is not None
    return found


def gaussian_trade_off(rates: np.ndarray, mu: float) -> np.ndarray:
    """Dong, Roth and Su 2022, equation 6."""
    return stats.norm.cdf(stats.norm.isf(rates) - mu)


def gaussian_epsilon(mu: float, delta: float) -> float:
    return smallest_epsilon(Falling(lambda at: float(gaussian_delta(at, mu))), delta)


def sampled_trade_off(rates: np.ndarray, q: float, s: float) -> np.ndarray:
    """One Poisson sampled step, a unit added or removed: the likelihood ratio test of N(0, s^2) against a mixture with N(1, s^2)."""
    x = s * stats.norm.isf(rates)
    return (1 - q) * stats.norm.cdf(x / s) + q * stats.norm.cdf((x - 1) / s)


@pytest.mark.parametrize("mu", [0.1, 0.6, 1.0, 2.5])
def test_a_gaussians_curve_is_below_its_closed_form_and_near(mu: float) -> None:
    proved, truth = curve_of([Spend(Gaussian(1 / mu))]).trade_off(RATES), gaussian_trade_off(RATES, mu)
    assert (proved <= truth + 1e-12).all()
    assert (truth - proved).max() < 6e-3


@pytest.mark.parametrize(("q", "s"), [(0.02, 0.8), (0.3, 1.0)])
def test_a_sampled_steps_curve_is_below_its_closed_form(q: float, s: float) -> None:
    proved, truth = curve_of([Spend(PoissonGaussian(q, s))]).trade_off(RATES), sampled_trade_off(RATES, q, s)
    assert (proved <= truth + 1e-12).all()
    assert (truth - proved).max() < 0.05  # the curve is that of both directions, the formula of one


def test_a_curve_with_a_delta_too_small_is_caught_by_the_closed_form() -> None:
    """Known wrong: lines of a curve that is optimistic by a hundredth cross the true one."""
    good = curve_of([Spend(Gaussian(1.0))])
    wrong = PrivacyCurve(good.step, tuple(0.99 * delta for delta in good.deltas))
    assert (wrong.trade_off(RATES) > gaussian_trade_off(RATES, 1.0)).any()


def test_corners_are_the_line() -> None:
    for spends in (
        [Spend(Gaussian(1.0))],
        [Spend(ThresholdedHistogram(30.0, 190, 64)), Spend(PoissonGaussian(0.02, 0.9), 50)],
    ):
        curve = curve_of(spends)
        rates, found = zip(*curve.corners, strict=True)
        assert (rates[0], rates[-1], found[-1]) == (0.0, 1.0, 1.0)
        assert np.interp(RATES, rates, found) == pytest.approx(curve.most_found(RATES), abs=1e-12)


def test_the_curve_meets_the_certified_epsilon() -> None:
    for spends in (
        [Spend(Gaussian(0.7))],
        [Spend(PoissonGaussian(0.02, 1.6), 1200), Spend(Gaussian(0.6), 1, "held-out units")],
        [Spend(ThresholdedHistogram(30.0, 190, 64)), Spend(PoissonGaussian(0.02, 1.2), 300)],
    ):
        certified = joint_epsilon(spends, DELTA)
        assert curve_of(spends).epsilon(DELTA) == pytest.approx(certified, rel=1e-7)


@pytest.mark.parametrize("size", [2, 3])
def test_a_group_of_a_gaussian_is_a_gaussian_of_so_many_times_its_mu(size: int) -> None:
    mu = 0.5
    curve = curve_of([Spend(Gaussian(1 / mu))])
    truth, found = gaussian_epsilon(size * mu, DELTA), curve.of_group(size).epsilon(DELTA)
    assert truth <= found <= 1.02 * truth
    assert (curve.of_group(size).trade_off(RATES) <= gaussian_trade_off(RATES, size * mu) + 1e-12).all()
    assert size * curve.epsilon(DELTA) < truth  # known wrong: so many times epsilon, at the same delta


def test_a_group_costs_no_more_than_the_textbook_says_and_grows() -> None:
    spends = [Spend(PoissonGaussian(0.0256, 1.85), 390)]
    epsilons = [group_epsilon(spends, DELTA, "add-or-remove", size) for size in (1, 2, 3, 4)]
    assert epsilons == sorted(epsilons)
    curve = curve_of(spends)
    for size in (2, 3, 4):
        for epsilon, delta in curve.points[1:]:
            chained, chained_delta = group_privacy(epsilon, delta, size)
            if chained_delta < 1:
                assert curve.of_group(size).epsilon(chained_delta) <= chained + 1e-9


def test_under_replacement_the_exact_law_is_the_smaller_bound() -> None:
    spends = [Spend(PoissonGaussian(0.0256, 1.85), 390)]
    found = group_epsilon(spends, 8e-5, "replace", 2)
    assert found == pytest.approx(4.2991, abs=1e-3)
    assert found < curve_of(spends, 8e-5, "replace").of_group(2).epsilon(8e-5)


def test_a_part_of_a_units_text_is_an_exchange_and_may_cost_more_than_the_unit() -> None:
    """Known wrong: epsilon of the unit. Two texts of one unit are up to two clip norms apart."""
    spends = [Spend(Gaussian(1.0)), Spend(Gaussian(0.9), 1, "held-out units")]
    unit, found = joint_epsilon(spends, DELTA), within_unit_epsilon(spends, DELTA, "add-or-remove")
    assert found == pytest.approx(gaussian_epsilon(2 / 0.9, DELTA), rel=1e-3)  # the parts keep apart
    assert found > 2 * unit
    assert within_unit_epsilon(spends, DELTA, "replace") == joint_epsilon(spends, DELTA, "replace")


def test_a_band_may_change_with_the_text() -> None:
    spends = [Spend(BandedPoissonGaussian(1.0, 1.0, (0.5,), (1.0, 0.25), "unit"))]
    assert within_unit_epsilon(spends, DELTA, "add-or-remove") == pytest.approx(gaussian_epsilon(2.0, DELTA), rel=1e-2)


def test_without_a_guarantee_there_is_no_curve_and_no_epsilon() -> None:
    spends = [Spend(Gaussian(1.0)), Spend(NonPrivate("heuristic:x"))]
    assert privacy_curve(spends, DELTA, "add-or-remove") is None
    assert math.isinf(group_epsilon(spends, DELTA, "add-or-remove", 2))
    assert math.isinf(within_unit_epsilon(spends, DELTA, "add-or-remove"))


def test_nothing_spent_is_nothing_given_away() -> None:
    assert curve_of([]).most_found(np.array([0.0, 0.3])) == pytest.approx([0.0, 0.3], abs=2e-3)


def test_a_very_large_epsilon_overflows_nothing() -> None:
    curve = curve_of([Spend(Gaussian(0.06), 4)])
    assert 0.9999 < curve.most_found(0.5) <= 1
    assert math.isinf(curve.of_group(10).epsilon(DELTA))
