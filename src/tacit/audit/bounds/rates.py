"""True and false positive rates at a threshold that was chosen on other examples.

A threshold tested on the examples that chose it looks better than it is. So the first part of `Scores.order_m` chooses, and the
rest tests.

*The level is split in two halves*: one for the lower limit of the true positive rate, one for the upper limit of the false
positive rate, both one-sided (Clopper and Pearson 1934). Both directions of the guarantee, and the rates of true and false
negatives, come from these two numbers.

Legend: m examples, H thresholds.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from tacit.audit.bounds.bound import Bound
from tacit.audit.bounds.evidence import Scores
from tacit.errors import UsageError
from tacit.privacy.checks import require_fraction

__all__ = ["ThresholdBound", "lower_limit", "upper_limit"]


@dataclass(frozen=True)
class ThresholdBound(Bound[Scores]):
    """A bound from the rates at one threshold.

    Args:
        choosing: the share of the examples that choose. With m = 1,000 and mu = 1 a share of 0.3 shows more than 0.5 does.

    Raises:
        UsageError: the share is not in (0, 1).
    """

    choosing: float = 0.3

    def __post_init__(self) -> None:
        require_fraction("the share of examples that choose the threshold", self.choosing)

    @abstractmethod
    def shown(self, tpr_low: ArrayLike, fpr_high: ArrayLike, delta: float) -> np.ndarray:
        """What limits of the two rates show, for many thresholds at once; larger is more."""

    @abstractmethod
    def epsilon(self, shown: float, delta: float) -> float:
        """What was shown, as an epsilon."""

    def size(self, evidence: Scores) -> int:
        return len(evidence.scores_m)

    def at_level(self, evidence: Scores, delta: float, level: float) -> tuple[float, Mapping[str, int | float]]:
        if evidence.order_m is None:
            raise UsageError(f"the bound {self.name} chooses a threshold: it needs order_m, drawn from a key")
        choosing = self._choosing(self.size(evidence))
        chooses, tests = evidence.order_m[:choosing], evidence.order_m[choosing:]
        threshold = self._threshold(evidence.scores_m[chooses], evidence.included_m[chooses], delta, level)
        taken_m, in_m = evidence.scores_m[tests] >= threshold, evidence.included_m[tests]
        true, false = int(np.count_nonzero(taken_m & in_m)), int(np.count_nonzero(taken_m & ~in_m))
        members, others = int(np.count_nonzero(in_m)), int(np.count_nonzero(~in_m))
        shown = self.shown(lower_limit(true, members, level / 2), upper_limit(false, others, level / 2), delta)
        counted = {"true positives": true, "members": members, "false positives": false, "non-members": others}
        return self.epsilon(float(shown), delta), counted

    def perfect(self, size: int, delta: float, level: float) -> float:
        """The epsilon that an attack which is always right would show, with half of the coins in."""
        tests = size - self._choosing(size)
        members, others = tests // 2, tests - tests // 2
        shown = self.shown(lower_limit(members, members, level / 2), upper_limit(0, others, level / 2), delta)
        return self.epsilon(float(shown), delta)

    def _choosing(self, size: int) -> int:
        return int(self.choosing * size)

    def _threshold(self, scores_m: np.ndarray, included_m: np.ndarray, delta: float, level: float) -> float:
        """The score from which on examples are taken for members: the one that would show most here."""
        if len(scores_m) == 0:
            return np.inf
        thresholds_H = np.unique(scores_m)
        true_H, false_H = (
            np.count_nonzero(side) - np.searchsorted(np.sort(scores_m[side]), thresholds_H)
            for side in (included_m, ~included_m)
        )
        tpr_H = lower_limit(true_H, int(np.count_nonzero(included_m)), level / 2)
        fpr_H = upper_limit(false_H, int(np.count_nonzero(~included_m)), level / 2)
        return float(thresholds_H[self.shown(tpr_H, fpr_H, delta).argmax()])


def lower_limit(successes: ArrayLike, trials: int, tail: float) -> np.ndarray:
    """One-sided Clopper-Pearson limit: a rate below it gives so many successes or more with probability at most ``tail``."""
    counts = np.asarray(successes)
    limits = special.betaincinv(np.maximum(counts, 1), trials - np.maximum(counts, 1) + 1, tail)
    return np.where(counts == 0, 0.0, limits)


def upper_limit(successes: ArrayLike, trials: int, tail: float) -> np.ndarray:
    """The upper confidence limit of a rate that gave so many successes or fewer."""
    return 1 - lower_limit(trials - np.asarray(successes), trials, tail)
