"""The band of a unit may be a function of the released vocabulary, and the account took the worst band too late.

What was wrong: with `adaptive.scorer.phase` and a vocabulary from private text the scorer reads text in pieces of that vocabulary.
So rho, and with it the stratum of a unit, depends on what was released. The account composed the vocabulary with each stratum and
took the maximum over the strata after that, which is right only where the stratum is fixed beforehand.

The attack: whoever sees the noisy counts sends the unit to the stratum that betrays most after these very counts. Its delta is
E[ max over strata of delta_k(e - L) ], L being the loss of the counts, and here every delta_k has a closed form. The certificate
said 4.00 where the attack has 4.03, and 3.00 where it has 3.05 (3.16 where one stratum is rarely drawn). Now it says as much as the
attack has, to 0.003.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize, stats

from tacit.config import parse_config
from tacit.planning.adaptive import bands_from
from tacit.privacy.accounting.accountant import account_parts, epsilon, epsilon_of_rho, joint_epsilon
from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.certificate import adaptive_statement
from tacit.privacy.certificate_checks import second_opinion
from tacit.privacy.events import (
    BandedPoissonGaussian,
    BandsFrom,
    Gaussian,
    PoissonGaussian,
    Relation,
    Spend,
    ThresholdedHistogram,
    event_from_dict,
    event_to_dict,
)
from tacit.release.composing import compose, published

from ..adaptive_runs import adaptive_values
from ..folders import gpt2_folder
from ..release.test_composing import begun_from, run

DELTA = 1e-5
Curve = Callable[[np.ndarray], np.ndarray]

CASES = {
    # words of a unit (noise 10 on each count), noise of stratum 1 (every unit, one step), (q, noise) of stratum 2 (one step)
    "certified 4.00": (81, 4.6883, (0.2, 1.35414), 4.00, 4.029),
    "certified 3.00": (9, 1.5302, (0.2, 0.92815), 3.00, 3.050),
    "certified 3.00, rarely drawn": (25, 1.93482, (0.01, 0.520617), 3.00, 3.164),
}


def vocabulary(words: int) -> Spend:
    """Its threshold is so high that hardly any delta goes to words of one unit alone: what is left is the counts' noise."""
    return Spend(ThresholdedHistogram(10.0, 81.0, words, "gaussian"))


def strata(one: float, two: tuple[float, float], bands_from: BandsFrom, steps: int = 1) -> list[Spend]:
    q, noise = two
    return [
        Spend(BandedPoissonGaussian(1.0, one, (0.5,), (1.0, 0.0), bands_from), steps),
        Spend(BandedPoissonGaussian(q, noise, (0.5,), (0.0, 1.0), bands_from), steps),
    ]


def gaussian(mu: float) -> Curve:
    return lambda e: gaussian_delta(e, mu)


def sampled(q: float, s: float) -> Curve:
    """One step, a unit removed: (1-q) N(0, s^2) + q N(1, s^2) against N(0, s^2)."""

    def delta(e: np.ndarray) -> np.ndarray:
        ratio = (np.exp(e) - (1 - q)) / q  # of the densities of N(1) and N(0), from where on the step tells more than e
        with np.errstate(divide="ignore", invalid="ignore"):
            x = np.where(ratio > 0, 0.5 + s * s * np.log(ratio), -math.inf)
        return (1 - q) * stats.norm.sf(x / s) + q * stats.norm.sf((x - 1) / s) - np.exp(e) * stats.norm.sf(x / s)

    return delta


def attack(mu: float, curves: Sequence[Curve]) -> float:
    """The epsilon that an onlooker reaches who chooses between the curves after a release of Gaussian noise."""
    z = np.linspace(-9, 9, 20_001)
    weights, losses = stats.norm.pdf(z) * (z[1] - z[0]), mu**2 / 2 + mu * z

    def delta(e: float) -> float:
        return float(weights @ np.max([curve(e - losses) for curve in curves], axis=0))

    return float(optimize.brentq(lambda e: math.log(max(delta(e), 1e-300) / DELTA), 0.01, 20.0, xtol=1e-9))


def max_after_composition(spends: Sequence[Spend]) -> float:
    """Known wrong: what was certified before, the worst stratum after composing each with the vocabulary."""
    fixed = [
        dataclasses.replace(spend, event=dataclasses.replace(spend.event, bands_from="unit"))
        if isinstance(spend.event, BandedPoissonGaussian)
        else spend
        for spend in spends
    ]
    return joint_epsilon(fixed, DELTA)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_certificate_says_at_least_what_the_attack_shows(
    case: tuple[int, float, tuple[float, float], float, float],
) -> None:
    words, one, two, was, shown = case
    mu = math.sqrt(words) / 10
    spends = [vocabulary(words), *strata(one, two, "unit-and-releases")]
    reached = attack(mu, [gaussian(1 / one), sampled(*two)])
    assert reached == pytest.approx(shown, abs=2e-3)
    assert max_after_composition(spends) == pytest.approx(was, abs=2e-3)
    assert max_after_composition(spends) < reached - 0.02  # the certificate was wrong
    assert reached <= joint_epsilon(spends, DELTA) <= reached + 3e-3  # now it is right, and hardly above


