"""Whether a model tells texts that somebody names as members from texts that they name as non-members.

The two files are the caller's, and no coin decided which text is in which: if they differ in other ways, no statistic can tell that
difference from membership (Meeus et al. 2024, arXiv 2406.17975). So the attack's numbers stand beside two that never see a model: how
well a *blind baseline* tells the files apart (Das et al. 2024, arXiv 2406.16201), and how much their runs of words overlap (Duan et
al. 2024, arXiv 2402.07841). They give no lower bound on epsilon, and they are private, as all that is measured on private text beside
a model.

Shapes: m members, n non-members. Low scores mean member, as everywhere here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from tacit.audit.blind import Blind, blind_baseline
from tacit.audit.inference import Estimate, auc_estimate, delong_auc, tpr_at_fpr
from tacit.corpus.overlap import share_of_runs
from tacit.errors import DataError
from tacit.randomness import KeyedRandomness

__all__ = [
    "FALSE_POSITIVE_RATES",
    "LEAST",
    "Differences",
    "OwnVerdict",
    "ToldApart",
    "differences",
    "judge_own",
    "told_apart",
]

LEAST = 50
"""Members, and non-members, below which nothing is claimed: DeLong's interval is for large numbers."""

FALSE_POSITIVE_RATES = (0.001, 0.01, 0.1)

_MOST_BLIND = 5000


@dataclass(frozen=True)
class ToldApart:
    """How well scores tell the two apart.

    Args:
        members, non_members: with a score.
        auc: probability that a member scores lower than a non-member, ties half; DeLong et al. 1988 on the logit scale, 95 %.
        tpr: by false positive rate the share of members below the threshold; its interval joins Clopper-Pearson with a binomial one
            for the threshold (`tacit.audit.inference.tpr_at_fpr`). None where there are too few non-members for the rate.
    """

    members: int
    non_members: int
    auc: Estimate
    tpr: tuple[tuple[float, Estimate | None], ...]


@dataclass(frozen=True)
class Differences:
    """What tells the files apart without any model.

    Args:
        in_both: members that stand, but for case and white space, in the other file too.
        blind: the baseline, on as many texts of each; None: fewer than 4.
        overlap: share of the non-members' different runs of six words that a random half of the members has too.
        overlap_within: the same of the other half of the members. None where there is no run of six words.
    """

    in_both: int
    blind: Blind | None
    overlap: float | None
    overlap_within: float | None


class OwnVerdict(StrEnum):
    """What the numbers say. Never that nothing was learned."""

    TOO_FEW = f"undecided: fewer than {LEAST} texts of a kind"
    IN_BOTH = "undecided: more than 1 % of the members are in both files"
    SHIFTED = "undecided: the files differ without any model"
    NO_CONTROL = "undecided: not told apart, and no control shows that this attack could"
    NO_POWER = "undecided: no power; the control is not told apart either"
    TOLD_APART = "told apart"
    NOT_TOLD_APART = "not told apart, and the control is"


def told_apart(member_m: np.ndarray, non_member_n: np.ndarray) -> ToldApart:
    """Both numbers of the attack that takes low scores for members.

    Raises:
        DataError: fewer than 2 of a kind, or a score that is not finite.
    """
    if min(len(member_m), len(non_member_n)) < 2:
        raise DataError("fewer than 2 of the members, or of the non-members, have a token; give more texts")
    if not (np.isfinite(member_m).all() and np.isfinite(non_member_n).all()):
        raise DataError("a score of the given texts is not a finite number; the model's weights are broken")
    pairs = min(len(member_m), len(non_member_n))
    return ToldApart(
        len(member_m),
        len(non_member_n),
        auc_estimate([delong_auc(member_m, non_member_n)], pairs),
        tuple((rate, tpr_at_fpr(member_m, non_member_n, rate)) for rate in FALSE_POSITIVE_RATES),
    )


def differences(members: Sequence[str], non_members: Sequence[str], streams: KeyedRandomness) -> Differences:
    """What tells the files apart without any model; ``streams`` draw the halves, and which texts where there are many."""
    others = {_plain(text) for text in non_members}
    order = streams.generator("overlap").permutation(len(members))
    half, rest = ([members[int(place)] for place in part] for part in np.array_split(order, 2))
    some, same = (_some(side, min(len(members), len(non_members)), streams) for side in (members, non_members))
    return Differences(
        in_both=sum(_plain(text) in others for text in members),
        blind=None if len(some) < 4 else blind_baseline([[text] for text in some], [[text] for text in same], streams),
        overlap=share_of_runs(non_members, half),
        overlap_within=share_of_runs(rest, half),
    )


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _some(texts: Sequence[str], at_most: int, streams: KeyedRandomness) -> list[str]:
    chosen = streams.generator("blind", len(texts)).permutation(len(texts))[: min(at_most, _MOST_BLIND)]
    return [texts[int(place)] for place in chosen]


def judge_own(found: ToldApart, control: ToldApart | None, apart: Differences) -> OwnVerdict:
    """What may be said; the first that holds.

    Args:
        found: of the released model.
        control: of the same training without DP, or without noise.
        apart: without any model.
    """
    if min(found.members, found.non_members) < LEAST or apart.blind is None:
        return OwnVerdict.TOO_FEW
    if apart.in_both > 0.01 * found.members:
        return OwnVerdict.IN_BOTH
    if not (apart.blind.at_chance and apart.blind.auc.holds(0.5)):
        return OwnVerdict.SHIFTED
    if found.auc.low > 0.5:
        return OwnVerdict.TOLD_APART
    if control is None:
        return OwnVerdict.NO_CONTROL
    return OwnVerdict.NOT_TOLD_APART if control.auc.low > 0.5 else OwnVerdict.NO_POWER
