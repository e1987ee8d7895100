"""Sums over many micro-batches, in float64: a float32 sum of n clipped gradients forgets more than one of them when n is large.

A unit more or less moves the units behind it into other micro-batches, so every rounding after it is another one. In float32 these
add up: of 131,072 units with gradients in one direction, leaving one out whose gradient was zero moved the sum by 16 clip norms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

__all__ = ["RunningSums"]


@dataclass(frozen=True)
class _Sum:
    """A parameter's sum, and the gradient that was left as its rounding."""

    total: Tensor
    gradient: Tensor
    version: int

    def is_of(self, parameter: nn.Parameter) -> bool:
        """Whether ``p.grad`` is as it was left: whoever zeroes, scales or replaces it begins another sum."""
        return parameter.grad is self.gradient and self.gradient._version == self.version


class RunningSums:
    """The float64 sum of each parameter of which ``p.grad`` is the rounding; float64 parameters need none."""

    def __init__(self) -> None:
        self._sums: dict[nn.Parameter, _Sum] = {}

    def add_(self, parameter: nn.Parameter, value: Tensor) -> None:
        """Add to ``p.grad``, which is there."""
        assert parameter.grad is not None
        if parameter.grad.dtype == torch.float64:
            parameter.grad.add_(value)
            return
        self._keep(parameter, self._total(parameter).add_(value))

    def _total(self, parameter: nn.Parameter) -> Tensor:
        known = self._sums.pop(parameter, None)
        assert parameter.grad is not None
        return known.total if known is not None and known.is_of(parameter) else parameter.grad.double()

    def _keep(self, parameter: nn.Parameter, total: Tensor) -> None:
        gradient = parameter.grad
        assert gradient is not None
        gradient.copy_(total)
        self._sums[parameter] = _Sum(total, gradient, gradient._version)

    def exact(self, parameter: nn.Parameter) -> Tensor:
        """The sum in float64; ``p.grad`` itself where that is all there is."""
        assert parameter.grad is not None
        known = self._sums.get(parameter)
        return known.total if known is not None and known.is_of(parameter) else parameter.grad

    def put(self, parameter: nn.Parameter, total: Tensor) -> None:
        """Begin with a sum, or go on from one that `exact` gave: ``p.grad`` becomes its rounding."""
        parameter.grad = total.to(device=parameter.device, dtype=parameter.dtype, copy=True)
        if total.dtype != parameter.dtype:
            self._keep(parameter, total.to(parameter.device, copy=True))

    def take_rests(self) -> Mapping[nn.Parameter, Tensor]:
        """What ``p.grad`` could not hold of each sum, in its own precision; the sums are forgotten."""
        sums, self._sums = self._sums, {}
        return {
            parameter: (known.total - known.gradient).to(known.gradient.dtype)
            for parameter, known in sums.items()
            if known.is_of(parameter)
        }
