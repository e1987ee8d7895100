"""Privacy losses against numerical integration of the two densities, brute force over all events, and dp-accounting."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.pld import privacy_loss_mechanism as plm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from tacit.errors import UsageError
from tacit.privacy.textbook.loss import (
    DiscreteLoss,
    ExponentialLoss,
    GaussianLoss,
    LaplaceLoss,
    PrivacyLoss,
    hockey_stick,
)

from ..laws import best_event, law

EPSILONS = (-1.7, -0.5, 0.0, 0.3, 1.0, 2.5)
ALARM = 1e-6
LOSSES = (
    GaussianLoss(0.3),
    GaussianLoss(2.0),
    LaplaceLoss(0.4),
    LaplaceLoss(2.6),
    ExponentialLoss(0.4),
    ExponentialLoss(2.6),
    DiscreteLoss.randomized_response(1.2),
    DiscreteLoss.randomized_response(2.6, 5),
    DiscreteLoss.of_pair([0.5, 0.3, 0.15, 0.05], [0.3, 0.5, 0.2, 0.0]),
)
CONTINUOUS = [
    (GaussianLoss(0.3), stats.norm(), stats.norm(0.3)),
    (GaussianLoss(2.0), stats.norm(), stats.norm(2.0)),
    (LaplaceLoss(0.4), stats.laplace(), stats.laplace(0.4)),
    (LaplaceLoss(2.6), stats.laplace(), stats.laplace(2.6)),
]


def integral(function, kinks: tuple[float, ...]) -> float:
    """Over the real line, cut at the kinks and at the places where nothing is left."""
    edges = np.unique(np.concatenate([[-45.0, 45.0], np.asarray(kinks)]))
    parts = [integrate.quad(function, a, b, epsabs=1e-13, limit=200)[0] for a, b in itertools.pairwise(edges)]
    return math.fsum(parts)


def crossing(loss: PrivacyLoss, epsilon: float) -> float:
    """The output at which the loss is epsilon; both families fall in x."""
    if isinstance(loss, GaussianLoss):
        return loss.mu / 2 - epsilon / loss.mu
    assert isinstance(loss, LaplaceLoss)
    return min(max((loss.pure_epsilon - epsilon) / 2, 0.0), loss.pure_epsilon)


@pytest.mark.parametrize(("loss", "p", "q"), CONTINUOUS, ids=[str(row[0]) for row in CONTINUOUS])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_closed_forms_equal_integrals_over_the_outputs(loss, p, q, epsilon):
    kinks = (-9.0, 0.0, 9.0, float(q.mean()), crossing(loss, epsilon))

    def ratio(x: float) -> float:
        return p.logpdf(x) - q.logpdf(x)

    tail = integral(lambda x: p.pdf(x) * (ratio(x) > epsilon + 1e-12), kinks)
    delta = integral(lambda x: max(0.0, p.pdf(x) - math.exp(epsilon) * q.pdf(x)), kinks)
    mean = integral(lambda x: p.pdf(x) * ratio(x), kinks)
    assert loss.tail(epsilon) == pytest.approx(tail, abs=1e-9)
    assert loss.delta(epsilon) == pytest.approx(delta, abs=1e-9)
    assert loss.mean() == pytest.approx(mean, abs=1e-9)


@pytest.mark.parametrize("pure_epsilon", [0.4, 2.6])
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_exponential_loss_is_consistent_with_its_density(pure_epsilon, epsilon):
    loss = ExponentialLoss(pure_epsilon)

    def density(value: float) -> float:
        return math.exp((value - pure_epsilon) / 2) / 2 / -math.expm1(-pure_epsilon)

    start = min(max(epsilon, -pure_epsilon), pure_epsilon)
    tail, _ = integrate.quad(density, start, pure_epsilon)
    delta, _ = integrate.quad(lambda value: density(value) * -math.expm1(epsilon - value), start, pure_epsilon)
    mean, _ = integrate.quad(lambda value: density(value) * value, -pure_epsilon, pure_epsilon)
    q_mass, _ = integrate.quad(lambda value: density(value) * math.exp(-value), -pure_epsilon, pure_epsilon)
    assert loss.tail(epsilon) == pytest.approx(tail, abs=1e-12)
    assert loss.delta(epsilon) == pytest.approx(delta, abs=1e-12)
    assert loss.mean() == pytest.approx(mean, abs=1e-12)
    assert q_mass == pytest.approx(1.0, abs=1e-12)


def test_the_lectures_equivalence_is_wrong():
    """(epsilon, delta)-DP does not bound P[L > epsilon] by delta; the hockey-stick does what the tail cannot."""
    loss = GaussianLoss(1.0)
    assert loss.epsilon(1e-5) == pytest.approx(4.377, abs=5e-4)
    assert loss.delta(4.377) == pytest.approx(1e-5, rel=2e-3)
    assert loss.tail(4.377) == pytest.approx(5.3e-5, rel=5e-3)
    assert loss.tail(4.377) > 5 * loss.delta(4.377)


@pytest.mark.parametrize("mu", [0.1, 0.7, 1.0, 3.0, 10.0])
def test_gaussian_agrees_with_dp_accounting(mu):
    oracle = plm.GaussianPrivacyLoss(1.0, sensitivity=mu)
    for epsilon in (0.0, 0.5, 1.0, 4.0):
        assert GaussianLoss(mu).delta(epsilon) == pytest.approx(oracle.get_delta_for_epsilon(epsilon), rel=1e-9)


@pytest.mark.parametrize("pure_epsilon", [0.1, 1.0, 3.0])
def test_laplace_agrees_with_dp_accounting(pure_epsilon):
    oracle = plm.LaplacePrivacyLoss(1.0, sensitivity=pure_epsilon)
    for epsilon in (0.0, 0.05, 0.7, 2.0, 4.0):
        expected = oracle.get_delta_for_epsilon(epsilon)
        assert LaplaceLoss(pure_epsilon).delta(epsilon) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("buckets", [2, 3, 10])
@pytest.mark.parametrize("pure_epsilon", [0.2, 1.0, 3.0])
def test_randomized_response_agrees_with_dp_accounting(pure_epsilon, buckets):
    loss = DiscreteLoss.randomized_response(pure_epsilon, buckets)
    noise = buckets / (math.exp(pure_epsilon) + buckets - 1)  # their parameter: the probability of a uniform answer
    oracle = pld.from_randomized_response(noise, buckets, value_discretization_interval=1e-5)
    for epsilon in (0.0, 0.1, 0.9, 2.5):
        assert loss.delta(epsilon) <= oracle.get_delta_for_epsilon(epsilon) + 1e-12
        assert loss.delta(epsilon) == pytest.approx(oracle.get_delta_for_epsilon(epsilon), abs=2e-5)


def test_discrete_pair_agrees_with_dp_accounting():
    p, q = np.array([0.5, 0.3, 0.15, 0.05]), np.array([0.3, 0.5, 0.2, 0.0])
    with np.errstate(divide="ignore"):
        log_p, log_q = dict(enumerate(np.log(p))), {k: v for k, v in enumerate(np.log(q)) if v > -math.inf}
    # dp-accounting names the neighbours the other way round
    oracle = pld.from_two_probability_mass_functions(log_q, log_p, value_discretization_interval=1e-6, symmetric=True)
    for epsilon in (0.0, 0.2, 0.4, 1.0):
        either = max(DiscreteLoss.of_pair(p, q).delta(epsilon), DiscreteLoss.of_pair(q, p).delta(epsilon))
        assert either == pytest.approx(oracle.get_delta_for_epsilon(epsilon), abs=1e-5)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(law(5), law(5), st.floats(-2, 4))
def test_discrete_loss_is_the_best_event(p, q, epsilon):
    loss = DiscreteLoss.of_pair(p, q)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(p) - np.log(q)
    assert loss.delta(epsilon) == pytest.approx(best_event(p, q, epsilon), abs=1e-12)
    if np.nanmin(np.abs(ratio - epsilon)) > 1e-9:
        assert loss.tail(epsilon) == pytest.approx(p[(p > 0) & (ratio > epsilon)].sum(), abs=1e-12)
    assert loss.mean() == pytest.approx(stats.entropy(p, q), abs=1e-12)


@settings(derandomize=True, deadline=None, max_examples=200)
@given(law(5), law(5), st.floats(0.001, 0.9))
def test_discrete_epsilon_is_the_smallest(p, q, delta):
    epsilon = DiscreteLoss.of_pair(p, q).epsilon(delta)
    if math.isinf(epsilon):
        assert p[q == 0].sum() > delta - 1e-12
        return
    assert best_event(p, q, epsilon) <= delta + 1e-12
    if epsilon > 1e-6:
        assert best_event(p, q, epsilon - 1e-6) > delta


@settings(derandomize=True, deadline=None, max_examples=200)
@given(law(4), law(4), st.floats(0, 2), st.floats(0.01, 2))
def test_tail_and_delta_bound_each_other_in_one_direction_each(p, q, epsilon, more):
    loss = DiscreteLoss.of_pair(p, q)
    assert loss.delta(epsilon) <= loss.tail(epsilon) + 1e-12
    assert loss.tail(epsilon + more) <= loss.delta(epsilon) / -math.expm1(-more) + 1e-12


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_every_loss_has_a_hockey_stick(loss):
    """Falling and convex in exp(epsilon), between max(0, 1 - exp(epsilon)) and the tail; the tail falls."""
    epsilons = np.linspace(-4, 4, 401)
    tails = np.array([loss.tail(epsilon) for epsilon in epsilons])
    deltas = np.array([loss.delta(epsilon) for epsilon in epsilons])
    slopes = np.diff(deltas) / np.diff(np.exp(epsilons))
    assert np.all(deltas >= np.maximum(0, 1 - np.exp(epsilons)) - 1e-12)
    assert np.all(deltas <= tails + 1e-12)
    assert np.all(np.diff(tails) <= 1e-15)
    assert np.all(slopes <= 1e-12)
    assert np.all(np.diff(slopes) >= -1e-9)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("delta", [1e-12, 1e-6, 1e-3, 0.06, 0.3, 0.9])
def test_epsilon_inverts_delta(loss, delta):
    epsilon = loss.epsilon(delta)
    if math.isinf(epsilon):
        assert loss.delta(500.0) > delta
        return
    assert loss.delta(epsilon) <= delta * (1 + 1e-9) + 1e-15
    if epsilon > 1e-6:
        assert loss.delta(epsilon - 1e-6) > delta


def empirical_distance(loss: PrivacyLoss, sample: np.ndarray) -> float:
    """Largest gap between the sample's distribution function and 1 - tail on a grid (atoms are no trouble)."""
    grid = np.linspace(-6, 8, 1401)
    counted = np.searchsorted(np.sort(sample), grid, side="right") / len(sample)
    return float(np.max(np.abs(counted - [1 - loss.tail(float(epsilon)) for epsilon in grid])))


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_samples_follow_the_tail_and_a_scale_off_by_5_percent_is_seen(loss):
    n = 200_000
    sample = loss.sample(n, np.random.default_rng(5))
    bound = math.sqrt(math.log(2 / ALARM) / (2 * n))  # Dvoretzky, Kiefer, Wolfowitz and Massart
    assert empirical_distance(loss, sample) <= bound
    assert empirical_distance(loss, sample * 0.95) > bound
    assert empirical_distance(loss, sample * 1.05) > bound


