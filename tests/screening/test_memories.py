"""The Bloom filter's rates, which must be neither smaller nor larger than it says, and the exact memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
from scipy import stats

from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness
from tacit.screening.deduplicate import DeduplicateOptions, stability
from tacit.screening.memories import Bloom, BloomMemory, ExactMemory

STREAMS = KeyedRandomness(bytes(range(32)))
ALARM = 1e-6


@functools.cache
def digest(number: int) -> bytes:
    return STREAMS.derive("digest", number)[:16]


def memory(bloom: Bloom, key: int) -> BloomMemory:
    return BloomMemory(bloom, key.to_bytes(32, "big"))


@pytest.mark.parametrize("rate", [0.1, 0.01, 1e-6, 1e-9, 1e-18])
@pytest.mark.parametrize("texts", [1, 10, 12_345, 10_000_000])
def test_sized_by_the_formula(texts: int, rate: float) -> None:
    bloom = Bloom(texts, rate)
    assert bloom.rate(texts) <= rate * (1 + 1e-9)
    bits, slices = bloom.slice_bits - 1, bloom.slices
    assert bits < 2 or (-math.expm1(texts * math.log1p(-1 / bits))) ** slices > rate * (1 - 1e-9), (
        "one bit less is too few"
    )
    if texts > 1000:  # the usual formula, of a filter without slices and the best real number of hashes
        assert bloom.slices * bloom.slice_bits == pytest.approx(-texts * math.log(rate) / math.log(2) ** 2, rel=0.06)
        assert bloom.slices * bloom.slice_bits >= -texts * math.log(rate) / math.log(2) ** 2


@pytest.mark.parametrize(("bloom", "texts"), [(Bloom(30, 0.1), 30), (Bloom(10, 1e-6), 40)])
def test_the_rate_of_false_positives(bloom: Bloom, texts: int) -> None:
    """One probe for each key, so all are independent; the second filter is overfull, since its own rate is beyond measuring."""
    keys, wrong = 3000, 0
    for key in range(keys):
        found = memory(bloom, key)
        for at in range(texts):
            found.add(digest(at))
        wrong += found.add(digest(texts))
    assert stats.binomtest(wrong, keys, bloom.rate(texts)).pvalue > ALARM
    for factor in (0.5, 0.7, 1.4, 2):
        other = Bloom(int(bloom.expected_texts * factor), bloom.false_positive_rate)
        assert stats.binomtest(wrong, keys, other.rate(texts)).pvalue < ALARM


def test_the_expected_number_of_false_positives() -> None:
    bloom = Bloom(300, 0.05)
    exact = math.fsum(bloom.rate(texts) for texts in range(300))
    assert exact <= bloom.expected_false_positives(300) <= exact * 1.05
    many = Bloom(200_000, 0.05)
    assert many.expected_false_positives(200_000) == pytest.approx(
        math.fsum(many.rate(texts) for texts in range(200_000)), rel=1e-3
    )
    assert bloom.expected_false_positives(0) == 0.0
    keys = 300
    found = [sum(filled.add(digest(at)) for at in range(300)) for filled in (memory(bloom, key) for key in range(keys))]
    mean, error = sum(found) / keys, stats.tstd(found) / math.sqrt(keys)
    assert abs(mean - exact) < 5 * error
    assert abs(mean - 2 * exact) > 5 * error
    assert abs(mean - exact / 2) > 5 * error


def flips(bloom: Bloom, others: int, key: int) -> list[bool]:
    """For each of the other texts, whether its verdict hangs on which text stands first."""
    here, there = memory(bloom, key), memory(bloom, key)
    here.add(digest(0))
    there.add(digest(1))
    return [here.add(digest(at)) != there.add(digest(at)) for at in range(2, others + 2)]


def test_a_bloom_filter_exceeds_the_stability_as_often_as_it_says() -> None:
    """For some keys one replaced text decides about texts that are equal to neither: a false positive is not harmless."""
    bloom, others, keys = Bloom(20, 0.01), 19, 4000
    found = [flips(bloom, others, key) for key in range(keys)]
    exceeded = sum(map(any, found))
    assert exceeded > 0, "so 3 is no bound for every key"
    assert exceeded / keys < bloom.failure()
    assert stats.binomtest(exceeded, keys, bloom.failure() / 50, alternative="greater").pvalue < ALARM
    # The last text alone has a closed form: a slice is covered by the others, by the first text, or by both.
    slices, outside = bloom.slices, (1 - 1 / bloom.slice_bits) ** (others - 1)
    either = 1 - outside * (1 - 1 / bloom.slice_bits)
    both = 1 - outside + outside / bloom.slice_bits**2
    exact = 2 * (either**slices - both**slices)
    assert stats.binomtest(sum(each[-1] for each in found), keys, exact).pvalue > ALARM
    assert exact < bloom.failure() / bloom.expected_texts < 4 * exact


def test_the_default_rate_leaves_delta_alone_and_a_usual_one_does_not() -> None:
    assert Bloom(10**8).failure() < 1e-7
    assert Bloom(10**8, 1e-6).failure() > 1e-5
    assert Bloom(1000).failure(texts_per_unit=20) == pytest.approx(20 * Bloom(1000).failure())
    assert stability(DeduplicateOptions(bloom=Bloom(1000)), texts_per_unit=2).failure == Bloom(1000).failure(2)
    assert stability(DeduplicateOptions()).failure == 0.0


def test_copies_are_always_recognised_also_by_a_full_filter() -> None:
    found = memory(Bloom(10, 0.1), 1)
    for at in range(500):
        found.add(digest(at))
    assert all(found.add(digest(at)) for at in range(500))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: Bloom(0), "expected_texts"),
        (lambda: Bloom(10, 0.0), "false_positive_rate"),
        (lambda: Bloom(10, 0.2), "false_positive_rate"),
        (lambda: Bloom(10, math.nan), "false_positive_rate"),
        (lambda: Bloom(10**11), "GiB"),
    ],
)
def test_impossible_filters_are_refused(wrong: Callable[[], Bloom], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        wrong()


def test_the_exact_memory_goes_by_the_whole_digest() -> None:
    found = ExactMemory()
    assert not any(found.add(bytes([0] * at + [1] + [0] * (15 - at))) for at in range(16))
    assert found.add(bytes([1] + [0] * 15))
