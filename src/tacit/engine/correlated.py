"""Noise that takes back a part of what earlier steps added: C^-1 times independent noise, for a banded lower triangular C.

By substitution: of C W = Z the row of step t is c_0 W_t + c_1 W_(t-1) + ... = Z_t, so W_t needs the noise of the last steps alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from tacit.engine.noise import add_noise_
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
        self, noise_stddev: float, streams: KeyedRandomness, step: int, rests: Mapping[nn.Parameter, Tensor]
    ) -> None:
        """Add the step's noise to ``p.grad``, which is there; steps must come one after the other.

        Args:
            noise_stddev: standard deviation of Z: noise_multiplier * clip_norm.
            streams, step, rests: as `add_noise_`.
        """
        parameters = list(self._named.values())
        sums = [parameter.grad for parameter in parameters]
        for parameter in parameters:
            parameter.grad = None
        add_noise_(self._named.items(), noise_stddev, streams, step)
        first, *others = self._column
        own: list[Tensor] = []
        for number, (parameter, total) in enumerate(zip(parameters, sums, strict=True)):
            assert parameter.grad is not None
            assert total is not None
            noise = parameter.grad.double()
            for factor, before in zip(
                others, self._last, strict=False
            ):  # the newest first; at the beginning there are fewer
                noise -= factor * before[number]
            own.append(noise.div_(first))
            total.copy_(total.double().add_(noise))
            if parameter in rests:
                total += rests[parameter]
            parameter.grad = total
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
