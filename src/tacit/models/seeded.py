"""New models whose weights are a function of a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from transformers import PreTrainedModel

__all__ = ["seeded"]

Config = TypeVar("Config")
Model = TypeVar("Model", bound=PreTrainedModel)


def seeded(kind: Callable[[Config], Model], config: Config, seed: int) -> Model:
    """A new model of this kind. The process's own random numbers are left as they were."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return kind(config)
