"""Bands of privacy probability: which of a few fixed intervals a unit's rho is in, and how much the unit counts there.

rho is a number in [0, 1] that a public function (a scorer) gives to each unit; the more, the likelier it is private. Bands are cut
by fixed thresholds, and a weight of each band says how far a unit there may move a step: its gradient is clipped at
``weight * C`` under noise ``s * C``. Weight 0: the unit takes no part. Both forms of adaptive DP are this (docs/adaptive.md).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from tacit.errors import DataError, UsageError

__all__ = ["Bands"]


@dataclass(frozen=True)
class Bands:
    """A step function of rho.

    Args:
        thresholds: rising, inside (0, 1); band k is ``thresholds[k - 1] <= rho < thresholds[k]``, the last one up to 1.
        weights: of each band, one more than thresholds; in [0, 1], and not all 0.

    Raises:
        UsageError: any of this does not hold.
    """

    thresholds: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        # From JSON come lists; equal bands must be equal, and hash alike.
        object.__setattr__(self, "thresholds", tuple(float(value) for value in self.thresholds))
        object.__setattr__(self, "weights", tuple(float(value) for value in self.weights))
        edges = (0.0, *self.thresholds, 1.0)
        if not all(low < high for low, high in itertools.pairwise(edges)):
            raise UsageError(f"thresholds are {list(self.thresholds)}; they must rise, each above 0 and below 1")
        if len(self.weights) != len(self.thresholds) + 1:
            raise UsageError(
                f"{len(self.weights)} weights for {len(self.thresholds)} thresholds; there must be one more weight than thresholds"
            )
        if not all(0 <= weight <= 1 for weight in self.weights) or not any(self.weights):
            raise UsageError(f"weights are {list(self.weights)}; each must be from 0 to 1, and one above 0")

    @property
    def edges(self) -> tuple[float, ...]:
        """Ends of all bands, 0 and 1 among them."""
        return (0.0, *self.thresholds, 1.0)

    def weight_at(self, rho: float) -> float:
        """The weight of one public value of rho."""
        return float(self.weights_of(np.array([rho]))[0])

    def band_of(self, rho_U: np.ndarray) -> np.ndarray:
        """The band, from 0, of each unit.

        Raises:
            DataError: a value is no number from 0 to 1.
        """
        rho_U = np.asarray(rho_U, dtype=np.float64)
        if not np.all((rho_U >= 0) & (rho_U <= 1)):  # also false for NaN
            raise DataError("a privacy probability is no number from 0 to 1: score the records again")
        return np.searchsorted(self.thresholds, rho_U, side="right")

    def weights_of(self, rho_U: np.ndarray) -> np.ndarray:
        """The weight of each unit, float64."""
        return np.asarray(self.weights)[self.band_of(rho_U)]

    @property
    def counted(self) -> frozenset[float]:
        """The weights that are not 0."""
        return frozenset(self.weights) - {0.0}

    @property
    def largest(self) -> float:
        """The largest weight: what the worst case has."""
        return max(self.weights)

    def words(self) -> str:
        """``0 to 0.5: 1, 0.5 to 1: 0.25``."""
        ends = zip(self.edges, self.edges[1:], self.weights, strict=False)
        return ", ".join(f"{low:g} to {high:g}: {weight:g}" for low, high, weight in ends)
