"""No clipping: gradients are added up as they are. A canary's gradient is twenty times as long as the plan allows."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import numpy as np

from tacit.audit.bounds.one_run import OneRun
from tacit.audit.self_test.breaks.kind import Break
from tacit.audit.self_test.games import Crowd
from tacit.audit.self_test.model import GRADIENT_NORM
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan

__all__ = ["NO_CLIPPING", "NoClipping"]


class NoClipping(DpStep):
    """The ordinary sum of the gradients."""

    def _clip(self, units: np.ndarray, real: np.ndarray) -> AbstractContextManager[object]:
        return nullcontext()


NO_CLIPPING = Break(
    title="no clipping",
    made_by=NoClipping,
    game=Crowd(DpPlan(0.5, GRADIENT_NORM / 20, noise_multiplier=4.0, normaliser=512), steps=8, trainings=1),
    bound=OneRun(),
)
