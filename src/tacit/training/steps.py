"""The gradients of one step, in parts: `tacit.training.dp_step` and `tacit.training.plain_step` make them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.config.base import named
from tacit.training.phases import Phase
from tacit.training.unit_rows import Source

__all__ = ["Step", "step_of_phase"]


def step_of_phase(model: PreTrainedModel, phase: Phase, compute: ComputeOptions, source: Source) -> Step:
    """How the steps of a phase are made."""
    return named(phase.plan.step)(model, phase.plan, compute, source)


class Step(ABC):
    """The gradients of one step, in parts.

    Args:
        at_once: entries of the draw that a rank holds in memory at once.
        source: what the steps read.
    """

    def __init__(self, at_once: int, source: Source) -> None:
        self._at_once = at_once
        self._source = source

    def add_up(self, step: int, draw: np.ndarray, drawn: int) -> Iterator[int]:
        """Add the gradients of the step's draw from entry ``drawn`` on to ``p.grad``, those of this rank's slices.

        After each round of all ranks but the last, it gives how many entries of the draw are done.
        """
        ranks = self._source.ranks
        while drawn < len(draw):
            end = drawn + self.together(draw[drawn : drawn + self._at_once * ranks.world])
            places = ranks.slice(np.arange(drawn, end))
            if len(places):
                self.add(draw[places], places, step)
            else:
                self.add_nothing(draw[drawn], step)
            if end < len(draw):
                yield end
            drawn = end

    def together(self, entries: np.ndarray) -> int:
        """How many entries, from the first on, may be in one micro-batch."""
        return len(entries)

    @abstractmethod
    def draw(self, step: int) -> np.ndarray:
        """The step's draw, the same at every rank."""

    @abstractmethod
    def add(self, chosen: np.ndarray, places: np.ndarray, step: int) -> None:
        """Add the gradients of these entries, which stand at these places of the draw."""

    def add_nothing(self, like: int, step: int) -> None:  # noqa: B027 - most steps have nothing to do then
        """This rank has no entry beside the others', of which ``like`` is the first."""

    @abstractmethod
    def sums(self) -> list[torch.Tensor]:
        """What this rank has added up so far, of each trainable parameter."""

    @abstractmethod
    def put_sums(self, sums: Sequence[torch.Tensor]) -> None:
        """Go on from `sums`."""

    def remembered(self) -> Sequence[Sequence[torch.Tensor]]:
        """The noise of earlier steps that the noise of the next one depends on, the newest first, of each trainable parameter."""
        return ()

    def remember(self, noise: Sequence[Sequence[torch.Tensor]]) -> None:
        """Go on from `remembered`."""
        assert not noise

    @abstractmethod
    def finish(self, step: int) -> None:
        """Make of the sums what the optimizer gets, the same at every rank."""

    @abstractmethod
    def close(self) -> None:
        """Leave the model as it was."""
