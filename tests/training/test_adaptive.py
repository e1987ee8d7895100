"""Adaptive DP in the loop: a unit moves a step by at most what the event says, and the published noise tells batches apart."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.config import ComputeOptions
from tacit.errors import DataError
from tacit.privacy.accounting.adaptive import spends_for_rho
from tacit.privacy.bands import Bands
from tacit.privacy.events import BandedPoissonGaussian, NonPrivate, PoissonGaussian, Spend
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.literal_adp import distinguishing_accuracy, nats_a_step
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.loop import run_phase
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan, LiteralPlan
from tacit.training.sequences import SequenceStream
from tacit.training.unit_rows import Source

from ..unrounded import UnroundedPlan
from .streams import OBJECTIVE, random_units, stream_of, tiny_bert

STREAMS = KeyedRandomness(bytes(range(32)))
WEIGHTS = Bands((0.3, 0.6), (1.0, 0.5, 0.2))
STRATUM = Bands((0.3, 0.6), (0.0, 1.0, 0.0))
PLAN = UnroundedPlan(sampling_probability=1.0, clip_norm=0.05, noise_multiplier=1.3, normaliser=1.0, bands=WEIGHTS)
COMPUTE = ComputeOptions(micro_batch=3, threads=1, checkpoint_seconds=1e9)


def with_rho(units: dict[str, list[list[int]]], rho: dict[str, float]) -> SequenceStream:
    return dataclasses.replace(stream_of(units), rho_U=np.array([rho[name] for name in units]))


def one_step(stream: SequenceStream, plan: DpPlan, kind: type[DpStep] = DpStep, width: int = 8) -> torch.Tensor:
    """What one step hands to the optimizer, over all of its draw."""
    return of_steps(stream, plan, kind, (3,), width)[0]


def of_steps(
    stream: SequenceStream, plan: DpPlan, kind: type[DpStep], steps: Sequence[int], width: int
) -> torch.Tensor:
    """What each of these steps hands to the optimizer, all from the same weights (steps, parameters)."""
    model, found = tiny_bert(width=width), []
    model.train()
    with contextlib.closing(kind(model, plan, COMPUTE, Source(stream, OBJECTIVE, STREAMS))) as step_of:
        for step in steps:
            model.zero_grad(set_to_none=True)
            for _ in step_of.add_up(step, step_of.draw(step), 0):
                pass
            step_of.finish(step)
            found.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    return torch.stack(found)


def silent(plan: DpPlan) -> DpPlan:
    return dataclasses.replace(plan, noise_multiplier=0.0)


def drawn(stream: SequenceStream, plan: DpPlan, steps: int, kind: type[DpStep] = DpStep) -> list[set[str]]:
    """In each of so many steps."""
    with contextlib.closing(kind(tiny_bert(), plan, COMPUTE, Source(stream, OBJECTIVE, STREAMS))) as step_of:
        return [{stream.keys_U[unit] for unit in step_of.draw(step)} for step in range(steps)]


# influence -----------------------------------------------------------------------------------------------------------


class WeightsIgnored(DpStep):
    """Known wrong: the event has the weights, the clipper has not."""

    def __init__(self, model, plan, compute, source):
        super().__init__(model, plan, compute, source)
        self._weights_U = np.where(self._weights_U > 0, 1.0, 0.0)


class NoiseWithTheWeights(DpStep):
    """Known wrong: the noise shrinks with the batch's weights, as the clip norm does."""

    def finish(self, step):
        mean = float(self._weights_U[self._drawn].mean()) if len(self._drawn) else 1.0
        self._plan = dataclasses.replace(self._plan, noise_multiplier=self._plan.noise_multiplier * mean)
        super().finish(step)


class StrataOfTheBatch(DpStep):
    """Known wrong: the thresholds are quantiles of the corpus at hand, so another unit may move this one."""

    def __init__(self, model, plan, compute, source):
        super().__init__(model, plan, compute, source)
        rho_U = source.stream.rho_U
        low, high = np.quantile(rho_U, [0.3, 0.6])
        self._weights_U = ((rho_U >= low) & (rho_U < high)).astype(float)


def check_influence(plan: DpPlan, rho: dict[str, float], kind: type[DpStep] = DpStep) -> list[float]:
    """Each unit in turn is taken away: the sum moves by at most what the event says of its rho. The shares of that bound."""
    units, shares = random_units(3), []
    whole = one_step(with_rho(units, rho), silent(plan), kind)
    for name in units:
        without = one_step(with_rho({key: rows for key, rows in units.items() if key != name}, rho), silent(plan), kind)
        moved = float((whole - without).norm()) * plan.normaliser
        event = plan.event
        assert isinstance(event, BandedPoissonGaussian)
        own = spends_for_rho([Spend(event)], rho[name])
        # The event says: noise of its noise multiplier times what the unit moves; without an event, it moves nothing.
        allowed = 0.0
        if own:
            assert isinstance(own[0].event, PoissonGaussian)
            allowed = plan.noise_stddev / own[0].event.noise_multiplier
        assert moved <= allowed * (1 + 1e-5) + 1e-12
        shares.append(moved / allowed if allowed else 0.0)
    return shares


