"""The histogram's law against the output distribution of the mechanism itself, counted outcome by outcome.

The oracle knows nothing of the formulas. It runs `tacit.vocabulary.select.release` on one word for every value of the noise
and so gets the law of what happens to that word; words are independent, so a corpus has the product of the laws. Two
neighbouring corpora give two such products, and their hockey-stick divergence is a sum over outcomes. Outcomes with the same
likelihood ratio are merged, which leaves the divergence as it is.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import mpmath
import numpy as np
import pytest
from scipy import integrate, signal, special

from tacit.errors import RefusedError, UsageError
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.composition import Account
from tacit.privacy.accounting.histogram import (
    Case,
    cases,
    gaussian_delta,
    histogram_delta,
    histogram_epsilon,
    hoory_claim,
    log_hidden_probability,
)
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.events import Gaussian, PoissonGaussian, Relation, Spend, ThresholdedHistogram
from tacit.vocabulary.select import release

from ..outcomes import NOTHING, Pair, product

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0, 4.0)


# the oracle ----------------------------------------------------------------------------------------------------------


@functools.cache
def word_law(count: int, noise_stddev: float, threshold: int) -> dict[int | None, float]:
    """What is released of a word with this count: a noisy count, or None for hidden. A word that no unit has stays hidden."""
    if count == 0:
        return {None: 1.0}
    values = np.arange(-math.ceil(9 * noise_stddev), math.ceil(9 * noise_stddev) + 1)
    masses = np.exp(-(values**2) / (2 * noise_stddev**2))
    masses /= masses.sum()
    law: dict[int | None, float] = {}
    for value, mass in zip(values, masses, strict=True):
        released = release({"word": count}, np.array([value]), threshold).get("word")
        law[released] = law.get(released, 0.0) + float(mass)
    return law


@functools.cache
def word_pair(count: int, other_count: int, noise_stddev: float, threshold: int) -> Pair:
    one, other = word_law(count, noise_stddev, threshold), word_law(other_count, noise_stddev, threshold)
    outcomes = sorted(set(one) | set(other), key=lambda outcome: (outcome is None, outcome or 0))
    pair = Pair(*(np.array([law.get(outcome, 0.0) for outcome in outcomes]) for law in (one, other)))
    return pair.times(NOTHING)


def far_above(event: ThresholdedHistogram) -> int:
    """A count that no noise brings down to the threshold: nothing about it is censored."""
    return int(event.threshold) + math.ceil(20 * event.noise_stddev)


def neighbours(
    event: ThresholdedHistogram, relation: Relation, shared: Sequence[int]
) -> Iterator[tuple[tuple[int, ...], Pair]]:
    """Every pair of neighbours for a unit of at most ``max_words`` words, the words that others share having these counts.

    Yields the numbers of (shared, new) words of the unit that is there and of the unit that replaces it.
    """
    n, s, tau = event.max_words, event.noise_stddev, int(event.threshold)
    second = range(n + 1) if relation == "replace" else (0,)
    for j1, j2 in itertools.product(range(n + 1), second):
        for m1, m2 in itertools.product(range(n + 1 - j1), range(n + 1 - j2) if relation == "replace" else (0,)):
            for counts in itertools.combinations_with_replacement(shared, j1 + j2):
                words = [word_pair(c + 1, c, s, tau) for c in counts[:j1]]
                words += [word_pair(c, c + 1, s, tau) for c in counts[j1:]]
                words += [word_pair(1, 0, s, tau)] * m1 + [word_pair(0, 1, s, tau)] * m2
                pair = product(words)
                yield (j1, m1, j2, m2), pair
                if relation == "add-or-remove":
                    yield (j1, m1, j2, m2), Pair(pair.q, pair.p)


def brute_delta(event: ThresholdedHistogram, relation: Relation, shared: Sequence[int]) -> np.ndarray:
    """The largest divergence over all neighbours, at each of ``EPSILONS``."""
    return np.max([[pair.delta(e) for e in EPSILONS] for _, pair in neighbours(event, relation, shared)], axis=0)


def law_delta(rows: Sequence[Case], noise_stddev: float, e: float) -> float:
    """The divergence of a list of cases with real-valued noise."""
    return max(
        row.infinite_mass
        + (1 - row.infinite_mass) * float(gaussian_delta(e + row.shift, math.sqrt(row.words) / noise_stddev))
        for row in rows
    )


TINY = [ThresholdedHistogram(s, tau, n) for s, n, tau in itertools.product((3.0,), (1, 2, 3), (2, 5, 9, 16))] + [
    ThresholdedHistogram(4.5, 7, 2),
    ThresholdedHistogram(3.0, 1, 2),
]
tiny = pytest.mark.parametrize("event", TINY, ids=lambda e: f"s={e.noise_stddev:g} N={e.max_words} tau={e.threshold:g}")


@tiny
def test_the_law_is_the_brute_force_maximum_when_a_unit_is_added_or_removed(event: ThresholdedHistogram) -> None:
    """Over all numbers of shared and new words, and shared counts below, at and above the threshold."""
    tau = int(event.threshold)
    found = brute_delta(event, "add-or-remove", (1, max(1, tau - 1), tau + 2, far_above(event)))
    upper, lower = Account((Spend(event),)), Account((Spend(event),), pessimistic=False)
    for e, brute in zip(EPSILONS, found, strict=True):
        assert upper.delta(e) >= brute - 1e-12
        assert upper.delta(e) == pytest.approx(brute, rel=1e-3, abs=1e-9)
        assert lower.delta(e) <= brute + 1e-12


@pytest.mark.parametrize(("s", "n", "tau"), [(5.0, 12, 12), (3.0, 12, 7), (3.0, 20, 6), (6.0, 30, 16)])
def test_the_law_is_the_brute_force_for_every_number_of_new_words(s: float, n: int, tau: int) -> None:
    """Larger units, where the worst neighbour is not always the one with no new word or with new words only."""
    event = ThresholdedHistogram(s, tau, n)
    shared, new = word_pair(far_above(event) + 1, far_above(event), s, tau), word_pair(1, 0, s, tau)
    rows = cases(event, "add-or-remove")
    account = Account((Spend(event),))
    worst = np.zeros(len(EPSILONS))
    for m in range(n + 1):
        pair = product([shared] * (n - m) + [new] * m)
        removal = next(row for row in rows if row.words == n - m and row.shift >= 0)
        addition = next(row for row in rows if row.words == n - m and row.shift <= 0 and row.infinite_mass == 0)
        for row, brute in ((removal, pair), (addition, Pair(pair.q, pair.p))):
            deltas = np.array([brute.delta(e) for e in EPSILONS])
            worst = np.maximum(worst, deltas)
            mine = [account._case_curve(row)(e) for e in EPSILONS]
            assert mine == pytest.approx(deltas, rel=1e-3, abs=1e-9)
            assert np.all(np.array(mine) >= deltas - 1e-12)
    assert [account.delta(e) for e in EPSILONS] == pytest.approx(worst, rel=1e-3)


def test_a_law_without_the_shift_is_caught() -> None:
    """1 - p^m + p^m H(e) instead of H(e - m ln p) is 2.6 percent off here, 26 times what the tests above allow."""
    event = ThresholdedHistogram(5.0, 12, 12)
    rows = cases(event, "add-or-remove")
    right = law_delta(rows, 5.0, 0.1)
    wrong = law_delta([Case(row.words, row.infinite_mass, 0.0) for row in rows], 5.0, 0.1)
    assert Account((Spend(event),)).delta(0.1) == pytest.approx(right, rel=1e-3)
    assert wrong > 1.02 * right


@pytest.mark.parametrize(
    "event",
    [event for event in TINY if event.max_words <= 2],
    ids=lambda e: f"s={e.noise_stddev:g} N={e.max_words} tau={e.threshold:g}",
)
def test_replacement_is_bounded_within_the_logarithm_of_the_hidden_mass(event: ThresholdedHistogram) -> None:
    """Brute force over both units' shared and new words; our bound may lie N |ln p| of epsilon to the right, no more."""
    slack = -event.max_words * log_hidden_probability(event)
    account = Account((Spend(event),), "replace")
    counts = (max(1, int(event.threshold) - 1), far_above(event))
    pairs = [pair for _, pair in neighbours(event, "replace", counts)]
    for e in EPSILONS:
        assert account.delta(e) >= max(pair.delta(e) for pair in pairs) - 1e-12
        assert account.delta(e) <= max(pair.delta(e - slack) for pair in pairs) * (1 + 1e-3) + 1e-9


