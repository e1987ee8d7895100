"""The ordinary mean gradient of a batch of rows: a step of training on public text, and of a model that stays with the curator.

Shapes: B rows, T positions, N targets of a row, n uniforms a position.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.engine.sharding import has_shards, is_sharded
from tacit.engine.total import Kept
from tacit.failures import is_out_of_memory
from tacit.training.checkpoint import gradients
from tacit.training.objectives import Targets
from tacit.training.plans import PlainPlan
from tacit.training.recomputing import in_precision
from tacit.training.steps import Step
from tacit.training.unit_rows import Source, unit_losses

__all__ = ["ControlStep", "PlainStep"]


class PlainStep(Step):
    """The ordinary mean gradient of a batch of public sequences."""

    def __init__(self, model: PreTrainedModel, plan: PlainPlan, compute: ComputeOptions, source: Source) -> None:
        super().__init__(compute.micro_batch, source)
        self._model = model
        self._plan = plan
        self._compute = compute
        self._has_shards = has_shards(model)
        self._uniforms_BnT = np.zeros((0, 0, 0))

    def draw(self, step: int) -> np.ndarray:
        """Rows, the shortest first, with the uniforms of all of them."""
        source = self._source
        shape = self._plan.batch_size, source.objective.draws, source.stream.ids_ST.shape[1]
        self._uniforms_BnT = source.streams.generator("mask", step).random(shape)
        drawn = self._plan.batch(source.stream.sequences, source.streams, step)
        return drawn[np.argsort(source.stream.lengths_S[drawn], kind="stable")]

    def add(self, chosen: np.ndarray, places: np.ndarray, step: int) -> None:
        """Rows of the batch, each with its share of the mean. Dropout has a seed for each micro-batch."""
        torch.manual_seed(self._source.streams.seed("dropout", step, int(places[0])))
        self._add_gradient(*self._weighted(chosen, self._uniforms_BnT[places]))

    def add_nothing(self, like: int, step: int) -> None:
        """Where layers are sharded, every rank goes through them as often, since weights are gathered from all: a row of weight 0."""
        if self._has_shards:
            targets, weights_BN = self._weighted(np.array([like]), self._uniforms_BnT[:1])
            self._add_gradient(targets, 0.0 * weights_BN)

    def _weighted(self, chosen: np.ndarray, uniforms_BnT: np.ndarray) -> tuple[Targets, np.ndarray]:
        """Targets of rows, and the weight of each in the mean of the batch (B, N)."""
        stream, objective = self._source.stream, self._source.objective
        lengths_B = stream.lengths_S[chosen]
        width = int(lengths_B.max(initial=1)) if objective.may_be_cut else stream.ids_ST.shape[1]
        ids_BT = stream.ids_ST[chosen, :width].astype(np.int64)
        targets = objective.targets(ids_BT, lengths_B, uniforms_BnT)
        if stream.counted_ST is not None:
            targets = objective.only(targets, stream.counted_ST[chosen, :width])
        of_row_BN = targets.real_BN / np.maximum(1, targets.real_BN.sum(axis=1, keepdims=True))
        return targets, of_row_BN / self._plan.batch_size

    def _add_gradient(self, targets: Targets, weights_BN: np.ndarray) -> None:
        with in_precision(self._compute, self._model.device):
            losses_B = unit_losses(self._model, self._source.objective, targets, weights_BN)
        losses_B.sum().backward()

    def sums(self) -> list[torch.Tensor]:
        return gradients(self._model)

    def put_sums(self, sums: Sequence[torch.Tensor]) -> None:
        trainable = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        for parameter, total in zip(trainable, sums, strict=True):
            parameter.grad = total.to(device=parameter.device, dtype=parameter.dtype, copy=True)

    def finish(self, step: int) -> None:
        """The sum over the ranks; of sharded layers FSDP2 has it."""
        self._source.ranks.sum_([gradient for gradient in gradients(self._model) if not is_sharded(gradient)])

    def close(self) -> None:
        """Nothing was changed."""


class ControlStep(PlainStep):
    """A `PlainStep` of a model that stays with the curator, before there is a release: rows at which it raises end nothing."""

    def __init__(self, model: PreTrainedModel, plan: PlainPlan, compute: ComputeOptions, source: Source) -> None:
        super().__init__(model, plan, compute, source)
        self._kept = Kept(model)

    def _add_gradient(self, targets: Targets, weights_BN: np.ndarray) -> None:
        try:
            super()._add_gradient(targets, weights_BN)
        except Exception as error:
            if self._has_shards or is_out_of_memory(error):  # in sharded layers the others wait
                raise
            self._kept.put_back()
