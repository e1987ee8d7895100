"""Calibrated noise meets its target, as certified by the accountant, and a little less noise does not."""

from __future__ import annotations

import dataclasses
import math

import pytest

from tacit.errors import BudgetError, UsageError
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.composition import Account
from tacit.privacy.accounting.histogram import histogram_delta, log_hidden_probability
from tacit.privacy.events import Gaussian, PoissonGaussian, Relation, Spend, ThresholdedHistogram
from tacit.privacy.textbook import mechanisms

VOCABULARY = Spend(ThresholdedHistogram(60.0, 361, 64))


def training(noise: float, schedule: list[tuple[float, int]]) -> list[Spend]:
    return [Spend(PoissonGaussian(probability, noise), steps) for probability, steps in schedule]


@pytest.mark.parametrize(
    ("target", "delta", "schedule", "relation", "others"),
    [
        (1.0, 1e-6, [(0.3, 60)], "add-or-remove", []),
        (0.53, 1e-8, [(131072 / 83e6, 31_250)], "add-or-remove", []),
        (1.0, 1e-5, [(0.1, 200), (0.4, 20)], "add-or-remove", []),
        (1.0, 1e-5, [(0.3, 60)], "replace", []),
        (1.2, 1e-6, [(0.3, 60)], "add-or-remove", [VOCABULARY]),
        (1.5, 1e-5, [(0.3, 60)], "replace", [Spend(Gaussian(9.0))]),
    ],
    ids=["plain", "many steps", "two phases", "replace", "with a vocabulary", "replace with a release"],
)
def test_training_noise_meets_the_target_and_one_percent_less_misses_it(
    target: float, delta: float, schedule: list[tuple[float, int]], relation: Relation, others: list[Spend]
) -> None:
    noise = calibrate.training_noise(target, delta, schedule, relation, others)
    assert epsilon([*others, *training(noise, schedule)], delta, relation) <= target
    assert epsilon([*others, *training(0.99 * noise, schedule)], delta, relation) > target


def test_a_search_on_the_coarse_grid_alone_is_caught() -> None:
    """On many steps with a small sampling probability a grid of 1e-3 asks for a third more noise than is needed."""
    coarse = Account(tuple(training(3.6, [(131072 / 83e6, 31_250)])), grid=1e-3).epsilon(1e-8)
    assert coarse == pytest.approx(0.53, abs=0.01)
    assert calibrate.training_noise(0.53, 1e-8, [(131072 / 83e6, 31_250)]) < 2.74


def test_joint_calibration_asks_for_less_noise_than_adding_epsilons() -> None:
    alone = epsilon([VOCABULARY], 5e-7)
    joint = calibrate.training_noise(1.2, 1e-6, [(0.3, 60)], others=[VOCABULARY])
    added = calibrate.training_noise(1.2 - alone, 5e-7, [(0.3, 60)])
    assert joint < 0.97 * added


def test_training_with_no_room_is_refused() -> None:
    spent = epsilon([VOCABULARY], 1e-6)
    with pytest.raises(BudgetError, match="nothing is left for training"):
        calibrate.training_noise(spent, 1e-6, [(0.01, 10)], others=[VOCABULARY])
    with pytest.raises(BudgetError, match="nothing is left for training"):
        calibrate.training_noise(5.0, 1e-9, [(0.01, 10)], others=[Spend(ThresholdedHistogram(3.0, 5, 4))])


