"""The mean of the batch's losses instead of each unit's own: one long unit makes the gradients of all others small.

Every unit is clipped, and yet one moves the sum by several clip norms, for its words are in everybody's denominator. With sixteen
others of two predictions each, and a canary of 63: without it each of the others adds a whole clip norm, with it a third of one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tacit.audit.bounds.one_run import OneRun
from tacit.audit.self_test.breaks.kind import Break
from tacit.audit.self_test.games import Solo
from tacit.audit.self_test.model import GRADIENT_NORM, NextWord, WordTable, derivatives
from tacit.config import ComputeOptions
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan
from tacit.training.unit_rows import Source

__all__ = ["BATCH_MEAN", "BatchMean"]


class MeanOfTheBatch(NextWord):
    """Every prediction counts as one over the number of the micro-batch's, as in the loss that transformers' models give."""

    def losses(self, model: PreTrainedModel, arrays: Sequence[Tensor], weights_BN: Tensor) -> Tensor:
        counted_BN = (weights_BN > 0).float()
        return super().losses(model, arrays, counted_BN / counted_BN.sum())


class BatchMean(DpStep):
    """Steps as planned, but for the objective."""

    def __init__(self, model: PreTrainedModel, plan: DpPlan, compute: ComputeOptions, source: Source) -> None:
        super().__init__(model, plan, compute, dataclasses.replace(source, objective=MeanOfTheBatch()))


def _canary_less_others(model: WordTable, sums: Iterator[torch.Tensor]) -> float:
    """How much of the canary's gradient is in the sums, less how much of the others'; these move more, so they count more."""
    both, weights = np.array([0, 1]), np.array([0.25, -1.0])
    return float(sum(weights @ derivatives(model, both, sum_VD) for sum_VD in sums))


BATCH_MEAN = Break(
    title="the batch's mean loss",
    made_by=BatchMean,
    game=Solo(
        DpPlan(1.0, GRADIENT_NORM / 16, noise_multiplier=3.0, normaliser=16),
        steps=1,
        trainings=160,
        score=_canary_less_others,
        length=64,
        others=16,
    ),
    bound=OneRun(),
)
