"""The loss of a Gaussian release is that of dp-accounting, to the last bit, and found at once instead of one value at a time."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld.privacy_loss_mechanism import AdjacencyType, GaussianPrivacyLoss
from scipy import integrate, stats

from tacit.privacy.accounting import sampled_gaussian
from tacit.privacy.accounting.sampled_gaussian import GaussianLoss, gaussian_pld
from tacit.privacy.events import Relation

RELATIONS: dict[Relation, NeighboringRelation] = {
    "add-or-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace": NeighboringRelation.REPLACE_ONE,
}
# noise, sampling probability, sensitivity
SETTINGS = [
    (1.0, 0.01, 1.0),
    (0.5, 0.3, 1.0),
    (3.0, 0.999, 1.0),
    (10.0, 1e-5, 1.0),
    (0.3, 1e-8, 1.0),
    (100.0, 0.5, 1.0),
    (1.0, 1e-12, 1.0),
    (2.0, 1.0, 1.0),
    (1.0, 0.02, 0.37),
    (1.5, 1.0, 2.6),
]


def of_library(
    stddev: float, probability: float, sensitivity: float, relation: Relation, grid: float, pessimistic: bool
) -> pld.PrivacyLossDistribution:
    return pld.from_gaussian_mechanism(
        stddev,
        sensitivity,
        pessimistic,
        grid,
        sampling_prob=probability,
        use_connect_dots=pessimistic,
        neighboring_relation=RELATIONS[relation],
    )


def distance(one: pld_pmf.PLDPmf, other: pld_pmf.PLDPmf) -> float:
    """The largest difference of two masses; infinite where they lie on other losses."""
    here, there = one.to_dense_pmf(), other.to_dense_pmf()
    if (here._lower_loss, len(here._probs)) != (there._lower_loss, len(there._probs)):
        return math.inf
    masses = np.abs(np.asarray(here._probs) - np.asarray(there._probs)).max()
    return max(float(masses), abs(here._infinity_mass - there._infinity_mass))


def rounding(pmf: pld_pmf.PLDPmf, grid: float) -> float:
    """How far apart two evaluations of one law may be in double precision.

    A mass is a sum of three deltas with weights of at most 4 / grid together (connecting the dots). A delta is P(x) less
    e^(loss + L(x)), with L <= 0 and the power at most P <= 1. Where x is the loss's, its own rounding does not count, as delta
    is stationary there. The platform's functions are right to a unit in the last place (2^-52), but ``exp`` of one number and
    of an array need not be the same: P and the power bring a unit each, and L, which is at most |loss| + 1 wherever the power
    counts, as many as it is large.
    """
    dense = pmf.to_dense_pmf()
    largest = max(abs(dense._lower_loss), abs(dense._lower_loss + len(dense._probs))) * grid
    return 4 / grid * (3 + largest) * 2.0**-52


@pytest.mark.parametrize("pessimistic", [True, False], ids=["upper", "lower"])
@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
@pytest.mark.parametrize(("stddev", "probability", "sensitivity"), SETTINGS)
def test_it_is_the_librarys(
    stddev: float, probability: float, sensitivity: float, relation: Relation, pessimistic: bool
) -> None:
    grid = 1e-3
    mine = gaussian_pld(
        stddev, relation, grid, sensitivity=sensitivity, sampling_probability=probability, pessimistic=pessimistic
    )
    library = of_library(stddev, probability, sensitivity, relation, grid, pessimistic)
    # Equal on the machine on which it was written; on another one 5.0e-13 apart, of which its ``exp`` of arrays made 0.3e-13.
    assert distance(mine._pmf_remove, library._pmf_remove) <= rounding(library._pmf_remove, grid)
    assert distance(mine._pmf_add, library._pmf_add) <= rounding(library._pmf_add, grid)


@pytest.mark.parametrize(
    ("stddev", "probability", "sensitivity"), [(1.0001, 0.01, 1.0), (1.0, 0.01001, 1.0), (1.0, 0.01, 1.0001)]
)
def test_another_law_is_told_apart(stddev: float, probability: float, sensitivity: float) -> None:
    other = gaussian_pld(stddev, "add-or-remove", 1e-3, sensitivity=sensitivity, sampling_probability=probability)
    library = of_library(1.0, 0.01, 1.0, "add-or-remove", 1e-3, True)
    assert distance(other._pmf_remove, library._pmf_remove) > max(1e-9, 50 * rounding(library._pmf_remove, 1e-3))


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
@pytest.mark.parametrize("stddev", [0.05, 0.2, 1.0, 1e3, 1e6])
@pytest.mark.parametrize("probability", [1e-300, 1e-15, 1e-9, 0.5, 1 - 1e-9, 1 - 2.0**-50, 1 - 2.0**-53, 1.0])
def test_extremes_have_a_law_between_its_neighbours(relation: Relation, stddev: float, probability: float) -> None:
    """The library has none of nearly all units with little noise: 1 - q has no digits left."""
    upper, lower = (
        gaussian_pld(stddev, relation, 1e-2, sampling_probability=probability, pessimistic=pessimistic)
        for pessimistic in (True, False)
    )
    everybody = gaussian_pld(stddev, relation, 1e-2)
    for epsilon in (0.0, 0.5, 3.0):
        low, high, most = (float(one.get_delta_for_epsilon(epsilon)) for one in (lower, upper, everybody))
        assert 0 <= low <= high + 1e-15
        assert high <= most + 1e-15


def hockey_stick(epsilon: float, stddev: float, probability: float, direction: str) -> float:
    """By integrating the densities, which is another way than the library's."""

    def sampled(x: float) -> float:
        return float((1 - probability) * stats.norm.pdf(x, 0, stddev) + probability * stats.norm.pdf(x, 1, stddev))

    def alone(x: float) -> float:
        return float(stats.norm.pdf(x, 0, stddev))

    here, there = (sampled, alone) if direction == "remove" else (alone, sampled)
    value, _ = integrate.quad(
        lambda x: max(0.0, here(x) - math.exp(epsilon) * there(x)), -12 * stddev, 12 * stddev + 1, limit=2000
    )
    return value