def test_a_budget_that_only_endless_noise_meets_is_refused() -> None:
    with pytest.raises(BudgetError, match="no noise multiplier up to"):
        calibrate.gaussian_noise(1e-9, 1e-9)


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
@pytest.mark.parametrize(("target", "delta"), [(0.2, 1e-8), (1.0, 1e-6), (6.0, 1e-5)])
def test_gaussian_noise_is_the_analytic_one(target: float, delta: float, relation: Relation) -> None:
    """Oracle: Balle and Wang's calibration in mechanisms.py, which shares no code; to four digits, rounded up."""
    exact = mechanisms.Gaussian.analytic(target, delta, 2.0 if relation == "replace" else 1.0).noise_stddev
    found = calibrate.gaussian_noise(target, delta, relation)
    assert exact <= found <= 1.006 * exact
    assert epsilon([Spend(Gaussian(found))], delta, relation) <= target
    assert found == float(f"{found:.4g}")


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
@pytest.mark.parametrize("noise", ["gaussian", "discrete-gaussian"])
def test_the_threshold_is_the_smallest(noise: str, relation: Relation) -> None:
    threshold = calibrate.threshold_for(40.0, 16, 1.0, 1e-6, relation, noise)
    assert threshold is not None
    below = threshold - 1 if noise == "discrete-gaussian" else threshold * (1 - 3e-6)

    def delta_at(at: float) -> float:
        return histogram_delta(ThresholdedHistogram(40.0, at, 16, noise), 1.0, relation)

    assert delta_at(threshold) <= 1e-6 < delta_at(below)
    assert epsilon([Spend(ThresholdedHistogram(40.0, threshold, 16, noise))], 1e-6, relation) <= 1.0 + 1e-4
    if noise == "discrete-gaussian":
        assert threshold == int(threshold)


def test_a_threshold_for_the_tail_alone() -> None:
    threshold = calibrate.threshold_for(200.0, 256, math.inf, 1e-9, noise="gaussian")
    assert threshold == pytest.approx(1369.4, abs=0.05)
    event = ThresholdedHistogram(200.0, threshold or 0.0, 256, "gaussian")
    assert -math.expm1(256 * log_hidden_probability(event)) <= 1e-9


def test_too_little_noise_has_no_threshold() -> None:
    assert calibrate.threshold_for(10.0, 256, 0.5, 1e-9) is None
    assert calibrate.threshold_for(10.0, 256, 0.5, 1e-9, "replace", "discrete-gaussian") is None


@pytest.mark.parametrize(
    ("target", "delta", "words", "relation"),
    [
        (1.0, 1e-6, 8, "add-or-remove"),
        (0.3, 2e-7, 64, "add-or-remove"),
        (1.0, 1e-6, 16, "replace"),
        (6.0, 1e-6, 4, "add-or-remove"),
        (20.0, 1e-3, 1, "add-or-remove"),
    ],
)
def test_a_histogram_meets_its_target_and_one_percent_less_threshold_does_not_at_any_noise(
    target: float, delta: float, words: int, relation: Relation
) -> None:
    event = calibrate.histogram(target, delta, words, relation)
    assert event.noise == "discrete-gaussian"
    assert event.max_words == words
    assert epsilon([Spend(event)], delta, relation) <= target
    lower = dataclasses.replace(event, threshold=math.floor(0.99 * event.threshold) - 1)
    assert epsilon([Spend(lower)], delta, relation) > target
    for percent in range(1, 41, 3):
        other = dataclasses.replace(lower, noise_stddev=max(3.0, event.noise_stddev * (0.85 + percent / 100)))
        assert histogram_delta(other, target, relation) > delta


@pytest.mark.parametrize("target", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("delta", [1e-6])
def test_an_impossible_target_is_refused(target: float, delta: float) -> None:
    with pytest.raises(UsageError, match="epsilon is"):
        calibrate.gaussian_noise(target, delta)
    with pytest.raises(UsageError, match="epsilon is"):
        calibrate.training_noise(target, delta, [(0.01, 10)])
    with pytest.raises(UsageError, match="epsilon is"):
        calibrate.histogram(target, delta, 16)
    if target != math.inf:
        with pytest.raises(UsageError, match="epsilon is"):
            calibrate.threshold_for(10.0, 16, target, delta)


@pytest.mark.parametrize("delta", [0.0, 1.0, -0.1, math.nan])
def test_an_impossible_delta_is_refused(delta: float) -> None:
    with pytest.raises(UsageError, match="delta is"):
        calibrate.gaussian_noise(1.0, delta)
    with pytest.raises(UsageError, match="delta is"):
        calibrate.training_noise(1.0, delta, [(0.01, 10)])
    with pytest.raises(UsageError, match="delta is"):
        calibrate.histogram(1.0, delta, 16)
    with pytest.raises(UsageError, match="delta is"):
        calibrate.threshold_for(10.0, 16, 1.0, delta)
