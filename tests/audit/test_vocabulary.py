"""Planted words: their rate is that of the law, and a broken threshold, noise or weight is caught."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
import pytest

from tacit.audit.vocabulary import allowed_rate, plant_words, planted_copies
from tacit.errors import UsageError
from tacit.privacy.accounting.histogram import log_hidden_probability
from tacit.privacy.accounting.weighted import largest_leak
from tacit.privacy.events import Choice, ThresholdedHistogram, WeightedHistogram
from tacit.randomness import KeyedRandomness
from tacit.vocabulary.select import release

STREAMS = KeyedRandomness(bytes(range(32)))
WEIGHTED = WeightedHistogram(280_000.0, 1_650_000, 16, 65_536)
HISTOGRAM = ThresholdedHistogram(12.0, 70, 16)
Noise = npt.NDArray[np.int64]

both = pytest.mark.parametrize("event", [WEIGHTED, HISTOGRAM], ids=["weighted", "histogram"])


@both
def test_planted_words_come_out_as_often_as_the_law_says(event: Choice) -> None:
    """The noise is the operating system's: of two p-values for each of at most ten numbers of copies one is below 1e-8 with 2e-7."""
    assert len(planted_copies(event, 16)) <= 10
    for copies in planted_copies(event, 16):
        found = plant_words(event, copies, 16, 60, STREAMS)
        assert found.trials == 960
        assert min(found.p_value, found.least_p_value) > 1e-8
        assert found.shown == round(found.trials * (found.shown / found.trials))
    assert found.copies > 1
    assert 0.3 < found.shown / found.trials < 0.7  # the last number of copies is at the threshold


def lower_threshold(counts: Mapping[str, int], noise: Noise, threshold: int) -> dict[str, int]:
    return release(counts, noise, threshold - threshold // 10)


def less_noise_on_the_wrong_side(counts: Mapping[str, int], noise: Noise, threshold: int) -> dict[str, int]:
    return release(counts, np.abs(noise), threshold)


def weights_that_are_doubled(counts: Mapping[str, int], noise: Noise, threshold: int) -> dict[str, int]:
    return release({word: 2 * count for word, count in counts.items()}, noise, threshold)


@both
@pytest.mark.parametrize("broken", [lower_threshold, less_noise_on_the_wrong_side, weights_that_are_doubled])
def test_a_broken_choice_is_caught(event: Choice, broken) -> None:
    found = [plant_words(event, copies, 16, 60, STREAMS, broken) for copies in planted_copies(event, 16)[1:]]
    assert any(row.exceeds for row in found)


def test_a_choice_that_shows_too_little_is_seen_too() -> None:
    def higher(counts: Mapping[str, int], noise: Noise, threshold: int) -> dict[str, int]:
        return release(counts, noise, round(threshold * 1.2))

    found = plant_words(WEIGHTED, planted_copies(WEIGHTED, 16)[-1], 16, 60, STREAMS, higher)
    assert not found.exceeds
    assert found.least_p_value < 1e-6


def test_the_rate_of_a_single_unit_is_that_of_the_law() -> None:
    """All its words hidden has the probability that the accountant uses."""
    hidden = 16 * math.log1p(-allowed_rate(HISTOGRAM, 1, 16))
    assert hidden == pytest.approx(16 * log_hidden_probability(HISTOGRAM), rel=1e-9)
    for words in (1, 16):
        leak = -words * math.log1p(-allowed_rate(WEIGHTED, 1, words))
        assert leak <= largest_leak(WEIGHTED) * (1 + 1e-9)
    assert leak == pytest.approx(largest_leak(WEIGHTED), rel=1e-9)


def test_impossible_plants_are_refused() -> None:
    for copies, words, repetitions in ((1, 17, 1), (1, 0, 1), (0, 4, 1), (1, 4, 0)):
        with pytest.raises(UsageError):
            plant_words(WEIGHTED, copies, words, repetitions, STREAMS)
