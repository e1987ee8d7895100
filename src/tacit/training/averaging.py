"""What a phase ends with beside its last iterate: every step's weights were released, so a function of them costs nothing more.

A running mean: the noise of single steps is smaller in it than in the last iterate (Polyak and Juditsky 1992; for DP-SGD De et al.
2022, section 3). The mean is exponential and without bias towards the phase's start: after t steps the weights of step i count in
proportion to ``decay ** (t - i)``, and the model that the phase began with does not count.

A part of the way: the weights between those that the phase began with and those it came to keep much of what both know
(Wortsman et al. 2022, WiSE-FT); half the way has a quarter of the noise's variance.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

__all__ = ["InterpolateFromStart", "IterateAverage"]


class IterateAverage:
    """The mean of a phase's iterates so far.

    Args:
        model: whose weights are averaged, in its own dtype.
        decay: how much less an iterate counts than the one after it, from 0 (the last one alone) to below 1.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._decay = decay
        self._mean = [torch.zeros_like(parameter) for parameter in self._parameters]

    @property
    def mean(self) -> list[Tensor]:
        """One tensor a parameter; zeros before the first step."""
        return self._mean

    def restore(self, mean: Sequence[Tensor]) -> None:
        """Go on from what a checkpoint holds."""
        for own, stored in zip(self._mean, mean, strict=True):
            own.copy_(stored)

    @torch.no_grad()
    def add(self, steps: int) -> None:
        """The model's weights after so many steps of the phase."""
        share = (1 - self._decay) / (1 - self._decay**steps)
        for mean, parameter in zip(self._mean, self._parameters, strict=True):
            mean.lerp_(parameter, share)

    @torch.no_grad()
    def apply(self) -> None:
        """The model's weights become the mean."""
        for mean, parameter in zip(self._mean, self._parameters, strict=True):
            parameter.copy_(mean)


class InterpolateFromStart:
    """The weights between those of a phase's start and those of its end.

    Args:
        model: with the weights that the phase begins with.
        part: of the change that is kept, from 0 (the start) to 1 (the end).
    """

    def __init__(self, model: nn.Module, part: float) -> None:
        self._parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        self._part = part
        self._start = [parameter.detach().clone() for parameter in self._parameters]

    @torch.no_grad()
    def apply(self) -> None:
        """The model's weights go back to where this part of the way is done."""
        for start, parameter in zip(self._start, self._parameters, strict=True):
            parameter.copy_(start.lerp(parameter, self._part))