def test_who_cannot_choose_reaches_what_was_certified() -> None:
    """A positive control of the attack's arithmetic: with one stratum it has that stratum's account, and no more."""
    words, one, two, was, _ = CASES["certified 4.00"]
    for own, curve in (
        (PoissonGaussian(1.0, one), gaussian(1 / one)),
        (PoissonGaussian(*two), sampled(*two)),
    ):
        reached = attack(math.sqrt(words) / 10, [curve])
        assert reached <= epsilon([vocabulary(words), Spend(own)], DELTA) <= reached + 2e-3
        assert reached == pytest.approx(was, abs=2e-3)


def test_a_band_that_the_unit_alone_decides_costs_what_it_did() -> None:
    words, one, two, was, _ = CASES["certified 4.00"]
    spends = [vocabulary(words), *strata(one, two, "unit")]
    alone = [
        epsilon([vocabulary(words), Spend(event)], DELTA)
        for event in (PoissonGaussian(1.0, one), PoissonGaussian(*two))
    ]
    assert joint_epsilon(spends, DELTA) == max(alone) == pytest.approx(was, abs=2e-3)
    assert [band.epsilon for band in epsilon_of_rho(spends, DELTA, "add-or-remove")] == alone
    statement = adaptive_statement(spends, DELTA, "add-or-remove")
    assert statement is not None
    assert (statement["bands_from"], statement["worst"]) == ("unit", max(alone))


def test_without_an_earlier_release_there_is_nothing_to_choose_by() -> None:
    _, one, two, _, _ = CASES["certified 4.00"]
    apart = Spend(Gaussian(1.0), 1, "held-out units")  # of other units
    for relation in ("add-or-remove", "replace"):
        with_releases, by_unit = (strata(one, two, kind) for kind in ("unit-and-releases", "unit"))
        assert joint_epsilon(with_releases, DELTA, relation) == joint_epsilon(by_unit, DELTA, relation)
    found, fixed = ([*strata(one, two, kind), apart] for kind in ("unit-and-releases", "unit"))
    assert joint_epsilon(found, DELTA) == joint_epsilon(fixed, DELTA)


def test_a_row_is_about_outcomes_and_the_worst_case_is_above_all_rows() -> None:
    """Of the outcomes in which the unit has a band that band's account holds; over all of them the rows' maximum does not."""
    words, one, two, was, shown = CASES["certified 3.00"]
    spends = [vocabulary(words), *strata(one, two, "unit-and-releases")]
    rows = epsilon_of_rho(spends, DELTA, "add-or-remove")
    assert [row.epsilon for row in rows] == pytest.approx([was, was], abs=2e-3)
    statement = adaptive_statement(spends, DELTA, "add-or-remove")
    assert statement is not None
    assert statement["bands_from"] == "unit-and-releases"
    assert statement["worst"] == joint_epsilon(spends, DELTA) == pytest.approx(shown, abs=4e-3)

    # The attack again, outcome by outcome: the set of outcomes in which the chosen band is k, against that band's account.
    mu, curves = math.sqrt(words) / 10, [gaussian(1 / one), sampled(*two)]
    z = np.linspace(-9, 9, 20_001)
    weights, losses = stats.norm.pdf(z) * (z[1] - z[0]), mu**2 / 2 + mu * z
    deltas = np.array([curve(rows[0].epsilon - losses) for curve in curves])
    chosen = deltas.argmax(axis=0)
    shares = [float(weights[chosen == k] @ deltas[k][chosen == k]) for k in (0, 1)]
    assert max(shares) <= DELTA < sum(shares)


def replaced(q: float, s: float, leaves: float, enters: float) -> Curve:
    """One step in which a unit of one weight is replaced by another, by the trapezoid rule."""
    x = np.linspace(-enters - 12 * s, leaves + 12 * s, 40_001)
    p, o = ((1 - q) * stats.norm.pdf(x, 0.0, s) + q * stats.norm.pdf(x, shift, s) for shift in (leaves, -enters))
    grid = np.linspace(-16, 24, 2001)
    values = np.array([np.trapezoid(np.maximum(p - math.exp(e) * o, 0), x) for e in grid])
    return lambda e: np.interp(e, grid, values)


def test_under_replacement_the_pair_is_chosen_in_either_order() -> None:
    """Whoever sees the counts may also choose which of the two units is in which stratum, of every step the worst order."""
    words, one, two, _, _ = CASES["certified 3.00"]
    found = [vocabulary(words), *strata(one, two, "unit-and-releases")]
    fixed = [vocabulary(words), *strata(one, two, "unit")]
    cheap, right = (joint_epsilon(spends, DELTA, "replace") for spends in (fixed, found))
    mu = math.sqrt(2 * words) / 10
    shift = 20 / 1000  # between two places of the table the curve is taken from the next one, where it is lower
    pairs = [gaussian(2 / one), replaced(*two, 1.0, 1.0)]
    reached = attack(mu, [lambda e, curve=curve: curve(e + shift) for curve in pairs])
    assert 2.0 < reached <= right
    assert cheap <= right
    rows = epsilon_of_rho(found, DELTA, "replace")
    assert max(row.epsilon for row in rows) <= right + 1e-6
    assert all(row.within <= row.epsilon + 1e-6 for row in rows)


