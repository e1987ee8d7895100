"""What every training phase has, and what it is asked: its plan, its words, and what it must not be."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

from tacit.config.base import Options, Positive, Rate, Share, Steps

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["PhaseOptions", "PhaseWords"]


class PhaseWords(NamedTuple):
    """A phase in a report: how it trains, and what one of its batches is."""

    plan: str
    batch: str


class PhaseOptions(Options):
    """What every training phase has: its name, steps and AdamW's options (linear warm-up, then linear decay).

    Args:
        name: unique; not ``vocabulary``, ``evaluation`` or ``control-...``.
        steps: optimizer steps; fixed beforehand.
        learning_rate: AdamW's peak learning rate.
        warmup: share of the steps in which the rate rises.
        weight_decay: AdamW's weight decay.
        adam_betas: AdamW's betas.
        adam_epsilon: AdamW's epsilon.
    """

    made_by: ClassVar[str]
    """``"module:function"``: from these options, the `RunConfig` and the solved `PhaseNoise` or None, to a `Plan`."""

    if TYPE_CHECKING:
        stream: Any  # a field of each plan, which says which streams it can read

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    steps: Steps
    learning_rate: Rate
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    adam_betas: tuple[Share, Share] = (0.9, 0.98)
    adam_epsilon: Positive = 1e-6

    @property
    def is_baseline(self) -> bool:
        """Whether it trains on private text without noise, and so needs ``allow: [heuristic:non-private]``."""
        return False

    @abstractmethod
    def words(self, config: RunConfig, noise_multiplier: float | None) -> PhaseWords:
        """What a report says of it.

        Args:
            config: the run's.
            noise_multiplier: of a step, as the ledger has it; None where its event has none.
        """

    def check(self, config: RunConfig) -> None:
        """Refuse what no run can do.

        Raises:
            UsageError: options that contradict the rest of the configuration.
        """
