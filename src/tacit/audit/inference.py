"""How well a score tells members from non-members: accuracy, AUC and TPR, each with an interval that holds at the null too.

The best threshold of the same data is above 1/2 where there is nothing to find, so accuracy is *cross-fitted*: the threshold of one
half is evaluated on the other. Pairs stay in one half, or the cross-fitting is biased. Groups are disjoint.

Legend: n members, and as many non-members, pair by pair; G groups.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import bdtr, betaincinv, expit, logit, ndtri

from tacit.errors import DataError, UsageError
from tacit.randomness import KeyedRandomness

__all__ = [
    "CONFIDENCE",
    "FALSE_POSITIVE_RATE",
    "Attack",
    "Estimate",
    "attack_scores",
    "auc_estimate",
    "check_scores",
    "clopper_pearson",
    "delong_auc",
    "folds",
    "grouped",
    "half_the_trials",
    "tpr_at_fpr",
    "twin_accuracy",
]

CONFIDENCE = 0.95
"""Of every interval."""

FALSE_POSITIVE_RATE = 0.01


@dataclass(frozen=True)
class Estimate:
    """A number and its two-sided interval."""

    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether the interval contains a number."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Attack:
    """How well a score tells members from non-members.

    Args:
        members: how many, and as many non-members; groups where the attack is on groups.
        accuracy: of the threshold from one half on the other half, both ways. Clopper-Pearson on the pooled count.
        accuracy_in_sample: of the best threshold of the same data, as it is often reported; above 1/2 at the null.
        auc: probability that a member scores lower than a non-member, ties half. DeLong et al. 1988, on the logit scale.
        tpr: share of members found where 1 % of the non-members are taken for members; None below 100 non-members. Its interval
            needs no assumption on the scores: see `tpr_at_fpr`.
        at_chance: whether the interval of ``accuracy`` contains 1/2. True is no proof that nothing was learned.
    """

    members: int
    accuracy: Estimate
    accuracy_in_sample: float
    auc: Estimate
    tpr: Estimate | None
    at_chance: bool


def attack_scores(member_n: np.ndarray, non_member_n: np.ndarray, streams: KeyedRandomness) -> Attack:
    """The attack that takes low scores for members.

    At the null (each pair's two scores exchangeable, pairs independent) the expected accuracy is 1/2 exactly: the half that is
    judged has no part in the threshold.

    Args:
        member_n: scores of members.
        non_member_n: as many; where member i and non-member i are one sentence with two secrets they fall into one half.
        streams: draws the halves.

    Raises:
        UsageError: unequal numbers (guessing would not be right in half of the cases), or fewer than 2.
        DataError: a score is not a number.
    """
    check_scores(member_n, non_member_n)
    correct = 0
    for fit, judge in folds(len(member_n), streams):
        threshold, _ = _best_threshold(member_n[fit], non_member_n[fit])
        correct += np.count_nonzero(member_n[judge] < threshold) + np.count_nonzero(non_member_n[judge] >= threshold)
    accuracy = clopper_pearson(int(correct), 2 * len(member_n))
    return Attack(
        members=len(member_n),
        accuracy=accuracy,
        accuracy_in_sample=_best_threshold(member_n, non_member_n)[1],
        auc=auc_estimate([delong_auc(member_n, non_member_n)], len(member_n)),
        tpr=tpr_at_fpr(member_n, non_member_n),
        at_chance=accuracy.holds(0.5),
    )


def twin_accuracy(member_n: np.ndarray, non_member_n: np.ndarray) -> Estimate:
    """How often a member scores lower than its own non-member, ties half: 1/2 at the null.

    Where the two are one sentence with two secrets, the loss of the shared words cancels, and the secret's is left. The interval is
    Clopper-Pearson on the pairs, with ties rounded outwards.

    Raises:
        UsageError, DataError: as `attack_scores`.
    """
    check_scores(member_n, non_member_n)
    lower, ties = (int(np.count_nonzero(found)) for found in (member_n < non_member_n, member_n == non_member_n))
    low, high = (clopper_pearson(count, len(member_n)) for count in (lower + ties // 2, lower + (ties + 1) // 2))
    return Estimate((lower + ties / 2) / len(member_n), low.low, high.high)


def check_scores(member_n: np.ndarray, non_member_n: np.ndarray) -> None:
    if len(member_n) != len(non_member_n) or len(member_n) < 2:
        raise UsageError(
            f"membership needs as many non-members as members, at least 2 of each, not {len(member_n)} members and "
            f"{len(non_member_n)} non-members"
        )
    if not (np.isfinite(member_n).all() and np.isfinite(non_member_n).all()):
        raise DataError("a score of the membership attack is not a finite number; the model's weights are broken")


def folds(size: int, streams: KeyedRandomness) -> list[tuple[np.ndarray, np.ndarray]]:
    """(to choose on, to judge) twice: a random half and its complement. Pairs stay together."""
    order = streams.generator("membership-halves", size).permutation(size)
    one, other = np.sort(order[: size // 2]), np.sort(order[size // 2 :])
    return [(one, other), (other, one)]


def _best_threshold(member_n: np.ndarray, non_member_n: np.ndarray) -> tuple[float, float]:
    """(threshold, its accuracy): "below it" is the guess "member". Thresholds lie midway between two scores, or at an end."""
    values = np.unique(np.concatenate([member_n, non_member_n]))
    thresholds = np.concatenate([[-np.inf], (values[:-1] + values[1:]) / 2, [np.inf]])
    below_member = np.searchsorted(np.sort(member_n), thresholds)
    below_other = np.searchsorted(np.sort(non_member_n), thresholds)
    correct = below_member + len(non_member_n) - below_other
    best = int(correct.argmax())
    return float(thresholds[best]), float(correct[best] / (len(member_n) + len(non_member_n)))


def delong_auc(member_m: np.ndarray, non_member_n: np.ndarray) -> tuple[float, float]:
    """(AUC, its variance) of "lower is a member", ties half: Mann-Whitney with DeLong's structural components."""
    sorted_member, sorted_other = np.sort(member_m), np.sort(non_member_n)
    # Share of non-members above each member, and of members below each non-member.
    other_at_most = np.searchsorted(sorted_other, member_m, "left") + np.searchsorted(sorted_other, member_m, "right")
    member_below = np.searchsorted(sorted_member, non_member_n, "left")
    member_at_most = np.searchsorted(sorted_member, non_member_n, "right")
    beaten_m = 1 - other_at_most / 2 / len(non_member_n)
    beating_n = (member_below + member_at_most) / 2 / len(member_m)
    variance = beaten_m.var(ddof=1) / len(member_m) + beating_n.var(ddof=1) / len(non_member_n)
    return float(beaten_m.mean()), float(variance)


def auc_estimate(halves: list[tuple[float, float]], pairs: int) -> Estimate:
    """Mean of AUCs, with a normal interval on the logit scale. A mean's deviation is at most the mean deviation, also where
    the AUCs depend on each other.

    A variance of 0 (all pairs right, all wrong, or all tied) would give an interval without width. The pairs (member i,
    non-member i) are then so many independent trials: Clopper-Pearson, or Hoeffding's bound for ties.
    """
    value = float(np.mean([auc for auc, _ in halves]))
    deviation = float(np.mean([math.sqrt(variance) for _, variance in halves]))
    if value in (0.0, 1.0):
        return clopper_pearson(round(value * pairs), pairs)
    if deviation == 0:
        reach = math.sqrt(math.log(2 / (1 - CONFIDENCE)) / (2 * pairs))
        return Estimate(value, max(0.0, value - reach), min(1.0, value + reach))
    reach = float(ndtri(0.5 + CONFIDENCE / 2)) * deviation / (value * (1 - value))
    return Estimate(value, float(expit(logit(value) - reach)), float(expit(logit(value) + reach)))


def tpr_at_fpr(
    member_m: np.ndarray, non_member_n: np.ndarray, false_positive_rate: float = FALSE_POSITIVE_RATE
) -> Estimate | None:
    """Share of members below the threshold that this share of non-members is below; None if the data cannot resolve the share.

    The interval holds for any law of the scores: with probability 1 - alpha / 2 the true quantile lies between two order
    statistics of the non-members (binomial), and the members below each of these two are counted by one-sided Clopper-Pearson
    with alpha / 4. Its price is width.
    """
    others, tail = np.sort(non_member_n), (1 - CONFIDENCE) / 4
    allowed = math.floor(false_positive_rate * len(others) + 1e-9)
    if allowed < 1:
        return None
    counts = np.arange(len(others))
    # at_most[k] = P[at most k of the non-members are below the true quantile]
    at_most = bdtr(counts, len(others), false_positive_rate)
    low_rank = int(np.count_nonzero(at_most < tail))  # y_(a) with P[Bin >= a] >= 1 - tail; 0: no lower end
    high_rank = int(np.count_nonzero(at_most < 1 - tail)) + 1  # y_(b) with P[Bin <= b - 1] >= 1 - tail
    low = 0 if low_rank == 0 else np.count_nonzero(member_m < others[low_rank - 1])
    high = len(member_m) if high_rank > len(others) else np.count_nonzero(member_m < others[high_rank - 1])
    return Estimate(
        value=float(np.mean(member_m < others[allowed])),
        low=_binomial_low(int(low), len(member_m), tail),
        high=_binomial_high(int(high), len(member_m), tail),
    )


def _binomial_low(successes: int, trials: int, tail: float) -> float:
    return 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))


