"""The suite that every accountant passes on every event, and the numbers that a person can look up.

To add an accountant: one line in ``ACCOUNTANTS``. To add an event: one line in ``TABLE``.

Oracles that share no code with the privacy loss distributions: Renyi DP, the PRV accountant of Gopi, Lee and Wutschitz (2021),
closed forms where noise is Gaussian, and group privacy (a replacement is a removal and an addition).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from prv_accountant import GaussianMechanism, PoissonSubsampledGaussianMechanism, PRVAccountant
from scipy import optimize

from tacit.errors import UsageError
from tacit.privacy.accounting.accountant import account_parts, epsilon, joint_epsilon, mu_at
from tacit.privacy.accounting.calibrate import threshold_for
from tacit.privacy.accounting.composition import Account, loss_distribution
from tacit.privacy.accounting.histogram import gaussian_delta, histogram_epsilon, hoory_claim
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.events import (
    EVENTS,
    BandedPoissonGaussian,
    CorrelatedPoissonGaussian,
    Event,
    Gaussian,
    NonPrivate,
    PoissonGaussian,
    Relation,
    Spend,
    ThresholdedHistogram,
    WeightedHistogram,
    WordCounts,
    event_from_dict,
    event_to_dict,
)
from tacit.privacy.textbook import mechanisms

Accountant = Callable[[Sequence[Spend], float, Relation], float | None]
"""(spends, delta, relation) -> an upper bound of epsilon, or None where it has no bound."""


def pld_epsilon(spends: Sequence[Spend], delta: float, relation: Relation) -> float:
    return Account(tuple(spends), relation).epsilon(delta)


def coarse_pld_epsilon(spends: Sequence[Spend], delta: float, relation: Relation) -> float:
    """For the contract, which holds on every grid."""
    return Account(tuple(spends), relation, grid=1e-3).epsilon(delta)


def prv_bounds(spends: Sequence[Spend], delta: float, eps_error: float = 0.02) -> tuple[float, float] | None:
    """(lower, upper) by the PRV accountant, add-or-remove; None for what it cannot express."""
    variables, counts = [], []
    for spend in spends:
        # of weight 1, the worst band; of correlated noise, a cycle
        if isinstance(spend.event, PoissonGaussian | BandedPoissonGaussian | CorrelatedPoissonGaussian):
            q, noise = spend.event.sampling_probability, spend.event.noise_multiplier
            variables.append(PoissonSubsampledGaussianMechanism(sampling_probability=q, noise_multiplier=noise))
        elif isinstance(spend.event, Gaussian):
            variables.append(GaussianMechanism(noise_multiplier=spend.event.noise_multiplier))
        else:
            return None
        counts.append(spend.count)
    if not variables:
        return None
    found = PRVAccountant(variables, eps_error=eps_error, delta_error=delta / 1000, max_self_compositions=counts)
    lower, _, upper = found.compute_epsilon(delta, counts)
    return float(lower), float(upper)


def prv_epsilon(spends: Sequence[Spend], delta: float, relation: Relation) -> float | None:
    bounds = prv_bounds(spends, delta) if relation == "add-or-remove" else None
    return None if bounds is None else bounds[1]


ACCOUNTANTS: dict[str, Accountant] = {
    "pld": coarse_pld_epsilon,
    "rdp": rdp_epsilon,
    "prv": prv_epsilon,
}

TABLE: dict[str, tuple[Spend, ...]] = {
    "dp-sgd": (Spend(PoissonGaussian(0.05, 3.0), 200),),
    "dp-sgd, large batches": (Spend(PoissonGaussian(0.4, 6.0), 30),),
    "dp-sgd, two phases": (Spend(PoissonGaussian(0.05, 3.0), 200), Spend(PoissonGaussian(0.2, 5.0), 40)),
    "adaptive, a weight for each band": (Spend(BandedPoissonGaussian(0.05, 3.0, (0.3, 0.6), (1.0, 0.5, 0.25)), 200),),
    "correlated noise": (Spend(CorrelatedPoissonGaussian(0.2, 4.0, 4), 50),),
    "every unit every step": (Spend(PoissonGaussian(1.0, 8.0), 10),),
    "gaussian": (Spend(Gaussian(2.0), 3),),
    "histogram, integer noise": (Spend(ThresholdedHistogram(12.0, 75, 8)),),
    "histogram, real noise": (Spend(ThresholdedHistogram(12.0, 75.0, 8, "gaussian")),),
    "weighted histogram": (Spend(WeightedHistogram(120_000.0, 700_000, 16, 65_536)),),
    "weighted histogram, in rounds": (
        Spend(WeightedHistogram(400_000.0, 2_400_000, 16, 65_536)),
        Spend(WeightedHistogram(150_000.0, 900_000, 16, 65_536)),
    ),
    "word counts": (Spend(WordCounts(120.0, 800)),),
    "all together": (
        Spend(ThresholdedHistogram(20.0, 120, 8)),
        Spend(PoissonGaussian(0.05, 3.0), 200),
        Spend(Gaussian(5.0)),
    ),
}
DELTA = 1e-5
RELATIONS: tuple[Relation, ...] = ("add-or-remove", "replace")

every_accountant = pytest.mark.parametrize("accountant", ACCOUNTANTS.values(), ids=ACCOUNTANTS)
every_event = pytest.mark.parametrize("spends", TABLE.values(), ids=TABLE)
ours = pytest.mark.parametrize("accountant", [pld_epsilon, rdp_epsilon, epsilon])
every_relation = pytest.mark.parametrize("relation", RELATIONS)


def with_noise(spends: Sequence[Spend], factor: float) -> tuple[Spend, ...]:
    """The same releases with all noise (and the thresholds that go with it) times ``factor``."""

    def louder(event: Event) -> Event:
        match event:
            case PoissonGaussian(q, noise):
                return PoissonGaussian(q, noise * factor)
            case BandedPoissonGaussian(q, noise, thresholds, weights):
                return BandedPoissonGaussian(q, noise * factor, thresholds, weights)
            case CorrelatedPoissonGaussian(q, noise, bands):
                return CorrelatedPoissonGaussian(q, noise * factor, bands)
            case Gaussian(noise):
                return Gaussian(noise * factor)
            case ThresholdedHistogram(noise, threshold, words, kind):
                return ThresholdedHistogram(noise * factor, math.ceil(1 + (threshold - 1) * factor), words, kind)
            case WeightedHistogram(noise, threshold, words, steps):
                return WeightedHistogram(noise * factor, math.ceil(threshold * factor), words, steps)
            case WordCounts(noise, words):
                return WordCounts(noise * factor, words)
            case _:
                return event

    return tuple(dataclasses.replace(spend, event=louder(spend.event)) for spend in spends)


# every accountant, every event ---------------------------------------------------------------------------------------


@every_relation
@every_event
@every_accountant
def test_epsilon_is_positive_and_falls_with_noise_and_with_delta(
    accountant: Accountant, spends: tuple[Spend, ...], relation: Relation
) -> None:
    found = accountant(spends, DELTA, relation)
    quieter = accountant(with_noise(spends, 1.25), DELTA, relation)
    laxer = accountant(spends, DELTA * 30, relation)
    if found is None:
        assert quieter is None
        assert laxer is None
        return
    assert quieter is not None
    assert laxer is not None
    assert 0 < quieter < found
    assert 0 < laxer < found


@every_event
@every_accountant
def test_more_steps_cost_more(accountant: Accountant, spends: tuple[Spend, ...]) -> None:
    costs = []
    for times in (1, 2):
        cost = accountant([dataclasses.replace(s, count=times * s.count) for s in spends], 10 * DELTA, "add-or-remove")
        if cost is None:
            return
        costs.append(cost)
    assert costs[0] < costs[1]


@every_relation
@every_accountant
def test_sampling_more_units_costs_more(accountant: Accountant, relation: Relation) -> None:
    costs = [accountant([Spend(PoissonGaussian(q, 4.0), 9)], DELTA, relation) for q in (0.01, 0.3, 1.0)]
    if None in costs:
        assert set(costs) == {None}
        return
    assert costs == sorted(costs)
    assert len(set(costs)) == 3


@every_relation
@every_event
@every_accountant
def test_a_replacement_costs_at_least_an_addition(
    accountant: Accountant, spends: tuple[Spend, ...], relation: Relation
) -> None:
    found, alone = accountant(spends, DELTA, relation), accountant(spends, DELTA, "add-or-remove")
    if found is not None:
        assert alone is not None
        assert found >= alone


@every_accountant
def test_composition_is_between_the_worst_part_and_the_sum(accountant: Accountant) -> None:
    one, other = list(TABLE["dp-sgd"]), [Spend(Gaussian(4.0), 2)]
    joint = accountant(one + other, DELTA, "add-or-remove")
    halves = [accountant(part, DELTA / 2, "add-or-remove") for part in (one, other)]
    wholes = [accountant(part, DELTA, "add-or-remove") for part in (one, other)]
    assert joint is not None
    assert max(whole for whole in wholes if whole is not None) < joint
    assert joint < sum(half for half in halves if half is not None)


@every_relation
@every_accountant
def test_neither_order_nor_splitting_matters(accountant: Accountant, relation: Relation) -> None:
    training, release = PoissonGaussian(0.05, 3.0), Gaussian(4.0)
    whole = accountant([Spend(training, 100), Spend(release, 3)], DELTA, relation)
    parts = [Spend(release), Spend(training, 63), Spend(release, 2), Spend(training, 37)]
    split = accountant(parts, DELTA, relation)
    # Splitting adds a few roundings to the grid.
    assert split == (None if whole is None else pytest.approx(whole, abs=4e-3))


@every_relation
@every_accountant
def test_nothing_costs_nothing(accountant: Accountant, relation: Relation) -> None:
    assert accountant([], DELTA, relation) in (0.0, None)


@every_relation
@ours
@pytest.mark.parametrize("other", [(), (Spend(Gaussian(9.0)),), (Spend(ThresholdedHistogram(12.0, 75, 8)),)], ids=len)
def test_a_non_private_release_costs_everything(
    accountant: Accountant, other: tuple[Spend, ...], relation: Relation
) -> None:
    spends = (*other, Spend(NonPrivate("heuristic:hoory")))
    assert accountant(spends, DELTA, relation) == math.inf
    assert Account(spends, relation).delta(50.0) == 1.0


@every_relation
def test_a_non_private_release_after_training_costs_everything(relation: Relation) -> None:
    spends = [Spend(PoissonGaussian(0.01, 1.0), 5), Spend(NonPrivate("heuristic:hoory"))]
    assert epsilon(spends, DELTA, relation) == math.inf
    assert joint_epsilon(spends, DELTA, relation) == math.inf


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-6, 2.0, math.nan, math.inf])
@ours
def test_an_impossible_delta_is_refused(accountant: Accountant, delta: float) -> None:
    with pytest.raises(UsageError, match="delta is"):
        accountant([Spend(Gaussian(1.0))], delta, "add-or-remove")


@ours
@pytest.mark.parametrize("event", [Gaussian(1.0), ThresholdedHistogram(12.0, 75, 8), PoissonGaussian(0.5, 1.0)])
def test_an_unknown_relation_is_refused_not_taken_for_the_cheaper_one(accountant: Accountant, event: Event) -> None:
    with pytest.raises(UsageError, match="relation is 'replace-one'"):
        accountant([Spend(event)], DELTA, "replace-one")


class SelfMadeEvent:
    noise_multiplier = 1.0


@pytest.mark.parametrize(
    "event",
    [SelfMadeEvent(), mechanisms.Gaussian(1.0, 1.0), None, "gaussian"],
    ids=["own class", "another family", "None", "text"],
)
def test_an_unknown_event_is_refused_not_counted_as_free(event: object) -> None:
    with pytest.raises(UsageError, match="not an event that an accountant knows"):
        Spend(event)


def test_every_kind_of_event_is_in_the_table() -> None:
    kinds = {type(spend.event) for spends in TABLE.values() for spend in spends}
    assert kinds == set(EVENTS.values()) - {NonPrivate}


@every_event
def test_the_certified_epsilon_is_the_smaller_of_both_bounds(spends: tuple[Spend, ...]) -> None:
    bounds = [pld_epsilon(spends, DELTA, "add-or-remove"), rdp_epsilon(spends, DELTA)]
    assert epsilon(spends, DELTA) == min(bound for bound in bounds if bound is not None)


# the accountants agree -----------------------------------------------------------------------------------------------


@every_relation
@every_event
def test_renyi_is_above_pld_and_pld_above_its_optimistic_estimate(
    spends: tuple[Spend, ...], relation: Relation
) -> None:
    upper, lower = (Account(spends, relation, 5e-4, pessimistic=kind).epsilon(DELTA) for kind in (True, False))
    renyi = rdp_epsilon(spends, DELTA, relation)
    steps = sum(spend.count for spend in spends)
    assert lower <= upper
    assert upper - lower <= steps * 5e-4 + 1e-6  # at most a grid step a release, and what solving rounds
    if renyi is not None:
        assert upper <= renyi <= 1.35 * upper


@pytest.mark.parametrize("delta", [1e-6])
@every_event
def test_prv_bounds_and_pld_bounds_overlap(spends: tuple[Spend, ...], delta: float) -> None:
    bounds = prv_bounds(spends, delta)
    if bounds is None:
        assert any(isinstance(spend.event, ThresholdedHistogram | WeightedHistogram | WordCounts) for spend in spends)
        return
    optimistic = Account(spends, pessimistic=False).epsilon(delta)
    assert optimistic <= bounds[1]
    assert bounds[0] <= pld_epsilon(spends, delta, "add-or-remove") <= bounds[1]


def test_an_accountant_that_forgets_sampling_or_noise_is_caught_by_the_prv_bounds() -> None:
    spends = TABLE["dp-sgd"]
    bounds = prv_bounds(spends, DELTA)
    assert bounds is not None
    for wrong in (PoissonGaussian(1.0, 3.0), PoissonGaussian(0.05, 3.2), PoissonGaussian(0.053, 3.0)):
        found = pld_epsilon([Spend(wrong, 200)], DELTA, "add-or-remove")
        assert not bounds[0] <= found <= bounds[1]


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Closed form (Balle and Wang 2018)."""
    return float(optimize.brentq(lambda e: float(gaussian_delta(e, mu)) - delta, 0.0, 100.0, xtol=1e-12))