@pytest.mark.parametrize("buckets", [2, 7])
def test_pure_mechanisms_have_no_tail_beyond_epsilon(buckets):
    """Half of a Laplace loss sits exactly at epsilon: 'above' must not become 'at or above'."""
    for loss in (LaplaceLoss(1.1), ExponentialLoss(1.1), DiscreteLoss.randomized_response(1.1, buckets)):
        assert loss.tail(1.1) == 0.0
        assert loss.delta(1.1) == 0.0
    assert LaplaceLoss(1.1).tail(math.nextafter(1.1, 0)) == pytest.approx(0.5)


def test_an_output_that_the_neighbour_never_gives_is_paid_in_full():
    loss = DiscreteLoss.of_pair([0.9, 0.1], [1.0, 0.0])
    assert loss.losses[1] == math.inf
    assert loss.mean() == math.inf
    for epsilon in (0.0, 1.0, 50.0, 700.0):
        assert loss.delta(epsilon) == pytest.approx(0.1)
    assert loss.epsilon(0.05) == math.inf
    assert loss.epsilon(0.2) == 0.0
    assert hockey_stick(np.array([math.inf, 0.0]), np.array([0.25, 0.75]), 3.0) == 0.25


def test_outcomes_that_only_the_neighbour_gives_have_no_loss():
    loss = DiscreteLoss.of_pair([1.0, 0.0], [0.9, 0.1])
    assert loss.losses == pytest.approx((math.log(1 / 0.9),))


