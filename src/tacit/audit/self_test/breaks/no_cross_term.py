"""A tied table clipped without its cross term: as if embedding and head were two parameters, whose sums are added up.

Where the two parts of a gradient point the same way it is longer than that by a factor of sqrt(2), and so is what a unit adds.
"""

from __future__ import annotations

import numpy as np
from torch import nn
from transformers import PreTrainedModel

from tacit.audit.bounds.gaussian import GaussianDp
from tacit.audit.self_test.breaks.kind import Break
from tacit.audit.self_test.games import Crowd
from tacit.audit.self_test.model import GRADIENT_NORM, WordTable
from tacit.config import ComputeOptions
from tacit.engine import add_noise_
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan
from tacit.training.unit_rows import Source

__all__ = ["NO_CROSS_TERM", "NoCrossTerm"]


class NoCrossTerm(DpStep):
    """Clips a twin of the model that has the table twice, with the same values in the same memory."""

    def __init__(self, model: PreTrainedModel, plan: DpPlan, compute: ComputeOptions, source: Source) -> None:
        assert isinstance(model, WordTable)
        self._tied = model
        self._twin = WordTable(model.table.num_embeddings, tied=False)
        self._twin.table.weight = nn.Parameter(model.table.weight.data)
        self._twin.head.weight = nn.Parameter(model.table.weight.data)
        super().__init__(self._twin, plan, compute, source)

    def draw(self, step: int) -> np.ndarray:
        self._twin.zero_grad()
        return super().draw(step)

    def finish(self, step: int) -> None:
        parts = [weight.grad for weight in (self._twin.table.weight, self._twin.head.weight) if weight.grad is not None]
        self._tied.table.weight.grad = parts[0] + parts[1] if parts else None
        stddev, grid = self._noise()
        add_noise_(self._tied.named_parameters(), stddev, self._source.streams, step, grid)
        assert self._tied.table.weight.grad is not None
        self._tied.table.weight.grad.div_(self._plan.normaliser)


NO_CROSS_TERM = Break(
    title="a tied table clipped without its cross term",
    made_by=NoCrossTerm,
    game=Crowd(DpPlan(1.0, GRADIENT_NORM / 4, noise_multiplier=0.5, normaliser=512), steps=1, trainings=2),
    bound=GaussianDp(),
    granted="every unit is in the one step, under Gaussian noise, and no two canaries share a direction",
)
