"""The steps of `CorrelatedPlan`: those of DP-SGD, but for their noise."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.engine.correlated import CorrelatedNoise
from tacit.errors import UsageError
from tacit.training.correlation import banded_column
from tacit.training.dp_step import DpStep
from tacit.training.plans import CorrelatedPlan
from tacit.training.unit_rows import Source

__all__ = ["CorrelatedStep"]


class CorrelatedStep(DpStep):
    """A `DpStep` whose noise takes back a part of that of the steps before it.

    Raises:
        UsageError: with several ranks, whose shares of the noise hang on their number.
    """

    def __init__(self, model: PreTrainedModel, plan: CorrelatedPlan, compute: ComputeOptions, source: Source) -> None:
        if source.ranks.world > 1:
            raise UsageError(
                "phases: noise_bands: correlated noise is made by one process; leave torchrun or noise_bands out"
            )
        super().__init__(model, plan, compute, source)
        self._noises = CorrelatedNoise(dict(model.named_parameters()), banded_column(plan.noise_bands).tolist())

    def add_noise(self, step: int) -> None:
        stddev, grid = self._noise()
        assert grid is not None  # of every plan with a guarantee
        self._noises.add_(stddev, self._source.streams, step, grid, self._clipper.take_rests())

    def remembered(self) -> Sequence[Sequence[torch.Tensor]]:
        return self._noises.remembered()

    def remember(self, noise: Sequence[Sequence[torch.Tensor]]) -> None:
        self._noises.remember(noise)
