"""Gaussian differential privacy from the attack's two error rates (Nasr et al. 2023, arXiv 2302.07956)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike
from scipy import special

from tacit.audit.bounds.evidence import Scores
from tacit.audit.bounds.rates import ThresholdBound
from tacit.audit.bounds.tradeoff import gaussian_epsilon

__all__ = ["GaussianDp"]


@dataclass(frozen=True)
class GaussianDp(ThresholdBound):
    """A mu-GDP mechanism has mu >= Phi^-1(TPR) - Phi^-1(FPR) at every threshold (Dong, Roth and Su 2022, equation 6).

    The limits of `rates` give a lower limit of mu, and mu gives epsilon at delta. It shows most, and assumes most.
    """

    name: ClassVar[str] = "gaussian-dp"
    reads: ClassVar[type] = Scores
    model_based: ClassVar[bool] = True
    assumes: ClassVar[str] = (
        "the trade-off curve is that of a Gaussian mechanism, and the scores of different examples are independent"
    )
    needs_delta: ClassVar[bool] = True

    def shown(self, tpr_low: ArrayLike, fpr_high: ArrayLike, delta: float) -> np.ndarray:
        with np.errstate(invalid="ignore"):
            mu = special.ndtri(np.asarray(tpr_low)) - special.ndtri(np.asarray(fpr_high))
        return np.where(np.isfinite(mu), np.maximum(mu, 0.0), 0.0)

    def epsilon(self, shown: float, delta: float) -> float:
        return gaussian_epsilon(shown, delta)
