"""The classic audit: intervals of the attack's two error rates (Jagielski, Ullman and Oprea 2020, arXiv 2006.07709)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from tacit.audit.bounds.evidence import Scores
from tacit.audit.bounds.rates import ThresholdBound

__all__ = ["ClopperPearson"]


@dataclass(frozen=True)
class ClopperPearson(ThresholdBound):
    """Under (epsilon, delta) TPR <= e^epsilon FPR + delta, and 1 - FPR <= e^epsilon (1 - TPR) + delta (Kairouz et al. 2015).

    So epsilon is at least ln((TPR - delta) / FPR) and ln((1 - FPR - delta) / (1 - TPR)), with the limits of `rates` in place of
    the rates. The limits are binomial: right where each example has a training of its own. In one run the scores share a model.
    """

    name: ClassVar[str] = "clopper-pearson"
    reads: ClassVar[type] = Scores
    assumes: ClassVar[str] = "the scores of different examples are independent"

    def shown(self, tpr_low: ArrayLike, fpr_high: ArrayLike, delta: float) -> np.ndarray:
        tpr, fpr = np.asarray(tpr_low), np.asarray(fpr_high)
        with np.errstate(divide="ignore", invalid="ignore"):
            taken = np.log(np.maximum(tpr - delta, 0.0)) - np.log(fpr)
            left = np.log(np.maximum(1 - fpr - delta, 0.0)) - np.log1p(-tpr)
        return np.maximum(np.maximum(taken, left), 0.0)

    def epsilon(self, shown: float, delta: float) -> float:
        return shown
