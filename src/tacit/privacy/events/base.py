"""What every event answers: its law, its Renyi bound, its words and its numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal, get_args

from tacit.errors import RefusedError, UsageError
from tacit.privacy.bands import Bands
from tacit.privacy.checks import require_positive

if TYPE_CHECKING:
    from dp_accounting import DpEvent
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    from tacit.privacy.events.words import Choice

__all__ = ["SMALLEST_NOISE_MULTIPLIER", "Event", "Relation", "check_relation", "require", "require_noise"]

Relation = Literal["add-or-remove", "replace"]
"""Neighbouring corpora differ by one unit added or removed, or by one unit replaced."""

SMALLEST_NOISE_MULTIPLIER = 0.05
"""Below it epsilon is in the hundreds: no guarantee worth the name, and its loss distribution fills the memory."""


@dataclass(frozen=True)
class Event(ABC):
    """A mechanism that was run on the private records, as its accountants, plans and reports see it.

    A member is a frozen dataclass that checks its own fields, and one line in ``EVENTS``. Its law is `loss_distribution`, or
    `gaussian_mu` where it is a Gaussian mechanism; an event with neither is refused by the account, never counted as free.
    Laws are imported where they are used, since they need these classes themselves.
    """

    @property
    @abstractmethod
    def title(self) -> str:
        """The mechanism in words, for a reader of the report."""

    @property
    def no_guarantee(self) -> str | None:
        """Why this has no guarantee (epsilon is infinite); None of an event that has one."""
        return None

    @property
    def is_private(self) -> bool:
        """Whether it has a guarantee."""
        return self.no_guarantee is None

    # the law --------------------------------------------------------------------------------------------------------------

    def gaussian_mu(self, count: int, relation: Relation, pessimistic: bool) -> float | None:
        """Sensitivity over noise of ``count`` runs taken together, where the event is a Gaussian mechanism; else None."""
        return None

    def loss_distribution(
        self, count: int, relation: Relation, grid: float, pessimistic: bool
    ) -> PrivacyLossDistribution:
        """The privacy loss distribution of ``count`` runs.

        Args:
            grid: discretisation interval of the loss, in nats.
            pessimistic: True for an upper bound, False for a lower one.

        Raises:
            UsageError: the event has no law.
        """
        from tacit.privacy.accounting.sampled_gaussian import gaussian_pld

        mu = self.gaussian_mu(count, relation, pessimistic)
        if mu is None:
            raise UsageError(f"{type(self).__qualname__} has no privacy loss distribution: it cannot be accounted")
        return gaussian_pld(1.0, "add-or-remove", grid, sensitivity=mu, pessimistic=pessimistic)

    def renyi_event(self, relation: Relation) -> DpEvent | None:
        """An event of dp-accounting whose Renyi divergence is at least this one's; None where none is known: no second opinion."""
        return None

    # what plans and reports ask -------------------------------------------------------------------------------------------

    @property
    def step_noise_multiplier(self) -> float | None:
        """The standard deviation of a training step's noise over the clip norm; None of another mechanism."""
        return None

    @property
    def bands(self) -> Bands | None:
        """How much a unit counts by its privacy probability; None where all count alike."""
        return None

    @property
    def choice(self) -> Choice | None:
        """The event itself where words that a single unit brought may come out of it, else None."""
        return None

    @property
    def least_units(self) -> float | None:
        """How many units a word needs to be chosen, but for the noise; None where no words are chosen."""
        return None

    @property
    def chooses_words_in_rounds(self) -> bool:
        """Whether it is rounds of choosing words; a run then notes which words these brought (`tacit.privacy.words.WordEvents`)."""
        return False

    def releases(self, name_of_round: Callable[[int], str], name_of_counts: str) -> dict[str, Event]:
        """The releases of a vocabulary with this event, in order, by their names in the ledger: itself, as the first round.

        Args:
            name_of_round: of a number from 0.
            name_of_counts: of a release of counts of words that are public by then.
        """
        return {name_of_round(0): self}

    def numbers(self) -> dict[str, int | float | str]:
        """The public numbers of the event, by name."""
        own = {name: value for name, value in asdict(self).items() if isinstance(value, int | float | str)}
        return own if self.bands is None else {"weights_of_rho": self.bands.words()} | own

    def planned_numbers(self) -> dict[str, int | float | str]:
        """The numbers that `tacit plan` shows, in units that a reader of a configuration knows."""
        return self.numbers()

    def with_rho(self, name: str) -> Event:
        """The event with the privacy probability of this name; itself where all units count alike."""
        return self

    def decided_by_unit(self) -> Event:
        """The event as if the unit alone decided its band; itself where all units count alike."""
        return self


def check_relation(relation: str) -> None:
    """Refuse an unknown relation: what is not understood is never counted as the cheaper one."""
    if relation not in get_args(Relation):
        raise UsageError(f"relation is {relation!r}; it must be one of {', '.join(get_args(Relation))}")


def require(condition: bool, name: str, value: float, wanted: str) -> None:
    """Refuse a field of an event, naming it, its value and what it must be."""
    if not condition:
        raise UsageError(f"{name} is {value!r}; it must be {wanted}")


def require_noise(noise_multiplier: float) -> None:
    """Refuse noise that protects nothing."""
    require_positive("noise_multiplier", noise_multiplier)
    if noise_multiplier < SMALLEST_NOISE_MULTIPLIER:
        raise RefusedError(
            "noise-too-small",
            f"noise_multiplier is {noise_multiplier:g}; below {SMALLEST_NOISE_MULTIPLIER} nothing is protected: raise it",
        )