def test_each_replacement_is_below_the_case_of_its_new_words() -> None:
    """Case by case, at a threshold where p is far from 1: the largest case alone would hide a missing shift."""
    event = ThresholdedHistogram(3.0, 2, 2)
    account = Account((Spend(event),), "replace")
    rows = cases(event, "replace")
    without_shift = [Case(row.words, row.infinite_mass, 0.0) for row in rows]
    broken = 0
    for (_, m1, _, _), pair in neighbours(event, "replace", (far_above(event),)):
        for e in EPSILONS:
            assert account._case_curve(rows[m1])(e) >= pair.delta(e) - 1e-12
            broken += account._case_curve(without_shift[m1])(e) < pair.delta(e) - 1e-6
    assert broken > 0


def replacement_law(event: ThresholdedHistogram, words_at: Callable[[int], int]) -> list[Case]:
    log_p = log_hidden_probability(event)
    n = event.max_words
    return [Case(words_at(m), -math.expm1(m * log_p), (n - m) * log_p) for m in range(n + 1)]


def test_wrong_sensitivities_under_replacement_are_caught() -> None:
    """An indicator histogram has sensitivity sqrt(2N): sqrt(N) is too small, and 2 sqrt(N) is more than is needed."""
    event = ThresholdedHistogram(3.0, 16, 2)
    n, slack = event.max_words, -event.max_words * log_hidden_probability(event)
    pairs = [pair for _, pair in neighbours(event, "replace", (far_above(event),))]
    account = Account((Spend(event),))

    def with_words(words_at: Callable[[int], int], e: float) -> float:
        return max(account._case_curve(case)(e) for case in replacement_law(event, words_at))

    for e in (0.1, 0.5, 1.0):
        brute, allowed = max(pair.delta(e) for pair in pairs), max(pair.delta(e - slack) for pair in pairs)
        assert brute <= with_words(lambda m: 2 * n - m, e) <= allowed * 1.001
        assert with_words(lambda m: n - m, e) < 0.9 * brute
        assert with_words(lambda m: 4 * n - m, e) > 1.1 * allowed


