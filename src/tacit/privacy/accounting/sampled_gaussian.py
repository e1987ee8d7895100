"""The privacy loss distribution of a Gaussian release, of everybody or of a Poisson sample.

It is that of dp-accounting, to the bit where the platform's ``exp`` of one number is that of many: the library finds where on the
line the loss has each value of the grid, one value at a time in Python, and that is nine tenths of what an account costs. Here all of
them are found at once, by the same formulas; everything else is the library's.
"""

from __future__ import annotations

import functools
import math

import numpy as np
from dp_accounting.pld import pld_pmf, privacy_loss_mechanism
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType

from tacit.errors import UsageError
from tacit.privacy.accounting.self_composition import self_composed
from tacit.privacy.events.base import Relation

__all__ = ["NEARLY_ALL", "GaussianLoss", "gaussian_pld", "poisson_gaussian_pld"]

_CLOSE = 1e-9  # as math.isclose

NEARLY_ALL = 1 - 2.0**-49
"""Sampling probabilities between this and 1 leave too few digits of 1 - q. The pair of laws of a smaller q is a mixture of that of a
larger one with a pair that is equal, so delta grows with q: rounding q up gives an upper bound, and rounding it down a lower one."""


def gaussian_pld(
    stddev: float,
    relation: Relation,
    grid: float,
    *,
    sensitivity: float = 1.0,
    sampling_probability: float = 1.0,
    pessimistic: bool = True,
) -> pld.PrivacyLossDistribution:
    """The loss of one release.

    Args:
        stddev: of the noise, in the units of ``sensitivity``.
        relation: with add-or-remove one record of norm ``sensitivity`` comes or goes; with replace it becomes its opposite.
        grid: discretisation interval of the loss, in nats.
        pessimistic: an upper bound by connecting the dots (Doroshenko et al. 2022); else a lower one, by rounding losses down.

    Of all records (probability 1) replacement is a release of twice the sensitivity.
    """
    q = sampling_probability
    if NEARLY_ALL < q < 1:
        q = 1.0 if pessimistic else NEARLY_ALL

    def one(adjacency: AdjacencyType) -> pld_pmf.PLDPmf:
        loss = GaussianLoss(stddev, sensitivity, pessimistic, sampling_prob=q, adjacency_type=adjacency)
        return _upper(loss, grid) if pessimistic else _lower(loss, grid)

    if relation == "replace":
        return pld.PrivacyLossDistribution(one(AdjacencyType.REPLACE))
    remove = one(AdjacencyType.REMOVE)
    # The two directions are the same law when everybody is in the sample.
    return pld.PrivacyLossDistribution(remove, None if q == 1 else one(AdjacencyType.ADD))


@functools.lru_cache(maxsize=8)  # of up to 8 MiB each
def poisson_gaussian_pld(
    sampling_probability: float,
    noise_multiplier: float,
    count: int,
    relation: Relation,
    grid: float,
    pessimistic: bool,
) -> pld.PrivacyLossDistribution:
    """The loss of ``count`` steps on Poisson samples, composed."""
    single = gaussian_pld(
        noise_multiplier,
        relation,
        grid,
        sampling_probability=sampling_probability,
        pessimistic=pessimistic,
    )
    return self_composed(single, count)