def _binomial_high(successes: int, trials: int, tail: float) -> float:
    return 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))


def clopper_pearson(successes: int, trials: int) -> Estimate:
    """A share with its interval, from independent trials."""
    tail = (1 - CONFIDENCE) / 2
    low, high = _binomial_low(successes, trials, tail), _binomial_high(successes, trials, tail)
    return Estimate(successes / trials, low, high)


def half_the_trials(successes: int, trials: int) -> Estimate:
    """The interval for trials whose two halves may be copies of each other, rounded outwards."""
    low, high = (clopper_pearson(count, trials // 2) for count in (successes // 2, (successes + 1) // 2))
    return Estimate(successes / trials, low.low, high.high)


def grouped(size: int, group_size: int, streams: KeyedRandomness) -> np.ndarray:
    """Disjoint random groups (G, group_size) of the indices below ``size``; what is left over is in none.

    Member i and non-member i are in groups of the same number, so that pairs stay pairs.

    Raises:
        UsageError: fewer than 2 groups.
    """
    groups = size // group_size if group_size >= 1 else 0
    if groups < 2:
        raise UsageError(f"{size} texts are fewer than 2 groups of {group_size}; take smaller groups or more texts")
    order = streams.generator("membership-groups", size, group_size).permutation(size)
    return order[: groups * group_size].reshape(groups, group_size)
