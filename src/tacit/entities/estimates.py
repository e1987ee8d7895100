"""Means of F1 with intervals, and what each interval covers.

*Folds.* The training parts of k folds overlap, so the folds' scores are not independent and their spread over sqrt(k) is too
small an error; no unbiased estimate exists (Bengio and Grandvalet 2004, JMLR 5). The interval is the corrected resampled t
interval of Nadeau and Bengio 2003 (Machine Learning 52): variance times (1/k + test/training), k - 1 degrees of freedom. It is an
approximation on the safe side, not a proof. Seeds are averaged within a fold first: they are no further folds.

*One fixed split.* There the test documents are resampled (percentile bootstrap), the same ones for every seed. It covers the
choice of the test documents, and not that of the training documents.

Differences between models are of the same folds, seeds and documents, pair by pair.

Shapes: K folds, S seeds, D documents; the last axis of counts is (right, predicted, true).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

__all__ = ["Estimate", "bootstrap_estimate", "f1_of", "fold_estimate"]

_LEVEL = 0.95
_RESAMPLES = 2000


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95 % interval; None where one value alone has none."""

    mean: float
    low: float | None
    high: float | None


def f1_of(counts: np.ndarray) -> np.ndarray:
    """F1 of counts (..., 3); 0 where there is nothing to find and nothing found."""
    right, predicted, true = np.moveaxis(counts.astype(np.float64), -1, 0)
    return 2 * right / np.maximum(1, predicted + true)


def fold_estimate(values_KS: np.ndarray) -> Estimate:
    """The mean, with its interval, of one number for each fold and seed, such as F1 or a difference of two models' F1."""
    values_K = values_KS.mean(axis=1)
    folds = len(values_K)
    mean = float(values_K.mean())
    if folds < 2:
        return Estimate(mean, None, None)
    test_to_training = 1 / (folds - 1)
    error = math.sqrt(float(values_K.var(ddof=1)) * (1 / folds + test_to_training))
    margin = float(stats.t.ppf((1 + _LEVEL) / 2, folds - 1)) * error
    return Estimate(mean, mean - margin, mean + margin)


def bootstrap_estimate(counts_SD3: np.ndarray, minus_SD3: np.ndarray | None = None) -> Estimate:
    """F1 of documents that are resampled, the mean over the seeds; or its difference to that of other counts of the same ones."""
    documents = counts_SD3.shape[1]
    generator = np.random.default_rng(0)  # public: the interval is the same every time
    weights_RD = generator.multinomial(documents, [1 / documents] * documents, size=_RESAMPLES).astype(np.float64)

    def f1(weights: np.ndarray) -> np.ndarray:
        mine = f1_of(np.einsum("rd,sdc->rsc", weights, counts_SD3)).mean(axis=1)
        if minus_SD3 is None:
            return mine
        return mine - f1_of(np.einsum("rd,sdc->rsc", weights, minus_SD3)).mean(axis=1)

    mean = float(f1(np.ones((1, documents)))[0])
    if documents < 2:
        return Estimate(mean, None, None)
    low, high = np.quantile(f1(weights_RD), [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    return Estimate(mean, float(low), float(high))