@pytest.mark.parametrize("delta", [1e-4, 1e-8, 1e-12])
@pytest.mark.parametrize(("noise", "steps"), [(20.0, 100), (6.0, 16), (30.0, 1000)])
def test_steps_that_sample_every_unit_are_one_gaussian(noise: float, steps: int, delta: float) -> None:
    """q = 1 goes through discretisation and Fourier transforms; the truth is a Gaussian with mu = sqrt(steps)/noise."""
    spends = (Spend(PoissonGaussian(1.0, noise), steps),)
    reserved = delta - steps * 2.0**-53  # for the rounding of so many composed steps
    for relation, factor in (("add-or-remove", 1), ("replace", 2)):
        mu = factor * math.sqrt(steps) / noise
        exact = gaussian_epsilon(mu, delta)
        assert exact <= Account(spends, relation).epsilon(delta) <= gaussian_epsilon(mu, reserved) * 1.001
        assert Account(spends, relation, pessimistic=False).epsilon(delta) <= exact


@pytest.mark.parametrize(("noise", "steps", "delta"), [(100.0, 10_000, 1e-10), (300.0, 100_000, 1e-9)])
def test_rounding_of_many_steps_makes_no_epsilon_too_small(noise: float, steps: int, delta: float) -> None:
    """Without a reserve it does: the library's delta is too small by about 3e-17 a step."""
    account = Account((Spend(PoissonGaussian(1.0, noise), steps),))
    mu = math.sqrt(steps) / noise
    found = account.epsilon(delta)
    assert gaussian_delta(found, mu) <= delta
    assert found <= gaussian_epsilon(mu, delta) * 1.01


