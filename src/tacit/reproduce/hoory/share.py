"""The share of the gain kept: (F1 of BERT-DP - F1 of BERT) / (F1 of BERT-M - F1 of BERT), paired by folds.

A ratio's interval is Fieller's: the shares r at which the mean over folds of (dp - bert) - r (m - bert) is not told from 0 by
the interval that means have (`tacit.entities.estimates`: corrected resampled t). Where BERT-M's gain itself is not told
from 0, no share is excluded, and there is no interval.

Shapes: K folds, S seeds.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

from tacit.entities.estimates import Estimate

__all__ = ["share_kept"]

_LEVEL = 0.95


def share_kept(dp_KS: np.ndarray, bert_KS: np.ndarray, m_KS: np.ndarray) -> Estimate:
    """The share with its 95 % interval; not a number where BERT-M gains nothing."""
    kept_K = dp_KS.mean(axis=1) - bert_KS.mean(axis=1)
    gain_K = m_KS.mean(axis=1) - bert_KS.mean(axis=1)
    kept, gain = float(kept_K.mean()), float(gain_K.mean())
    if gain <= 0:
        return Estimate(math.nan, None, None)
    folds = len(gain_K)
    if folds < 2:
        return Estimate(kept / gain, None, None)
    scale = 1 / folds + 1 / (folds - 1)
    (var_kept, both), (_, var_gain) = scale * np.cov(kept_K, gain_K, ddof=1)
    t2 = float(stats.t.ppf((1 + _LEVEL) / 2, folds - 1)) ** 2
    # (kept - r gain)^2 <= t^2 (var_kept - 2 r both + r^2 var_gain): a quadratic in r, bounded only where its lead is positive
    lead, half, rest = gain**2 - t2 * var_gain, kept * gain - t2 * both, kept**2 - t2 * var_kept
    inside = half**2 - lead * rest
    if lead <= 0 or inside < 0:
        return Estimate(kept / gain, None, None)
    return Estimate(kept / gain, (half - math.sqrt(inside)) / lead, (half + math.sqrt(inside)) / lead)
