"""Plans: what is sampled is what is accounted, epochs are epochs, and the learning rate is a function of the step alone."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy import special, stats

from tacit.config import ComputeOptions
from tacit.errors import UsageError
from tacit.privacy.events import NonPrivate, PoissonGaussian
from tacit.randomness import KeyedRandomness
from tacit.training.phases import AdamOptions, Phase, last_before_private
from tacit.training.plans import DpPlan, LiteralPlan, NoiselessPlan, PlainPlan

STREAMS = KeyedRandomness(bytes(range(32)))
FALSE_ALARM = 1e-6
PLAN = DpPlan(sampling_probability=0.15, clip_norm=0.5, noise_multiplier=1.25, normaliser=6.0, sequences_per_unit=2)
UNITS, STEPS = 40, 4000


# the plan and its event ----------------------------------------------------------------------------------------------


def test_the_event_and_the_noise_are_those_of_the_plan() -> None:
    assert PLAN.event == PoissonGaussian(sampling_probability=0.15, noise_multiplier=1.25)
    assert PLAN.noise_stddev == 1.25 * 0.5


@pytest.mark.parametrize("name", ["clip_norm", "normaliser", "sequences_per_unit"])
def test_the_event_depends_on_sampling_and_noise_alone(name: str) -> None:
    assert dataclasses.replace(PLAN, **{name: 7}).event == PLAN.event
    assert dataclasses.replace(PLAN, sampling_probability=0.2).event != PLAN.event
    assert dataclasses.replace(PLAN, noise_multiplier=2.0).event != PLAN.event


def test_an_impossible_plan_has_no_event() -> None:
    for name, value in (("sampling_probability", 1.5), ("sampling_probability", 0.0), ("noise_multiplier", 0.0)):
        with pytest.raises(UsageError):
            _ = dataclasses.replace(PLAN, **{name: value}).event


def test_plans_are_frozen_and_know_no_speed_option() -> None:
    speed = {field.name for field in dataclasses.fields(DpPlan)} | {"batch_size", "name", "stream", "plan", "steps"}
    assert not speed & set(ComputeOptions.model_fields)
    for kind in (DpPlan, PlainPlan, Phase, AdamOptions):
        assert not {field.name for field in dataclasses.fields(kind)} & set(ComputeOptions.model_fields)
    with pytest.raises(dataclasses.FrozenInstanceError):
        PLAN.noise_multiplier = 0.1


@pytest.mark.parametrize("kind", [DpPlan, LiteralPlan])
def test_a_plan_without_noise_draws_the_same_and_has_no_guarantee(kind: type[DpPlan]) -> None:
    """A control that drew or clipped in another way would not be the same training; one with an event would look paid for."""
    plan = kind(**dataclasses.asdict(PLAN))
    control = NoiselessPlan.of(plan)
    for step in range(20):
        assert np.array_equal(control.batch(UNITS, STREAMS, step), plan.batch(UNITS, STREAMS, step))
    same = dataclasses.asdict(control) | {"noise_multiplier": 1.25}
    assert same == dataclasses.asdict(PLAN)
    assert control.noise_on(np.ones(3)) == control.noise_stddev == 0
    for stream in ("private", "marked", "stratum-1"):
        assert isinstance(control.event_on(stream), NonPrivate)
    with pytest.raises(ValueError, match="noise multiplier 0"):
        NoiselessPlan(**dataclasses.asdict(PLAN))


def test_a_plan_with_draws_of_its_own_is_not_made_a_poisson_plan() -> None:
    class OneUnit(DpPlan):
        def batch(self, records: int, streams: KeyedRandomness, step: int) -> np.ndarray:
            return np.zeros(1, dtype=np.int64)

    with pytest.raises(ValueError, match="draws in a way of its own"):
        NoiselessPlan.of(OneUnit(**dataclasses.asdict(PLAN)))


# Poisson sampling ----------------------------------------------------------------------------------------------------


def draws(plan: DpPlan) -> np.ndarray:
    """Which units are in each step: (STEPS, UNITS) of 0 and 1."""
    chosen = np.zeros((STEPS, UNITS))
    for step in range(STEPS):
        chosen[step, plan.batch(UNITS, STREAMS.child("phase", "private"), step)] = 1
    return chosen


@pytest.fixture(scope="module")
def chosen() -> np.ndarray:
    return draws(PLAN)


def within(count: float, trials: int, probability: float, tests: int) -> bool:
    """Two-sided exact binomial test, false alarm 1e-6 over ``tests`` tests."""
    return stats.binomtest(int(count), trials, probability).pvalue > FALSE_ALARM / tests


def looks_like(chosen: np.ndarray, probability: float) -> bool:
    """Inclusion of each unit and of all, neighbouring units together, neighbouring steps together, sizes of batches."""
    size = np.arange(UNITS + 1)
    law = stats.binom.pmf(size, UNITS, probability)
    square = (size - UNITS * probability) ** 2
    expected, variance = (law * square).sum(), (law * square**2).sum() - (law * square).sum() ** 2
    found = ((chosen.sum(axis=1) - UNITS * probability) ** 2).sum()
    counts = [
        (chosen, probability),
        (chosen[:, 0::2] * chosen[:, 1::2], probability**2),
        (chosen[0::2] * chosen[1::2], probability**2),
    ]
    return bool(
        all(within(count, STEPS, probability, UNITS) for count in chosen.sum(axis=0))
        and all(within(both.sum(), both.size, rate, 1) for both, rate in counts)
        and abs(found - STEPS * expected) < -special.ndtri(FALSE_ALARM / 2) * math.sqrt(STEPS * variance)
    )


def test_units_are_included_with_the_probability_of_the_event(chosen: np.ndarray) -> None:
    assert looks_like(chosen, PLAN.event.sampling_probability)


@pytest.mark.parametrize("factor", [0.95, 1.05])
def test_another_probability_is_caught(factor: float) -> None:
    wrong = draws(dataclasses.replace(PLAN, sampling_probability=0.15 * factor))
    assert not looks_like(wrong, PLAN.event.sampling_probability)


def test_samplers_of_the_same_rate_that_are_not_poisson_are_caught(chosen: np.ndarray) -> None:
    generator = np.random.default_rng(1)
    fixed_size = np.zeros((STEPS, UNITS))
    for step in range(STEPS):
        fixed_size[step, generator.permutation(UNITS)[:6]] = 1
    whole_groups = np.repeat((generator.random((STEPS, UNITS // 2)) < 0.15).astype(float), 2, axis=1)
    same_twice = np.repeat(chosen[: STEPS // 2], 2, axis=0)
    for wrong in (fixed_size, whole_groups, same_twice):
        assert not looks_like(wrong, 0.15)


def test_a_batch_is_a_function_of_key_and_step() -> None:
    first = [PLAN.batch(UNITS, STREAMS, step).tolist() for step in range(20)]
    assert first == [PLAN.batch(UNITS, STREAMS, step).tolist() for step in range(20)]
    assert len({tuple(batch) for batch in first}) > 15
    assert first != [PLAN.batch(UNITS, STREAMS.child("other"), step).tolist() for step in range(20)]


def test_batches_may_be_empty_or_everyone(chosen: np.ndarray) -> None:
    rare = dataclasses.replace(PLAN, sampling_probability=0.01)
    assert any(len(rare.batch(UNITS, STREAMS, step)) == 0 for step in range(20))
    everyone = dataclasses.replace(PLAN, sampling_probability=1.0)
    assert everyone.batch(UNITS, STREAMS, 3).tolist() == list(range(UNITS))
    assert chosen.sum(axis=1).max() > 12  # no cap at twice the mean


# plain epochs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("records", "batch_size"), [(12, 4), (10, 4), (7, 3), (5, 5), (3, 8), (1, 4), (100, 1)])
def test_every_record_comes_once_an_epoch(records: int, batch_size: int) -> None:
    steps = 3 * records  # at least three epochs
    drawn = np.concatenate([PlainPlan(batch_size).batch(records, STREAMS, step) for step in range(steps)])
    assert len(drawn) == steps * batch_size
    for epoch in range(len(drawn) // records):
        assert sorted(drawn[epoch * records : (epoch + 1) * records]) == list(range(records))


def test_epochs_are_shuffled_anew_and_reproducibly() -> None:
    plan = PlainPlan(20)
    epochs = [tuple(plan.batch(20, STREAMS, step)) for step in range(10)]
    assert len(set(epochs)) == 10
    assert epochs == [tuple(plan.batch(20, STREAMS, step)) for step in range(10)]
    assert epochs[0] != tuple(plan.batch(20, STREAMS.child("other"), 0))


# learning rate -------------------------------------------------------------------------------------------------------


def test_the_learning_rate_rises_linearly_then_falls_linearly() -> None:
    rates = [AdamOptions(1e-3, warmup=0.2).learning_rate_at(step, 10) for step in range(10)]
    assert rates == pytest.approx([5e-4, 1e-3, 1e-3, 8.75e-4, 7.5e-4, 6.25e-4, 5e-4, 3.75e-4, 2.5e-4, 1.25e-4])


@pytest.mark.parametrize("warmup", [0.0, 0.05, 0.5, 0.99])
@pytest.mark.parametrize("steps", [1, 2, 3, 10, 101])
def test_the_learning_rate_is_positive_and_peaks_at_its_value(warmup: float, steps: int) -> None:
    options = AdamOptions(2e-3, warmup=warmup)
    rates = [options.learning_rate_at(step, steps) for step in range(steps)]
    peak = int(np.argmax(rates))
    assert max(rates) == pytest.approx(2e-3)
    assert min(rates) > 0
    assert rates[: peak + 1] == sorted(rates[: peak + 1])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert peak <= max(1, round(warmup * steps))


@pytest.mark.parametrize(
    ("streams", "before"),
    [
        ("public private", 0),
        ("public public private public", 1),  # the last one has read private text
        ("private public", None),
        ("public", None),
        ("public screened private", 0),  # redacted private text is private text
        ("public public marked", 1),
    ],
)
def test_the_model_to_compare_with_is_the_last_that_read_no_private_text(streams: str, before: int | None) -> None:
    phases = [
        Phase(f"{number}", stream, PlainPlan(8), 3, AdamOptions(1e-3)) for number, stream in enumerate(streams.split())
    ]
    assert last_before_private(phases) == (None if before is None else phases[before])
