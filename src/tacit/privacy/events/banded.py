"""A step of DP-SGD in which units count by their privacy probability, and what an account makes of it (docs/adaptive.md)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tacit.errors import UsageError
from tacit.privacy.bands import Bands
from tacit.privacy.events.base import Event, Relation, require
from tacit.privacy.events.gaussian import PoissonGaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = ["BandedPoissonGaussian", "BandsFrom", "Exchange"]

BandsFrom = Literal["unit", "unit-and-releases"]
"""What decides which band a unit is in: the unit alone, or also what was released before the units were scored."""


@dataclass(frozen=True)
class BandedPoissonGaussian(Event):
    """One step of DP-SGD in which a unit counts by its band of privacy probability (docs/adaptive.md).

    A unit whose band has weight w is clipped at w times the clip norm; with weight 0 it takes no part.

    Args:
        sampling_probability: of each unit that takes part; in (0, 1].
        noise_multiplier: standard deviation of the noise divided by the clip norm, whatever is drawn.
        thresholds, weights: see `Bands`.
        bands_from: ``unit-and-releases``, unless it is known that no release on private text came before the scorer: then what
            was released may have chosen the band, and the worst band counts after each of its outcomes.
        rho: whose privacy probability; a unit has the same rho in events of one name, and may have any other in those of another.
    """

    sampling_probability: float
    noise_multiplier: float
    thresholds: tuple[float, ...]
    weights: tuple[float, ...]
    bands_from: BandsFrom = "unit-and-releases"
    rho: str = ""

    def __post_init__(self) -> None:
        if self.bands_from not in get_args(BandsFrom):
            raise UsageError(f"bands_from is {self.bands_from!r}; it must be one of {', '.join(get_args(BandsFrom))}")
        bands = self.bands
        object.__setattr__(self, "thresholds", bands.thresholds)
        object.__setattr__(self, "weights", bands.weights)
        _ = self.worst  # checks the rest

    @property
    def title(self) -> str:
        return "DP-SGD step, each unit clipped by its band of rho (weight 0: it takes no part)"

    @property
    def step_noise_multiplier(self) -> float:
        return self.noise_multiplier

    @property
    def bands(self) -> Bands:
        return Bands(self.thresholds, self.weights)

    @property
    def worst(self) -> PoissonGaussian:
        """What it costs a unit of the largest weight; a unit of another one no more."""
        return PoissonGaussian(self.sampling_probability, self.noise_multiplier / max(self.weights))

    def loss_distribution(
        self, count: int, relation: Relation, grid: float, pessimistic: bool
    ) -> PrivacyLossDistribution:
        """The loss of the worst band; `tacit.privacy.accounting.adaptive` tells the bands apart before anything is composed."""
        return self.worst.loss_distribution(count, relation, grid, pessimistic)

    def renyi_event(self, relation: Relation) -> DpEvent | None:
        return self.worst.renyi_event(relation)

    def with_rho(self, name: str) -> BandedPoissonGaussian:
        return dataclasses.replace(self, rho=name)

    def decided_by_unit(self) -> BandedPoissonGaussian:
        return dataclasses.replace(self, bands_from="unit")


@dataclass(frozen=True)
class Exchange(Event):
    """One step of DP-SGD as an accountant sees it when a unit is replaced by one of another weight; never in a ledger.

    In the worst case the step is (1-q) N(0, s^2) + q N(w, s^2) in one world and (1-q) N(0, s^2) + q N(-w', s^2) in the other.

    Args:
        sampling_probability: q.
        noise_multiplier: s, standard deviation of the noise divided by the clip norm.
        leaves: w, the weight of the unit that leaves; 0: it takes no part.
        enters: w', the weight of the unit that comes.
    """

    sampling_probability: float
    noise_multiplier: float
    leaves: float
    enters: float

    def __post_init__(self) -> None:
        for name, weight in (("leaves", self.leaves), ("enters", self.enters)):
            require(0 <= weight <= 1, name, weight, "from 0 to 1")
        largest = max(self.leaves, self.enters)
        require(largest > 0, "leaves", self.leaves, "above 0, or enters must be")
        _ = PoissonGaussian(self.sampling_probability, self.noise_multiplier / largest)  # checks the rest

    @property
    def title(self) -> str:
        return "DP-SGD step in which a unit is replaced by one of another weight"

    def loss_distribution(
        self, count: int, relation: Relation, grid: float, pessimistic: bool
    ) -> PrivacyLossDistribution:
        from tacit.privacy.accounting.exchange import exchange_pld

        return exchange_pld(self, count, grid, pessimistic)

    def renyi_event(self, relation: Relation) -> DpEvent | None:
        """The event of a removal or an addition; for an exchange of two weights above 0 no bound is known."""
        if min(self.leaves, self.enters) > 0:
            return None
        own = PoissonGaussian(self.sampling_probability, self.noise_multiplier / max(self.leaves, self.enters))
        return own.renyi_event("add-or-remove")
