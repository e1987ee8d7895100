"""One account of everything that was spent: the certified epsilon of the events of a run.

There are two accountants that share no code: composed loss distributions (composition.py) and Renyi DP (renyi.py). Both are upper
bounds, so the smaller one is certified, and a Renyi bound below the other's optimistic estimate means that one of the two is
wrong (`verify` in certificate.py).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence

from tacit.errors import UsageError
from tacit.privacy.accounting.adaptive import BandEpsilon, band_epsilons, expand
from tacit.privacy.accounting.composition import GRIDS, SMALLEST_DELTA, Account
from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.checks import require_delta
from tacit.privacy.events import EVERY_PART, Relation, Spend, check_relation, split_of

__all__ = [
    "account_parts",
    "epsilon",
    "epsilon_of_rho",
    "exchanged_parts",
    "joint_epsilon",
    "mu_at",
    "shared_account",
]


def epsilon(spends: Sequence[Spend], delta: float, relation: Relation = "add-or-remove") -> float:
    """The certified epsilon of events on the same units: the smallest of the upper bounds at hand, of the worst band."""
    require_delta(delta)
    # Without the partitions' names, so that the same events on either part of the units are computed once.
    parts = [_unnamed(part) for part in expand(spends, relation)]
    return max((_epsilon(part, delta, relation) for part in parts if part), default=0.0)


def _unnamed(spends: Iterable[Spend]) -> tuple[Spend, ...]:
    return tuple(Spend(spend.event, spend.count) for spend in spends)


@functools.lru_cache(maxsize=4)
def shared_account(spends: tuple[Spend, ...], relation: Relation) -> Account:
    """The certifying account of these spends, kept so that another delta costs no new composition.

    Four are kept: a run with two parts of its units that goes on from a run with two has as many, each part with each.
    """
    return Account(spends, relation, GRIDS[0])


@functools.lru_cache(maxsize=256)
def _epsilon(spends: tuple[Spend, ...], delta: float, relation: Relation) -> float:
    if delta < SMALLEST_DELTA and all(spend.event.is_private for spend in spends):
        return _epsilon_at_tiny_delta(spends, delta, relation)
    found = shared_account(spends, relation).epsilon(delta)
    renyi = rdp_epsilon(spends, delta, relation)
    for grid in GRIDS[1:]:
        if renyi is None or renyi >= found or math.isinf(found):
            break
        found = min(found, Account(spends, relation, grid).epsilon(delta))
    return found if renyi is None else min(found, renyi)


def _epsilon_at_tiny_delta(spends: tuple[Spend, ...], delta: float, relation: Relation) -> float:
    """Epsilon by Renyi DP alone, which has no numerical floor."""
    found = rdp_epsilon(spends, delta, relation)
    if found is None:
        raise UsageError(
            f"delta is {delta!r}; below {SMALLEST_DELTA:g} these events have no sound bound: ask for a larger delta"
        )
    return found


def account_parts(spends: Iterable[Spend], relation: Relation) -> list[tuple[Spend, ...]]:
    """The groups of spends that compose: one a partition under add-or-remove, all together under replacement.

    Where events are banded, a group is one for each band, or for each pair of bands, or one in which the worst band counts after each
    earlier release (`tacit.privacy.accounting.adaptive`). What is spent on `EVERY_PART` is in every group: a unit of any part may
    have been read there too. Runs split the units each in its own way (`of_run`), so a group has a part of each split.
    """
    return [_unnamed(part) for group in _groups(spends, relation) for part in expand(group, relation) if part]


def exchanged_parts(spends: Iterable[Spend]) -> list[tuple[Spend, ...]]:
    """The groups of spends that compose, under replacement, where a unit's text is exchanged and the unit stays in its part.

    Of a ledger under add-or-remove, whose parts are disjoint. The unit's band may change with its text.
    """
    return [_unnamed(part) for group in _groups(spends, "add-or-remove") for part in expand(group, "replace") if part]


def _groups(spends: Iterable[Spend], relation: Relation) -> list[list[Spend]]:
    check_relation(relation)
    ordered = list(spends)
    if relation == "replace":
        return [ordered] if ordered else []
    splits: dict[str, dict[str, None]] = {}
    for spend in ordered:
        if spend.partition != EVERY_PART:
            splits.setdefault(split_of(spend.partition), {})[spend.partition] = None
    if not splits:
        return [ordered] if ordered else []
    return [
        [spend for spend in ordered if spend.partition in (EVERY_PART, *parts)]
        for parts in itertools.product(*splits.values())
    ]


def epsilon_of_rho(spends: Iterable[Spend], delta: float, relation: Relation) -> tuple[BandEpsilon, ...]:
    """The certified epsilon of a unit as a public function of its privacy probability; empty without banded events.

    A unit of any rho may be in another part of the units, such as those that are held out, and then what reads that part counts.
    Where what was released may have decided the band, it is the epsilon of the outcomes in which the unit has this rho, and the worst
    case over all outcomes, `joint_epsilon`, may be above every one of them (docs/adaptive.md).
    """
    require_delta(delta)
    return band_epsilons(_groups(spends, relation), relation, lambda part: epsilon(part, delta, relation))


def joint_epsilon(spends: Iterable[Spend], delta: float, relation: Relation = "add-or-remove") -> float:
    """The certified epsilon of a whole ledger: the worst part (see `Spend.partition`)."""
    require_delta(delta)
    return max((epsilon(part, delta, relation) for part in account_parts(spends, relation)), default=0.0)


def mu_at(epsilon: float, delta: float) -> float:
    """The mu of the Gaussian mechanism that has exactly this (epsilon, delta): a one-number summary, not a guarantee."""
    require_delta(delta)
    if math.isinf(epsilon):
        return math.inf
    low, high = 1e-9, 1.0
    while gaussian_delta(epsilon, high) < delta:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if gaussian_delta(epsilon, middle) < delta else (low, middle)
    return high
