"""A quarter of the noise."""

from __future__ import annotations

from tacit.audit.bounds.one_run import OneRun
from tacit.audit.self_test.breaks.kind import Break
from tacit.audit.self_test.games import Crowd
from tacit.audit.self_test.model import GRADIENT_NORM
from tacit.engine.noise import Grid
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan

__all__ = ["QUARTER_OF_THE_NOISE", "QuarterOfTheNoise"]


class QuarterOfTheNoise(DpStep):
    """Steps as planned, but for the deviation of the noise."""

    def _noise(self) -> tuple[float, Grid | None]:
        stddev, grid = super()._noise()
        return stddev / 4, grid


QUARTER_OF_THE_NOISE = Break(
    title="a quarter of the noise",
    made_by=QuarterOfTheNoise,
    game=Crowd(DpPlan(1.0, GRADIENT_NORM / 4, noise_multiplier=4.0, normaliser=512), steps=4, trainings=2),
    bound=OneRun(),
)
