"""What was spent: an event, how often, and on which part of the units; and all events by their name."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from tacit.errors import UsageError
from tacit.privacy.events.banded import BandedPoissonGaussian, Exchange
from tacit.privacy.events.base import Event, Relation, require
from tacit.privacy.events.correlated import CorrelatedPoissonGaussian
from tacit.privacy.events.gaussian import Gaussian, PoissonGaussian
from tacit.privacy.events.words import ThresholdedHistogram, WeightedHistogram, WordCounts

if TYPE_CHECKING:
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

__all__ = [
    "EVENTS",
    "EVERY_PART",
    "Chosen",
    "NonPrivate",
    "Spend",
    "event_from_dict",
    "event_to_dict",
    "expected",
    "of_run",
    "part_of",
    "split_of",
]


@dataclass(frozen=True)
class NonPrivate(Event):
    """A release with no guarantee: epsilon is infinite. ``reason`` is the heuristic's code."""

    reason: str

    @property
    def title(self) -> str:
        return "release without a guarantee"

    @property
    def no_guarantee(self) -> str:
        return self.reason


EVENTS: dict[str, type[Event]] = {
    "poisson-gaussian": PoissonGaussian,
    "banded-poisson-gaussian": BandedPoissonGaussian,
    "correlated-poisson-gaussian": CorrelatedPoissonGaussian,
    "gaussian": Gaussian,
    "thresholded-histogram": ThresholdedHistogram,
    "weighted-histogram": WeightedHistogram,
    "word-counts": WordCounts,
    "non-private": NonPrivate,
}
"""What a ledger may hold, by the name it has there."""

_Kind = TypeVar("_Kind", bound=Event)

EVERY_PART = "every part"
"""The partition of what may have read any unit, whatever part that unit is in: it composes with each of the others."""

_OF_RUN = "/"


@dataclass(frozen=True)
class Chosen(Event):
    """Several events as one, in an account: which of the alternatives ran, an earlier release may have chosen; never in a ledger.

    Args:
        alternatives: what each of them spends: `PoissonGaussian` and `Exchange` alone.
    """

    alternatives: tuple[tuple[Spend, ...], ...]

    @property
    def title(self) -> str:
        return "one of several mechanisms, which an earlier release may have chosen"

    @property
    def steps(self) -> int:
        """The steps of the longest alternative."""
        return max(sum(spend.count for spend in spends) for spends in self.alternatives)

    def loss_distribution(
        self, count: int, relation: Relation, grid: float, pessimistic: bool
    ) -> PrivacyLossDistribution:
        """What dominates every alternative, an upper bound; `Account` makes every choice beforehand for a lower one."""
        from tacit.privacy.accounting.composition import chosen_pld

        return chosen_pld(self, count, relation, grid)


@dataclass(frozen=True)
class Spend:
    """An event that was run ``count`` times on one part of the private units.

    Args:
        event: what was run; an `Exchange` or a `Chosen` inside an account only.
        count: how often; at least 1.
        partition: the disjoint part of the units that it read. A unit's part depends on the unit alone, so under
            add-or-remove the guarantee is that of the worst part (parallel composition); under replacement a unit may
            leave one part and enter another, so all parts are composed. `EVERY_PART` composes with every part.
    """

    event: Event
    count: int = 1
    partition: str = "training"

    def __post_init__(self) -> None:
        if type(self.event) not in (*EVENTS.values(), Exchange, Chosen):
            raise UsageError(f"{type(self.event).__qualname__} is not an event that an accountant knows")
        require(self.count >= 1, "count", self.count, "at least 1")


def of_run(spend: Spend, run: str) -> Spend:
    """A spend of another run, as a run that takes it over has to count it: its parts of the units and its function rho are its own.

    A unit may be in any part of the one split and in any part of the other, so the names of parts must differ between runs: then the
    worst pair of parts is counted. The same holds for bands of rho, since two copies of one run have one key and may use two scorers.

    Args:
        run: a name that no other release in the same ledger has: the head of its ledger. Its key is not enough.
    """
    event, partition = spend.event, spend.partition
    if isinstance(event, BandedPoissonGaussian):
        event = event.with_rho(f"{run}{_OF_RUN}{event.rho}")
    if partition != EVERY_PART:
        partition = f"{run}{_OF_RUN}{partition}"
    return dataclasses.replace(spend, event=event, partition=partition)


def split_of(partition: str) -> str:
    """Which split of the units a part belongs to: empty for this run's own; see `of_run`."""
    return partition.rpartition(_OF_RUN)[0]


def part_of(partition: str) -> str:
    """A part's name within its split; see `of_run`."""
    return partition.rpartition(_OF_RUN)[2]


def event_to_dict(event: Event) -> dict[str, Any]:
    """The event as JSON-ready values, with its kind.

    Raises:
        UsageError: an event that no ledger holds.
    """
    for name, kind in EVENTS.items():
        if kind is type(event):
            fields = dataclasses.asdict(event).items()
            return {"kind": name} | {k: list(v) if isinstance(v, tuple) else v for k, v in fields}
    raise UsageError(f"{type(event).__qualname__} is not an event that a ledger holds")


def event_from_dict(values: dict[str, Any]) -> Event:
    """The inverse of `event_to_dict`.

    Raises:
        UsageError: the kind or a field is unknown: what is not understood is refused, never counted as free.
    """
    fields = dict(values)
    kind = fields.pop("kind", None)
    if kind not in EVENTS:
        raise UsageError(f"unknown event kind {kind!r}; known: {', '.join(EVENTS)}")
    try:
        return EVENTS[kind](**fields)
    except TypeError as error:
        raise UsageError(f"event {kind!r} does not take these fields: {error}") from None


def expected(event: Event, kind: type[_Kind]) -> _Kind:
    """An event of a ledger, as the kind that its stage has.

    Raises:
        UsageError: it is of another kind.
    """
    if not isinstance(event, kind):
        raise UsageError(f"the ledger holds {type(event).__qualname__} where {kind.__qualname__} belongs")
    return event