@every_relation
def test_a_gaussian_and_steps_that_sample_every_unit_are_one_gaussian(relation: Relation) -> None:
    factor = 2 if relation == "replace" else 1
    account = Account((Spend(Gaussian(4.0), 3), Spend(PoissonGaussian(1.0, 8.0), 10)), relation)
    exact = gaussian_epsilon(factor * math.sqrt(3 / 16 + 10 / 64), DELTA)
    assert exact <= account.epsilon(DELTA) <= exact * 1.001


@every_relation
def test_gaussians_compose_to_one_gaussian(relation: Relation) -> None:
    factor = 2 if relation == "replace" else 1
    spends = [Spend(Gaussian(2.0), 3), Spend(Gaussian(5.0))]
    exact = gaussian_epsilon(factor * math.sqrt(3 / 4 + 1 / 25), DELTA)
    assert epsilon(spends, DELTA, relation) == pytest.approx(exact, abs=1e-4)
    assert epsilon(spends, DELTA, relation) >= exact


def one_step_delta(e: float, q: float, noise: float, relation: Relation) -> float:
    """Hockey-stick of one DP-SGD step by summing densities on a fine grid: x is the noisy sum's one coordinate that matters.

    Removal: (1-q) N(0) + q N(1) against N(0). Replacement: (1-q) N(0) + q N(1) against (1-q) N(0) + q N(-1).
    """
    x = np.linspace(-12 * noise - 1, 12 * noise + 1, 100_001)
    step = x[1] - x[0]

    def density(at: float) -> np.ndarray:
        return np.exp(-((x - at) ** 2) / (2 * noise**2)) / (noise * math.sqrt(2 * math.pi))

    with_unit = (1 - q) * density(0) + q * density(1)
    without = density(0) if relation == "add-or-remove" else (1 - q) * density(0) + q * density(-1)
    both = [(with_unit, without), (without, with_unit)]
    return max(float(np.maximum(0.0, p - math.exp(e) * other).sum() * step) for p, other in both)