def test_add_or_remove_accounting_of_a_replacement_is_caught() -> None:
    event = ThresholdedHistogram(3.0, 16, 2)
    pairs = [pair for _, pair in neighbours(event, "replace", (far_above(event),))]
    assert Account((Spend(event),)).delta(0.5) < 0.9 * max(pair.delta(0.5) for pair in pairs)


def test_the_papers_threshold_is_caught_by_brute_force() -> None:
    """Corollary 1 of Hoory et al. with its erf: it promises delta 1e-3 and has more than ten times that at any epsilon."""
    claim = hoory_claim(20.0, 2, 1e-3)
    event = ThresholdedHistogram(20.0, math.ceil(claim.threshold), 2)
    brute = product([word_pair(1, 0, 20.0, int(event.threshold))] * 2).delta(50.0)
    assert brute > 10 * claim.claimed_delta
    assert histogram_delta(event, math.inf) == pytest.approx(brute, rel=1e-9)
    assert Account((Spend(event),)).delta(50.0) == pytest.approx(brute, rel=1e-9)
    right = ThresholdedHistogram(20.0, math.ceil(claim.correct_threshold) + 1, 2)
    assert product([word_pair(1, 0, 20.0, int(right.threshold))] * 2).delta(50.0) <= claim.claimed_delta


