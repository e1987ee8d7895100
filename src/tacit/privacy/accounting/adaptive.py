"""Who pays for a banded event: the account of one unit as a function of its privacy probability rho (docs/adaptive.md).

When a unit is added or removed, each event costs what the unit's own band has in it; when one is replaced, the bands of the unit that
leaves and of the one that comes both count. Where the band is a function of the unit alone, the worst case is the largest of the
bands' accounts. Where what was released before may have decided it (a scorer that reads text in pieces of a private vocabulary), the
worst band counts after each of these outcomes, and all bands enter one account as a `Chosen` event. `expand` gives the accounts that
the worst case is the largest of, `band_epsilons` epsilon as a public function of rho. Nothing here knows how many units a band has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tacit.privacy.events import BandedPoissonGaussian, BandsFrom, Chosen, Exchange, PoissonGaussian, Relation, Spend

__all__ = ["BandEpsilon", "band_epsilons", "bands_from", "edges_of", "exchanged", "expand", "spends_for_rho"]


def edges_of(spends: Iterable[Spend]) -> tuple[float, ...]:
    """Ends of the bands in which no event's weight changes, 0 and 1 among them."""
    inner = {
        edge for spend in spends if isinstance(spend.event, BandedPoissonGaussian) for edge in spend.event.thresholds
    }
    return (0.0, *sorted(inner), 1.0)


def spends_for_rho(spends: Sequence[Spend], rho: float) -> tuple[Spend, ...]:
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

    A band whose weights are nowhere above another band's costs no more in any of them, and is left out. So nothing has to be chosen
    where a single one is left.
    """
    if not _banded(spends):
        return [tuple(spends)]
    if _fixed_beforehand(spends):
        return _cases(spends, relation)
    found = [spend for spend in spends if not isinstance(spend.event, BandedPoissonGaussian)]
    for name in _names(spends):
        found += _worst_of(_cases(_of(spends, name), relation))
    return [tuple(found)]


def _banded(spends: Iterable[Spend]) -> list[Spend]:
    return [spend for spend in spends if isinstance(spend.event, BandedPoissonGaussian)]


def _names(spends: Iterable[Spend]) -> list[str]:
    """Whose privacy probabilities there are, in order."""
    events = [spend.event for spend in spends if isinstance(spend.event, BandedPoissonGaussian)]
    return list(dict.fromkeys(event.rho for event in events))


def _of(spends: Iterable[Spend], name: str) -> list[Spend]:
    """The banded ones of one privacy probability."""
    return [spend for spend in spends if isinstance(spend.event, BandedPoissonGaussian) and spend.event.rho == name]


def bands_from(spends: Sequence[Spend]) -> BandsFrom:
    """What decides a unit's band, for the account of these spends."""
    return "unit" if _fixed_beforehand(spends) else "unit-and-releases"


def _fixed_beforehand(spends: Sequence[Spend]) -> bool:
    """Whether no release can have decided a unit's band: the unit alone does, or nothing else was released.

    Two functions rho say nothing of each other: a unit may be in the costliest band of both.
    """
    banded = [spend.event for spend in spends if isinstance(spend.event, BandedPoissonGaussian)]
    alone = len(banded) == len(spends) or all(event.bands_from == "unit" for event in banded)
    return alone and len({event.rho for event in banded}) <= 1


def _cases(spends: Sequence[Spend], relation: Relation) -> list[tuple[Spend, ...]]:
    """What the spends are for a unit of each band, or for each pair of bands, that may be the worst."""
    places = _worst_places(spends)
    if relation == "add-or-remove":
        return [spends_for_rho(spends, place) for place in places]
    return [exchanged(spends, one, other) for n, one in enumerate(places) for other in places[n:]]


def _worst_of(cases: Sequence[tuple[Spend, ...]]) -> list[Spend]:
    """Cases between which an earlier release may have chosen, as one event; a single one as it is."""
    if len(cases) == 1:
        return list(cases[0])
    return [Spend(Chosen(tuple(tuple(Spend(spend.event, spend.count) for spend in case) for case in cases)))]


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
    if not _banded(spend for group in groups for spend in group):
        return ()
    groups = _of_own_rho(groups, relation)
    spends = [spend for group in groups for spend in group]
    edges, places = edges_of(spends), _places(spends)
    bands = list(itertools.pairwise(edges))
    if relation == "add-or-remove":
        alone = [max(epsilon(spends_for_rho(group, place)) for group in groups) for place in places]
        return tuple(BandEpsilon(low, high, value, value) for (low, high), value in zip(bands, alone, strict=True))
    pairs = {
        (one, other): epsilon(exchanged(spends, one, other)) for n, one in enumerate(places) for other in places[n:]
    }
    found = []
    for (low, high), place in zip(bands, places, strict=True):
        of_pair = {other: pairs.get((place, other), pairs.get((other, place), 0.0)) for other in places}
        worst = max(places, key=lambda other: of_pair[other])
        whoever = of_pair[worst] if _fixed_beforehand(spends) else epsilon(_with_whoever(spends, place))
        found.append(BandEpsilon(low, high, whoever, of_pair[place], edges[places.index(worst)]))
    return tuple(found)


def _of_own_rho(groups: Sequence[Sequence[Spend]], relation: Relation) -> list[list[Spend]]:
    """The groups, with each earlier run charged at its worst band: the rho of this run says nothing about that of an earlier one."""
    *earlier, _ = _names(spend for group in groups for spend in group)
    found = [list(group) for group in groups]
    for name in earlier:
        found = [_at_worst(group, name, relation) for group in found]
    return found


def _at_worst(group: Sequence[Spend], name: str, relation: Relation) -> list[Spend]:
    of_name = _of(group, name)
    rest = [spend for spend in group if spend not in of_name]
    return [*_worst_of(_cases(of_name, relation)), *rest] if of_name else rest


def _with_whoever(spends: Sequence[Spend], place: float) -> tuple[Spend, ...]:
    """Under replace-one, a unit of this rho beside its substitute, whose band an earlier release may have chosen."""
    others = [spend for spend in spends if not isinstance(spend.event, BandedPoissonGaussian)]
    banded = _banded(spends)
    partners = dict.fromkeys((place, *_worst_places(banded)))
    return (*others, *_worst_of([case for other in partners if (case := exchanged(banded, place, other))]))