@every_relation
@pytest.mark.parametrize(("q", "noise"), [(0.05, 1.0), (0.3, 1.5), (0.9, 2.0)])
def test_one_step_is_the_integral_of_its_densities(q: float, noise: float, relation: Relation) -> None:
    account = Account((Spend(PoissonGaussian(q, noise)),), relation)
    for e in (0.0, 0.05, 0.3, 1.0):
        exact = one_step_delta(e, q, noise, relation)
        assert account.delta(e) == pytest.approx(exact, rel=1e-4, abs=1e-9)
        assert account.delta(e) >= exact - 1e-9
    if relation == "replace":  # known-wrong: add-or-remove accounting for a replacement
        assert Account((Spend(PoissonGaussian(q, noise)),)).delta(0.3) < 0.9 * one_step_delta(0.3, q, noise, relation)


@every_event
def test_a_replacement_costs_at_most_a_removal_and_an_addition(spends: tuple[Spend, ...]) -> None:
    """Group privacy: delta_replace(2e) <= (1 + exp(e)) delta(e) for every mechanism."""
    for e in (0.2, 0.7, 1.5):
        alone = Account(spends).delta(e)
        assert Account(spends, "replace").delta(2 * e) <= (1 + math.exp(e)) * alone * 1.002


# parts and joint epsilon ---------------------------------------------------------------------------------------------


