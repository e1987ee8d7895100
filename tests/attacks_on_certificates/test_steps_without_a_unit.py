"""TACIT-49: a step that drew nobody, or only a unit at which the model raises, ended a run with correlated noise behind its payment.

Of one unit in a corpus a release showed that it was drawn in every step: certified epsilon as small as one likes, attack 1 of 1.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers.models.bert.modeling_bert import BertEmbeddings

from tacit.engine import correlated
from tacit.engine.correlated import CorrelatedNoise
from tacit.engine.noise import Grid
from tacit.randomness import KeyedRandomness
from tacit.training.correlation import banded_column
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import CorrelatedPlan, DpPlan

from ..training.phases import PLAN, Weights, same, spent, train
from ..training.streams import stream_of

CORRELATED = CorrelatedPlan(
    sampling_probability=1.0, clip_norm=0.4, noise_multiplier=50.0, normaliser=1.0, noise_bands=2
)
PLANS: dict[str, DpPlan] = {
    "independent": PLAN,
    "per layer": replace(PLAN, clipping="per-layer"),
    "correlated": CORRELATED,
}
ROW = [[7, 8, 9]]


def steps_of(plan: DpPlan) -> Phase:
    return Phase("private", "private", plan, 4, AdamOptions(1e-2))


@pytest.mark.parametrize("name", PLANS)
@pytest.mark.parametrize("units", [{}, {"unit 0": ROW}, {"unit 0": []}, {"unit 0": ROW, "unit 1": ROW}])
def test_every_step_happens_whoever_is_drawn(name: str, units: dict[str, list[list[int]]], tmp_path: Path) -> None:
    phase = steps_of(PLANS[name])
    found = train(tmp_path, stream_of(units), phase=phase)
    assert spent(tmp_path) == phase.payments
    assert all(value.isfinite().all() for value in found.values())


def ends(folder: Path, key: int, units: dict[str, list[list[int]]]) -> bool:
    folder.mkdir()
    try:
        train(folder, stream_of(units), KeyedRandomness(bytes([key]) * 32), phase=steps_of(CORRELATED))
    except AttributeError:
        return False
    return True


@pytest.mark.slow
def test_whether_a_run_ends_is_no_function_of_the_draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The attack's number: of one unit more it sees the release of some keys, and of one unit none at all."""
    pair = {"unit 0": ROW}, {"unit 0": ROW, "unit 1": ROW}
    assert all(ends(tmp_path / f"{key}-{len(units)}", key, units) for key in range(6) for units in pair)

    def missing(parameter: nn.Parameter) -> torch.Tensor:
        """Known wrong: what the units left, if there were any."""
        return parameter.grad  # pyright: ignore[reportReturnType]

    monkeypatch.setattr(correlated, "gradient_of", missing)
    one, two = ([ends(tmp_path / f"wrong-{key}-{len(units)}", key, units) for key in range(6)] for units in pair)
    assert not any(one)
    assert any(two)


def test_nothing_at_all_gets_the_noise_of_a_sum_of_zero() -> None:
    found: list[Weights] = []
    for filled in (True, False):
        model = nn.Linear(3, 2, dtype=torch.float64)
        noises = CorrelatedNoise(dict(model.named_parameters()), banded_column(3).tolist())
        for step in range(4):
            for parameter in model.parameters():
                parameter.grad = torch.zeros_like(parameter) if filled else None
            noises.add_(1.0, KeyedRandomness(bytes(32)), step, Grid(2.0**-20))
        found.append({name: one.grad for name, one in model.named_parameters() if one.grad is not None})
    assert len(found[0]) == 2
    assert same(*found)
    assert math.isfinite(sum(float(one.sum()) for one in found[0].values()))


@pytest.mark.parametrize("name", PLANS)
def test_a_unit_at_which_the_model_raises_is_one_that_is_not_drawn(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the only one that is drawn: nothing is added, and its step happens."""
    plan, embedded, asked = PLANS[name], BertEmbeddings.forward, []

    def forward(self: BertEmbeddings, input_ids: torch.Tensor, *others: Any, **named: Any) -> torch.Tensor:
        if (input_ids == ROW[0][0]).any():
            asked.append(1)
            raise ValueError("not at this word")
        return embedded(self, input_ids, *others, **named)

    monkeypatch.setattr(BertEmbeddings, "forward", forward)
    train(tmp_path, stream_of({"unit 0": [ROW[0] * 3]}), phase=steps_of(plan))
    assert spent(tmp_path) == steps_of(plan).payments
    assert asked
