"""The privacy loss between two mixtures of Gaussians of one standard deviation, on a grid: of steps that have no closed form.

P has its components at or above 0, Q at or below it, so the loss ln P/Q grows with x. The edges at which it has the values of the
grid are found once, and the masses of both laws between them are exact.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import special

__all__ = ["LARGEST_LOSS", "REACH", "Components", "MixturePair"]

LARGEST_LOSS = 600.0
"""e^loss must fit a double; mass beyond it counts as infinite."""
REACH = 10.5
"""P and Q have 1e-25 beyond so many standard deviations from their outer components."""

_TABLE = 2**17
_NEWTON_STEPS = 3

Components = tuple[np.ndarray, np.ndarray]
"""(places, logarithms of the weights) of a mixture's components."""
Masses = tuple[dict[int, float], float]
"""(loss in grid steps -> probability, infinite mass)."""


class MixturePair:
    """P and Q, and the loss between them.

    Args:
        stddev: of every component.
        upper: the components of P, at places of at least 0.
        lower: those of Q, at places of at most 0; None: Q is the mirror image of P.
    """

    def __init__(self, stddev: float, upper: Components, lower: Components | None = None) -> None:
        self._stddev, self._is_mirrored = stddev, lower is None
        self._upper = upper
        self._lower = (-upper[0], upper[1]) if lower is None else lower
        self._begin = float(np.min(self._lower[0])) - REACH * stddev
        self._end = float(np.max(self._upper[0])) + REACH * stddev

    @property
    def largest_loss(self) -> float:
        """The largest loss that is not counted as infinite."""
        return min(LARGEST_LOSS, float(self._loss(np.array([self._end]))[0][0]))

    def _log_density(self, x: np.ndarray, components: Components) -> tuple[np.ndarray, np.ndarray]:
        """(log density but for a term that both laws have, its derivative)."""

        def term(shift: float, log_weight: float) -> np.ndarray:
            return log_weight + (x * shift - shift**2 / 2) / self._stddev**2

        pairs = list(zip(*(column.tolist() for column in components), strict=True))
        total = functools.reduce(np.logaddexp, (term(*pair) for pair in pairs))
        slope = np.zeros_like(x)
        for shift, log_weight in pairs:
            slope += np.exp(term(shift, log_weight) - total) * shift / self._stddev**2
        return total, slope

    def _loss(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ln P/Q, its derivative, above 0)."""
        (above, rise), (below, fall) = self._log_density(x, self._upper), self._log_density(x, self._lower)
        return above - below, rise - fall

    def _edges(self, grid: float) -> tuple[int, np.ndarray]:
        """(k, x): x at which the loss is k grid, (k + 1) grid, ...: from a table, then Newton's steps.

        The first and the last of these losses enclose those of all x, so that there is a cell where all losses are next to 0.
        """
        if self._is_mirrored:  # at 0 the loss is 0, and below it the same with the other sign
            x = self._edges_between(0, math.ceil(self.largest_loss / grid), grid, 0.0)
            return 1 - len(x), np.concatenate([-x[:0:-1], x])
        ends = np.clip(self._loss(np.array([self._begin, self._end]))[0], -LARGEST_LOSS, LARGEST_LOSS)
        first, last = math.floor(ends[0] / grid), math.ceil(ends[1] / grid)
        return first, self._edges_between(first, last, grid, self._begin)

    def _edges_between(self, first: int, last: int, grid: float, begin: float) -> np.ndarray:
        losses = np.arange(first, last + 1) * grid
        table = np.linspace(begin, self._end, _TABLE)
        x = np.interp(losses, self._loss(table)[0], table)
        for _ in range(_NEWTON_STEPS):
            value, slope = self._loss(x)
            x = np.clip(x - (value - losses) / slope, begin, self._end)
        return np.maximum.accumulate(x)

    def _cells(self, x: np.ndarray, components: Components) -> np.ndarray:
        """Probability below the first edge, between neighbouring ones, and above the last, without cancellation."""
        total = np.zeros(len(x) + 1)
        for shift, log_weight in zip(*(column.tolist() for column in components), strict=True):
            z = (np.concatenate([[-math.inf], x, [math.inf]]) - shift) / self._stddev
            below, above = np.diff(special.ndtr(z)), -np.diff(special.ndtr(-z))
            total += math.exp(log_weight) * np.where(z[:-1] < 0, below, above)
        return total

    def masses(self, grid: float, pessimistic: bool = True) -> tuple[Masses, Masses]:
        """The masses of P against Q, and of Q against P.

        Args:
            grid: discretisation interval of the loss, in nats.
            pessimistic: True for an upper bound, False for a lower one.
        """
        first, x = self._edges(grid)
        p, q = self._cells(x, self._upper), self._cells(x, self._lower)
        low = np.arange(first, first + len(x) - 1)
        there = _on_grid(low, p, q, grid, pessimistic)
        back = there if self._is_mirrored else _on_grid((-low - 1)[::-1], q[::-1], p[::-1], grid, pessimistic)
        return there, back


def _on_grid(low: np.ndarray, here: np.ndarray, other: np.ndarray, grid: float, pessimistic: bool) -> Masses:
    """Cells of loss [low, low + 1] grid, with a tail before and one after, on the grid.

    For an upper bound each cell's mass goes to its two ends such that the other law's mass is kept as well, so that delta is exact on
    the grid ("connect the dots", Doroshenko et al. 2022); the tails are rounded up. For a lower one all is rounded down.
    """
    mass, infinite = np.zeros(len(low) + 1), 0.0
    inner = here[1:-1]
    if pessimistic:
        raised = np.clip((inner - np.exp(low * grid) * other[1:-1]) / -math.expm1(-grid), 0.0, inner)
        mass[:-1] += inner - raised
        mass[1:] += raised
        mass[0] += here[0]
        infinite = float(here[-1])
    else:
        mass[:-1] += inner
        mass[-1] += here[-1]  # its loss is larger; below the first edge nothing is counted
    return {int(low[0]) + index: float(value) for index, value in enumerate(mass) if value > 0}, infinite
