"""Who pays for a banded event: the account of one unit as a function of its privacy probability rho (docs/adaptive.md).

A unit's band is a function of the unit alone. So when a unit is added or removed, each event costs what the unit's own band has in
it; when one is replaced, the bands of the unit that leaves and of the one that comes both count. `expand` gives the accounts that
the worst case is the largest of, `band_epsilons` epsilon as a public function of rho. Nothing here knows how many units a band has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tacit.privacy.events import BandedPoissonGaussian, Exchange, PoissonGaussian, Relation, Spend

__all__ = ["BandEpsilon", "band_epsilons", "edges_of", "exchanged", "expand", "seen_by"]


def edges_of(spends: Iterable[Spend]) -> tuple[float, ...]:
    """Ends of the bands in which no event's weight changes, 0 and 1 among them."""
    inner = {
        edge for spend in spends if isinstance(spend.event, BandedPoissonGaussian) for edge in spend.event.thresholds
    }
    return (0.0, *sorted(inner), 1.0)


def seen_by(spends: Sequence[Spend], rho: float) -> tuple[Spend, ...]:
    """What the spends are for a unit of this rho that is added or removed; those in which it takes no part are left out."""
    return tuple(seen for spend in spends if (seen := _seen(spend, rho)) is not None)


def _seen(spend: Spend, rho: float) -> Spend | None:
    event = spend.event
    if not isinstance(event, BandedPoissonGaussian):
        return spend
    weight = event.bands.weight_at(rho)
    if weight == 0:
        return None
    own = PoissonGaussian(event.sampling_probability, event.noise_multiplier / weight)
    return Spend(own, spend.count, spend.partition)


def exchanged(spends: Sequence[Spend], leaves: float, enters: float) -> tuple[Spend, ...]:
    """What the spends are, under replacement, when a unit of rho ``leaves`` is replaced by one of rho ``enters``."""
    found = []
    for spend in spends:
        event = spend.event
        if isinstance(event, BandedPoissonGaussian):
            weights = event.bands.weight_at(leaves), event.bands.weight_at(enters)
            if not any(weights):
                continue
            pair: Exchange | PoissonGaussian = Exchange(event.sampling_probability, event.noise_multiplier, *weights)
            if weights[0] == weights[1]:  # replaced as any unit is
                pair = PoissonGaussian(event.sampling_probability, event.noise_multiplier / weights[0])
            spend = Spend(pair, spend.count, spend.partition)
        found.append(spend)
    return tuple(found)


def expand(spends: Sequence[Spend], relation: Relation) -> list[tuple[Spend, ...]]:
    """The accounts of which the worst counts; the spends themselves where none is banded.

    A band whose weights are nowhere above another band's costs no more in any of them, and is left out.
    """
    if not any(isinstance(spend.event, BandedPoissonGaussian) for spend in spends):
        return [tuple(spends)]
    places = _worst_places(spends)
    if relation == "add-or-remove":
        return [seen_by(spends, place) for place in places]
    return [exchanged(spends, one, other) for n, one in enumerate(places) for other in places[n:]]


def _places(spends: Sequence[Spend]) -> list[float]:
    """A rho inside each band."""
    edges = edges_of(spends)
    return [(low + high) / 2 for low, high in itertools.pairwise(edges)]


def _worst_places(spends: Sequence[Spend]) -> list[float]:
    weights = {
        place: tuple(
            spend.event.bands.weight_at(place) for spend in spends if isinstance(spend.event, BandedPoissonGaussian)
        )
        for place in _places(spends)
    }
    first = {values: place for place, values in reversed(weights.items())}  # of equal bands the first

    def dominated(values: tuple[float, ...]) -> bool:
        return any(
            other != values and all(one <= two for one, two in zip(values, other, strict=True)) for other in first
        )

    return [place for values, place in sorted(first.items(), key=lambda item: item[1]) if not dominated(values)]


@dataclass(frozen=True)
class BandEpsilon:
    """Epsilon of a unit whose rho is in a band, at the account's delta.

    Args:
        begin, end: the band, ``begin <= rho < end``; the last one includes 1.
        epsilon: under add-or-remove of that unit; under replacement by whichever unit is the worst.
        within: under replacement by a unit of the same band; under add-or-remove the same as ``epsilon``.
        worst_partner: under replacement, the ``begin`` of the band that the worst other unit is in.
    """

    begin: float
    end: float
    epsilon: float
    within: float
    worst_partner: float | None = None


def band_epsilons(
    groups: Sequence[Sequence[Spend]], relation: Relation, epsilon: Callable[[tuple[Spend, ...]], float]
) -> tuple[BandEpsilon, ...]:
    """Epsilon as a public function of rho, from events alone; empty where none of them is banded.

    A unit of any rho may be in any part of the units, such as those that are held out: the part that costs most counts.

    Args:
        groups: what reads each part of the units (under replacement, one group of everything).
        relation: the neighbouring relation.
        epsilon: of an account without banded events.
    """
    spends = [spend for group in groups for spend in group]
    if not any(isinstance(spend.event, BandedPoissonGaussian) for spend in spends):
        return ()
    edges, places = edges_of(spends), _places(spends)
    bands = list(itertools.pairwise(edges))
    if relation == "add-or-remove":
        alone = [max(epsilon(seen_by(group, place)) for group in groups) for place in places]
        return tuple(BandEpsilon(low, high, value, value) for (low, high), value in zip(bands, alone, strict=True))
    pairs = {
        (one, other): epsilon(exchanged(spends, one, other)) for n, one in enumerate(places) for other in places[n:]
    }
    found = []
    for (low, high), place in zip(bands, places, strict=True):
        of_pair = {other: pairs.get((place, other), pairs.get((other, place), 0.0)) for other in places}
        worst = max(places, key=lambda other: of_pair[other])
        found.append(BandEpsilon(low, high, of_pair[worst], of_pair[place], edges[places.index(worst)]))
    return tuple(found)