@pytest.mark.parametrize("epsilon", [-0.002, 0.0, 0.005, 0.05, 0.4])
def test_delta_is_the_integral(epsilon: float) -> None:
    for direction, adjacency in (("remove", AdjacencyType.REMOVE), ("add", AdjacencyType.ADD)):
        loss = GaussianLoss(0.8, sampling_prob=0.05, adjacency_type=adjacency)
        (found,) = loss.deltas(np.array([epsilon]))
        assert found == pytest.approx(hockey_stick(epsilon, 0.8, 0.05, direction), abs=2e-8)


@pytest.mark.parametrize("adjacency", [AdjacencyType.ADD, AdjacencyType.REMOVE, AdjacencyType.REPLACE])
def test_the_place_of_a_loss_is_the_librarys(adjacency: AdjacencyType) -> None:
    q = 0.2
    edge = -math.log1p(-q)
    losses = np.array([-0.2, -1e-9, 0.0, 1e-9, 0.1, edge * (1 - 1e-8), edge * (1 - 1e-12)])
    if adjacency is AdjacencyType.REMOVE:
        losses = -losses
    mine = GaussianLoss(0.7, sampling_prob=q, adjacency_type=adjacency)
    library = GaussianPrivacyLoss(0.7, sampling_prob=q, adjacency_type=adjacency)
    expected = [library.inverse_privacy_loss(loss) for loss in losses.tolist()]
    np.testing.assert_allclose(mine.inverse_privacy_losses(losses), expected, rtol=1e-13, atol=1e-13)


def test_what_cannot_be_computed_is_no_number() -> None:
    """A loss that is never reached has no place; it is said, and not rounded to 0 or 1."""
    assert np.isnan(sampled_gaussian._log_scaled_exp_plus(2.0, np.array([-5.0]), -1.0)).all()
