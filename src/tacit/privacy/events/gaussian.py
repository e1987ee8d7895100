"""Gaussian noise on a bounded sum: of everybody, or of a Poisson sample (a step of DP-SGD)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tacit.privacy.events.base import Event, Relation, require, require_noise

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["Gaussian", "PoissonGaussian"]


@dataclass(frozen=True)
class PoissonGaussian(Event):
    """One step of DP-SGD: Poisson sampling of units, clipping, Gaussian noise on the sum (Abadi et al. 2016).

    Args:
        sampling_probability: each unit is in the step's batch with this probability, independently; in (0, 1].
        noise_multiplier: standard deviation of the noise divided by the clip norm.
    """

    sampling_probability: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        q = self.sampling_probability
        require(0 < q <= 1, "sampling_probability", q, "above 0 and at most 1")
        require_noise(self.noise_multiplier)

    @property
    def title(self) -> str:
        return "DP-SGD step: Poisson sampling, clipping, Gaussian noise"

    @property
    def step_noise_multiplier(self) -> float:
        return self.noise_multiplier

    def loss_distribution(
        self, count: int, relation: Relation, grid: float, pessimistic: bool
    ) -> PrivacyLossDistribution:
        from tacit.privacy.accounting.sampled_gaussian import poisson_gaussian_pld

        return poisson_gaussian_pld(
            self.sampling_probability, self.noise_multiplier, count, relation, grid, pessimistic
        )

    def renyi_event(self, relation: Relation) -> DpEvent | None:
        """Under replacement with sampling no Renyi bound is known."""
        if relation == "replace":
            return None
        import dp_accounting

        step = dp_accounting.GaussianDpEvent(self.noise_multiplier)
        return dp_accounting.PoissonSampledDpEvent(self.sampling_probability, step)


@dataclass(frozen=True)
class Gaussian(Event):
    """Gaussian noise on a sum in which one unit's vector has l2 norm at most 1 (2 under replacement).

    Args:
        noise_multiplier: standard deviation of the noise divided by that norm bound.
    """

    noise_multiplier: float

    def __post_init__(self) -> None:
        require_noise(self.noise_multiplier)

    @property
    def title(self) -> str:
        return "Gaussian noise on bounded sums"

    def gaussian_mu(self, count: int, relation: Relation, pessimistic: bool) -> float:
        return (2 if relation == "replace" else 1) * math.sqrt(count) / self.noise_multiplier

    def renyi_event(self, relation: Relation) -> DpEvent | None:
        import dp_accounting

        return dp_accounting.GaussianDpEvent(self.noise_multiplier / (2 if relation == "replace" else 1))
