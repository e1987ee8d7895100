"""Adaptive DP: epsilon as a function of rho, against numerical integration, closed forms, PRV and Renyi DP, and wrong accounts.

Legend: q sampling probability, s noise multiplier, w and w' weights of the unit that leaves and of the one that comes.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant
from scipy import optimize, stats

from tacit.errors import BudgetError, DataError, UsageError
from tacit.privacy.accounting.accountant import account_parts, epsilon, epsilon_of_rho, joint_epsilon
from tacit.privacy.accounting.adaptive import exchanged, spends_for_rho
from tacit.privacy.accounting.composition import Account
from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.bands import Bands
from tacit.privacy.certificate import make_certificate
from tacit.privacy.certificate_checks import verify_certificate
from tacit.privacy.events import (
    BandedPoissonGaussian,
    Exchange,
    Gaussian,
    NonPrivate,
    PoissonGaussian,
    Relation,
    Spend,
    ThresholdedHistogram,
    event_from_dict,
    event_to_dict,
)
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.strict_json import read_number

DELTA = 1e-5
Q, NOISE, STEPS = 0.0204, 1.3, 981
"""The setting in which the numbers of a public function rho -> epsilon are known (recomputed outside of tacit)."""


def strata(factors: tuple[float, ...], steps: int = STEPS, q: float = Q, noise: float = NOISE) -> list[Spend]:
    """One phase a stratum, with its own noise; equal bands."""
    count = len(factors)
    thresholds = tuple(k / count for k in range(1, count))
    own = [tuple(float(k == of) for k in range(count)) for of in range(count)]
    return [
        Spend(BandedPoissonGaussian(q, factor * noise, thresholds, weights), steps)
        for factor, weights in zip(factors, own, strict=True)
    ]


# epsilon of rho ------------------------------------------------------------------------------------------------------


def test_clip_weights_have_the_known_numbers() -> None:
    event = BandedPoissonGaussian(Q, NOISE, (0.25, 0.5, 0.75, 0.9), (1, 0.75, 0.5, 0.25, 0.1))
    found = epsilon_of_rho([Spend(event, STEPS)], DELTA, "add-or-remove")
    assert [band.epsilon for band in found] == pytest.approx([2.47, 1.62, 0.97, 0.435, 0.158], abs=6e-3)
    assert [(band.begin, band.end) for band in found] == [
        (0, 0.25), (0.25, 0.5), (0.5, 0.75), (0.75, 0.9), (0.9, 1)
    ]  # fmt: skip
    assert joint_epsilon([Spend(event, STEPS)], DELTA) == found[0].epsilon


@pytest.mark.parametrize("weight", [1.0, 0.75, 0.5, 0.25])
def test_a_weight_is_more_noise_also_to_the_prv_accountant(weight: float) -> None:
    found = PRVAccountant(
        [PoissonSubsampledGaussianMechanism(sampling_probability=Q, noise_multiplier=NOISE / weight)],
        eps_error=0.01,
        delta_error=DELTA / 1000,
        max_self_compositions=[STEPS],
    )
    lower, _, upper = found.compute_epsilon(DELTA, [STEPS])
    (own, _) = epsilon_of_rho(
        [Spend(BandedPoissonGaussian(Q, NOISE, (0.5,), (weight, weight / 2)), STEPS)], DELTA, "add-or-remove"
    )
    assert lower <= own.epsilon <= upper


def test_a_stratum_costs_its_own_phases_and_the_run_the_worst() -> None:
    spends = strata((1.0, 2.0, 4.0))
    found = epsilon_of_rho(spends, DELTA, "add-or-remove")
    alone = [epsilon([Spend(PoissonGaussian(Q, factor * NOISE), STEPS)], DELTA) for factor in (1.0, 2.0, 4.0)]
    assert [band.epsilon for band in found] == alone
    assert joint_epsilon(spends, DELTA) == max(alone)


def test_what_every_unit_pays_is_composed_with_each_stratum() -> None:
    words = Spend(ThresholdedHistogram(30.0, 185, 64))
    spends = [words, *strata((1.0, 2.0))]
    found = epsilon_of_rho(spends, 1e-4, "add-or-remove")
    for band, factor in zip(found, (1.0, 2.0), strict=True):
        assert band.epsilon == epsilon([words, Spend(PoissonGaussian(Q, factor * NOISE), STEPS)], 1e-4)


def test_the_other_part_of_the_units_is_apart() -> None:
    held_out = Spend(Gaussian(1.0), 1, "held-out units")
    spends = [held_out, *strata((1.0, 2.0))]
    found, alone = (epsilon_of_rho(some, DELTA, "add-or-remove") for some in (spends, strata((1.0, 2.0))))
    apart = epsilon([held_out], DELTA)  # a unit of any rho may be held out
    assert [band.epsilon for band in found] == [max(apart, band.epsilon) for band in alone] == [apart, apart]
    quiet = Spend(Gaussian(2.5), 1, "held-out units")
    found = epsilon_of_rho([quiet, *strata((1.0, 2.0))], DELTA, "add-or-remove")
    assert alone[1].epsilon < found[1].epsilon == epsilon([quiet], DELTA) < found[0].epsilon == alone[0].epsilon
    assert joint_epsilon(spends, DELTA) == epsilon([held_out], DELTA)
    replaced = epsilon_of_rho(spends, DELTA, "replace")
    assert replaced[0].within > epsilon([held_out], DELTA, "replace")  # a unit may move from one part to the other


def test_different_thresholds_of_two_events_have_a_common_account() -> None:
    one = Spend(BandedPoissonGaussian(Q, NOISE, (0.5,), (1.0, 0.5)), 100)
    other = Spend(BandedPoissonGaussian(Q, NOISE, (0.25,), (0.0, 1.0)), 100)
    found = epsilon_of_rho([one, other], DELTA, "add-or-remove")
    assert [(band.begin, band.end) for band in found] == [(0, 0.25), (0.25, 0.5), (0.5, 1)]
    both = epsilon([Spend(PoissonGaussian(Q, NOISE), 200)], DELTA)
    assert found[1].epsilon == pytest.approx(both, abs=1e-3)
    assert found[0].epsilon == epsilon([Spend(PoissonGaussian(Q, NOISE), 100)], DELTA)


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_the_worst_case_is_the_largest_of_the_function(relation: Relation) -> None:
    for spends in (strata((0.8, 1.0, 1.0)), [Spend(BandedPoissonGaussian(Q, NOISE, (0.3, 0.6), (0.5, 1.0, 0.2)), 300)]):
        found = epsilon_of_rho(spends, DELTA, relation)
        assert joint_epsilon(spends, DELTA, relation) == max(band.epsilon for band in found)


# replacement ---------------------------------------------------------------------------------------------------------


def mixture(x: np.ndarray, q: float, shift: float, s: float) -> np.ndarray:
    return (1 - q) * stats.norm.pdf(x, 0.0, s) + q * stats.norm.pdf(x, shift, s)


@functools.lru_cache(maxsize=1)  # the same for one epsilon after another
def laws(q: float, s: float, leaves: float, enters: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    x = np.linspace(-enters - 12 * s, leaves + 12 * s, 400_001)
    return x, mixture(x, q, leaves, s), mixture(x, q, -enters, s)


def hockey_stick(e: float, q: float, s: float, leaves: float, enters: float) -> float:
    """The larger of both directions, by the trapezoid rule."""
    x, p, o = laws(q, s, leaves, enters)
    sums = [np.trapezoid(np.maximum(a - math.exp(e) * b, 0), x) for a, b in ((p, o), (o, p))]
    return float(max(sums))


@pytest.mark.parametrize(
    ("leaves", "enters"), [(1.0, 0.5), (0.25, 1.0), (1.0, 0.0), (0.0, 0.7), (0.6, 0.6), (0.1, 0.9)]
)
@pytest.mark.parametrize(("q", "s"), [(0.05, 0.8), (0.5, 1.5), (1.0, 2.0)])
def test_one_exchange_is_the_integral(q: float, s: float, leaves: float, enters: float) -> None:
    upper, lower = (Account((Spend(Exchange(q, s, leaves, enters)),), "replace", 1e-4, kind) for kind in (True, False))
    for e in (0.0, 0.1, 0.5, 1.5):
        exact = hockey_stick(e, q, s, leaves, enters)
        assert lower.delta(e) - 1e-9 <= exact <= upper.delta(e) + 1e-9
        assert upper.delta(e) == pytest.approx(exact, abs=2e-8, rel=1e-4)
        assert lower.delta(e) == pytest.approx(exact, abs=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("leaves", "enters"), [(1.0, 0.5), (0.001, 1.0), (1.0, 1 - 1e-9)])
@pytest.mark.parametrize(("q", "s"), [(1e-6, 30.0), (1e-15, 1.0), (0.5, 1e4), (1.0, 1e4), (1e-15, 0.05)])
def test_an_exchange_whose_losses_are_all_in_one_cell_of_the_grid(
    q: float, s: float, leaves: float, enters: float
) -> None:
    """It was no answer at all: neither of the two losses that enclose all others was on the grid."""
    upper, lower = (Account((Spend(Exchange(q, s, leaves, enters)),), "replace", 1e-3, kind) for kind in (True, False))
    exact = hockey_stick(0.0, q, s, leaves, enters)
    assert lower.delta(0.0) - 1e-9 <= exact <= upper.delta(0.0) + 1e-9
    assert upper.delta(0.0) == pytest.approx(exact, abs=1e-8, rel=1e-3)
    assert upper.delta(0.01) <= upper.delta(0.0) + 2.0**-53


def test_an_exchange_of_every_step_is_one_gaussian() -> None:
    spends = (Spend(Exchange(1.0, 10.0, 1.0, 0.5), 30),)
    mu = 1.5 * math.sqrt(30) / 10
    exact = float(optimize.brentq(lambda e: float(gaussian_delta(e, mu)) - DELTA, 0.0, 50.0, xtol=1e-12))
    assert exact <= Account(spends, "replace").epsilon(DELTA) <= exact * 1.001
    assert Account(spends, "replace", pessimistic=False).epsilon(DELTA) <= exact


def test_an_exchange_rises_with_either_weight_and_ends_at_what_the_library_knows() -> None:
    def of(leaves: float, enters: float) -> float:
        return epsilon([Spend(Exchange(Q, NOISE, leaves, enters), 300)], DELTA, "replace")

    assert of(1.0, 1.0) == epsilon([Spend(PoissonGaussian(Q, NOISE), 300)], DELTA, "replace")
    assert (
        of(1.0, 0.0) == of(0.0, 1.0) == pytest.approx(epsilon([Spend(PoissonGaussian(Q, NOISE), 300)], DELTA), abs=1e-3)
    )
    rising = [of(1.0, enters) for enters in (0.0, 1e-6, 0.25, 0.5, 0.999999, 1.0)]
    assert rising == sorted(rising)
    assert rising[1] == pytest.approx(rising[0], abs=2e-3)  # continuous at both ends, where other code computes it
    assert rising[-2] == pytest.approx(rising[-1], abs=2e-3)
    assert of(0.3, 0.8) == pytest.approx(of(0.8, 0.3), abs=1e-6)


unit = st.floats(-math.pi, math.pi)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(q=st.floats(0.02, 1.0), s=st.floats(0.5, 3.0), w=st.floats(0.05, 1.0), v=st.floats(0.05, 1.0), angle=unit,
       shrink=st.tuples(st.floats(0, 1), st.floats(0, 1)), e=st.floats(0.0, 2.0))  # fmt: skip
def test_no_two_gradients_in_the_plane_tell_more_than_opposite_ones(
    q: float, s: float, w: float, v: float, angle: float, shrink: tuple[float, float], e: float
) -> None:
    """Lemma 2: gradients of norm at most w and v, at any angle, against w and -v on a line."""
    g = np.array([w * shrink[0], 0.0])
    h = v * shrink[1] * np.array([math.cos(angle), math.sin(angle)])
    axis = np.linspace(-9 * s - 1, 9 * s + 1, 501)
    x = np.stack(np.meshgrid(axis, axis), -1)
    area = (axis[1] - axis[0]) ** 2

    def density(shift: np.ndarray) -> np.ndarray:
        def normal(at: np.ndarray) -> np.ndarray:
            return np.exp(-((x - at) ** 2).sum(-1) / (2 * s**2)) / (2 * math.pi * s**2)

        return (1 - q) * normal(np.zeros(2)) + q * normal(shift)

    found = float(np.maximum(density(g) - math.exp(e) * density(h), 0).sum() * area)
    assert found <= hockey_stick(e, q, s, w, v) + 1e-4


def test_strata_under_replacement_are_a_removal_and_an_addition() -> None:
    """Against the composition of the two, each by the library, and against Renyi DP, which has a bound for this pair."""
    spends = strata((1.0, 1.5), steps=300)
    found = epsilon_of_rho(spends, DELTA, "replace")
    pair = exchanged(spends, 0.1, 0.9)
    joint = epsilon(pair, DELTA, "replace")
    assert found[1].epsilon == joint
    assert found[1].worst_partner == 0.0
    renyi = rdp_epsilon(pair, DELTA, "replace")
    assert renyi is not None
    assert Account(pair, "replace", pessimistic=False).epsilon(DELTA) <= joint <= renyi <= 1.35 * joint
    alone = [epsilon(spends_for_rho(spends, rho), DELTA) for rho in (0.1, 0.9)]
    assert max(alone) < joint < sum(alone)
    assert found[0].within == epsilon([Spend(PoissonGaussian(Q, NOISE), 300)], DELTA, "replace")


def test_the_directions_of_removal_and_addition_are_not_mixed_up() -> None:
    """A unit that leaves one stratum enters the other: with both in the same direction, delta would be another."""
    q, s, e = 0.1, 0.6, 0.2
    x = np.linspace(-6, 7, 801)
    left, never = mixture(x, q, 1.0, s), mixture(x, 0.0, 0.0, s)
    # The first number comes from the stratum that the unit leaves, the second from the one that it enters.
    worlds = np.outer(left, never), np.outer(never, left)
    exact = float(np.maximum(worlds[0] - math.exp(e) * worlds[1], 0).sum() * (x[1] - x[0]) ** 2)
    pair = (Spend(Exchange(q, s, 1.0, 0.0)), Spend(Exchange(q, s, 0.0, 1.0)))
    assert Account(pair, "replace").delta(e) == pytest.approx(exact, rel=1e-3)
    assert Account((pair[0], pair[0]), "replace").delta(e) != pytest.approx(exact, rel=1e-2)


# wrong accounts ------------------------------------------------------------------------------------------------------


def test_known_wrong_accounts_are_seen() -> None:
    true = epsilon_of_rho([Spend(BandedPoissonGaussian(Q, NOISE, (0.5,), (1.0, 0.5)), STEPS)], DELTA, "add-or-remove")
    ignored = epsilon([Spend(PoissonGaussian(Q, NOISE), STEPS)], DELTA)  # the weight is not in the account
    scaled = epsilon([Spend(PoissonGaussian(Q, NOISE * 0.5), STEPS)], DELTA)  # the noise is scaled down with the weight
    assert true[1].epsilon < 0.5 * ignored < scaled
    replaced = strata((1.0, 1.0))
    (low, _) = epsilon_of_rho(replaced, DELTA, "replace")
    assert joint_epsilon(replaced, DELTA) < 0.7 * low.epsilon  # add-or-remove numbers for a replacement


# numbers that make no sense ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("thresholds", [(0.5, 0.5), (0.6, 0.4), (0.0,), (1.0,), (-0.1,), (float("nan"),)])
def test_thresholds_that_do_not_rise_are_refused(thresholds: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="they must rise"):
        Bands(thresholds, (1.0,) * (len(thresholds) + 1))


@pytest.mark.parametrize("weights", [(1.5, 1.0), (-0.1, 1.0), (0.0, 0.0), (float("nan"), 1.0)])
def test_weights_outside_their_range_are_refused(weights: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="weights are"):
        Bands((0.5,), weights)
    with pytest.raises(UsageError, match="weights are"):
        BandedPoissonGaussian(0.1, 1.0, (0.5,), weights)


def test_a_weight_is_missing() -> None:
    with pytest.raises(UsageError, match="1 weights for 1 thresholds"):
        Bands((0.5,), (1.0,))


@pytest.mark.parametrize("rho", [-0.001, 1.001, float("nan"), float("inf")])
def test_a_rho_outside_its_range_is_refused_without_naming_it(rho: float) -> None:
    with pytest.raises(DataError) as refused:
        Bands((0.5,), (1.0, 0.5)).weights_of(np.array([0.2, rho]))
    assert str(rho) not in str(refused.value).replace("0 to 1", "")


def test_bands_are_closed_below() -> None:
    bands = Bands((0.25, 0.5), (1.0, 0.5, 0.25))
    rho = np.array([0.0, 0.2499999, 0.25, 0.4999999, 0.5, 1.0])
    assert bands.weights_of(rho).tolist() == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


# ledger and certificate ----------------------------------------------------------------------------------------------


def test_an_event_comes_back_from_json() -> None:
    event = BandedPoissonGaussian(Q, NOISE, (0.25, 0.5), (1, 0.5, 0.25))
    values = event_to_dict(event)
    assert event_from_dict({**values, "thresholds": list(values["thresholds"]), "weights": [1, 0.5, 0.25]}) == event


def ledger_of(tmp_path: Path, spends: list[Spend], relation: Relation, budget: float = 50.0) -> Ledger:
    ledger = Ledger.create(
        tmp_path / "ledger.sqlite", LedgerHeader("record", relation, 1000, budget, DELTA, "config", "key")
    )
    for number, spend in enumerate(spends):
        ledger.plan(f"phase-{number}", spend.event, spend.count, "training units")
        for step in range(spend.count):
            ledger.charge(f"phase-{number}", step)
    return ledger


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_the_certificate_has_the_function_and_verify_recomputes_it(tmp_path: Path, relation: Relation) -> None:
    release = tmp_path / "release"
    (release / "model").mkdir(parents=True)
    spends = strata((1.0, 2.0), steps=5)
    with ledger_of(tmp_path, spends, relation) as ledger:
        certificate = json.loads(json.dumps(make_certificate(ledger, {}, "chacha20"), sort_keys=True))  # as on disk
        assert all(check.holds for check in verify_certificate(ledger, certificate, release))
        rows = certificate["adaptive"]["epsilon_of_rho"]
        found = epsilon_of_rho(spends, DELTA, relation)
        assert [row["epsilon"] for row in rows] == [band.epsilon for band in found]
        assert certificate["adaptive"]["worst"] == read_number(certificate["epsilons"][0]["epsilon"])
        for name, value in (("epsilon", 0.9 * rows[1]["epsilon"]), ("from", 0.4)):
            changed = [rows[0], {**rows[1], name: value}]
            forged = {**certificate, "adaptive": {**certificate["adaptive"], "epsilon_of_rho": changed}}
            failed = [check.name for check in verify_certificate(ledger, forged, release) if not check.holds]
            assert failed == ["certificate's statements"]
        without = {name: value for name, value in certificate.items() if name != "adaptive"}
        assert not all(check.holds for check in verify_certificate(ledger, without, release))


def test_the_ledger_refuses_a_stratum_beyond_the_budget(tmp_path: Path) -> None:
    first, second = strata((1.0, 0.5))
    budget = joint_epsilon([first], DELTA) * 1.001
    ledger = Ledger.create(
        tmp_path / "ledger.sqlite", LedgerHeader("record", "add-or-remove", 1000, budget, DELTA, "config", "key")
    )
    with ledger:
        ledger.plan("one", first.event, first.count)
        with pytest.raises(BudgetError, match="stage 'two'"):
            ledger.plan("two", second.event, second.count)
        ledger.plan("three", dataclasses.replace(second.event, noise_multiplier=NOISE), second.count)


def test_a_heuristic_beside_it_leaves_no_epsilon_for_any_rho() -> None:
    spends = [*strata((1.0, 2.0), steps=5), Spend(NonPrivate("heuristic:adp"))]
    for relation in ("add-or-remove", "replace"):
        assert all(math.isinf(band.epsilon) for band in epsilon_of_rho(spends, DELTA, relation))


def test_parts_are_one_a_band_or_one_a_pair() -> None:
    spends = strata((1.0, 2.0, 4.0))
    assert len(account_parts(spends, "add-or-remove")) == 3
    assert len(account_parts(spends, "replace")) == 6
    weights = [Spend(BandedPoissonGaussian(Q, NOISE, (0.3, 0.6), (1.0, 0.5, 0.2)), 10)]
    for relation in ("add-or-remove", "replace"):  # the other bands cost no more, whoever takes the unit's place
        assert account_parts(weights, relation) == [(Spend(PoissonGaussian(Q, NOISE), 10),)]
    places = [0.1, 0.4, 0.9]
    worst = max(epsilon(exchanged(weights, a, b), DELTA, "replace") for a, b in itertools.product(places, places))
    assert joint_epsilon(weights, DELTA, "replace") == worst
