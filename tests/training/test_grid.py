"""Noise from a grid in a phase: all that the optimizer gets are multiples of a public number, and the noise pays for the rounding."""

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
from tacit.engine.noise import Grid
from tacit.errors import UsageError
from tacit.planning.adaptive import PhaseNoise
from tacit.planning.phases import phases_with
from tacit.privacy.bands import Bands
from tacit.randomness import KeyedRandomness
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan, GridPlan
from tacit.training.sums import sums_digest
from tacit.training.unit_rows import Source

from ..adaptive_runs import adaptive_values
from ..small import small_values
from .phases import KEY, dropping_bert
from .streams import OBJECTIVE, random_units, stream_of

torch.set_num_threads(1)

ON_GRID = GridPlan(sampling_probability=0.7, clip_norm=0.4, noise_multiplier=0.5, normaliser=8.0, sequences_per_unit=2)
PLAIN = DpPlan(**{field.name: getattr(ON_GRID, field.name) for field in dataclasses.fields(DpPlan)})
STREAM = stream_of(random_units(8))
COMPUTE = ComputeOptions(micro_batch=4, threads=1)
DIMENSIONS = sum(parameter.numel() for parameter in dropping_bert(0.0).parameters())
GRID = Grid.fine_enough(ON_GRID.clip_norm, DIMENSIONS)


def noisy(plan: DpPlan, step: int = 0) -> Tensor:
    """The noisy sum over the normaliser, in float64."""
    model = dropping_bert(0.0).train()
    with closing(named(plan.step)(model, plan, COMPUTE, Source(STREAM, OBJECTIVE, KeyedRandomness(KEY)))) as step_of:
        for _ in step_of.add_up(step, step_of.draw(step), 0):
            pass
        step_of.finish(step)
    return torch.cat([own.grad.flatten() for own in model.parameters() if own.grad is not None])


def is_on_grid(values: Tensor) -> bool:
    return bool((torch.remainder(values * ON_GRID.normaliser, GRID.spacing) == 0).all())


def test_what_the_optimizer_gets_is_on_the_grid() -> None:
    assert is_on_grid(noisy(ON_GRID))
    assert not is_on_grid(noisy(PLAIN))  # known wrong: its last digits tell of the sum


def test_the_noise_pays_for_the_rounding() -> None:
    """A unit moves the rounded sum by at most C + h sqrt(d), which is less than a thousandth more than C."""
    with closing(
        named(ON_GRID.step)(dropping_bert(0.0), ON_GRID, COMPUTE, Source(STREAM, OBJECTIVE, KeyedRandomness(KEY)))
    ) as step_of:
        stddev, grid = step_of._noise()
    assert grid == GRID
    assert stddev / ON_GRID.noise_multiplier == ON_GRID.clip_norm + GRID.spacing * math.sqrt(DIMENSIONS)
    assert ON_GRID.noise_stddev < stddev < ON_GRID.noise_stddev * (1 + 1 / 1000)
    halves = np.random.default_rng(0).choice([-0.5, 0.5], DIMENSIONS) * GRID.spacing  # where rounding moves most
    moved = GRID.rounded(torch.from_numpy(halves * 1.0001)) - GRID.rounded(torch.from_numpy(-halves * 0.9999))
    assert float(moved.norm()) <= float(np.linalg.norm(2 * halves)) + GRID.spacing * math.sqrt(DIMENSIONS)


def test_with_several_ranks_the_noise_pays_for_the_rounding_of_each() -> None:
    source = Source(STREAM, OBJECTIVE, KeyedRandomness(KEY), Ranks(1, 4))
    with closing(named(ON_GRID.step)(dropping_bert(0.0), ON_GRID, COMPUTE, source)) as step_of:
        stddev, grid = step_of._noise()
    assert grid == GRID
    assert stddev / ON_GRID.noise_multiplier == ON_GRID.clip_norm + 4 * GRID.spacing * math.sqrt(DIMENSIONS)


def test_the_scale_of_the_noise() -> None:
    """Over the noise of the same draws without a grid, of which rounding changes almost nothing."""
    difference = (noisy(ON_GRID) - noisy(PLAIN)) * ON_GRID.normaliser
    assert 0 < float(difference.abs().max()) < 5 * ON_GRID.noise_stddev / 1000 + GRID.spacing


def test_event_and_digest() -> None:
    phase = Phase("private", "private", ON_GRID, 3, AdamOptions(1e-2))
    assert ON_GRID.event == PLAIN.event
    model, streams = dropping_bert(0.0), KeyedRandomness(KEY)
    optimizer = torch.optim.AdamW(model.parameters())
    one, other = (
        sums_digest(model, optimizer, each, STREAM, OBJECTIVE, COMPUTE, streams)
        for each in (phase, dataclasses.replace(phase, plan=PLAIN))
    )
    assert one != other


def test_the_option_makes_the_plan(tmp_path: Path) -> None:
    values = small_values(tmp_path)
    plain = parse_config(values, "test")
    values["phases"][1]["grid"] = False
    assert parse_config(values, "test").digest() == plain.digest()
    values["phases"][1]["grid"] = True
    config = parse_config(values, "test")
    assert config.digest() != plain.digest()
    assert config.grid_phases == ["private"]
    plan = phases_with(config, {"private": PhaseNoise(1.0)})[1].plan
    assert isinstance(plan, GridPlan)
    assert plan.mechanism("private").endswith("on a grid")


def test_bands_have_no_grid(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not shrink"):
        dataclasses.replace(ON_GRID, bands=Bands((0.5,), (0.5, 1.0)))
    values = adaptive_values(tmp_path)
    for phase in values["phases"]:
        if phase["plan"] == "dp":
            phase["grid"] = True
    with pytest.raises(UsageError, match="grid: its rounding does not shrink with a unit's weight"):
        parse_config(values, "test")
