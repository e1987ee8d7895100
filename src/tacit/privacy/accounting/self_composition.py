"""Compositions of privacy loss distributions, and the delta of one: what dp-accounting gives, to the bit, in a third of its time.

Where two are composed, the library looks for the ends that may be cut one mass at a time; for each delta it makes all losses anew.

Where one is composed with itself, it looks for where the composed masses may be cut with forty passes of ``logsumexp``, and raises
both halves of a spectrum that is conjugate symmetric to the power. Here the passes are products of numbers that are known to differ
by rounding alone, with the library's own where that could change a whole number, and one half of the spectrum mirrors the other.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np
from dp_accounting.pld import common, pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import fft, signal

from tacit.privacy.accounting.falling import Falling

__all__ = ["composed", "delta_at", "delta_curve", "let_go_of_plans", "self_composed", "truncation_bounds"]

_TAIL = 1e-15
"""The mass that the library lets each composition cut off, and adds to that of an infinite loss."""

_ORDERS = np.arange(1, 21)
"""The orders k of the Chernoff bounds: each is used as k / n and as -k / n, where n is the number of masses."""

_MOST_EPSILON = 600.0
"""Up to which there are bounds: the exponential of no larger one need fit into a float."""

_LOG_ERROR = 1e-11
"""An upper bound on the relative difference between two orders of adding a million positive numbers."""


_PLANS = 16
"""Of Fourier transforms that scipy keeps, complex ones and real ones each: the last that were used, of 16 bytes a number."""


def let_go_of_plans() -> None:
    """Let go of scipy's plans of transforms, which only others replace: ten MiB for each length that was asked for."""
    for length in range(1, _PLANS + 1):
        fft.fft(np.zeros(length, dtype=np.complex128))
        fft.rfft(np.zeros(length))


def composed(parts: Sequence[pld.PrivacyLossDistribution]) -> pld.PrivacyLossDistribution:
    """``one.compose(other)`` of all of them, from the left."""
    return functools.reduce(_pair, parts)


def _pair(one: pld.PrivacyLossDistribution, other: pld.PrivacyLossDistribution) -> pld.PrivacyLossDistribution:
    gone = _pair_of_masses(one._pmf_remove, other._pmf_remove)
    if one._symmetric and other._symmetric:
        return pld.PrivacyLossDistribution(gone)
    return pld.PrivacyLossDistribution(gone, _pair_of_masses(one._pmf_add, other._pmf_add))


def _pair_of_masses(one: pld_pmf.PLDPmf, other: pld_pmf.PLDPmf) -> pld_pmf.PLDPmf:
    are_dense = isinstance(one, pld_pmf.DensePLDPmf) or isinstance(other, pld_pmf.DensePLDPmf)
    if not are_dense and one.size * other.size <= pld_pmf._MAX_PMF_SPARSE_SIZE:
        return pld_pmf.compose_pmfs(one, other, _TAIL)
    first, second = _dense(one), _dense(other)
    first.validate_composable(second)
    masses = signal.fftconvolve(first._probs, second._probs)
    low, high = _prefix(masses), len(masses) - _prefix(masses[::-1])
    high = max(high, low + 1)
    below, above = np.sum(masses[:low]), np.sum(masses[high:])
    kept = masses[low:high].copy()  # a view would hold all of them, a third more
    infinite = first._infinity_mass + second._infinity_mass - first._infinity_mass * second._infinity_mass
    if first._pessimistic_estimate:
        kept[0] += below
    else:
        kept[-1] += above
        above = 0
    lowest = first._lower_loss + second._lower_loss + low
    return pld_pmf.DensePLDPmf(first._discretization, lowest, kept, infinite + above, first._pessimistic_estimate)


def _prefix(masses: np.ndarray) -> int:
    """How many of the first masses are half of the tail together, added one after another."""
    exceeds = np.cumsum(masses) > _TAIL / 2
    return int(np.argmax(exceeds)) if exceeds.any() else len(masses)


