"""Membership inference against shadow models: how much likelier a text is to the model than to others that never saw it.

A text that any model finds likely says little of this one. Offline LiRA (Carlini et al. 2022, arXiv 2112.03570) compares its loss
with the law of its losses under shadow models that were trained without it. With few of them a deviation of each text's own is worse
than one of all texts (their section VI), and one of all texts changes no order: the score is the loss less its mean.

What each shadow model is trained on is a keyed half of the pairs (a member and a non-member), and the next one gets the other half.
So every text, member or not, is judged by as many models that have seen neither it nor its partner, and the two sides have one law
where the attacked model learned nothing. Were shadow models trained on non-members alone, these would look likely to their own
judges, and members like members.

Legend: n members, and as many non-members, pair by pair; k shadow models.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.audit.samples import MembershipSamples
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness

__all__ = ["ShadowLosses", "halves_kn", "shadow_losses"]


@dataclass(frozen=True, eq=False)
class ShadowLosses:
    """The mean loss of each text under the shadow models that were not trained on its pair; float64 (n,). Private."""

    member_n: np.ndarray
    non_member_n: np.ndarray

    def __repr__(self) -> str:
        return "ShadowLosses(<private>)"


def halves_kn(models: int, pairs: int, streams: KeyedRandomness) -> np.ndarray:
    """Which pairs each shadow model is trained on, bool (k, n): a random half, and after it the other one.

    Raises:
        UsageError: an odd number of models, or fewer than 2 pairs.
    """
    if models < 2 or models % 2 or pairs < 2:
        raise UsageError(f"shadow models come in twos, for at least 2 pairs, not {models} models for {pairs} pairs")
    trained_kn = np.zeros((models, pairs), dtype=bool)
    for number in range(0, models, 2):
        order = streams.generator("shadow-halves", number, pairs).permutation(pairs)
        trained_kn[number, order[: pairs // 2]] = True
        trained_kn[number + 1] = ~trained_kn[number]
    return trained_kn


def shadow_losses(
    samples: MembershipSamples,
    models: int,
    streams: KeyedRandomness,
    losses_of: Callable[[int, Sequence[str]], Callable[[Sequence[str]], np.ndarray]],
) -> ShadowLosses:
    """Train the shadow models one after the other, and score every text under those that have not seen its pair.

    Args:
        samples: the texts that are attacked.
        models: k, an even number.
        streams: draws the halves.
        losses_of: trains the model of this number on these texts, and gives the mean loss a token of each of some texts.

    Raises:
        UsageError: as `halves_kn`.
    """
    trained_kn = halves_kn(models, len(samples.members), streams)
    sums_2n = np.zeros((2, len(samples.members)))
    for number, trained_n in enumerate(trained_kn):
        seen = np.flatnonzero(trained_n).tolist()
        losses = losses_of(number, [side[pair] for side in (samples.members, samples.non_members) for pair in seen])
        left_out = np.flatnonzero(~trained_n)
        for sums_n, side in zip(sums_2n, (samples.members, samples.non_members), strict=True):
            sums_n[left_out] += losses([side[pair] for pair in left_out.tolist()])
    member_n, non_member_n = sums_2n / (models // 2)
    return ShadowLosses(member_n, non_member_n)