def test_extreme_sizes_are_finite_or_exactly_zero():
    assert DiscreteLoss.randomized_response(740.0, 4).delta(1.0) == pytest.approx(1.0)
    assert LaplaceLoss(800.0).delta(1.0) == 1.0
    assert ExponentialLoss(800.0).mean() == pytest.approx(798.0)
    assert GaussianLoss(60.0).epsilon(1e-5) == pytest.approx(1800 + 60 * 4.26, rel=1e-2)
    assert GaussianLoss(1e-9).epsilon(1e-5) == 0.0
    assert DiscreteLoss.of_pair([1 - 5e-324, 5e-324], [5e-324, 1.0]).delta(1.0) == pytest.approx(1.0)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_a_parameter_that_is_no_positive_number_is_refused(bad):
    for family in (GaussianLoss, LaplaceLoss, ExponentialLoss, DiscreteLoss.randomized_response):
        with pytest.raises(UsageError, match="must be a finite number above 0"):
            family(bad)


@pytest.mark.parametrize("loss", LOSSES[::2], ids=str)
def test_arguments_that_are_no_numbers_are_refused(loss):
    for bad in (math.nan, math.inf, -math.inf):
        with pytest.raises(UsageError, match="epsilon is"):
            loss.tail(bad)
        with pytest.raises(UsageError, match="epsilon is"):
            loss.delta(bad)
    for bad in (0.0, 1.0, -0.1, 1.1, math.nan):
        with pytest.raises(UsageError, match="delta is"):
            loss.epsilon(bad)