def _dense(pmf: pld_pmf.PLDPmf) -> pld_pmf.DensePLDPmf:
    if not isinstance(pmf, pld_pmf.SparsePLDPmf):
        return pmf.to_dense_pmf()
    losses = np.fromiter(pmf._loss_probs, np.int64)
    lowest = int(losses.min())
    masses = np.zeros(int(losses.max()) - lowest + 1)
    masses[losses - lowest] = np.fromiter(pmf._loss_probs.values(), np.float64)
    return pld_pmf.DensePLDPmf(pmf._discretization, lowest, masses, pmf._infinity_mass, pmf._pessimistic_estimate)


def delta_at(distribution: pld.PrivacyLossDistribution, epsilon: float) -> float:
    """``distribution.get_delta_for_epsilon(epsilon)``."""
    gone = _delta_of(distribution._pmf_remove, epsilon)
    return float(gone if distribution._symmetric else np.maximum(gone, _delta_of(distribution._pmf_add, epsilon)))


def _delta_of(pmf: pld_pmf.PLDPmf, epsilon: float) -> float:
    if not isinstance(pmf, pld_pmf.DensePLDPmf) or not math.isfinite(epsilon):
        return np.float64(pmf.get_delta_for_epsilon(epsilon)).item()
    # The place of epsilon but for rounding: nothing is made of the losses before it.
    near = math.floor(epsilon / pmf._discretization) - pmf._lower_loss - 2
    first = min(max(0, near), pmf.size)
    losses = (np.arange(first, pmf.size) + pmf._lower_loss) * pmf._discretization
    above = int(np.searchsorted(losses, epsilon, "right"))
    return pmf._infinity_mass + np.dot(-np.expm1(epsilon - losses[above:]), pmf._probs[first + above :])


def delta_curve(distribution: pld.PrivacyLossDistribution) -> Falling:
    """`delta_at` of a distribution; where it has many losses, with bounds that cost next to nothing from the second one on."""
    parts = [distribution._pmf_remove, *([] if distribution._symmetric else [distribution._pmf_add])]
    dense = [part for part in parts if isinstance(part, pld_pmf.DensePLDPmf)]
    at = functools.partial(delta_at, distribution)
    return Falling(at, _Between(at, dense) if len(dense) == len(parts) else None)


class _Between:
    """Bounds of `delta_at`, from sums that are made when the first is asked for: they take less time than one value."""

    def __init__(self, at: Callable[[float], float], parts: Sequence[pld_pmf.DensePLDPmf]) -> None:
        self._at = at
        self._parts = parts
        self._tails: list[_Tails] = []

    def __call__(self, epsilon: float) -> tuple[float, float]:
        if not 0 <= epsilon <= _MOST_EPSILON:
            exact = self._at(epsilon)
            return exact, exact
        self._tails = self._tails or [_Tails(part) for part in self._parts]
        each = [tail.between(epsilon) for tail in self._tails]
        return max(least for least, _ in each), max(most for _, most in each)


class _Tails:
    """Sums over the masses of the losses from each one of the grid on, of those above 0: delta is one of them less e^epsilon times
    the same sum with each mass divided by e^loss.

    What rounding may change is bounded: that of n additions one after the other by n 2^-53 times the sum of the sizes, in these sums
    and in `_delta_of`; that of exponentials and products by a few such.
    """

    def __init__(self, pmf: pld_pmf.DensePLDPmf) -> None:
        self._grid, self._lower, self._infinite = pmf._discretization, pmf._lower_loss, float(pmf._infinity_mass)
        self._first = min(max(0, -self._lower - 2), pmf.size)
        masses = np.asarray(pmf._probs)[self._first :]
        scaled = masses * np.exp(-(np.arange(self._first, pmf.size) + self._lower) * self._grid)
        self._sums = [_from_each(values) for values in (masses, scaled)]
        has_negative = bool((masses < 0).any())  # transforms leave some of about -1e-20
        self._sizes = [_from_each(np.abs(values)) for values in (masses, scaled)] if has_negative else self._sums
        self._rounding = (2 * pmf.size + 64) * 2.0**-53

    def between(self, epsilon: float) -> tuple[float, float]:
        """Two numbers between which `_delta_of` is of an epsilon from 0 to `_MOST_EPSILON`."""
        place = max(0, min(len(self._sums[0]) - 1, self._place_above(epsilon) - self._first))
        factor = math.exp(epsilon)
        (mass, scaled), (size, scaled_size) = ([float(of[place]) for of in two] for two in (self._sums, self._sizes))
        found = self._infinite + (mass - factor * scaled)
        error = self._rounding * (self._infinite + size + factor * scaled_size)
        return found - error, found + error

    def _place_above(self, epsilon: float) -> int:
        """The place of the first loss above epsilon, as a product of floats says it."""
        place = math.floor(epsilon / self._grid) - self._lower
        while (place + self._lower) * self._grid <= epsilon:
            place += 1
        while (place - 1 + self._lower) * self._grid > epsilon:
            place -= 1
        return place