@pytest.mark.parametrize("threshold", [2, 5, 20])
@pytest.mark.parametrize("noise", [3.0, 7.25])
def test_the_hidden_probability_is_that_of_the_release(noise: float, threshold: int) -> None:
    law = word_law(1, noise, threshold)
    event = ThresholdedHistogram(noise, threshold, 5)
    assert math.exp(log_hidden_probability(event)) == pytest.approx(law[None], rel=1e-12)
    shown = sum(mass for outcome, mass in law.items() if outcome is not None)
    assert -math.expm1(log_hidden_probability(event)) == pytest.approx(shown, rel=1e-9)
    off_by_one = ThresholdedHistogram(noise, threshold + 1, 5)
    assert -math.expm1(log_hidden_probability(off_by_one)) < 0.95 * shown


def test_a_far_tail_keeps_its_digits() -> None:
    """p rounds to 1 in floats here; ln p must not."""
    event = ThresholdedHistogram(10.0, 121, 1)
    with mpmath.workdps(60):
        weights = [mpmath.exp(-(mpmath.mpf(k) ** 2) / 200) for k in range(600)]
        shown = mpmath.fsum(weights[120:]) / (2 * mpmath.fsum(weights) - 1)
        assert -log_hidden_probability(event) == pytest.approx(float(shown), rel=1e-10)
    real = ThresholdedHistogram(10.0, 121.0, 1, "gaussian")
    assert -log_hidden_probability(real) == pytest.approx(float(special.ndtr(-12.0)), rel=1e-10)
    assert 0 < histogram_delta(real, math.inf) < 1e-30


# real-valued noise ---------------------------------------------------------------------------------------------------


def real_word_pair(count: float, other_count: float, s: float, tau: float, cell: float) -> Pair:
    """One word with real noise: hidden, or released in one of many small cells. Cells only lose information."""
    edges = np.concatenate([np.arange(tau, max(count, other_count, tau) + 9 * s, cell * s), [np.inf]])

    def law(c: float) -> np.ndarray:
        if c == 0:
            return np.concatenate([[1.0], np.zeros(len(edges) - 1)])
        return np.concatenate([[special.ndtr((tau - c) / s)], np.diff(special.ndtr((edges - c) / s))])

    return Pair(law(count), law(other_count))


@pytest.mark.parametrize(("s", "n", "tau"), [(0.5, 2, 1.4), (1.0, 2, 2.0), (1.0, 1, 3.5), (2.0, 2, 7.0)])
def test_the_closed_form_is_the_brute_force_with_real_noise(s: float, n: int, tau: float) -> None:
    event = ThresholdedHistogram(s, tau, n, "gaussian")
    high = tau + 20 * s
    worst = np.zeros(len(EPSILONS))
    for j in range(n + 1):
        for m in range(n + 1 - j):
            words = [real_word_pair(high + 1, high, s, tau, 0.01)] * j + [real_word_pair(1, 0, s, tau, 0.01)] * m
            p = functools.reduce(
                lambda one, other: np.outer(one, other).ravel(), [word.p for word in words], np.ones(1)
            )
            q = functools.reduce(
                lambda one, other: np.outer(one, other).ravel(), [word.q for word in words], np.ones(1)
            )
            for pair in (Pair(p, q), Pair(q, p)):
                worst = np.maximum(worst, [pair.delta(e) for e in EPSILONS])
    for e, brute in zip(EPSILONS, worst, strict=True):
        assert histogram_delta(event, e) >= brute - 1e-12
        assert histogram_delta(event, e) == pytest.approx(brute, rel=2e-3, abs=1e-9)
        assert Account((Spend(event),)).delta(e) == pytest.approx(histogram_delta(event, e), rel=1e-12)


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_epsilon_is_the_inverse_of_delta(relation: Relation) -> None:
    event = ThresholdedHistogram(30.0, 185.0, 64, "gaussian")
    for delta in (1e-6, 1e-4, 0.01):
        found = histogram_epsilon(event, delta, relation)
        assert histogram_delta(event, found, relation) == pytest.approx(delta, rel=1e-9)
        assert epsilon([Spend(event)], delta, relation) == pytest.approx(found, abs=1e-6)
    assert histogram_epsilon(event, histogram_delta(event, math.inf) / 2, relation) == math.inf
    assert histogram_epsilon(event, 0.9, relation) == 0.0


