"""Gaussian noise on the clipped sum, once a logical batch.

Each parameter's noise comes from its own keyed stream, addressed by (step, name): a step that is run again after a
crash draws the same noise, and no two steps or parameters ever share it. Add it after the last micro-batch, also when
the batch is empty.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch
from torch import nn

from tacit.errors import UsageError
from tacit.randomness import Streams

__all__ = ["add_noise_"]

_NUMPY_DTYPES: dict[torch.dtype, type[np.float32] | type[np.float64]] = {
    torch.float32: np.float32,
    torch.float64: np.float64,
}


def add_noise_(
    parameters: Iterable[tuple[str, nn.Parameter]], noise_stddev: float, streams: Streams, step: int
) -> None:
    """Add independent N(0, noise_stddev^2) to every coordinate of ``p.grad``; zeros are created where it is None.

    A parameter that appears under several names (tied weights) gets noise once, from the first name's stream. Frozen
    parameters are left out. With noise_stddev 0 nothing is drawn.

    Args:
        parameters: ``model.named_parameters()``; names are addresses, so they must not change in a run.
        noise_stddev: standard deviation of the noise on the *sum*: noise_multiplier * clip_norm.
        streams: the run's keyed streams; the stream ``("noise", step, name)`` is read from its beginning.
        step: the logical step, never used twice with the same streams.

    Raises:
        UsageError: the deviation is negative or not finite, the step is negative, a name stands for two parameters, or
            a parameter is neither float32 nor float64.
    """
    if not (math.isfinite(noise_stddev) and noise_stddev >= 0):
        raise UsageError(f"noise_stddev must be finite and not negative, not {noise_stddev}")
    if step < 0:
        raise UsageError(f"step must not be negative, not {step}")
    for name, parameter in _each_once(parameters).items():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter, memory_format=torch.contiguous_format)
        if noise_stddev > 0:
            noise = _standard_normal(parameter, streams.generator("noise", step, name))
            parameter.grad.add_(noise.to(parameter.device), alpha=noise_stddev)


def _each_once(parameters: Iterable[tuple[str, nn.Parameter]]) -> dict[str, nn.Parameter]:
    """Trainable parameters by the first name of each; checked before anything is changed."""
    named: dict[str, nn.Parameter] = {}
    seen: set[nn.Parameter] = set()
    for name, parameter in parameters:
        if name in named and named[name] is not parameter:
            raise UsageError(f"two parameters are called {name}, so they would get the same noise; name them apart")
        if parameter.requires_grad and parameter not in seen:
            if parameter.dtype not in _NUMPY_DTYPES:
                raise UsageError(f"{name} is {parameter.dtype}; noise is added to float32 or float64 parameters only")
            seen.add(parameter)
            named[name] = parameter
    return named


def _standard_normal(parameter: nn.Parameter, generator: np.random.Generator) -> torch.Tensor:
    normals = generator.standard_normal(parameter.numel(), dtype=_NUMPY_DTYPES[parameter.dtype])
    return torch.from_numpy(normals).view(parameter.shape)
