"""Epsilon by Renyi DP (Mironov 2017): a second opinion that shares no code with the composed loss distributions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
from dp_accounting import DpEvent, GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from dp_accounting.rdp import RdpAccountant, compute_epsilon

from tacit.privacy.accounting.renyi_steps import sampled_divergences
from tacit.privacy.accounting.weighted import largest_leak
from tacit.privacy.checks import require_delta
from tacit.privacy.events import Choice, Chosen, Relation, Spend, check_relation

__all__ = ["rdp_epsilon"]

_ORDERS = (*(1.5 + half / 2 for half in range(22)), *range(13, 65), 72, 80, 96, 128, 192, 256, 512, 1024)
"""Renyi orders. Those below 1.5 matter only for epsilons above 20, and their series often fails to converge."""


def rdp_epsilon(spends: Sequence[Spend], delta: float, relation: Relation = "add-or-remove") -> float | None:
    """Epsilon by Renyi DP, an independent upper bound; None where no Renyi bound is known (replacement with sampling).

    A unit that leaves one band and enters another is a removal and an addition, for which there is one; of banded events the worst
    band counts in each.

    A choice of words enters as a Gaussian of its largest distance, sqrt(N) for the histogram and 1 for the weighted one (twice its
    square under replacement), with the mass 1 - exp(-L) of its tail taken from delta and the shift L added to epsilon. The discrete
    Gaussian's Renyi divergence is at most the Gaussian's (Canonne et al. 2020, proposition 5).
    """
    require_delta(delta)
    check_relation(relation)
    if not all(spend.event.is_private for spend in spends):
        return math.inf
    divergences = _divergences(spends, relation)
    if divergences is None:
        return None
    hidden = sum(-spend.count * largest_leak(spend.event) for spend in spends if isinstance(spend.event, Choice))
    left = delta + math.expm1(hidden)
    if left <= 0:
        return math.inf
    return float(compute_epsilon(_ORDERS, divergences.tolist(), left)[0]) - hidden


def _divergences(spends: Iterable[Spend], relation: Relation) -> np.ndarray | None:
    """The Renyi divergence of each order, but for what a choice of words hides; None where one is not known."""
    total, chosen = np.zeros(len(_ORDERS)), np.zeros(len(_ORDERS))
    for spend in spends:
        event = spend.event
        if isinstance(event, Chosen):
            # What was released before may have chosen: at every order the largest counts (Mironov 2017, proposition 1).
            several = [_divergences(alternative, relation) for alternative in event.alternatives]
            known = [divergences for divergences in several if divergences is not None]
            if len(known) < len(several):
                return None
            chosen = chosen + spend.count * np.max(known, axis=0)
            continue
        bound = event.renyi_event(relation)
        if bound is None:
            return None
        total = total + _of_event(bound, spend.count)
    return total + chosen


def _of_event(event: DpEvent, count: int) -> np.ndarray:
    if isinstance(event, PoissonSampledDpEvent) and isinstance(event.event, GaussianDpEvent):
        return count * sampled_divergences(event.sampling_probability, event.event.noise_multiplier, _ORDERS)
    accountant = RdpAccountant(_ORDERS, neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    return accountant.compose(event, count).rdp
