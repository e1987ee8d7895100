"""Fixed batches in epochs under the account of Poisson sampling: whoever knows when a unit's turn is looks at these steps alone."""

from __future__ import annotations

import numpy as np

from tacit.audit.bounds.one_run import OneRun
from tacit.audit.self_test.breaks.kind import Break
from tacit.audit.self_test.games import Crowd
from tacit.audit.self_test.model import GRADIENT_NORM
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan

__all__ = ["FIXED_BATCHES", "FixedBatches"]

_BATCHES = 64
_EPOCHS = 4


class FixedBatches(DpStep):
    """A unit's number decides its batch; after the last batch comes the first one again."""

    def draw(self, step: int) -> np.ndarray:
        numbers_U = np.array([int(key) for key in self._source.stream.keys_U], dtype=np.int64)
        self._drawn = np.flatnonzero(_is_its_turn(step, numbers_U))
        return self._drawn


def _is_its_turn(step: int, number_m: np.ndarray) -> np.ndarray:
    return number_m % _BATCHES == step % _BATCHES


def _mostly_its_turn(step: int, number_m: np.ndarray) -> np.ndarray:
    """The other steps count a little, so that the attack finds a canary that was drawn in them, if there is no noise."""
    return np.where(_is_its_turn(step, number_m), 1.0, 1 / 32)


FIXED_BATCHES = Break(
    title="fixed batches in epochs, accounted as Poisson",
    made_by=FixedBatches,
    game=Crowd(
        DpPlan(1 / _BATCHES, GRADIENT_NORM / 4, noise_multiplier=1.0, normaliser=8),
        steps=_EPOCHS * _BATCHES,
        trainings=1,
        weights=_mostly_its_turn,
        words=512,
    ),
    bound=OneRun(),
)