@pytest.mark.slow
@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_the_second_opinion_and_the_lower_estimate_stand_on_either_side(relation: Relation) -> None:
    words, one, two, _, _ = CASES["certified 4.00"]
    spends = [vocabulary(words), *strata(one, two, "unit-and-releases", 3)]
    (part,) = account_parts(spends, relation)
    renyi, lower = second_opinion(part, DELTA, relation)
    certified = joint_epsilon(spends, DELTA, relation)
    assert lower <= certified
    if relation == "add-or-remove":
        assert renyi is not None
        assert certified <= renyi
        each = [
            second_opinion(case, DELTA, relation)[0]
            for case in account_parts([vocabulary(words), *strata(one, two, "unit", 3)], relation)
        ]
        assert renyi >= max(value for value in each if value is not None)
    else:
        assert renyi is None


def test_two_functions_rho_may_put_a_unit_in_the_dearest_band_of_both() -> None:
    """Strata of a run that goes on from another one with strata: known wrong is to take their bands for the same."""
    before = [
        Spend(BandedPoissonGaussian(1.0, noise, (0.5,), weights, "unit", "before"), 4)
        for noise, weights in ((2.0, (1.0, 0.0)), (20.0, (0.0, 1.0)))
    ]
    after = [
        Spend(BandedPoissonGaussian(1.0, noise, (0.5,), weights, "unit", "after"), 4)
        for noise, weights in ((20.0, (1.0, 0.0)), (2.0, (0.0, 1.0)))
    ]
    both = math.sqrt(8) / 2.0  # mu of the dearest band of each
    exact = float(optimize.brentq(lambda e: float(gaussian_delta(e, both)) - DELTA, 0.0, 50.0))
    assert joint_epsilon([*before, *after], DELTA) == pytest.approx(exact, rel=1e-3)
    assert joint_epsilon([*before, *after], DELTA) >= exact
    same = [dataclasses.replace(spend, event=dataclasses.replace(spend.event, rho="")) for spend in (*before, *after)]
    assert joint_epsilon(same, DELTA) < 0.75 * exact
    rows = epsilon_of_rho([*before, *after], DELTA, "add-or-remove")
    assert rows[1].epsilon == pytest.approx(exact, rel=1e-3)


def test_an_event_of_an_earlier_version_counts_as_chosen_by_what_was_released() -> None:
    event = BandedPoissonGaussian(0.1, 1.0, (0.5,), (1.0, 0.0), "unit", "key")
    assert event_from_dict(event_to_dict(event)) == event
    values = {name: value for name, value in event_to_dict(event).items() if name not in ("bands_from", "rho")}
    old = event_from_dict(values)
    assert isinstance(old, BandedPoissonGaussian)
    assert (old.bands_from, old.rho) == ("unit-and-releases", "")


# a release that another run's scorer was made by ----------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_a_scorer_that_a_release_on_others_made_may_have_read_the_same_people(
    case: tuple[int, float, tuple[float, float], float, float], tmp_path: Path
) -> None:
    """30th attack, TACIT-50: of the second alone its user says that nobody is in both, and its bands are the unit's own.

    What `tacit tradeoff` says of both, and a run that begins with the second, holds for people who are in both: there the first
    decides a unit's band.
    """
    words, one, two, stated, reached = case
    mu = math.sqrt(words) / 10
    scorer = run(tmp_path / "a", (Gaussian(1 / mu), 1, "training units"))
    start = dataclasses.replace(begun_from(scorer), same_people=False)
    events = [(spend.event, spend.count, "training units") for spend in strata(one, two, "unit")]
    later = run(tmp_path / "b", *events, start=start)
    composed = compose([published(scorer), published(later)], DELTA).epsilon
    assert composed is not None
    assert composed >= reached * (1 - 1e-3)
    inherited = [*begun_from(later).inherited.values()]
    assert joint_epsilon(inherited, DELTA) >= reached * (1 - 1e-3)
    known_wrong = max_after_composition(inherited)
    assert known_wrong == pytest.approx(stated, abs=0.01)


def test_what_a_release_on_others_scores_is_decided_by_releases(tmp_path: Path) -> None:
    scorer = gpt2_folder(tmp_path / "scorer")
    values = adaptive_values(tmp_path, scorer={"folder": str(scorer), "public": True})
    assert bands_from(parse_config(values, "here")) == "unit"
    assert bands_from(parse_config({**values, "same_people": False}, "here")) == "unit-and-releases"
