"""Outcomes of a mechanism on two neighbouring corpora, by their masses: what the laws of the vocabulary are checked against."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Pair:
    """Masses of the same outcomes on two neighbouring corpora."""

    p: np.ndarray
    q: np.ndarray

    def delta(self, e: float) -> float:
        return float(np.maximum(0.0, self.p - math.exp(e) * self.q).sum())

    def times(self, other: Pair) -> Pair:
        """Both at once, independently; equal likelihood ratios merged, outcomes that never happen left out."""
        p, q = np.outer(self.p, other.p).ravel(), np.outer(self.q, other.q).ravel()
        kept = (p > 1e-40) | (q > 1e-40)
        p, q = np.where(p > 1e-60, p, 0.0)[kept], np.where(q > 1e-60, q, 0.0)[kept]
        with np.errstate(divide="ignore", invalid="ignore"):
            loss = np.round(np.log(p) - np.log(q), 10)
        loss[q == 0], loss[p == 0] = np.inf, -np.inf
        _, group = np.unique(loss, return_inverse=True)
        return Pair(np.bincount(group, weights=p), np.bincount(group, weights=q))


NOTHING = Pair(np.ones(1), np.ones(1))


def product(pairs: Sequence[Pair]) -> Pair:
    return functools.reduce(Pair.times, pairs, NOTHING)


def either(pairs: Sequence[Pair]) -> Pair:
    """Outcomes that exclude each other, side by side."""
    return Pair(np.concatenate([pair.p for pair in pairs]), np.concatenate([pair.q for pair in pairs]))
