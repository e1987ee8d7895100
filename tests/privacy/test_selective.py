"""The account of selective DP: closed forms, the library beside it, and the number that its authors report."""

from __future__ import annotations

import math
from collections.abc import Callable

import dp_accounting
import pytest
from dp_accounting import NeighboringRelation
from dp_accounting.pld import PLDAccountant
from dp_accounting.rdp import RdpAccountant
from opacus.accountants.analysis.rdp import compute_rdp
from scipy import optimize, stats

from tacit.errors import RefusedError, UsageError
from tacit.privacy.events import Gaussian, PoissonGaussian, Spend, ThresholdedHistogram
from tacit.privacy.selective import participations, selective_account, state_spend

DELTA = 1e-5
Q, S, STEPS = 0.02, 1.1, 300
GRADIENTS = [Spend(PoissonGaussian(Q, S), STEPS)]


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The epsilon of a Gaussian mechanism, from its hockey-stick divergence (Balle and Wang 2018, theorem 8)."""

    def excess(epsilon: float) -> float:
        below = stats.norm.logcdf(-mu / 2 - epsilon / mu)
        return stats.norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + below) - delta

    return float(optimize.brentq(excess, 0.0, mu * mu + 40 * mu, xtol=1e-12)) if excess(0.0) > 0 else 0.0


# states ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("takes_part", "segments", "noise"), [(1, 1, 5.0), (3, 4, 20.0), (50, 3, 8.0), (50, 6, 0.7)])
def test_states_cost_as_one_gaussian_mechanism(takes_part: int, segments: int, noise: float) -> None:
    """n releases of sensitivity 2 and noise s have mu = 2 sqrt(n) / s; the last case has an epsilon in the thousands."""
    found = selective_account([], [state_spend(takes_part, segments, noise)], DELTA)
    mu = 2 * math.sqrt(takes_part * segments) / noise
    expected = gaussian_epsilon(mu, DELTA)
    assert found.releases == takes_part * segments
    assert expected * (1 - 1e-9) <= found.states <= expected * (1 + 1e-6)
    assert found.together == found.states
    assert (found.gradients, found.claimed) == (0.0, 0.0)


@pytest.mark.parametrize("mu_of", [lambda n, s: math.sqrt(n) / s, lambda n, s: 2 / s, lambda n, s: 2 * n / s])
def test_the_check_of_the_states_catches(mu_of: Callable[[int, float], float]) -> None:
    """Known wrong: half the distance, one release for all, deviations added up instead of variances."""
    found = selective_account([], [state_spend(3, 4, 20.0)], DELTA).states
    assert abs(found / gaussian_epsilon(mu_of(12, 20.0), DELTA) - 1) > 0.1


def test_several_kinds_of_state_compose() -> None:
    found = selective_account([], [state_spend(3, 4, 20.0), state_spend(2, 1, 9.0)], DELTA)
    assert found.states == pytest.approx(gaussian_epsilon(math.sqrt(12 * 0.01 + 2 * 4 / 81), DELTA), rel=1e-6)
    assert found.releases == 14


# gradients, and both -------------------------------------------------------------------------------------------------------


def library_epsilon(states: int, noise: float) -> float:
    """dp-accounting alone, which doubles the sensitivity of a Gaussian under replacement by itself."""
    accountant = PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=1e-4)
    step = dp_accounting.PoissonSampledDpEvent(Q, dp_accounting.GaussianDpEvent(S))
    accountant.compose(step, STEPS)
    if states:
        accountant.compose(dp_accounting.GaussianDpEvent(noise), states)
    return float(accountant.get_epsilon(DELTA))


def test_gradients_are_accounted_under_replacement() -> None:
    found = selective_account(GRADIENTS, [], DELTA)
    assert found.gradients == pytest.approx(library_epsilon(0, 1.0), rel=2e-3)
    assert found.together == found.gradients
    renyi = RdpAccountant(neighboring_relation=NeighboringRelation.ADD_OR_REMOVE_ONE)
    renyi.compose(dp_accounting.PoissonSampledDpEvent(Q, dp_accounting.GaussianDpEvent(S)), STEPS)
    assert found.claimed == pytest.approx(renyi.get_epsilon(DELTA), rel=0.01)  # on another grid of orders
    assert found.claimed < found.gradients


def test_all_together_is_one_composition() -> None:
    found = selective_account(GRADIENTS, [state_spend(3, 4, 9.0)], DELTA)
    assert found.together == pytest.approx(library_epsilon(12, 9.0), rel=2e-3)
    assert max(found.gradients, found.states) < found.together < found.gradients + found.states


def test_a_loss_in_the_hundreds_is_bounded_from_above_on_a_coarser_grid() -> None:
    """All but the states is small here, so the whole is at least what the states alone cost, and not much more."""
    tiny = [Spend(PoissonGaussian(1e-3, 5.0), 10)]
    found = selective_account(tiny, [state_spend(50, 3, 1.4)], DELTA)
    alone = gaussian_epsilon(2 * math.sqrt(150) / 1.4, DELTA)
    assert alone <= found.together <= 1.01 * alone


def test_the_sentence_has_every_number() -> None:
    found = selective_account(GRADIENTS, [state_spend(3, 4, 9.0)], DELTA)
    for value in (found.together, found.gradients, found.states, found.claimed):
        assert f"{value:.4g}" in found.sentence
    assert "12 released states" in found.sentence


# the authors' own run ------------------------------------------------------------------------------------------------

# What their released code runs and reports on CustomerSim (github.com/wyshi/lm_privacy): 10,000 dialogues with 10 canaries, three
# a batch, noise multiplier 0.7, delta 8e-5. A checkpoint's name has its epsilon and Renyi order. Every private segment of a
# batch is one more "step" of their accountant.
DIALOGUES, BATCH, THEIR_NOISE, THEIR_DELTA = 10_010, 3, 0.7, 8e-5
BATCHES = math.ceil(DIALOGUES / BATCH)
SEGMENTS = 3.06  # on average; the data of CustomerSim at hand have 3.05 secrets a dialogue
ORDERS = [1 + tenth / 10 for tenth in range(1, 100)] + list(range(12, 64))


def their_epsilon(probability: float, noise: float, steps: float, states: float = 0.0) -> tuple[float, float]:
    """(epsilon, Renyi order) as opacus computed them in 2021; ``states`` Gaussian releases without sampling beside them."""
    renyi = compute_rdp(q=probability, noise_multiplier=noise, steps=1, orders=ORDERS) * steps
    found = [
        (own + states * order / (2 * THEIR_NOISE**2) + math.log(1 / THEIR_DELTA) / (order - 1), order)
        for own, order in zip(renyi.tolist(), ORDERS, strict=True)
    ]
    return min(found)


def test_what_the_authors_report_is_every_segment_as_a_fresh_sample_without_states() -> None:
    """Their ordinary DP-SGD, with nothing to choose, then both checkpoints of selective DP with one number of segments."""
    epsilon, order = their_epsilon(1 / DIALOGUES, 0.6, 100 * DIALOGUES)
    assert (round(epsilon, 3), order) == (2.508, 5.7)
    for epochs, reported, reported_order in ((39, 2.498, 6.8), (50, 2.744, 6.7)):
        epsilon, order = their_epsilon(1 / BATCHES, THEIR_NOISE, epochs * BATCHES * SEGMENTS)
        assert epsilon == pytest.approx(reported, abs=2e-3)
        assert order == reported_order


@pytest.mark.slow
def test_composed_inside_the_sample_and_with_states_it_is_far_more() -> None:
    """The segments of a dialogue are in a batch together: SEGMENTS Gaussian mechanisms on one sample are one with less noise."""
    inside = Spend(PoissonGaussian(BATCH / DIALOGUES, THEIR_NOISE / math.sqrt(SEGMENTS)), 50 * BATCHES)
    releases = round(50 * SEGMENTS)
    # As they count: a state of sensitivity C where a record is added or removed, hidden and cell state as one.
    renyi, _ = their_epsilon(1 / BATCHES, THEIR_NOISE / math.sqrt(SEGMENTS), 50 * BATCHES, releases)
    assert renyi == pytest.approx(237.1, rel=1e-3)  # dp-accounting has 237.6 at the same orders
    # As they run it, under replacement: hidden and cell state are clipped and released each for itself.
    found = selective_account([inside], [Spend(Gaussian(THEIR_NOISE), 2 * releases)], THEIR_DELTA)
    assert found.gradients == pytest.approx(15.9, rel=0.01)
    alone = gaussian_epsilon(2 * math.sqrt(2 * releases) / THEIR_NOISE, THEIR_DELTA)
    assert alone == pytest.approx(1437, rel=1e-3)
    assert alone < found.together < 1.02 * alone


# bad input -------------------------------------------------------------------------------------------------------------------


def test_other_events_are_refused() -> None:
    with pytest.raises(UsageError, match="PoissonGaussian"):
        selective_account([Spend(ThresholdedHistogram(30.0, 100, 8))], [], DELTA)
    with pytest.raises(UsageError, match="Gaussian"):
        selective_account([], GRADIENTS, DELTA)


def test_noise_that_is_none_is_refused() -> None:
    with pytest.raises(RefusedError):
        state_spend(1, 1, 0.01)
    assert state_spend(1, 1, 0.05).event == Gaussian(0.05)


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, 1, 1)])
def test_participations_need_whole_positive_numbers(arguments: tuple[int, int, int]) -> None:
    with pytest.raises(UsageError):
        participations(*arguments)


@pytest.mark.parametrize(
    ("steps", "batch_size", "slots", "expected"), [(1, 1, 1, 1), (10, 10, 100, 1), (10, 10, 99, 2), (3, 7, 2, 11)]
)
def test_participations(steps: int, batch_size: int, slots: int, expected: int) -> None:
    assert participations(steps, batch_size, slots) == expected
