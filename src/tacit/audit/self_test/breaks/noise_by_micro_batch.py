"""Noise once a micro-batch, and so none on a draw of nobody: where a canary is the whole corpus, zeros tell that it is out."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from torch import Tensor

from tacit.audit.bounds.one_run import OneRun
from tacit.audit.self_test.breaks.kind import Break
from tacit.audit.self_test.games import Solo
from tacit.audit.self_test.model import GRADIENT_NORM, WordTable
from tacit.engine import add_noise_
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan

__all__ = ["NOISE_BY_MICRO_BATCH", "NoiseByMicroBatch"]


class NoiseByMicroBatch(DpStep):
    """The noise comes with each micro-batch, and not at the end of the step."""

    def add(self, chosen: np.ndarray, places: np.ndarray, step: int) -> None:
        super().add(chosen, places, step)
        streams = self._source.streams.child("micro-batch", int(places[0]))
        stddev, grid = self._noise()
        add_noise_(self._model.named_parameters(), stddev, streams, step, grid)

    def finish(self, step: int) -> None:
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(self._plan.normaliser)


def _steps_with_noise(model: WordTable, sums: Iterator[Tensor]) -> float:
    """How many sums are not exactly zero."""
    return float(sum(bool(sum_VD.any()) for sum_VD in sums))


NOISE_BY_MICRO_BATCH = Break(
    title="noise once a micro-batch, none on empty draws",
    made_by=NoiseByMicroBatch,
    game=Solo(
        DpPlan(0.5, GRADIENT_NORM / 4, noise_multiplier=6.0, normaliser=1),
        steps=5,
        trainings=112,
        score=_steps_with_noise,
    ),
    bound=OneRun(),
)