@pytest.mark.parametrize("mu", [0.0, 0.1, 1.0, 4.0])
def test_the_gaussian_curve_is_its_integral(mu: float) -> None:
    for e in (-30.0, -1.0, 0.0, 0.5, 3.0):
        found = float(gaussian_delta(e, mu))
        if mu == 0:
            assert found == pytest.approx(max(0.0, 1 - math.exp(e)))
            continue
        cut = e / mu + mu / 2  # where the densities' ratio is exp(e)

        def excess(x: float, e: float = e) -> float:
            return (math.exp(-((x - mu) ** 2) / 2) - math.exp(e - x**2 / 2)) / math.sqrt(2 * math.pi)

        # above the cut, and within the 12 deviations around 0 and mu that hold all but 1e-32 of the mass
        exact = integrate.quad(excess, max(cut, -12.0), mu + 12.0, epsabs=1e-13, limit=200)[0] if cut < mu + 12 else 0.0
        assert found == pytest.approx(exact, rel=1e-7, abs=1e-12)
    assert float(gaussian_delta(1e4, 1.0)) == 0.0
    assert float(gaussian_delta(-1e4, 1.0)) == 1.0


# sums of discrete Gaussians ------------------------------------------------------------------------------------------


def sum_deviation(j: int, s: float) -> float:
    """Largest relative deviation, of the law of j discrete Gaussians' sum from one with s sqrt(j), within 6 deviations."""
    with mpmath.workdps(70):
        reach = math.ceil(20 * s)

        def weight(x: int, scale_squared: mpmath.mpf) -> mpmath.mpf:
            return mpmath.exp(-(mpmath.mpf(x) ** 2) / (2 * scale_squared))

        square = mpmath.mpf(s) ** 2
        single = [weight(x, square) for x in range(-reach, reach + 1)]
        total = mpmath.fsum(single)
        single = [value / total for value in single]
        law, half = single, reach
        for _ in range(j - 1):
            wanted = min(half + reach, math.ceil(6 * s * math.sqrt(j)) + reach)
            law = [
                mpmath.fsum(
                    single[y + reach] * law[x - y + half]
                    for y in range(max(-reach, x - half), min(reach, x + half) + 1)
                )
                for x in range(-wanted, wanted + 1)
            ]
            half = wanted
        span = 12 * math.ceil(math.sqrt(j)) * reach
        norm = mpmath.fsum(weight(x, j * square) for x in range(-span, span + 1))
        return float(
            max(abs(law[x + half] / (weight(x, j * square) / norm) - 1) for x in range(math.ceil(6 * s * math.sqrt(j))))
        )


@pytest.mark.parametrize("j", [2, 3])
def test_a_sum_of_discrete_gaussians_is_one_discrete_gaussian(j: int) -> None:
    """By exact convolution in 70 digits: at s = 3 to 1e-35 as documented; at s = 0.5 not even to one percent."""
    assert sum_deviation(j, 3.0) < 1e-35
    assert sum_deviation(j, 0.5) > 1e-2
    with pytest.raises(RefusedError, match="discrete-noise-too-small"):
        ThresholdedHistogram(2.9, 10, j)


