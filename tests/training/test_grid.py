"""Sum and noise of every phase with a guarantee are multiples of a public number, and the noise pays for the rounding."""

from __future__ import annotations

import dataclasses
import math
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tacit.config import ComputeOptions, parse_config
from tacit.config.base import named
from tacit.engine.distributed import Ranks
from tacit.engine.noise import Grid, independent_noise, on_grid
from tacit.errors import UsageError
from tacit.privacy.bands import Bands
from tacit.randomness import KeyedRandomness
from tacit.training.plans import CorrelatedPlan, DpPlan, LiteralPlan, NoiselessPlan
from tacit.training.unit_rows import Source

from ..adaptive_runs import adaptive_values
from ..unrounded import UnroundedPlan
from .phases import KEY, PHASE, dropping_bert, spent, train
from .streams import OBJECTIVE, random_units, stream_of

torch.set_num_threads(1)

PLAN = DpPlan(sampling_probability=0.7, clip_norm=0.4, noise_multiplier=0.5, normaliser=8.0, sequences_per_unit=2)
CORRELATED = CorrelatedPlan(
    **{field.name: getattr(PLAN, field.name) for field in dataclasses.fields(DpPlan)}, noise_bands=3
)
STREAM = stream_of(random_units(8))
COMPUTE = ComputeOptions(micro_batch=4, threads=1)
DIMENSIONS = sum(parameter.numel() for parameter in dropping_bert(0.0).parameters())
GRID = Grid.fine_enough(PLAN.clip_norm, DIMENSIONS)


OFF_GRID = UnroundedPlan.of(PLAN)


def noisy(plan: DpPlan, steps: int = 1) -> Tensor:
    """The noisy sum of the last of some steps over the normaliser, in float64."""
    model = dropping_bert(0.0).train()
    with closing(named(plan.step)(model, plan, COMPUTE, Source(STREAM, OBJECTIVE, KeyedRandomness(KEY)))) as step_of:
        for step in range(steps):
            model.zero_grad(set_to_none=True)
            for _ in step_of.add_up(step, step_of.draw(step), 0):
                pass
            step_of.finish(step)
    return torch.cat([own.grad.flatten() for own in model.parameters() if own.grad is not None])


def is_on(grid: Grid, values: Tensor) -> bool:
    return bool((torch.remainder(values * PLAN.normaliser, grid.spacing) == 0).all())


@pytest.mark.parametrize("plan", [PLAN, CORRELATED])
def test_what_the_optimizer_gets_is_on_the_grid(plan: DpPlan) -> None:
    for steps in (1, 2, 4):
        assert is_on(GRID, noisy(plan, steps))
    assert not is_on(GRID, noisy(OFF_GRID))


def test_only_plans_without_a_guarantee_are_off_the_grid() -> None:
    numbers = {field.name: getattr(PLAN, field.name) for field in dataclasses.fields(DpPlan)}
    assert PLAN.is_on_grid
    assert CORRELATED.is_on_grid
    assert not LiteralPlan(**numbers).is_on_grid
    assert not NoiselessPlan.of(PLAN).is_on_grid


def test_it_is_the_rounded_sum_and_the_rounded_noise() -> None:
    """The sum, rounded alone, as the control without noise has it; the noise from the same streams, in float64."""
    model = dropping_bert(0.0)
    stddev, grid = on_grid(PLAN.noise_multiplier, PLAN.clip_norm, DIMENSIONS)
    noise = independent_noise(model.named_parameters(), stddev, KeyedRandomness(KEY), 0)
    drawn = torch.cat([noise[name].flatten() for name, _ in model.named_parameters()])
    total = noisy(NoiselessPlan.of(PLAN)) * PLAN.normaliser
    expected = grid.rounded(total) + grid.rounded(drawn)
    found = noisy(PLAN) * PLAN.normaliser
    assert (found == expected).double().mean() > 0.999  # the normaliser may have cost a last digit
    assert float((found - expected).abs().max()) <= grid.spacing


