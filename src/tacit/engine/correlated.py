"""Noise that takes back a part of what earlier steps added: C^-1 times independent noise, for a banded lower triangular C.

By substitution: of C W = Z the row of step t is c_0 W_t + c_1 W_(t-1) + ... = Z_t, so W_t needs the noise of the last steps alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn

from tacit.engine.noise import Grid, gradient_of, independent_noise
from tacit.randomness import KeyedRandomness

__all__ = ["CorrelatedNoise"]


class CorrelatedNoise:
    """Adds each step's noise, and remembers that of the last ones, in float64; on one process, with parameters that are whole.

    Args:
        parameters: ``model.named_parameters()``; the trainable ones get noise.
        column: the first column of C from its diagonal down, as long as it has bands.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], column: Sequence[float]) -> None:
        self._named = {name: parameter for name, parameter in parameters.items() if parameter.requires_grad}
        self._column = tuple(column)
        self._last: deque[list[Tensor]] = deque(maxlen=len(self._column) - 1)

    def add_(
        self,
        noise_stddev: float,
        streams: KeyedRandomness,
        step: int,
        grid: Grid,
        rests: Mapping[nn.Parameter, Tensor] = MappingProxyType({}),
    ) -> None:
        """Add the step's noise to ``p.grad``, which is made where no unit has one; steps must come one after the other.

        Sum and noise are rounded, and what is remembered is the rounded noise: so what is released is still a function of C X + Z,
        with X the rounded sums and Z not rounded (docs/guarantees.md).

        Args:
            noise_stddev: standard deviation of Z, as `on_grid` gives it.
            streams, step, rests: as `add_noise_`.
        """
        first, *others = self._column
        own = list(independent_noise(self._named.items(), noise_stddev, streams, step).values())
        for number, (parameter, noise) in enumerate(zip(self._named.values(), own, strict=True)):
            # the newest first; at the beginning there are fewer
            for factor, before in zip(others, self._last, strict=False):
                noise -= factor * before[number]
            noise.copy_(grid.rounded(noise.div_(first)))
            gradient = gradient_of(parameter)
            total = gradient.double()
            if parameter in rests:
                total += rests[parameter]
            gradient.copy_(grid.rounded(total).add_(noise))
        self._last.appendleft(own)

    def remembered(self) -> list[list[Tensor]]:
        """The noise of the last steps, the newest first, by parameter: what `remember` goes on from."""
        return [list(noise) for noise in self._last]

    def remember(self, noise: Sequence[Sequence[Tensor]]) -> None:
        """Go on from `remembered`."""
        self._last.clear()
        for of_step in noise:
            self._last.append(
                [
                    part.to(parameter.device, torch.float64, copy=True)
                    for parameter, part in zip(self._named.values(), of_step, strict=True)
                ]
            )
