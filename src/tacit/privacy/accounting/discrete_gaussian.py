"""The privacy loss distribution of integers with discrete Gaussian noise: that of dp-accounting, to the bit.

The library asks for the loss at each integer of the noise, one after the other in Python; here all of them are found at once.
"""

from __future__ import annotations

import math

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, DiscreteGaussianPrivacyLoss

from tacit.errors import UsageError
from tacit.privacy.accounting.falling import WHAT_TO_CHANGE

__all__ = ["discrete_gaussian_pld", "refuse_tiny_noise"]

_LARGEST_MU = 23.0
"""A distance of so many standard deviations: epsilon is above 250. The library's integers reach 11.6 of them to either side."""


def refuse_tiny_noise(distance: float, stddev: float) -> None:
    """Refuse noise on words that protects nothing, instead of a loss that is beyond the arrays that hold it.

    Args:
        distance: of the counts of neighbouring corpora, as a norm.
        stddev: of the noise on each count, in the same unit.

    Raises:
        UsageError: it is below 1/23 of the distance.
    """
    if distance > _LARGEST_MU * stddev:
        raise UsageError(
            f"the noise on the counts of words ({stddev:.4g}) is less than 1/{_LARGEST_MU:g} of what one unit changes in them "
            f"({distance:.4g}, as a norm), so nothing is protected: {WHAT_TO_CHANGE}"
        )


def discrete_gaussian_pld(
    sigma: float, sensitivity: int, grid: float, *, pessimistic: bool = True
) -> pld.PrivacyLossDistribution:
    """The loss of one release, the same in both directions; `privacy_loss_distribution.from_discrete_gaussian_mechanism`.

    Args:
        sigma: of the noise; its standard deviation is a little less.
        sensitivity: by how much a count changes.
        grid: discretisation interval of the loss, in nats.
        pessimistic: losses are rounded up, else down.
    """
    law = DiscreteGaussianPrivacyLoss(sigma, sensitivity=sensitivity, adjacency_type=AdjacencyType.REMOVE)
    tail = law.privacy_loss_tail()
    xs = np.arange(math.ceil(tail.lower_x_truncation) - 1, math.floor(tail.upper_x_truncation) + 1)
    masses = np.diff(np.asarray(law.mu_upper_cdf(xs)))
    losses = sensitivity * (-0.5 * sensitivity - xs[1:]) / sigma**2 / grid
    places = (np.ceil(losses) if pessimistic else np.floor(losses)).astype(np.int64)
    infinite = tail.tail_probability_mass_function.get(math.inf, 0)
    lowest = int(places.min())
    sums = np.bincount(places - lowest, masses)
    distinct = dict.fromkeys(places.tolist())
    if len(distinct) > pld_pmf._MAX_PMF_SPARSE_SIZE:
        return pld.PrivacyLossDistribution(pld_pmf.DensePLDPmf(grid, lowest, sums, infinite, pessimistic))
    few = {place: float(sums[place - lowest]) for place in distinct}
    return pld.PrivacyLossDistribution(pld_pmf.create_pmf(few, grid, infinite, pessimistic))
