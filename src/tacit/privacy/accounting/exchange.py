"""The privacy loss of one step of DP-SGD in which a unit of one weight is replaced by a unit of another.

In the worst case the step is P = (1-q) N(0, s^2) + q N(w, s^2) in one world and Q = (1-q) N(0, s^2) + q N(-w', s^2) in the other
(docs/adaptive.md, lemma 2). With w' = 0 that is a removal, with w = 0 an addition, with w = w' the library's replacement; these
three are left to the library. For the rest the loss ln P/Q, which grows with x, is put on a grid here.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special

from tacit.privacy.accounting.sampled_gaussian import gaussian_pld
from tacit.privacy.accounting.self_composition import self_composed
from tacit.privacy.events.banded import Exchange

__all__ = ["exchange_pld"]

_LARGEST_LOSS = 600.0  # e^loss must fit a double; mass beyond it counts as infinite
_REACH = 10.5  # P and Q have 1e-25 beyond so many standard deviations from their outer components


@functools.lru_cache(maxsize=64)
def exchange_pld(event: Exchange, count: int, grid: float, pessimistic: bool) -> pld.PrivacyLossDistribution:
    """The loss of ``count`` such steps, in both directions: the unit that leaves against the one that comes, and back."""
    if event.leaves == 0 or event.enters == 0 or event.leaves == event.enters:
        single = _of_library(event, grid, pessimistic)
    else:
        law = _Law(event)
        there, back = (
            pld_pmf.create_pmf(masses, grid, infinite, pessimistic_estimate=pessimistic)
            for masses, infinite in law.masses(grid, pessimistic)
        )
        single = pld.PrivacyLossDistribution(there, back)
    return self_composed(single, count)


def _of_library(event: Exchange, grid: float, pessimistic: bool) -> pld.PrivacyLossDistribution:
    same = event.leaves == event.enters
    found = gaussian_pld(
        event.noise_multiplier / max(event.leaves, event.enters),
        "replace" if same else "add-or-remove",
        grid,
        sampling_probability=event.sampling_probability,
        pessimistic=pessimistic,
    )
    # A unit that comes is a unit that leaves, the worlds exchanged.
    return pld.PrivacyLossDistribution(found._pmf_add, found._pmf_remove) if event.leaves == 0 else found


class _Law:
    """P and Q, with sums over their two components each, and the loss between them."""

    def __init__(self, event: Exchange) -> None:
        q, self.stddev = event.sampling_probability, event.noise_multiplier
        self.log_weights = (special.log1p(-q) if q < 1 else -math.inf, math.log(q))
        self.upper, self.lower = (0.0, event.leaves), (0.0, -event.enters)
        self.begin = -event.enters - _REACH * self.stddev
        self.end = event.leaves + _REACH * self.stddev

    def _log_density(self, x: np.ndarray, shifts: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
        """(log density but for a common term, its derivative)."""
        terms = [
            log_weight + (x * shift - shift**2 / 2) / self.stddev**2
            for shift, log_weight in zip(shifts, self.log_weights, strict=True)
        ]
        total = np.logaddexp(*terms)
        slope = sum(np.exp(term - total) * shift / self.stddev**2 for term, shift in zip(terms, shifts, strict=True))
        return total, np.asarray(slope)

    def loss(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(ln P/Q, its derivative, above 0)."""
        (above, rise), (below, fall) = self._log_density(x, self.upper), self._log_density(x, self.lower)
        return above - below, rise - fall

    def _edges(self, grid: float) -> tuple[int, np.ndarray]:
        """(k, x): x at which the loss is k grid, (k + 1) grid, ...: from a table, then Newton's steps.

        The first and the last of these losses enclose those of all x, so that there is a cell where all losses are next to 0.
        """
        ends = np.clip(self.loss(np.array([self.begin, self.end]))[0], -_LARGEST_LOSS, _LARGEST_LOSS)
        first, last = math.floor(ends[0] / grid), math.ceil(ends[1] / grid)
        losses = np.arange(first, last + 1) * grid
        table = np.linspace(self.begin, self.end, 2**17)
        x = np.interp(losses, self.loss(table)[0], table)
        for _ in range(3):
            value, slope = self.loss(x)
            x = np.clip(x - (value - losses) / slope, self.begin, self.end)
        return first, np.maximum.accumulate(x)

    def _cells(self, x: np.ndarray, shifts: tuple[float, float]) -> np.ndarray:
        """Probability below the first edge, between neighbouring ones, and above the last, without cancellation."""
        total = np.zeros(len(x) + 1)
        for shift, log_weight in zip(shifts, self.log_weights, strict=True):
            z = (np.concatenate([[-math.inf], x, [math.inf]]) - shift) / self.stddev
            below, above = np.diff(special.ndtr(z)), -np.diff(special.ndtr(-z))
            total += math.exp(log_weight) * np.where(z[:-1] < 0, below, above)
        return total

    def masses(self, grid: float, pessimistic: bool) -> list[tuple[dict[int, float], float]]:
        """(loss in grid steps -> probability, infinite mass) of P against Q, and of Q against P."""
        first, x = self._edges(grid)
        p, q = self._cells(x, self.upper), self._cells(x, self.lower)
        low = np.arange(first, first + len(x) - 1)
        there = _on_grid(low, p, q, grid, pessimistic)
        back = _on_grid((-low - 1)[::-1], q[::-1], p[::-1], grid, pessimistic)
        return [there, back]


def _on_grid(
    low: np.ndarray, here: np.ndarray, other: np.ndarray, grid: float, pessimistic: bool
) -> tuple[dict[int, float], float]:
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