# together with other releases ----------------------------------------------------------------------------------------


def joint_delta_of_one_step(
    event: ThresholdedHistogram, training: PoissonGaussian, e: float, relation: Relation = "add-or-remove"
) -> float:
    """E over one training step's loss of the histogram's closed form, by quadrature, for the worst number of new words."""
    q, s = training.sampling_probability, training.noise_multiplier
    x = np.linspace(-9 * s, 1 + 9 * s, 200_001)
    step = x[1] - x[0]

    def density(at: float) -> np.ndarray:
        return np.exp(-((x - at) ** 2) / (2 * s**2)) / (s * math.sqrt(2 * math.pi))

    with_unit, without = (1 - q) * density(0) + q * density(1), density(0)
    loss = np.log(with_unit / without)
    log_p, n = log_hidden_probability(event), event.max_words
    worst = 0.0
    for m in range(n + 1):
        mu = math.sqrt(n - m) / event.noise_stddev
        hidden = math.exp(m * log_p)
        removed = (with_unit * gaussian_delta(e - m * log_p - loss, mu)).sum() * step
        added = (without * gaussian_delta(e + m * log_p + loss, mu)).sum() * step
        worst = max(worst, 1 - hidden + hidden * float(removed), float(added))
    return worst


@pytest.mark.parametrize(
    "event",
    [
        ThresholdedHistogram(6.0, 30.0, 8, "gaussian"),
        ThresholdedHistogram(6.0, 14.0, 8, "gaussian"),
        ThresholdedHistogram(6.0, 30, 8),
    ],
    ids=["real", "real, low threshold", "integer"],
)
@pytest.mark.parametrize("training", [PoissonGaussian(0.1, 1.2), PoissonGaussian(0.6, 2.0)], ids=str)
def test_histogram_and_one_step_are_the_expectation(event: ThresholdedHistogram, training: PoissonGaussian) -> None:
    account = Account((Spend(event), Spend(training)))
    for e in (0.3, 1.0):
        exact = joint_delta_of_one_step(event, training, e)
        assert account.delta(e) >= exact - 1e-9
        assert account.delta(e) == pytest.approx(exact, rel=1e-3, abs=1e-8)
        assert exact > max(Account((Spend(event),)).delta(e), Account((Spend(training),)).delta(e))


def training_losses(training: PoissonGaussian, steps: int, grid: float, up: bool) -> tuple[np.ndarray, np.ndarray]:
    """Own composition: one step's loss (of removal) rounded up or down to a grid, convolved ``steps`` times by FFT."""
    q, s = training.sampling_probability, training.noise_multiplier
    x = np.linspace(-11 * s, 1 + 11 * s, 400_001)
    edges = np.concatenate([[-np.inf], x, [np.inf]])
    mass = (1 - q) * np.diff(special.ndtr(edges / s)) + q * np.diff(special.ndtr((edges - 1) / s))
    bound = np.concatenate([x, [x[-1] + 30 * s]]) if up else np.concatenate([[x[0] - 30 * s], x])
    loss = np.log1p(q * np.expm1((2 * bound - 1) / (2 * s**2)))
    index = np.ceil(loss / grid).astype(int) if up else np.floor(loss / grid).astype(int)
    low = int(index.min())
    pmf = np.bincount(index - low, weights=mass)
    keep = np.flatnonzero(pmf > 1e-18)
    low, pmf = low + int(keep[0]), pmf[keep[0] : keep[-1] + 1]
    total, start = np.ones(1), 0
    for _ in range(steps):
        total, start = signal.fftconvolve(total, pmf), start + low
    return (start + np.arange(len(total))) * grid, np.maximum(total, 0.0)


