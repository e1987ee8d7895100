"""DP-SGD whose steps' noise is correlated by a banded matrix, with cyclic Poisson sampling (Choquette-Choo et al. 2023)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.privacy.events.base import Event, Relation, require
from tacit.privacy.events.gaussian import PoissonGaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["CorrelatedPoissonGaussian"]


@dataclass(frozen=True)
class CorrelatedPoissonGaussian(Event):
    """So many steps of DP-SGD, one after the other, whose noise is correlated (docs/guarantees.md has the proof).

    Each unit is in one of ``noise_bands`` groups, drawn once and kept secret, and the steps sample from the groups by turns. So in
    each cycle of that many steps a unit is asked once, and what it adds reaches the rows of one cycle of a matrix of so many bands
    and columns of norm at most 1: it costs what one step of DP-SGD with this sampling and noise costs.

    Args:
        sampling_probability: of a unit of the group whose turn it is; in (0, 1].
        noise_multiplier: standard deviation of the noise before the matrix correlates it, divided by the clip norm.
        noise_bands: steps of a cycle, groups, and bands of the matrix; at least 2.
    """

    sampling_probability: float
    noise_multiplier: float
    noise_bands: int

    def __post_init__(self) -> None:
        require(self.noise_bands >= 2, "noise_bands", self.noise_bands, "at least 2")
        _ = self.step  # checks the rest

    @property
    def title(self) -> str:
        return f"{self.noise_bands} steps of DP-SGD: cyclic Poisson sampling, clipping, noise correlated by a banded matrix"

    @property
    def step_noise_multiplier(self) -> float:
        return self.noise_multiplier

    @property
    def step(self) -> PoissonGaussian:
        """What costs as much."""
        return PoissonGaussian(self.sampling_probability, self.noise_multiplier)

    def loss_distribution(
        self, count: int, relation: Relation, grid: float, pessimistic: bool
    ) -> PrivacyLossDistribution:
        return self.step.loss_distribution(count, relation, grid, pessimistic)

    def renyi_event(self, relation: Relation) -> DpEvent | None:
        return self.step.renyi_event(relation)