NAMES = tuple(random_units(3))
RHO = dict(zip(NAMES, (0.1, 0.45, 0.9, 0.5, 0.2, 0.7), strict=False))
probability = st.floats(0.0, 1.0)


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(rho=st.lists(probability, min_size=len(NAMES), max_size=len(NAMES)), weights=st.tuples(probability, probability),
       threshold=st.floats(0.05, 0.95), clipping=st.sampled_from(["flat", "automatic", "per-layer"]))  # fmt: skip
def test_a_unit_moves_a_step_by_at_most_what_the_event_says(
    rho: list[float], weights: tuple[float, float], threshold: float, clipping: str
) -> None:
    bands = Bands((threshold,), (max(weights[0], 1e-3), round(weights[1], 2)))
    plan = dataclasses.replace(PLAN, bands=bands, clipping=clipping)
    check_influence(plan, dict(zip(NAMES, rho, strict=True)))


@pytest.mark.parametrize("bands", [WEIGHTS, STRATUM])
def test_the_bound_is_reached_and_a_unit_of_another_stratum_moves_nothing(bands: Bands) -> None:
    shares = check_influence(dataclasses.replace(PLAN, bands=bands), RHO)
    assert max(shares) > 0.99
    if bands is STRATUM:
        outside = [share for name, share in zip(NAMES, shares, strict=True) if not 0.3 <= RHO[name] < 0.6]
        assert len(outside) >= 3
        assert set(outside) == {0.0}


def test_the_check_of_the_influence_catches_weights_that_are_ignored() -> None:
    with pytest.raises(AssertionError):
        check_influence(PLAN, RHO, WeightsIgnored)


def noise_of(kind: type[DpStep], rho: float) -> torch.Tensor:
    """What is added to the clipped sum of a corpus in which all units have this rho."""
    stream = with_rho(random_units(3), dict.fromkeys(NAMES, rho))
    return one_step(stream, PLAN, kind, width=16) - one_step(stream, silent(PLAN), DpStep, width=16)


def test_the_noise_is_the_same_for_every_batch() -> None:
    empty = dataclasses.replace(stream_of({}), starts_U1=np.zeros(1, dtype=np.int64), rho_U=np.zeros(0))
    alone = one_step(empty, PLAN, width=16)  # an empty stratum: noise, and nothing else
    assert float(alone.std()) == pytest.approx(PLAN.noise_stddev, rel=0.05)
    for rho in (0.0, 0.5, 1.0):
        torch.testing.assert_close(noise_of(DpStep, rho), alone, rtol=1e-6, atol=1e-9)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(noise_of(NoiseWithTheWeights, 1.0), alone, rtol=1e-6, atol=1e-9)


# sampling ------------------------------------------------------------------------------------------------------------


def check_own_stratum(kind: type[DpStep]) -> None:
    """Another rho of one unit, or one unit more at the end, never decides whether a unit takes part."""
    plan = dataclasses.replace(PLAN, bands=STRATUM, sampling_probability=0.6)
    units = random_units(3)
    before = drawn(with_rho(units, RHO), plan, 5, kind)
    for other in (0.0, 1.0, 0.5):
        moved = drawn(with_rho(units, {**RHO, NAMES[0]: other}), plan, 5, kind)
        assert [names - {NAMES[0]} for names in before] == [names - {NAMES[0]} for names in moved]
    more = drawn(with_rho({**units, "new": [[7, 8, 9]]}, {**RHO, "new": 0.05}), plan, 5, kind)
    assert before == [names - {"new"} for names in more]


def test_a_stratum_is_a_function_of_the_unit_alone() -> None:
    check_own_stratum(DpStep)


def test_the_check_catches_strata_that_are_chosen_from_the_corpus_at_hand() -> None:
    with pytest.raises(AssertionError):
        check_own_stratum(StrataOfTheBatch)


def test_units_of_a_stratum_are_drawn_with_the_events_probability() -> None:
    plan = dataclasses.replace(PLAN, bands=STRATUM, sampling_probability=0.25)
    units = {f"u{number}": [[7, 8]] for number in range(400)}
    rho = {name: 0.45 if number % 2 else 0.8 for number, name in enumerate(units)}
    stream = with_rho(units, rho)
    counts = drawn(stream, plan, 30)
    assert all(rho[name] == 0.45 for names in counts for name in names)
    total, trials = sum(map(len, counts)), 30 * 200
    assert abs(total - 0.25 * trials) < 5 * (trials * 0.25 * 0.75) ** 0.5  # false alarm below 1e-6


# the plan ------------------------------------------------------------------------------------------------------------