@pytest.mark.slow
def test_histogram_and_many_steps_lie_between_our_own_bounds() -> None:
    """Removal bounds the maximum here; losses rounded up and down by this file's own Fourier composition enclose it."""
    event, training, steps = ThresholdedHistogram(8.0, 40.0, 6, "gaussian"), PoissonGaussian(0.05, 1.5), 12
    log_p, n = log_hidden_probability(event), event.max_words
    account = Account((Spend(event), Spend(training, steps)))
    for e in (0.2, 1.0):
        bounds = []
        for up in (False, True):
            losses, masses = training_losses(training, steps, 5e-5, up)
            values = [
                -math.expm1(m * log_p)
                + math.exp(m * log_p)
                * float((masses * gaussian_delta(e - m * log_p - losses, math.sqrt(n - m) / event.noise_stddev)).sum())
                for m in range(n + 1)
            ]
            bounds.append(max(values))
        assert bounds[1] - bounds[0] < 0.01 * bounds[0]
        assert bounds[0] <= account.delta(e) <= bounds[1] * 1.0005


def test_two_histograms_are_bounded_by_brute_force_of_both() -> None:
    """The second enters by its worst parts: an upper bound, close when its threshold hides well."""
    first, second = ThresholdedHistogram(3.0, 9, 2), ThresholdedHistogram(4.0, 22, 1)
    account = Account((Spend(first), Spend(second)))
    high = (far_above(first),)
    both = [
        one.times(other)
        for (_, one), (_, other) in itertools.product(
            itertools.islice(neighbours(first, "add-or-remove", high), 0, None, 2),
            itertools.islice(neighbours(second, "add-or-remove", high), 0, None, 2),
        )
    ]
    both += [Pair(pair.q, pair.p) for pair in both]
    for e in EPSILONS:
        brute = max(pair.delta(e) for pair in both)
        assert brute - 1e-12 <= account.delta(e) <= brute * 1.01 + 1e-6
    assert Account((Spend(first, 2),)).delta(0.5) > Account((Spend(first),)).delta(0.5)
    renyi = rdp_epsilon([Spend(first), Spend(second)], 0.2)
    assert renyi is not None
    assert renyi >= account.epsilon(0.2)


# branch and bound ----------------------------------------------------------------------------------------------------

ACCOUNTS = {
    "worst at all shared": (ThresholdedHistogram(20.0, 140, 24), ()),
    "worst at all new": (ThresholdedHistogram(9.0, 24, 24), ()),
    "low threshold": (ThresholdedHistogram(5.0, 12, 12), ()),
    "very low threshold": (ThresholdedHistogram(3.0, 4, 30), ()),
    "real noise": (ThresholdedHistogram(0.7, 2.2, 6, "gaussian"), ()),
    "with training": (ThresholdedHistogram(6.0, 22.0, 12, "gaussian"), (Spend(PoissonGaussian(0.1, 1.5), 10),)),
    "with a gaussian": (ThresholdedHistogram(6.0, 14.0, 12, "gaussian"), (Spend(Gaussian(1.0)),)),
}


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
@pytest.mark.parametrize("name", ACCOUNTS)
def test_branch_and_bound_finds_the_plain_maximum(name: str, relation: Relation) -> None:
    event, others = ACCOUNTS[name]
    searched = Account((Spend(event), *others), relation, 1e-3)
    plain = Account((Spend(event), *others), relation, 1e-3)
    for e in (0.0, 0.2, 0.6, 1.0, 2.0, 3.0):
        every = [plain._case_curve(case)(e) for case in cases(event, relation)]
        value, case = searched._worst(searched._neighbours, e)
        assert value == pytest.approx(max(every), rel=1e-9)
        assert value == searched._case_curve(case)(e)
        assert searched.delta(e) == value


