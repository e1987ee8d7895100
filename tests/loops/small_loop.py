"""A loop of one's own that is as small as can be: what the tests of `tacit.loops` share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_model
from torch import Tensor, nn

from tacit import PrivateSteps, StepPlan
from tacit.loops.step import PrivateStep

UNITS, FEATURES = 40, 3
DATA = torch.randn(UNITS, FEATURES, generator=torch.Generator().manual_seed(1)) * torch.logspace(-2, 1, UNITS)[:, None]
PLAN = StepPlan(units=50, expected_batch=10, clip_norm=0.5, steps=4, noise_multiplier=1.0, delta=1e-3)


def changed(plan: StepPlan = PLAN, **options: Any) -> StepPlan:
    return dataclasses.replace(plan, **options)


def new_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(FEATURES, 4), nn.Tanh(), nn.Linear(4, 2))


def losses_of(model: nn.Module, rows: Tensor) -> Tensor:
    return model(rows).square().sum(1)


def clip_all(step: PrivateStep, model: nn.Module, size: int = 4, data: Tensor = DATA) -> None:
    for units, weights in step.micro_batches(size):
        with step.clipped():
            (losses_of(model, data[units]) * weights).sum().backward()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


def train(
    folder: Path,
    plan: StepPlan = PLAN,
    model: nn.Module | None = None,
    after: Callable[[int], None] = lambda step: None,
) -> PrivateSteps:
    """All steps that are left."""
    model = new_model() if model is None else model
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with PrivateSteps(model, plan, folder, present=UNITS) as private:
        for step in private:
            clip_all(step, model)
            step.finish()
            optimizer.step()
            after(step.number)
    return private


def saved(folder: Path, model: nn.Module | None = None) -> Path:
    folder.mkdir(parents=True)
    save_model(new_model() if model is None else model, str(folder / "model.safetensors"))
    return folder