def test_disjoint_parts_cost_their_worst_under_add_or_remove_and_their_sum_under_replacement() -> None:
    one, other = Spend(Gaussian(3.0), 2, "training"), Spend(Gaussian(4.0), 1, "held out")
    together = [dataclasses.replace(other, partition="training"), one]
    assert joint_epsilon([one, other], DELTA) == max(epsilon([one], DELTA), epsilon([other], DELTA))
    assert joint_epsilon([one, other], DELTA) < epsilon(together, DELTA)
    assert joint_epsilon([one, other], DELTA, "replace") == pytest.approx(epsilon(together, DELTA, "replace"))
    assert len(account_parts([one, other], "add-or-remove")) == 2
    assert len(account_parts([one, other], "replace")) == 1
    assert joint_epsilon([], DELTA) == 0.0


# the published numbers -----------------------------------------------------------------------------------------------

Q = 131072 / 83e6
STEPS = 31_250


@pytest.mark.parametrize(
    ("batch", "noise", "pld", "rdp"),
    [
        (131_072, 2.72, 0.529, 0.561),
        (131_072, 0.905, 2.416, 2.757),
        # The 1.16 that is quoted for a batch of 256 * 32 * 32 is Renyi DP; the loss distribution gives 1.095.
        (262_144, 2.72, 1.095, 1.160),
    ],
)
def test_hoory_training_by_both_accountants(batch: int, noise: float, pld: float, rdp: float) -> None:
    spends = (Spend(PoissonGaussian(batch / 83e6, noise), STEPS),)
    assert pld_epsilon(spends, 1e-8, "add-or-remove") == pytest.approx(pld, abs=6e-4)
    assert rdp_epsilon(spends, 1e-8) == pytest.approx(rdp, abs=6e-4)
    assert epsilon(spends, 1e-8) == pytest.approx(pld, abs=6e-4)
    bounds = prv_bounds(spends, 1e-8, eps_error=0.03)
    assert bounds is not None
    assert bounds[0] <= pld <= bounds[1]
    if batch == 262_144:
        assert bounds[1] < rdp


