"""The envelope of loss distributions: the maximum of their curves, brute force over all choices, and the wrong order of maxima.

Legend: K kinds between which a release chooses, Y outcomes of that release, Z outcomes of the mechanism that was chosen.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.privacy.accounting.composition import Account
from tacit.privacy.accounting.envelope import envelope, envelope_pld
from tacit.privacy.events import Chosen, Exchange, Gaussian, PoissonGaussian, Relation, Spend

GRID = 1e-4
EPSILONS = (-3.0, -0.5, 0.0, 0.3, 1.0, 2.5, 6.0)

CROSSING = (
    (Spend(PoissonGaussian(1.0, 8.0), 30),),
    (Spend(PoissonGaussian(0.01, 0.6), 20),),
    (Spend(PoissonGaussian(0.2, 1.5), 10),),
)
NESTED = ((Spend(PoissonGaussian(0.1, 1.0), 20),), (Spend(PoissonGaussian(0.1, 1.3), 20),))


def composed(spends: tuple[Spend, ...], relation: Relation = "add-or-remove") -> pld.PrivacyLossDistribution:
    found = Account(spends, relation, GRID)._others
    assert found is not None
    return found


def deltas(pmf: pld_pmf.PLDPmf, epsilons: np.ndarray) -> np.ndarray:
    """The library's own sums for many rising epsilons, term by term in its order, without its loop over each one in Python."""
    dense = pmf.to_dense_pmf()
    losses = (np.arange(dense.size) + dense._lower_loss) * dense._discretization
    terms = (dense._probs, dense._probs * np.exp(-losses))
    upper, lower = (
        np.cumsum(np.concatenate([[start], term[::-1]]))
        for start, term in zip((dense._infinity_mass, 0.0), terms, strict=True)
    )
    above = dense.size - np.searchsorted(losses, epsilons, side="right")
    return upper[above] - np.exp(epsilons) * lower[above]


@pytest.mark.slow
def test_many_deltas_at_once_are_those_of_the_library() -> None:
    for spends in (CROSSING[0], CROSSING[2]):
        found = composed(spends)._pmf_add
        epsilons = np.array([-30.0, *EPSILONS, 12.0, 500.0])
        assert deltas(found, epsilons).tolist() == np.asarray(found.get_delta_for_epsilon(epsilons)).tolist()


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_it_lies_on_the_largest_curve_everywhere(relation: Relation) -> None:
    each = [composed(spends, relation) for spends in CROSSING]
    one = envelope_pld(each, relation)
    epsilons = np.round(np.linspace(-4, 12, 601) / GRID) * GRID  # on the grid the envelope is the maximum itself
    directions = {  # under replacement of a step both are one
        tuple(map(id, [*pmfs, whole])): (pmfs, whole)
        for pmfs, whole in (
            ([each_one._pmf_remove for each_one in each], one._pmf_remove),
            ([each_one._pmf_add for each_one in each], one._pmf_add),
        )
    }
    assert len(directions) == (1 if relation == "replace" else 2)
    for pmfs, whole in directions.values():
        largest = np.max([deltas(pmf, epsilons) for pmf in pmfs], axis=0)
        found = deltas(whole, epsilons)
        assert np.all(found >= largest * (1 - 1e-12))
        # What the transforms leave below 0, about -1e-20 a place, counts as 0: 1e-15 in all.
        assert np.all(found <= largest * (1 + 1e-7) + 1e-14)
    between = np.linspace(-4, 12, 577)
    largest = np.max([deltas(pmf._pmf_remove, between) for pmf in each], axis=0)
    assert np.all(deltas(one._pmf_remove, between) >= largest * (1 - 1e-12))


def test_every_curve_is_the_largest_somewhere_or_the_test_above_says_nothing() -> None:
    epsilons = np.linspace(0, 8, 200)
    each = [composed(spends) for spends in CROSSING[:2]]
    curves = [np.maximum(deltas(one._pmf_remove, epsilons), deltas(one._pmf_add, epsilons)) for one in each]
    assert {0, 1} == set(np.argmax(curves, axis=0).tolist())


def test_of_one_it_is_that_one() -> None:
    one = composed(CROSSING[0])
    assert envelope_pld([one], "replace") is one
    alone, twice = envelope([one._pmf_remove]), envelope([one._pmf_remove, one._pmf_remove])
    for found in (alone, twice):
        for e in EPSILONS:
            assert found.get_delta_for_epsilon(e) == pytest.approx(one._pmf_remove.get_delta_for_epsilon(e), rel=3e-9)


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_nested_curves_cost_nothing_more(relation: Relation) -> None:
    before = Spend(Gaussian(2.0))
    found = Account((before, Spend(Chosen(NESTED))), relation).epsilon(1e-6)
    worst = max(Account((before, *spends), relation).epsilon(1e-6) for spends in NESTED)
    assert worst <= found <= worst * 1.0001