def test_the_event_has_the_weights_of_the_plan() -> None:
    assert PLAN.event == BandedPoissonGaussian(1.0, 1.3, (0.3, 0.6), (1.0, 0.5, 0.2))
    assert dataclasses.replace(PLAN, bands=None).event == PoissonGaussian(1.0, 1.3)


def test_units_without_a_rho_or_with_an_impossible_one_do_not_train() -> None:
    with pytest.raises(ValueError, match="a rho of every unit"):
        one_step(stream_of(random_units(3)), PLAN)
    with pytest.raises(DataError, match="no number from 0 to 1"):
        one_step(with_rho(random_units(3), {**RHO, NAMES[1]: 1.2}), PLAN)


def test_a_phase_pays_its_banded_event_and_an_empty_stratum_pays_the_same(tmp_path: Path) -> None:
    """What an onlooker sees of an empty stratum is what they see of any: its steps, paid one by one, noise, and keyed digests."""
    plan = dataclasses.replace(PLAN, sampling_probability=0.5, bands=Bands((0.97,), (0.0, 1.0)))
    phase = Phase("stratum", "private", plan, 4, AdamOptions(1e-3))
    paid = []
    for rho in (0.2, 0.99):
        folder = tmp_path / str(rho)
        folder.mkdir()
        header = LedgerHeader("record", "add-or-remove", 10, 1e6, 1e-5, "config", "key")
        with Ledger.create(folder / "ledger.sqlite", header) as ledger:
            assert phase.event is not None
            ledger.plan("stratum", phase.event, 4)
            stream = with_rho(random_units(3), dict.fromkeys(NAMES, rho))
            model = tiny_bert()
            run_phase(model, phase, stream, OBJECTIVE, ledger, STREAMS, COMPUTE, folder / "stratum.pt")
            paid.append([(row.kind, row.body, row.first, row.count) for row in ledger.rows if row.kind != "bind"])
            (bound,) = (row for row in ledger.rows if row.kind == "bind")
            assert len(bound.body["value"]) == 64
    assert paid[0] == paid[1]


# the published algorithm ---------------------------------------------------------------------------------------------

LITERAL = LiteralPlan(1.0, 0.05, 5.0, 1.0, parameters=3000)


def told_apart(plan: DpPlan, rho: tuple[float, float]) -> bool:
    """From the size of ten noisy gradients alone: which of two corpora, that differ in the rho of one unit, has more noise?"""
    units, sizes = random_units(3), []
    for one in rho:
        stream = with_rho(units, {**dict.fromkeys(NAMES, 0.2), NAMES[0]: one})
        sizes.append(float(of_steps(stream, plan, DpStep, range(10), 32).square().mean()) ** 0.5)
    deviations = [plan.noise_on(np.array([*[0.2] * (len(NAMES) - 1), one])) for one in rho]
    guesses = [min(range(2), key=lambda world: abs(size - deviations[world])) for size in sizes]
    return guesses == [0, 1]


@pytest.mark.slow
def test_literal_noise_tells_two_neighbouring_batches_apart_and_certified_noise_does_not() -> None:
    assert told_apart(LITERAL, (0.0, 1.0))
    constant = dataclasses.replace(PLAN, noise_multiplier=5.0)
    assert constant.noise_on(np.array([0.0])) == constant.noise_on(np.array([1.0])) == constant.noise_on(None)
    assert not told_apart(constant, (0.0, 1.0))


def test_the_literal_noise_is_the_mean_rho_of_the_batch() -> None:
    assert LITERAL.noise_on(np.array([0.2, 0.6])) == pytest.approx(0.4 * 5.0 * 0.05)
    assert LITERAL.noise_on(np.zeros(3)) == 0.0
    assert LITERAL.noise_on(np.zeros(0)) == 0.0


def test_the_literal_event_has_no_epsilon_and_says_why() -> None:
    event = LITERAL.event
    assert isinstance(event, NonPrivate)
    assert "3,000 parameters" in event.reason
    assert "% of guesses" in event.reason


def test_the_attack_in_numbers_is_that_of_two_normals() -> None:
    """Against simulated sums of squares, and the nats that are known for 110 million parameters."""
    assert nats_a_step(110_000_000, 0.5, 0.5 + 1 / 4096) == pytest.approx(26.2, abs=0.05)
    assert nats_a_step(10, 0.0, 0.1) == float("inf")
    assert nats_a_step(10, 0.3, 0.3) == 0.0
    generator = np.random.default_rng(1)
    d, one, two, trials = 2000, 0.5, 0.51, 4000
    means = [scale**2 * generator.chisquare(d, trials) / d for scale in (one, two)]
    middle = (one**2 * two**2 * np.log(two**2 / one**2)) / (two**2 - one**2)  # where both laws are equally likely
    right = (np.mean(means[0] < middle) + np.mean(means[1] > middle)) / 2
    assert distinguishing_accuracy(d, one, two) == pytest.approx(right, abs=0.03)