@pytest.mark.parametrize("training", [Spend(PoissonGaussian(0.2, 4.0), 10), Spend(PoissonGaussian(0.002, 2.0), 5000)])
def test_branch_and_bound_on_two_grids_finds_the_plain_maximum(
    training: Spend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the certifying grid the bounds come from a coarser one, which over many steps is far too high to help."""
    asked: dict[int, set[float]] = {}
    curve = Account._curve

    def noted(account: Account, words: float) -> Callable[[float], float]:
        asked.setdefault(id(account), set()).add(words)
        return curve(account, words)

    monkeypatch.setattr(Account, "_curve", noted)
    spends = (Spend(ThresholdedHistogram(20.0, 100.0, 10, "gaussian")), training)
    searched, plain = Account(spends), Account(spends)
    for e in (0.3, 0.8):
        every = [plain._case_curve(case)(e) for case in cases(plain._choices[0], "add-or-remove")]
        assert searched.delta(e) == pytest.approx(max(every), rel=1e-9)
        for case in searched._neighbours:
            assert (
                searched._coarser._case_curve(case)(e) >= plain._case_curve(case)(e) * (1 - 1e-8) - 1e-14
            )  # rounding of Fourier transforms
    assert len(asked[id(searched)]) < len(asked[id(plain)])
    optimistic = Account(spends, pessimistic=False)
    assert optimistic.delta(0.8) <= searched.delta(0.8)


def test_the_last_curves_on_a_fine_grid_are_kept_and_others_are_made_again_alike() -> None:
    spends = (Spend(ThresholdedHistogram(20.0, 100.0, 10, "gaussian")), Spend(PoissonGaussian(0.1, 1.5), 4))
    fine, coarse = Account(spends), Account(spends, grid=1e-3)
    first = [fine._curve(words)(0.5) for words in range(9)]
    assert list(fine._curves) == [3, 4, 5, 6, 7, 8]
    fine._curve(8)
    assert len(fine._curves) == 6
    fine._curve(3)
    assert fine._curve(0)(0.5) == first[0]
    assert list(fine._curves) == [5, 6, 7, 8, 3, 0]  # the ones that were asked for longest ago are gone
    assert [fine._curve(words)(0.5) for words in range(9)] == first
    for words in range(9):
        coarse._curve(words)
    assert len(coarse._curves) == 9  # a tenth of the size


def test_the_worst_neighbour_is_not_always_the_one_with_nothing_new() -> None:
    """So an account of all-shared neighbours alone, the usual one, is wrong, and the test above catches it."""
    event, _ = ACCOUNTS["worst at all new"]
    account = Account((Spend(event),))
    all_shared = account._case_curve(cases(event, "add-or-remove")[0])(1.0)
    assert account.delta(1.0) > 1.2 * all_shared


def test_branch_and_bound_finds_a_maximum_inside() -> None:
    """The histogram's own maximum lies at an end; the search does not rely on that."""
    account = Account((Spend(ThresholdedHistogram(3.0, 9, 24)),), grid=1e-3)
    made = [Case(24 - m, 0.75 * -math.expm1(-m / 2), 0.0) for m in range(25)]
    every = [account._case_curve(case)(1.0) for case in made]
    value, case = account._worst(made, 1.0)
    assert value == max(every)
    assert case == made[int(np.argmax(every))]
    assert 0 < np.argmax(every) < 24
    assert value > 1.02 * max(every[0], every[-1])


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
def test_epsilon_of_an_account_meets_delta_for_every_neighbour(relation: Relation) -> None:
    for event, others in ACCOUNTS.values():
        account = Account((Spend(event), *others), relation, 1e-3)
        smallest = max(case.infinite_mass for case in cases(event, relation))
        for delta in (smallest + 0.05 * (1 - smallest), (1 + smallest) / 2):
            found = account.epsilon(delta)
            assert math.isfinite(found)
            assert max(account._case_curve(case)(found) for case in cases(event, relation)) <= delta * (1 + 1e-9)
            assert found == 0 or account.delta(found - 1e-3) > delta
        assert account.epsilon(smallest / 2) == math.inf


def test_an_unknown_relation_has_no_neighbours() -> None:
    with pytest.raises(UsageError, match="relation is"):
        cases(ThresholdedHistogram(3.0, 9, 2), "swap")
