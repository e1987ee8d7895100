"""Compositions of distributions, and their deltas, against the library's, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting.pld import common, pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld

from tacit.privacy.accounting.sampled_gaussian import gaussian_pld
from tacit.privacy.accounting.self_composition import composed, delta_at, self_composed, truncation_bounds
from tacit.privacy.events import Relation


def check_equal(found: pld.PrivacyLossDistribution, expected: pld.PrivacyLossDistribution) -> None:
    for one, other in ((found._pmf_remove, expected._pmf_remove), (found._pmf_add, expected._pmf_add)):
        assert type(one) is type(other)
        mine, theirs = one.to_dense_pmf(), other.to_dense_pmf()
        assert np.array_equal(mine._probs, theirs._probs)
        assert (mine._lower_loss, mine._discretization) == (theirs._lower_loss, theirs._discretization)
        assert mine._infinity_mass == theirs._infinity_mass
        assert mine._pessimistic_estimate == theirs._pessimistic_estimate


@pytest.mark.parametrize("pessimistic", [True, False])
@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
@pytest.mark.parametrize(
    ("probability", "noise", "count"),
    [(0.13, 1.0, 12), (0.02, 1.3, 1000), (0.001, 0.8, 20000), (1.0, 60.0, 50), (0.2, 0.6, 1), (0.2, 0.6, 2)],
)
def test_it_is_the_librarys(
    probability: float, noise: float, count: int, relation: Relation, pessimistic: bool
) -> None:
    single = gaussian_pld(noise, relation, 1e-3, sampling_probability=probability, pessimistic=pessimistic)
    check_equal(self_composed(single, count), single.self_compose(count))


def test_a_composed_one_with_negative_masses_too() -> None:
    single = gaussian_pld(1.0, "add-or-remove", 1e-3, sampling_probability=0.1).self_compose(5)
    assert isinstance(single._pmf_remove, pld_pmf.DensePLDPmf)
    assert min(single._pmf_remove._probs) < 0
    check_equal(self_composed(single, 7), single.self_compose(7))


def test_what_is_kept_holds_nothing_of_what_was_cut_off() -> None:
    single = gaussian_pld(1.0, "add-or-remove", 1e-3, sampling_probability=0.1)
    several = self_composed(single, 5)
    for found in (several, composed([several, gaussian_pld(2.0, "add-or-remove", 1e-3)])):
        assert isinstance(found._pmf_remove, pld_pmf.DensePLDPmf)
        assert found._pmf_remove._probs.base is None  # a view would hold a third more


def test_few_masses_stay_few() -> None:
    single = pld.from_randomized_response(0.4, 2)
    for count in (1, 3, 40):
        check_equal(self_composed(single, count), single.self_compose(count))


def distributions(pessimistic: bool) -> dict[str, pld.PrivacyLossDistribution]:
    """Dense and sparse ones, with and without a mirror, of few losses and of many, with holes and negative masses."""
    step = gaussian_pld(0.9, "add-or-remove", 1e-3, sampling_probability=0.2, pessimistic=pessimistic)
    discrete = pld.from_discrete_gaussian_mechanism(
        sigma=9.0, sensitivity=2, value_discretization_interval=1e-3, pessimistic_estimate=pessimistic
    )
    two = pld.from_randomized_response(0.4, 2, value_discretization_interval=1e-3, pessimistic_estimate=pessimistic)
    return {
        "gaussian": gaussian_pld(1.4, "add-or-remove", 1e-3, pessimistic=pessimistic),
        "replaced": gaussian_pld(1.4, "replace", 1e-3, sampling_probability=0.3, pessimistic=pessimistic),
        "step": step,
        "steps": step.self_compose(40),
        "discrete": discrete,
        "two losses": two,
    }


@pytest.mark.parametrize("pessimistic", [True, False])
def test_pairs_and_their_deltas_are_the_librarys(pessimistic: bool) -> None:
    every = distributions(pessimistic)
    for one in every.values():
        for other in every.values():
            expected = one.compose(other)
            check_equal(composed([one, other]), expected)
            for epsilon in (-3.0, 0.0, 0.5, 0.501, 2.345678, 7.0, 40.0, 1e4, np.inf):
                assert delta_at(expected, epsilon) == expected.get_delta_for_epsilon(epsilon)
    check_equal(composed(list(every.values())[:3]), every["gaussian"].compose(every["replaced"]).compose(every["step"]))


@pytest.mark.slow
def test_a_delta_at_a_loss_of_the_grid_is_the_librarys() -> None:
    """Whether that loss itself is above epsilon hangs on the last bit of a product."""
    steps = distributions(True)["steps"]
    for place in range(-2000, 4000, 7):
        for epsilon in (place * 1e-3, np.nextafter(place * 1e-3, -9), np.nextafter(place * 1e-3, 9)):
            assert delta_at(steps, epsilon) == steps.get_delta_for_epsilon(epsilon)


@pytest.mark.parametrize("size", [1, 2, 3, 50, 1001])
@pytest.mark.parametrize("count", [1, 2, 30, 5000])
def test_the_bounds_are_the_librarys(size: int, count: int) -> None:
    """Of masses that are one point, flat, and near an end; a bound that is one off gives other masses."""
    generator = np.random.default_rng(size * count)
    point = np.zeros(size)
    point[size // 2] = 1.0
    for masses in (
        point,
        np.full(size, 1 / size),
        generator.dirichlet(np.full(size, 0.05)),
        np.geomspace(1, 1e-12, size),
    ):
        for tail in (1e-15, 1e-6):
            assert truncation_bounds(masses, count, tail) == common.compute_self_convolve_bounds(
                masses.tolist(), count, tail
            )
