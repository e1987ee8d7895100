"""The privacy loss of one step of DP-SGD in which a unit of one weight is replaced by a unit of another.

In the worst case the step is P = (1-q) N(0, s^2) + q N(w, s^2) in one world and Q = (1-q) N(0, s^2) + q N(-w', s^2) in the other
(docs/adaptive.md, lemma 2). With w' = 0 that is a removal, with w = 0 an addition, with w = w' the library's replacement; these
three are left to the library. The rest is a pair of mixtures.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special

from tacit.privacy.accounting.mixtures import MixturePair
from tacit.privacy.accounting.sampled_gaussian import gaussian_pld
from tacit.privacy.accounting.self_composition import self_composed
from tacit.privacy.events.banded import Exchange

__all__ = ["exchange_pld"]


@functools.lru_cache(maxsize=64)
def exchange_pld(event: Exchange, count: int, grid: float, pessimistic: bool) -> pld.PrivacyLossDistribution:
    """The loss of ``count`` such steps, in both directions: the unit that leaves against the one that comes, and back."""
    if event.leaves == 0 or event.enters == 0 or event.leaves == event.enters:
        single = _of_library(event, grid, pessimistic)
    else:
        there, back = (
            pld_pmf.create_pmf(masses, grid, infinite, pessimistic_estimate=pessimistic)
            for masses, infinite in _law(event).masses(grid, pessimistic)
        )
        single = pld.PrivacyLossDistribution(there, back)
    return self_composed(single, count)


def _of_library(event: Exchange, grid: float, pessimistic: bool) -> pld.PrivacyLossDistribution:
    same = event.leaves == event.enters
    found = gaussian_pld(
        event.noise_multiplier / max(event.leaves, event.enters),
        "replace" if same else "add-or-remove",
        grid,
        sampling_probability=event.sampling_probability,
        pessimistic=pessimistic,
    )
    # A unit that comes is a unit that leaves, the worlds exchanged.
    return pld.PrivacyLossDistribution(found._pmf_add, found._pmf_remove) if event.leaves == 0 else found


def _law(event: Exchange) -> MixturePair:
    q = event.sampling_probability
    log_weights = np.array([special.log1p(-q) if q < 1 else -math.inf, math.log(q)])
    places = np.array([0.0, event.leaves]), np.array([0.0, -event.enters])
    return MixturePair(event.noise_multiplier, (places[0], log_weights), (places[1], log_weights))