def noise_of(plan: DpPlan, ranks: Ranks) -> tuple[float, Grid]:
    source = Source(STREAM, OBJECTIVE, KeyedRandomness(KEY), ranks)
    with closing(named(plan.step)(dropping_bert(0.0), plan, COMPUTE, source)) as step_of:
        stddev, grid = step_of._noise()
    assert grid is not None
    return stddev, grid


def test_the_noise_pays_for_the_rounding() -> None:
    """A unit moves the rounded sum by at most C + h sqrt(d), which is less than a thousandth more than C."""
    stddev, grid = noise_of(PLAN, Ranks(0, 1))
    assert grid == GRID
    more = GRID.spacing * math.sqrt(DIMENSIONS)
    assert stddev / PLAN.noise_multiplier == pytest.approx(PLAN.clip_norm + more, rel=1e-15)
    assert PLAN.noise_stddev < stddev < PLAN.noise_stddev * (1 + 1 / 1000)
    halves = np.random.default_rng(0).choice([-0.5, 0.5], DIMENSIONS) * GRID.spacing  # where rounding moves most
    moved = GRID.rounded(torch.from_numpy(halves * 1.0001)) - GRID.rounded(torch.from_numpy(-halves * 0.9999))
    assert float(moved.norm()) <= float(np.linalg.norm(2 * halves)) + GRID.spacing * math.sqrt(DIMENSIONS)


def test_several_ranks_add_up_before_anything_is_rounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """So their number changes neither the noise nor what is rounded: a unit that moves others to other ranks moves no rounding."""
    monkeypatch.setattr(Ranks, "agree", lambda *_: None)  # the other three are not there
    assert noise_of(PLAN, Ranks(1, 4)) == noise_of(PLAN, Ranks(0, 1))


@pytest.mark.parametrize("weights", [(1.0, 0.25, 0.5), (0.03, 1.0, 0.0)])
def test_units_that_count_little_have_a_grid_that_is_fine_for_them(weights: tuple[float, ...]) -> None:
    """Of a unit of weight w the event says noise s / w: so much it must be against w C and the rounding."""
    bands = Bands((0.3, 0.6), weights)
    plan = dataclasses.replace(PLAN, bands=bands)
    stddev, grid = on_grid(plan.noise_multiplier, plan.clip_norm, DIMENSIONS, plan.smallest_weight)
    for weight in bands.weights:
        if weight:
            moved = weight * plan.clip_norm + grid.spacing * math.sqrt(DIMENSIONS)
            assert stddev / moved >= plan.noise_multiplier / weight * (1 - 1e-12)
    assert stddev < plan.noise_stddev * (1 + 1 / 1000)
    coarse = GRID.sensitivity(plan.smallest_weight * plan.clip_norm, DIMENSIONS)  # known wrong: the grid of weight 1
    assert stddev / coarse < plan.noise_multiplier / plan.smallest_weight


def test_a_weight_that_no_grid_is_fine_enough_for_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"below 0\.0001"):
        _ = dataclasses.replace(PLAN, bands=Bands((0.5,), (1.0, 9e-5))).smallest_weight
    values = adaptive_values(tmp_path, "clip-weights", weights=[1.0, 9e-5])
    del values["adaptive"]["budget"]
    with pytest.raises(UsageError, match=r"adaptive\.weights: one is below 0\.0001"):
        parse_config(values)


def test_noise_that_has_no_grid_is_refused_before_a_step_is_paid(tmp_path: Path) -> None:
    loud = dataclasses.replace(PLAN, noise_multiplier=1e12)
    with pytest.raises(UsageError, match="float64 has no grid for both"):
        train(tmp_path, STREAM, phase=dataclasses.replace(PHASE, plan=loud))
    assert spent(tmp_path) == 0


def test_the_scale_of_the_noise() -> None:
    """Over the noise of the same draws without a grid, of which rounding changes almost nothing."""
    difference = (noisy(PLAN) - noisy(OFF_GRID)) * PLAN.normaliser
    assert 0 < float(difference.abs().max()) < 5 * PLAN.noise_stddev / 1000 + GRID.spacing
