"""Telling members from non-members without any model, by their characters and length alone (Das et al. 2024, arXiv 2406.16201).

Where this finds something, the number of an attack is no evidence about the model.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.audit.inference import Estimate, auc_estimate, delong_auc, folds, half_the_trials
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness

__all__ = ["Blind", "blind_baseline"]


@dataclass(frozen=True)
class Blind:
    """How well members and non-members are told apart by somebody who has no model.

    Args:
        accuracy: of a naive Bayes classifier of characters, trained on one half and evaluated on the other, both ways. The two
            counts are nearly one number (both grow with the likeness of the halves' differences), so the interval is
            Clopper-Pearson for the trials of one half; on all trials it would miss 1/2 in 10 % of the cases at the null.
        auc: mean of the two halves'; DeLong, as if they were one number.
        at_chance: whether the interval of ``accuracy`` contains 1/2. If not, the attack's numbers mean nothing.
    """

    accuracy: Estimate
    auc: Estimate
    at_chance: bool


def blind_baseline(
    members: Sequence[Sequence[str]], non_members: Sequence[Sequence[str]], streams: KeyedRandomness
) -> Blind:
    """Tell groups of texts apart without a model: naive Bayes over runs of 1 to 3 characters, and lengths, cross-fitted.

    Args:
        members: groups of texts; groups of one text for single texts.
        non_members: as many groups.
        streams: draws the halves.

    Raises:
        UsageError: unequal numbers of groups, or fewer than 4.
    """
    if len(members) != len(non_members) or len(members) < 4:
        raise UsageError(
            f"the blind baseline needs as many non-members as members, at least 4 of each, not {len(members)} and {len(non_members)}"
        )
    counts = [[_features(group) for group in side] for side in (members, non_members)]
    correct, halves = 0, []
    for fit, judge in folds(len(members), streams):
        weights = _log_odds(*(_total(side[i] for i in fit) for side in counts))
        # As everywhere here, low means member.
        member, other = (np.array([_weighted(side[i], weights) for i in judge]) for side in counts)
        correct += np.count_nonzero(member < 0) + np.count_nonzero(other >= 0)
        halves.append(delong_auc(member, other))
    accuracy = half_the_trials(int(correct), 2 * len(members))
    return Blind(accuracy, auc_estimate(halves, len(members) // 2), accuracy.holds(0.5))


def _features(texts: Sequence[str]) -> Counter[str]:
    """Runs of characters with a mark at the ends, and the length in steps of 4 characters under a name no text has."""
    found: Counter[str] = Counter()
    for text in texts:
        marked = f"\x02{text}\x03"
        for size in (1, 2, 3):
            found.update(marked[start : start + size] for start in range(len(marked) - size + 1))
        found[f"\x00length {len(text) // 4}"] += 1
    return found


def _total(counters: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def _log_odds(member: Counter[str], other: Counter[str]) -> dict[str, float]:
    """log P[feature | non-member] - log P[feature | member], each with one more count for every feature seen."""
    seen = member.keys() | other.keys()
    shift = math.log((member.total() + len(seen)) / (other.total() + len(seen)))
    return {feature: math.log((other[feature] + 1) / (member[feature] + 1)) + shift for feature in seen}


def _weighted(features: Counter[str], weights: dict[str, float]) -> float:
    return sum(count * weights.get(feature, 0.0) for feature, count in features.items())