def _from_each(values: np.ndarray) -> np.ndarray:
    """The sum of the values from each place on, and 0 behind the last."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


def self_composed(single: pld.PrivacyLossDistribution, count: int) -> pld.PrivacyLossDistribution:
    """``single.self_compose(count)``: the same masses, to the bit."""
    gone = _power_of(single._pmf_remove, count)
    return pld.PrivacyLossDistribution(gone, None if single._symmetric else _power_of(single._pmf_add, count))


def _power_of(pmf: pld_pmf.PLDPmf, count: int) -> pld_pmf.PLDPmf:
    if not isinstance(pmf, pld_pmf.DensePLDPmf):
        if count == 1 or pmf.size**count <= pld_pmf._MAX_PMF_SPARSE_SIZE:
            return pmf.self_compose(count, _TAIL)
        pmf = _dense(pmf)
    masses = np.asarray(pmf._probs)
    low, high = truncation_bounds(masses, count)
    length = fft.next_fast_len(max(high - low + 1, len(masses)))
    wrapped = np.real(np.asarray(fft.ifft(_power(np.asarray(fft.fft(masses, length)), count))))
    infinite = _TAIL - math.expm1(count * math.log1p(-pmf._infinity_mass))
    return pld_pmf.DensePLDPmf(
        pmf._discretization,
        pmf._lower_loss * count + low,
        np.roll(wrapped, -low)[: high - low + 1].copy(),
        infinite,
        pmf._pessimistic_estimate,
    )


def _power(spectrum: np.ndarray, count: int) -> np.ndarray:
    """Its power; of real masses, the second half is the mirror of the first one's conjugate."""
    half = len(spectrum) // 2 + 1
    raised = np.empty_like(spectrum)
    raised[:half] = spectrum[:half] ** count
    raised[half:] = np.conj(raised[1 : len(spectrum) - half + 1])[::-1]
    return raised


def truncation_bounds(masses: np.ndarray, count: int, tail: float = _TAIL) -> tuple[int, int]:
    """Where the composed masses are cut: all but ``tail`` lies between, by Chernoff's bounds.

    Returns:
        The first and the last place that stay, of the places 0 to ``count`` times the last one: those of the library's
        ``compute_self_convolve_bounds``.
    """
    size = len(masses)
    if masses.min() < 0:  # a few may be, by the rounding of an earlier composition
        return common.compute_self_convolve_bounds(masses.tolist(), count, tail)
    log_mgf_K = _log_moments(masses)
    reach = math.log(2 / tail)
    highs = (count * log_mgf_K[: len(_ORDERS)] + reach) * size / _ORDERS
    lows = -(count * log_mgf_K[len(_ORDERS) :] + reach) * size / _ORDERS
    error = 2 * count * _LOG_ERROR * size / _ORDERS
    if not (np.isfinite(highs).all() and np.isfinite(lows).all()):
        return common.compute_self_convolve_bounds(masses.tolist(), count, tail)
    above = {math.ceil(np.min(highs - error)), math.ceil(np.min(highs + error))}
    below = {math.floor(np.max(lows - error)), math.floor(np.max(lows + error))}
    if len(above) > 1 or len(below) > 1:  # too near to a whole number to tell
        return common.compute_self_convolve_bounds(masses.tolist(), count, tail)
    return max(0, below.pop()), min((size - 1) * count, above.pop())


def _log_moments(masses: np.ndarray) -> np.ndarray:
    """ln sum_i masses_i e^(i k / n) for k = 1 to 20, and for k = -1 to -20."""
    found = []
    for sign in (1.0, -1.0):
        base = np.exp(sign * np.arange(len(masses)) / len(masses))
        term = masses
        for _ in _ORDERS:
            term = term * base
            found.append(term.sum())
    with np.errstate(divide="ignore"):
        return np.log(found)
