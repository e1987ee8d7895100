"""The law of a weighted choice of words against the output distribution of the mechanism itself, counted outcome by outcome.

As in test_histogram: `release` runs on one word for every value of the noise, words are independent, and the hockey-stick of two
neighbouring corpora is a sum over outcomes. Of several rounds, the outcomes of the first decide which words are in the second.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pytest
from scipy import special

from tacit.errors import RefusedError, UsageError
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.calibrate_words import RESOLUTION, histogram_and_counts, weighted_rounds
from tacit.privacy.accounting.composition import Account
from tacit.privacy.accounting.histogram import discrete_gaussian_delta, gaussian_delta
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.accounting.weighted import (
    effective_stddev,
    frontier,
    integer_noise,
    largest_leak,
    unit_weight,
    weighted_delta,
    worst_case_pld,
)
from tacit.privacy.events import PoissonGaussian, Relation, Spend, WeightedHistogram, WordCounts
from tacit.vocabulary.select import release

from ..outcomes import NOTHING, Pair, either, product

EPSILONS = (0.0, 0.1, 0.5, 1.0, 2.0)


# the oracle ----------------------------------------------------------------------------------------------------------


@functools.cache
def noise_law(noise_stddev: float) -> tuple[np.ndarray, np.ndarray]:
    values = np.arange(-math.ceil(9 * noise_stddev), math.ceil(9 * noise_stddev) + 1)
    masses = np.exp(-(values**2) / (2 * noise_stddev**2))
    return values, masses / masses.sum()


@functools.cache
def word_law(weight: int, noise_stddev: float, threshold: int) -> dict[int | None, float]:
    """What is released of a word with this weight: a noisy one, or None for hidden. A word that no unit has stays hidden."""
    if weight == 0:
        return {None: 1.0}
    law: dict[int | None, float] = {}
    for value, mass in zip(*noise_law(noise_stddev), strict=True):
        released = release({"word": weight}, np.array([value]), threshold).get("word")
        law[released] = law.get(released, 0.0) + float(mass)
    return law


@functools.cache
def word_pair(weight: int, other: int, event: WeightedHistogram, shown: bool | None = None) -> Pair:
    """A word with these weights in the two corpora; of the outcomes in which it is shown, or hidden, alone."""
    one, two = (word_law(each, event.noise_stddev, event.threshold) for each in (weight, other))
    outcomes = [outcome for outcome in {**one, **two} if shown is None or (outcome is not None) == shown]
    pair = Pair(*(np.array([law.get(outcome, 0.0) for outcome in outcomes]) for law in (one, two)))
    return pair.times(NOTHING) if outcomes else Pair(np.zeros(0), np.zeros(0))


def far_above(event: WeightedHistogram) -> int:
    """A weight that no noise brings down to the threshold: nothing about it is censored."""
    return event.threshold + math.ceil(20 * event.noise_stddev)


def neighbours(event: WeightedHistogram, shared: Sequence[int]) -> Iterator[tuple[int, int, Pair]]:
    """(words, new words, outcomes with and without the unit) for every unit; the others give shared words these weights."""
    for words in range(1, event.max_words + 1):
        weight = unit_weight(event.resolution, words)
        for new in range(words + 1):
            for others in itertools.combinations_with_replacement(shared, words - new):
                pairs = [word_pair(other + weight, other, event) for other in others]
                yield words, new, product([*pairs, *[word_pair(weight, 0, event)] * new])


def brute_delta(event: WeightedHistogram, shared: Sequence[int]) -> np.ndarray:
    both = [Pair(*order) for _, _, pair in neighbours(event, shared) for order in ((pair.p, pair.q), (pair.q, pair.p))]
    return np.max([[pair.delta(e) for e in EPSILONS] for pair in both], axis=0)


def event(noise: float, threshold: int, words: int, resolution: int = 40) -> WeightedHistogram:
    return WeightedHistogram(noise, threshold, words, resolution)


SMALL = [event(40.0, 70, 1), event(40.0, 120, 2), event(20.0, 40, 3, 20), event(25.0, 90, 3), event(30.0, 100, 3, 20)]
small = pytest.mark.parametrize("one", SMALL, ids=lambda e: f"s={e.noise_stddev:g} K={e.max_words} t={e.threshold}")


# one round -----------------------------------------------------------------------------------------------------------


@small
def test_the_law_is_the_brute_force_maximum_when_a_unit_is_added_or_removed(one: WeightedHistogram) -> None:
    """Never below; above by what the variance of the rounding costs, 4 of s^2: at most 2 percent here."""
    found = brute_delta(one, (1, one.threshold - 20, far_above(one)))
    for e, brute in zip(EPSILONS, found, strict=True):
        claim = Account((Spend(one),)).delta(e)
        assert claim >= brute - 1e-12
        assert claim <= brute * 1.02 + 1e-9
        assert weighted_delta(one, e) == pytest.approx(claim, rel=1e-6)


@pytest.mark.parametrize(
    "one", [one for one in SMALL if one.threshold >= 2 * one.noise_stddev + one.resolution], ids=str
)
def test_the_optimistic_estimate_is_not_above_the_brute_force(one: WeightedHistogram) -> None:
    """Where the tail is a tail: below, its bound is not tight."""
    found = brute_delta(one, (far_above(one),))
    lower = Account((Spend(one),), pessimistic=False)
    for e, brute in zip(EPSILONS, found, strict=True):
        assert lower.delta(e) <= brute * 1.001 + 1e-9  # the tail's bound is 1e-4 above the tail itself


@pytest.mark.parametrize("less", [3, 10])
def test_a_smaller_threshold_is_caught(less: int) -> None:
    """What the mechanism does at a threshold that is a few steps lower exceeds the claim for the higher one."""
    claimed = event(120.0, 420, 3)
    broken = dataclasses.replace(claimed, threshold=claimed.threshold - less)
    found = {one: product([word_pair(unit_weight(40, 3), 0, one)] * 3).delta(2.0) for one in (claimed, broken)}
    claim = Account((Spend(claimed),)).delta(2.0)
    assert found[claimed] <= claim <= found[claimed] * 1.001
    assert found[broken] > claim * 1.05


def test_the_weights_of_the_largest_units_alone_are_caught() -> None:
    """With noise this small a unit of one word, whose weight is largest, leaks most: the threshold must see every k."""
    one = event(8.0, 60, 3)
    leaks = {words: max(new for w, new, _ in neighbours(one, (1000,)) if w == words) for words in (1, 2, 3)}
    tails = {k: m * special.ndtr(-(60 - 0.5 - unit_weight(40, k)) / 8.0) for k, m in leaks.items()}
    assert max(tails, key=lambda k: tails[k]) == 1
    assert largest_leak(one) == pytest.approx(tails[1], rel=1e-2)
    found = brute_delta(one, (far_above(one),))[-1]
    assert weighted_delta(one, EPSILONS[-1]) >= found > 5 * tails[3]


def test_no_neighbour_is_left_out_of_the_frontier() -> None:
    """Every number of words and of new ones is below a pair of the frontier, in distance and in leak."""
    one = WeightedHistogram(1.2e5, 700_000, 40, RESOLUTION)
    squares, leaks = frontier(one)
    assert list(squares) == sorted(squares, reverse=True)
    assert list(leaks) == sorted(leaks)
    for k in range(1, 41):
        weight = unit_weight(RESOLUTION, k)
        shown = special.ndtr(-(one.threshold - weight - 0.5) / one.noise_stddev)
        for new in range(k + 1):
            square, leak = (k - new) * (weight / RESOLUTION) ** 2, -new * math.log1p(-shown)
            assert np.any((squares >= square - 1e-15) & (leaks >= leak * (1 - 1e-12)))


def test_weights_are_whole_and_their_norm_is_bounded() -> None:
    for words in (1, 2, 3, 7, 128, 255, 256, 1000):
        weight = unit_weight(RESOLUTION, words)
        assert words * weight**2 <= RESOLUTION**2 < words * (weight + 1) ** 2


@pytest.mark.parametrize("noise", [3.0, 5.0, 40.0])
def test_integer_noise_is_at_most_the_gaussian_of_its_variance_less_four(noise: float) -> None:
    """Lemma 1 on equal shifts of 1 to 30 places, whose exact hockey-stick is that of one discrete Gaussian."""
    e = np.linspace(0.0, 3.0, 61)
    for words in (1, 2, 5, 30):
        exact = discrete_gaussian_delta(e, words, noise)
        claim = gaussian_delta(e, math.sqrt(words) / effective_stddev(WordCounts(noise, words)))
        assert np.all(claim >= exact - 1e-13)
    assert integer_noise(effective_stddev(WordCounts(noise, 1))) == pytest.approx(noise)


def test_without_the_four_small_noise_is_caught() -> None:
    """A discrete Gaussian leaks more than the Gaussian of the same parameter somewhere."""
    e = np.linspace(0.0, 3.0, 301)
    assert np.any(discrete_gaussian_delta(e, 1, 3.0) > gaussian_delta(e, 1 / 3.0) * 1.01)


def test_the_hockey_stick_of_integer_noise_by_summation() -> None:
    values, masses = noise_law(6.0)
    for shift in (1, 4):
        for e in (-0.3, 0.0, 0.2, 1.0):
            law = dict(zip(values.tolist(), masses.tolist(), strict=True))
            brute = sum(max(0.0, law.get(v - shift, 0.0) - math.exp(e) * law.get(v, 0.0)) for v in range(-60, 61))
            # `shift` counts that differ by one are one sum that differs by `shift`, of noise 6 = s sqrt(shift)
            found = discrete_gaussian_delta(np.array([e]), shift, 6.0 / math.sqrt(shift))[0]
            assert found == pytest.approx(brute, rel=1e-9, abs=1e-13)


# replacement ---------------------------------------------------------------------------------------------------------


def replacements(one: WeightedHistogram) -> Iterator[tuple[int, int, Pair]]:
    """(new words of the unit that goes, of the one that comes, outcomes): disjoint words, and words of both."""
    high = far_above(one)
    for gone, come in itertools.product(range(one.max_words + 1), repeat=2):
        a, b = (unit_weight(one.resolution, k) if k else 0 for k in (gone, come))
        for m1, m2, both in itertools.product(range(gone + 1), range(come + 1), range(min(gone, come) + 1)):
            if m1 + both > gone or m2 + both > come:
                continue
            pairs = [word_pair(a, 0, one)] * m1 + [word_pair(0, b, one)] * m2 + [word_pair(a, b, one)] * both
            pairs += [word_pair(high + a, high, one)] * (gone - m1 - both)
            pairs += [word_pair(high, high + b, one)] * (come - m2 - both)
            yield m1, m2, product(pairs)


@pytest.mark.parametrize("one", [event(20.0, 60, 2, 20), event(12.0, 30, 2, 20)], ids=["high", "low"])
def test_replacement_is_bounded_within_the_leak(one: WeightedHistogram) -> None:
    """Brute force over both units; the bound may lie L of epsilon to the right, no more."""
    pairs = [pair for _, _, pair in replacements(one)]
    account, slack = Account((Spend(one),), "replace"), largest_leak(one)
    for e in EPSILONS:
        assert account.delta(e) >= max(pair.delta(e) for pair in pairs) - 1e-12
        assert (
            account.delta(e) <= max(pair.delta(e - slack) for pair in pairs) * 1.05 + 1e-9
        )  # 4 of 12^2, in the variance


def test_add_or_remove_accounting_of_a_replacement_is_caught() -> None:
    one = event(20.0, 60, 2, 20)
    high, weight = far_above(one), unit_weight(20, 2)
    disjoint = [word_pair(high + weight, high, one)] * 2 + [word_pair(high, high + weight, one)] * 2
    assert Account((Spend(one),)).delta(0.5) < 0.7 * product(disjoint).delta(0.5)


# several rounds ------------------------------------------------------------------------------------------------------


def two_rounds(first: WeightedHistogram, second: WeightedHistogram, words: Sequence[tuple[int, int]]) -> Pair:
    """All outcomes of two rounds for a unit with these words: each with the weight that others give it in either round.

    What is shown in the first round is not counted in the second, so the unit's other words then weigh more.
    """
    weight = unit_weight(first.resolution, len(words))
    parts = []
    for shown in itertools.product((False, True), repeat=len(words)):
        before = [
            word_pair(others + weight, others, first, each) for (others, _), each in zip(words, shown, strict=True)
        ]
        left = [others for (_, others), each in zip(words, shown, strict=True) if not each]
        later = unit_weight(second.resolution, len(left)) if left else 0
        parts.append(product([*before, *[word_pair(others + later, others, second) for others in left]]))
    return either(parts)


ROUNDS = [(event(18.0, 45, 2, 12), event(11.0, 32, 2, 12)), (event(12.0, 20, 2, 12), event(12.0, 20, 2, 12))]
rounds = pytest.mark.parametrize("pair", ROUNDS, ids=["middle", "low"])


def brute_of_rounds(first: WeightedHistogram, second: WeightedHistogram) -> np.ndarray:
    """Over units of one to K words, each new, shared and far above the first or the second threshold, or in between."""
    kinds = [(0, 0), (far_above(first), 1), (0, far_above(second)), (first.threshold - 10, second.threshold + 10)]
    kinds += [(1, far_above(second)), (first.threshold - 10, far_above(second))]
    found = np.zeros(len(EPSILONS))
    for size in range(1, first.max_words + 1):
        for words in itertools.combinations_with_replacement(kinds, size):
            pair = two_rounds(first, second, words)
            for order in (pair, Pair(pair.q, pair.p)):
                found = np.maximum(found, [order.delta(e) for e in EPSILONS])
    return found


@rounds
def test_rounds_that_depend_on_each_other_are_bounded(pair: tuple[WeightedHistogram, WeightedHistogram]) -> None:
    account = Account(tuple(Spend(one) for one in pair))
    found = brute_of_rounds(*pair)
    for e, brute in zip(EPSILONS, found, strict=True):
        assert account.delta(e) >= brute - 1e-12


def test_the_bound_of_two_rounds_is_close() -> None:
    """At most 6 percent above what the worst of these units loses, at the low epsilons; how much is in docs/vocabulary.md."""
    first, second = ROUNDS[0]
    account = Account((Spend(first), Spend(second)))
    found = brute_of_rounds(first, second)
    for e, brute in list(zip(EPSILONS, found, strict=True))[:3]:
        assert account.delta(e) <= 1.3 * brute


def test_forgetting_the_tail_of_the_first_round_is_caught() -> None:
    first, second = ROUNDS[1]
    wrong = Account((Spend(dataclasses.replace(first, threshold=4000)), Spend(second)))
    found = brute_of_rounds(first, second)
    assert found[-1] > 1.2 * wrong.delta(EPSILONS[-1])


def test_one_round_alone_does_not_pay_for_two() -> None:
    first, second = ROUNDS[0]
    found = brute_of_rounds(first, second)
    for one in (first, second):
        assert Account((Spend(one),)).delta(0.0) < found[0]


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
@pytest.mark.parametrize("one", [*SMALL, WeightedHistogram(2.8e5, 1_650_000, 256, RESOLUTION)], ids=str)
def test_the_dominating_distribution_is_above_every_neighbour_and_close_to_the_worst(
    one: WeightedHistogram, relation: Relation
) -> None:
    dominating = worst_case_pld(one, relation, 1e-4)
    for e in (0.0, 0.03, 0.4, 1.0, 1.7):
        exact = weighted_delta(one, e, relation)
        # below by no more than rounding of doubles
        assert exact * (1 - 1e-12) <= dominating.get_delta_for_epsilon(e) <= exact * 1.02 + 1e-12


def test_rounds_with_training_compose_in_one_account() -> None:
    """Above the parts, below their sum, above the optimistic estimate, and Renyi DP above that."""
    spends = [Spend(WeightedHistogram(s, t, 64, RESOLUTION)) for s, t in ((900_000, 5_700_000), (400_000, 2_500_000))]
    training = Spend(PoissonGaussian(0.02, 1.2), 100)
    joint, alone = epsilon([*spends, training], 2e-6), epsilon([training], 1e-6)
    assert max(alone, epsilon(spends, 2e-6)) < joint < alone + epsilon(spends, 1e-6)
    lower = Account((*spends, training), pessimistic=False).epsilon(2e-6)
    renyi = rdp_epsilon([*spends, training], 2e-6)
    assert renyi is not None
    assert lower <= joint <= renyi


def test_the_order_of_rounds_does_not_matter_to_the_account() -> None:
    spends = tuple(Spend(one) for one in ROUNDS[0])
    for e in EPSILONS:
        assert Account(spends).delta(e) == pytest.approx(Account(spends[::-1]).delta(e), rel=1e-9)


# calibration ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["add-or-remove", "replace"])
@pytest.mark.parametrize(
    ("shares", "counts"),
    [((1.0,), 0.0), ((1.0,), 0.15), ((0.02, 0.06, 0.2, 0.72), 0.15)],
    ids=["one", "counts", "sips"],
)
def test_calibrated_rounds_meet_the_target_and_little_less_noise_misses_it(
    shares: tuple[float, ...], counts: float, relation: Relation
) -> None:
    found = weighted_rounds(1.0, 1e-6, 32, shares, counts, relation)
    spends = found.spends()
    assert len(found.rounds) == len(shares)
    assert (found.counts is None) == (counts == 0)
    assert epsilon(spends, 1e-6, relation) <= 1.0

    def quieter(one: Spend) -> Spend:
        event = one.event
        assert isinstance(event, WeightedHistogram | WordCounts)
        less = {"noise_stddev": event.noise_stddev * 0.99}
        if isinstance(event, WeightedHistogram):
            less["threshold"] = int(event.threshold * 0.99)
        return dataclasses.replace(one, event=dataclasses.replace(event, **less))

    assert epsilon([quieter(spend) for spend in spends], 1e-6, relation) > 1.0


def test_a_histogram_with_counts_meets_the_target() -> None:
    found = histogram_and_counts(1.0, 1e-6, 32, 0.15)
    assert found.counts is not None
    assert 0.97 < epsilon(found.spends(), 1e-6) <= 1.0


@pytest.mark.parametrize(
    ("kind", "fields", "error"),
    [
        (WeightedHistogram, (2.9, 100, 4, 10), RefusedError),
        (WeightedHistogram, (30.0, 10, 4, 10), UsageError),
        (WeightedHistogram, (30.0, 100, 0, 10), UsageError),
        (WeightedHistogram, (30.0, 100, 101, 10), UsageError),
        (WeightedHistogram, (30.0, 100.5, 4, 10), UsageError),
        (WordCounts, (2.9, 4), RefusedError),
        (WordCounts, (30.0, 0), UsageError),
    ],
)
def test_events_without_a_law_are_refused(kind: Callable[..., object], fields: tuple[float, ...], error: type) -> None:
    with pytest.raises(error):
        kind(*fields)