def test_hoory_vocabulary_and_training_together() -> None:
    histogram = Spend(ThresholdedHistogram(200.0, 1370.0, 256, "gaussian"))
    training = Spend(PoissonGaussian(Q, 2.72), STEPS)
    assert epsilon([histogram, training], 1.1e-8) == pytest.approx(0.665, abs=6e-4)
    assert epsilon([histogram, training], 1.1e-8) < 0.51 + 0.6
    assert epsilon([histogram, training], 1.1e-8) > epsilon([training], 1.1e-8)


def test_hoory_vocabulary_alone() -> None:
    assert histogram_epsilon(ThresholdedHistogram(200.0, 1370.0, 256, "gaussian"), 1e-9) == pytest.approx(
        0.4242, abs=1e-4
    )
    assert epsilon([Spend(ThresholdedHistogram(200.0, 1370.0, 256, "gaussian"))], 1e-9) == pytest.approx(
        0.4242, abs=2e-4
    )
    threshold = threshold_for(165.5, 256, 0.517, 1e-9)
    assert threshold is not None
    assert threshold == pytest.approx(1133, rel=0.003)
    assert threshold_for(165.0, 256, 0.517, 1e-9) is None or threshold_for(165.0, 256, 0.517, 1e-9) > threshold


def test_hoory_corollary_misses_a_root_of_two() -> None:
    claim = hoory_claim(200.0, 256, 1e-9)
    assert claim.threshold == pytest.approx(982.5, abs=0.05)
    assert claim.claimed_epsilon == pytest.approx(0.517, abs=1e-3)
    assert claim.smallest_true_delta == pytest.approx(1.18e-4, rel=5e-3)
    assert claim.correct_threshold == pytest.approx(1369.4, abs=0.05)
    released = ThresholdedHistogram(200.0, claim.threshold, 256, "gaussian")
    assert epsilon([Spend(released)], 1e-9) == math.inf
    assert math.isfinite(epsilon([Spend(released)], 1.3e-4))
    for delta in (0.0, 0.3, math.nan):
        with pytest.raises(UsageError, match="corollary 1"):
            hoory_claim(200.0, 256, delta)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("noise", "added", "replaced"), [(3.19, 0.5, 1.03), (1.85, 1.0, 1.93), (0.956, 3.0, 4.56), (0.646, 8.0, 10.0)]
)
def test_confidential_training_by_both_relations(noise: float, added: float, replaced: float) -> None:
    """10,000 units, batch 256, ten epochs (391 steps), delta 8e-5."""
    spends = [Spend(PoissonGaussian(256 / 10_000, noise), 391)]
    assert epsilon(spends, 8e-5) == pytest.approx(added, abs=0.02)
    assert epsilon(spends, 8e-5, "replace") == pytest.approx(replaced, abs=0.015)


@pytest.mark.slow
def test_a_million_steps_need_a_finer_grid_or_renyi() -> None:
    spends = (Spend(PoissonGaussian(1e-4, 2.72), 1_000_000),)
    assert Account(spends, grid=1e-4).epsilon(1e-8) > 0.25
    assert epsilon(spends, 1e-8) <= 0.189


