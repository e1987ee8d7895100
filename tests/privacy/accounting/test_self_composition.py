"""Compositions of distributions, and their deltas, against the library's, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting.pld import common, pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld

from tacit.privacy.accounting.discrete_gaussian import discrete_gaussian_pld
from tacit.privacy.accounting.sampled_gaussian import gaussian_pld
from tacit.privacy.accounting.self_composition import (
    _Between,
    _Tails,
    composed,
    delta_at,
    delta_curve,
    self_composed,
    truncation_bounds,
)
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


EPSILONS = [0.0, 1e-9, 0.5, 0.501, 2.345678, 7.0, 40.0, 700.0, 1e4, *np.linspace(0, 12, 300).tolist()]


@pytest.mark.parametrize("pessimistic", [True, False])
def test_a_delta_is_between_its_bounds(pessimistic: bool) -> None:
    """Which are a thousandth of it apart where it is 1e-10, and hold at the losses of the grid, too."""
    for distribution in distributions(pessimistic).values():
        curve = delta_curve(distribution)
        if isinstance(distribution._pmf_remove, pld_pmf.SparsePLDPmf):
            assert curve.between is None  # a value costs as little
            continue
        assert curve.between is not None
        for epsilon in [*EPSILONS, *(place * 1e-3 for place in range(0, 4000, 37)), -0.5, np.inf]:
            least, most = curve.between(epsilon)
            delta = delta_at(distribution, epsilon)
            assert least <= delta <= most
            assert curve(epsilon) == delta
            assert most - least <= 1e-3 * max(delta, 1e-10)


@pytest.mark.parametrize("wrong", ["no rounding", "a loss too early"])
def test_bounds_that_leave_something_out_are_caught(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known wrong: sums without the rounding of both ways, and from a loss that is not above epsilon."""
    if wrong == "a loss too early":
        place_above = _Tails._place_above
        monkeypatch.setattr(_Tails, "_place_above", lambda tails, epsilon: place_above(tails, epsilon) - 3)
    distribution = distributions(True)["steps"]
    curve = delta_curve(distribution)
    assert isinstance(curve.between, _Between)
    curve.between(0.0)
    if wrong == "no rounding":
        for tails in curve.between._tails:
            tails._rounding = 0.0
    bounds = [(curve.between(epsilon), delta_at(distribution, epsilon)) for epsilon in EPSILONS]
    assert sum(not least <= delta <= most for (least, most), delta in bounds) > 50


@pytest.mark.parametrize("pessimistic", [True, False])
@pytest.mark.parametrize("grid", [1e-2, 1e-4])
@pytest.mark.parametrize(
    ("sigma", "sensitivity"), [(0.4, 1), (3.0, 1), (9.0, 2), (20 * 17**0.5, 17), (2.0, 40), (700.0, 3)]
)
def test_integers_with_discrete_noise_are_the_librarys(
    sigma: float, sensitivity: int, grid: float, pessimistic: bool
) -> None:
    expected = pld.from_discrete_gaussian_mechanism(
        sigma=sigma, sensitivity=sensitivity, value_discretization_interval=grid, pessimistic_estimate=pessimistic
    )
    found = discrete_gaussian_pld(sigma, sensitivity, grid, pessimistic=pessimistic)
    check_equal(found, expected)
    assert found._symmetric
    if isinstance(found._pmf_remove, pld_pmf.SparsePLDPmf):
        assert isinstance(expected._pmf_remove, pld_pmf.SparsePLDPmf)
        assert list(found._pmf_remove._loss_probs.items()) == list(expected._pmf_remove._loss_probs.items())


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