class GaussianLoss(privacy_loss_mechanism.GaussianPrivacyLoss):
    """The library's, with many values at once."""

    def deltas(self, epsilons: np.ndarray) -> np.ndarray:
        """Hockey-stick divergence at each epsilon; the library's formula (its supplement, observation 1)."""
        deltas = np.zeros_like(epsilons)
        inside = np.full_like(epsilons, True, dtype=bool)
        if self.sampling_prob < 1 and self.adjacency_type is AdjacencyType.ADD:
            inside = epsilons < -math.log1p(-self.sampling_prob)  # the loss is never larger
        elif self.sampling_prob < 1 and self.adjacency_type is AdjacencyType.REMOVE:
            inside = epsilons > math.log1p(-self.sampling_prob)  # the loss is never smaller
            deltas[~inside] = -np.expm1(epsilons[~inside])
        x = self.inverse_privacy_losses(epsilons[inside])
        deltas[inside] = self.mu_upper_cdf(x) - np.exp(epsilons[inside] + self.mu_lower_log_cdf(x))
        if np.isnan(deltas).any():
            raise UsageError(
                "the privacy loss of this Gaussian step cannot be computed in double precision: take more noise"
            )
        return np.clip(deltas, 0, 1)

    def inverse_privacy_losses(self, losses: np.ndarray) -> np.ndarray:
        """The largest x at which the loss is at least each of ``losses``, which have to be in its range."""
        if self.adjacency_type is AdjacencyType.REPLACE:
            return self._replaced(losses)
        q, added = self.sampling_prob, self.adjacency_type is AdjacencyType.ADD
        if q == 1:
            unsampled = losses
        else:
            sign = -1.0 if added else 1.0
            edge = sign * math.log(1 - q)
            unsampled = sign * _log_scaled_exp_plus(1 / q, sign * losses, 1 - 1 / q)
            at_edge = np.abs(losses - edge) <= _CLOSE * np.maximum(np.abs(losses), abs(edge))
            unsampled[at_edge] = math.inf if added else -math.inf
        x = -0.5 * self.sensitivity - unsampled * self._standard_deviation**2 / self.sensitivity
        return self.sensitivity + x if added else x

    def _replaced(self, losses: np.ndarray) -> np.ndarray:
        """One record of norm ``sensitivity`` becomes its opposite."""
        q, variance = self.sampling_prob, self._standard_deviation**2
        if q == 1:
            return -losses * variance / self.sensitivity / 2
        log_alpha = 0.5 * (self.sensitivity / self._standard_deviation) ** 2 + math.log1p(-q) - math.log(q)
        half = np.abs(losses) / 2
        with np.errstate(divide="ignore"):  # ln sinh 0 = -inf: a loss of 0 is at 0
            log_sinh = half + np.log1p(-np.exp(-2 * half)) - math.log(2)
        term = log_alpha + log_sinh
        asinh = -np.sign(losses) * np.logaddexp(0.5 * np.logaddexp(0, 2 * term), term)
        return variance / self.sensitivity * (asinh - losses / 2)


def _log_scaled_exp_plus(scale: float, exponents: np.ndarray, constant: float) -> np.ndarray:
    """ln(scale e^exponent + constant), for scale > 0 > constant = 1 - scale; NaN where there is none."""
    total = exponents + np.log(scale)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = total + np.log1p(-np.exp(np.log(-constant) - total))
    return np.where(exponents == 0, 0.0, found)


def _upper(loss: GaussianLoss, grid: float) -> pld_pmf.PLDPmf:
    """Connecting the dots between the losses at which the tails of the noise are cut."""
    bounds = loss.connect_dots_bounds()
    assert bounds.epsilon_lower is not None
    assert bounds.epsilon_upper is not None
    low, high = math.floor(bounds.epsilon_lower / grid), math.ceil(bounds.epsilon_upper / grid)
    deltas = loss.deltas(np.arange(low, high + 1) * grid)
    if len(deltas) <= pld_pmf._MAX_PMF_SPARSE_SIZE or np.any(np.diff(deltas) > pld_pmf._DELTA_DIFF_TOLERANCE):
        return pld_pmf.create_pmf_pessimistic_connect_dots_fixed_gap(grid, low, high, deltas)
    # The library's formulas, without its way of so many numbers through a dictionary.
    deltas = np.minimum.accumulate(deltas)
    steps = np.diff(deltas)
    masses = np.concatenate([
        [1 - deltas[0] + steps[0] / math.expm1(grid)],
        (steps[1:] - steps[:-1] * math.exp(grid)) / math.expm1(grid),
        [steps[-1] / math.expm1(-grid)],
    ])  # fmt: skip
    return pld_pmf.DensePLDPmf(grid, low, np.maximum(0.0, masses), deltas[-1], True)


def _lower(loss: GaussianLoss, grid: float) -> pld_pmf.PLDPmf:
    """Each loss rounded down to the grid; the tail of largest losses has that at which it is cut, and the other tail none."""
    tail = loss.privacy_loss_tail()
    highest, lowest = loss.privacy_loss(tail.lower_x_truncation), loss.privacy_loss(tail.upper_x_truncation)
    masses = {math.floor(value / grid): float(mass) for value, mass in tail.tail_probability_mass_function.items()}
    first = math.floor(highest / grid)
    steps = np.arange(first, math.floor(lowest / grid) - 2, -1)
    steps = steps[steps * grid > lowest]
    x = loss.inverse_privacy_losses(steps * grid)
    x = x[: np.searchsorted(x, tail.upper_x_truncation)]
    edges = np.concatenate([[tail.lower_x_truncation], x, [tail.upper_x_truncation]])
    for place, mass in enumerate(np.diff(loss.mu_upper_cdf(edges)).tolist()):
        masses[first - place] = masses.get(first - place, 0.0) + mass
    return pld_pmf.create_pmf(masses, grid, 0.0, pessimistic_estimate=False)