def test_a_gaussian_with_mu_one() -> None:
    assert epsilon([Spend(Gaussian(1.0))], 1e-5) == pytest.approx(4.377, abs=5e-4)
    assert mu_at(4.377178, 1e-5) == pytest.approx(1.0, abs=1e-5)
    assert mu_at(math.inf, 1e-5) == math.inf


# helpers of the accountant -------------------------------------------------------------------------------------------


def test_the_loss_distribution_is_a_distribution_with_the_accounts_curve() -> None:
    spends = TABLE["dp-sgd"]
    losses, masses = loss_distribution(spends)
    assert masses.sum() == pytest.approx(1.0, abs=1e-8)  # 200 compositions of float sums
    assert losses[-1] == math.inf
    for e in (0.1, 1.0, 2.0):
        above = losses > e
        delta = float((masses[above] * -np.expm1(e - losses[above])).sum())
        assert delta == pytest.approx(Account(spends).delta(e), rel=1e-8)


@pytest.mark.parametrize("spends", [(), TABLE["histogram, integer noise"], TABLE["all together"]], ids=len)
def test_a_loss_distribution_without_one_worst_neighbour_is_refused(spends: tuple[Spend, ...]) -> None:
    with pytest.raises(UsageError, match="loss distribution needs"):
        loss_distribution(spends)


# events --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        PoissonGaussian(131072 / 83e6, 1 / 3),
        Gaussian(2.5),
        ThresholdedHistogram(30.0, 185, 64),
        ThresholdedHistogram(0.5, 1.25, 3, "gaussian"),
        NonPrivate("heuristic:hoory"),
    ],
    ids=lambda event: type(event).__name__,
)
def test_an_event_survives_the_ledger(event: Event) -> None:
    assert event_from_dict(event_to_dict(event)) == event


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"kind": "laplace", "scale": 1.0},
        {"kind": None},
        {"kind": "gaussian"},
        {"kind": "gaussian", "noise_multiplier": 1.0, "extra": 2},
        {"kind": "gaussian", "noise_multiplier": "1.0"},
        {"kind": "poisson-gaussian", "sampling_probability": "0.1", "noise_multiplier": 1.0},
    ],
    ids=str,
)
def test_an_event_that_is_not_understood_is_refused(values: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        event_from_dict(values)


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (PoissonGaussian, (0.0, 1.0)),
        (PoissonGaussian, (1.0000001, 1.0)),
        (PoissonGaussian, (-0.1, 1.0)),
        (PoissonGaussian, (math.nan, 1.0)),
        (PoissonGaussian, (0.1, 0.0)),
        (PoissonGaussian, (0.1, math.inf)),
        (PoissonGaussian, (0.1, math.nan)),
        (Gaussian, (-1.0,)),
        (Gaussian, (math.nan,)),
        (ThresholdedHistogram, (0.0, 10, 4)),
        (ThresholdedHistogram, (math.inf, 10, 4)),
        (ThresholdedHistogram, (10.0, math.nan, 4)),
        (ThresholdedHistogram, (10.0, 10.5, 4)),
        (ThresholdedHistogram, (10.0, 10, 0)),
        (ThresholdedHistogram, (10.0, 10, 4, "laplace")),
        (ThresholdedHistogram, (2.99, 10, 4)),
        (Spend, (Gaussian(1.0), 0)),
        (Spend, (Gaussian(1.0), -3)),
        (Spend, (Gaussian(1.0), math.nan)),
    ],
    ids=str,
)
def test_an_impossible_event_is_refused(kind: type, fields: tuple[object, ...]) -> None:
    with pytest.raises(UsageError):
        kind(*fields)


def test_below_the_floor_of_fourier_transforms_no_epsilon_is_too_small() -> None:
    """Loss distributions stay flat there; Renyi DP does not, and where there is none the question is refused."""
    spends = [Spend(PoissonGaussian(0.02, 1.1), 200)]
    tiny = [epsilon(spends, delta) for delta in (1e-11, 1e-13, 1e-20, 1e-30)]
    assert tiny == sorted(tiny)
    assert tiny[3] > tiny[2] + 0.5
    with pytest.raises(UsageError, match="below 1e-12"):
        epsilon(spends, 1e-20, "replace")
