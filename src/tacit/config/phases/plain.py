"""Ordinary training."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

from tacit.config.base import Count
from tacit.config.phases.phase import PhaseOptions, PhaseWords

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["PlainPhase"]


class PlainPhase(PhaseOptions):
    """Ordinary training.

    Args:
        plan: the kind of this phase.
        stream: ``public``, the public corpora; ``screened``, the part of the private corpus that screening lets through; and
            two baselines without any guarantee (``allow: [heuristic:non-private]``): ``private``, what is private, and
            ``redacted``, everything, as screening has redacted it.
        batch_size: sequences a step.
    """

    made_by: ClassVar[str] = "tacit.planning.phases:plain_plan"

    plan: Literal["plain"]
    stream: Literal["public", "screened", "private", "redacted"]
    batch_size: Count

    @property
    def is_baseline(self) -> bool:
        """What screening lets through is not private."""
        return self.stream in ("private", "redacted")

    def words(self, config: RunConfig, noise_multiplier: float | None) -> PhaseWords:
        return PhaseWords("ordinary training", f"{self.batch_size} sequences")
