"""Training on the public tokens of marked text: the ordinary half of selective DP."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from tacit.config.base import Count, Noise, Positive
from tacit.config.phases.phase import PhaseOptions, PhaseWords

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["SelectivePhase"]


class SelectivePhase(PhaseOptions):
    """Ordinary training on the public tokens of a marked corpus (selective DP; Shi et al. 2021), for an LSTM.

    The state that goes from a private token to a public one is clipped, and gets noise.

    Args:
        plan: the kind of this phase.
        stream: the marked corpus.
        batch_size: rows a step, one of each record; the divisor of the step, also where slots are empty.
        segments: runs of private tokens whose state is released, at most, in a row; the loss leaves out what follows the last.
        state_clip: bound on the l2 norm of the state, the hidden and the cell state of all layers together.
        state_noise_multiplier: standard deviation of the noise on each of its numbers, over ``state_clip``.
    """

    made_by: ClassVar[str] = "tacit.planning.phases:selective_plan"

    plan: Literal["selective"]
    stream: Literal["marked"]
    batch_size: Count
    segments: Count
    state_clip: Positive
    state_noise_multiplier: Noise

    def words(self, config: RunConfig, noise_multiplier: float | None) -> PhaseWords:
        return PhaseWords(
            f"ordinary training on public tokens; at most {self.segments} states of a record released, norm at most "
            f"{self.state_clip:g}, noise multiplier {self.state_noise_multiplier:g}",
            f"{self.batch_size} records",
        )