def test_directions_are_kept_apart_under_add_or_remove_and_put_together_under_replacement() -> None:
    leaves, enters = (Spend(Exchange(0.1, 0.6, 1.0, 0.0)),), (Spend(Exchange(0.1, 0.6, 0.0, 1.0)),)
    gone, come = composed(leaves, "replace"), composed(enters, "replace")
    one = envelope_pld([gone, come], "replace")
    for e in EPSILONS:
        both = max(gone._pmf_remove.get_delta_for_epsilon(e), gone._pmf_add.get_delta_for_epsilon(e))
        assert one._pmf_remove.get_delta_for_epsilon(e) == pytest.approx(both, rel=1e-6, abs=1e-15)
        assert one._pmf_add.get_delta_for_epsilon(e) == one._pmf_remove.get_delta_for_epsilon(e)
    apart = envelope_pld([gone, gone], "add-or-remove")
    assert apart._pmf_remove.get_delta_for_epsilon(0.2) == pytest.approx(
        gone._pmf_remove.get_delta_for_epsilon(0.2), rel=1e-6
    )
    assert apart._pmf_add.get_delta_for_epsilon(0.2) < 0.95 * apart._pmf_remove.get_delta_for_epsilon(0.2)


def test_an_alternative_in_which_nothing_runs_changes_nothing() -> None:
    before = Spend(Gaussian(3.0))
    with_nothing, without = (
        Account((before, Spend(Chosen(alternatives)))).epsilon(1e-5) for alternatives in ((NESTED[0], ()), (NESTED[0],))
    )
    assert with_nothing == without == pytest.approx(Account((before, *NESTED[0])).epsilon(1e-5), abs=1e-9)


# brute force ---------------------------------------------------------------------------------------------------------


def hockey_stick(p: np.ndarray, q: np.ndarray, e: float) -> float:
    return float(np.maximum(p - math.exp(e) * q, 0).sum())


def law(weights: list[int]) -> np.ndarray:
    return np.array(weights, dtype=float) / sum(weights)


weights = st.lists(st.integers(1, 60), min_size=3, max_size=3)
pairs = st.tuples(weights, weights)


def grid_pld(p: np.ndarray, q: np.ndarray) -> pld.PrivacyLossDistribution:
    laws = [{str(i): math.log(x) for i, x in enumerate(row)} for row in (q, p)]
    return pld.from_two_probability_mass_functions(
        laws[0], laws[1], value_discretization_interval=1e-3, pessimistic_estimate=True
    )


@settings(max_examples=25, deadline=None)
@given(first=pairs, kinds=st.tuples(pairs, pairs), e=st.floats(0.0, 2.5))
def test_no_choice_by_what_was_released_exceeds_it(
    first: tuple[list[int], list[int]], kinds: tuple[tuple[list[int], list[int]], ...], e: float
) -> None:
    """Every function from the 3 outcomes of a release to one of two mechanisms, and every interval of the result: exact."""
    p_Y, q_Y = map(law, first)
    laws = [(law(p), law(q)) for p, q in kinds]
    chosen = []
    for choice in itertools.product(range(len(laws)), repeat=3):
        joint = [
            np.concatenate([of_Y[y] * laws[k][side] for y, k in enumerate(choice)])
            for side, of_Y in enumerate((p_Y, q_Y))
        ]
        chosen.append(hockey_stick(joint[0], joint[1], e))
    before, several = grid_pld(p_Y, q_Y), [grid_pld(p, q) for p, q in laws]
    bound = before.compose(envelope_pld(several, "add-or-remove"))._pmf_remove.get_delta_for_epsilon(e)
    assert max(chosen) <= bound + 1e-12
    grids = 3e-3  # each of the three roundings is up by less than one
    looser = max(
        sum(p_Y[y] * max(hockey_stick(p, q, e - grids - math.log(p_Y[y] / q_Y[y])) for p, q in laws) for y in range(3)),
        0.0,
    )
    assert bound <= looser + 1e-9  # and the envelope is the expectation of the maximum, no more


def test_the_maximum_after_composition_is_exceeded() -> None:
    """By hand: the first release has two outcomes, and what betrays most is another mechanism after each of them."""
    p_Y, q_Y = np.array([0.5, 0.5]), np.array([0.2, 0.8])
    laws = [
        (np.array([0.10, 0.90, 0.0]), np.array([0.0, 0.90, 0.10])),  # rarely tells, and then all
        (np.array([0.60, 0.40, 0.0]), np.array([0.30, 0.70, 0.0])),  # tells a little, always
    ]
    e = math.log(2)

    def of(choice: tuple[int, ...]) -> float:
        p, q = (
            np.concatenate([of_Y[y] * laws[k][side] for y, k in enumerate(choice)])
            for side, of_Y in enumerate((p_Y, q_Y))
        )
        return hockey_stick(p, q, e)

    fixed, free = [of((0, 0)), of((1, 1))], [of(choice) for choice in itertools.product((0, 1), repeat=2)]
    assert max(fixed) == pytest.approx(0.19)
    assert max(free) == pytest.approx(0.23)