@pytest.mark.parametrize(
    ("losses", "probabilities"),
    [
        ((), ()),
        ((0.0,), (0.5, 0.5)),
        ((0.0, 0.0), (0.6, 0.6)),
        ((0.0, 0.0), (1.5, -0.5)),
        ((0.0, 0.0), (math.nan, 1.0)),
        ((math.nan, 0.0), (0.5, 0.5)),
        ((-math.inf, 0.0), (0.5, 0.5)),
        ((-1.0, 1.0), (0.9, 0.1)),  # the signs are swapped: no pair has these losses
    ],
)
def test_losses_of_no_pair_are_refused(losses, probabilities):
    with pytest.raises(UsageError) as caught:
        DiscreteLoss(losses, probabilities)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("p", "q"), [([], []), ([1.0], [0.5, 0.5]), ([0.5, 0.6], [0.5, 0.5]), ([0.5, 0.5], [-0.5, 1.5]), ([[1.0]], [[1.0]])]
)
def test_pairs_that_are_no_laws_are_refused(p, q):
    with pytest.raises(UsageError):
        DiscreteLoss.of_pair(p, q)


def test_one_bucket_is_no_randomized_response():
    for buckets in (1, 0, -3, 2.5, math.nan):
        with pytest.raises(UsageError, match="buckets"):
            DiscreteLoss.randomized_response(1.0, buckets)


@pytest.mark.parametrize(
    ("loss", "p", "q"),
    [
        (GaussianLoss(0.7), stats.norm(0), stats.norm(0.7)),
        (LaplaceLoss(1.3), stats.laplace(0), stats.laplace(1.3)),
    ],
)
def test_the_loss_of_an_output_is_the_log_of_the_two_densities(loss, p, q):
    outputs = np.linspace(-5, 5, 41)
    np.testing.assert_allclose(loss.at(outputs), p.logpdf(outputs) - q.logpdf(outputs), atol=1e-12)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_two_sided_tail_counts_both_sides(loss):
    """Sampled; the one-sided tail alone is known wrong, and so is counting what is exactly epsilon away."""
    drawn = loss.sample(200_000, np.random.default_rng(5))
    for epsilon in (0.05, 0.3, 1.0, 2.5):
        share = float((np.abs(drawn) > epsilon).mean())
        assert abs(loss.two_sided_tail(epsilon) - share) < 5 * math.sqrt(0.25 / 200_000)
        assert loss.two_sided_tail(epsilon) >= loss.tail(epsilon) - 1e-15
    assert loss.two_sided_tail(-1.0) == 1.0


def test_a_pure_guarantee_has_no_two_sided_tail():
    """Half of the mass of Laplace's loss is at epsilon, and some at -epsilon: neither is beyond it."""
    assert LaplaceLoss(1.0).two_sided_tail(1.0) == 0.0
    assert DiscreteLoss.randomized_response(1.2).two_sided_tail(1.2) < 1e-15
    by_hand = stats.norm.sf((1 - 0.5) / 1) + stats.norm.cdf((-1 - 0.5) / 1)
    assert GaussianLoss(1.0).two_sided_tail(1.0) == pytest.approx(by_hand, rel=1e-12)
