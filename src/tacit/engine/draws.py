"""Where random number generators are. Who draws is told by that one of them went on, however seldom what is drawn shows."""

from __future__ import annotations

import pickle
import random
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

__all__ = ["generator_states", "torch_states"]


def torch_states(others: Sequence[torch.Generator] = ()) -> list[Tensor]:
    """The states of torch's own generators, on the CPU and on every GPU that is in use, and of others."""
    generators = [torch.default_generator, *others]
    if torch.cuda.is_initialized():
        generators += torch.cuda.default_generators
    return [generator.get_state() for generator in generators]


def generator_states() -> tuple[object, ...]:
    """The states of all generators that a process has without asking: torch's, numpy's and Python's; to be compared by ``==``."""
    of_torch = (state.numpy().tobytes() for state in torch_states())
    return (*of_torch, pickle.dumps(np.random.get_state(legacy=False)), random.getstate())
