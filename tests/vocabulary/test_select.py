"""The release: the law of the noise against the discrete Gaussian's probabilities, and the threshold."""

from __future__ import annotations

import doctest
import math
import random
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2, chisquare

from tacit.vocabulary import select
from tacit.vocabulary.select import draw_noise, noise_blocks, noisy_counts, release

ALARM = 1e-6
DRAWS = 60_000


def discrete_gaussian(noise_stddev: float, reach: int) -> np.ndarray:
    """P[X = k] for k = -reach .. reach, by summing exp(-k^2 / 2s^2) far into the tails."""
    wide = np.arange(-60 * math.ceil(noise_stddev), 60 * math.ceil(noise_stddev) + 1)
    weights = np.exp(-(wide**2) / (2 * noise_stddev**2))
    return weights[np.abs(wide) <= reach] / weights.sum()


def law_p_value(sample: np.ndarray, noise_stddev: float) -> float:
    """Chi-square test of a sample against the discrete Gaussian, the tails beyond 3 scales in one bin."""
    reach = math.floor(3 * noise_stddev)
    expected = discrete_gaussian(noise_stddev, reach)
    observed = np.array([(sample == k).sum() for k in range(-reach, reach + 1)])
    tails = len(sample) - observed.sum(), 1 - expected.sum()
    return float(chisquare([*observed, tails[0]], np.array([*expected, tails[1]]) * len(sample)).pvalue)


def scale_p_value(sample: np.ndarray, noise_stddev: float) -> float:
    """Two-sided test of the second moment, for scales at which the discrete law is the continuous one to 1e-9."""
    statistic = float((sample.astype(float) ** 2).sum()) / noise_stddev**2
    return 2 * min(chi2.cdf(statistic, len(sample)), chi2.sf(statistic, len(sample)))


def dependence(sample: np.ndarray) -> float:
    """Standardised correlation of each draw with the next: standard normal when they are independent."""
    values = sample - sample.mean()
    return float((values[1:] * values[:-1]).sum() / (values**2).sum() * math.sqrt(len(values)))


def test_noise_has_the_discrete_gaussian_law():
    sample = draw_noise(DRAWS, 3.0)
    assert sample.dtype == np.int64
    assert sample.shape == (DRAWS,)
    assert law_p_value(sample, 3.0) > ALARM
    assert abs(dependence(sample)) < 5


@pytest.mark.parametrize("noise_stddev", [2.7, 3.3])
def test_the_law_check_rejects_other_scales(noise_stddev):
    assert law_p_value(draw_noise(DRAWS, noise_stddev), 3.0) < ALARM


def test_the_law_check_rejects_other_laws():
    rng = np.random.default_rng(3)
    laplace = np.rint(rng.laplace(0, 3 / math.sqrt(2), DRAWS)).astype(np.int64)
    assert law_p_value(laplace, 3.0) < ALARM
    assert law_p_value(draw_noise(DRAWS, 3.0) + (rng.random(DRAWS) < 0.5), 3.0) < ALARM  # of mean one half
    floored = np.floor(rng.normal(0, 3, DRAWS)).astype(np.int64)
    assert law_p_value(floored, 3.0) < ALARM


def test_the_dependence_check_rejects_shared_noise():
    assert abs(dependence(np.repeat(draw_noise(DRAWS // 2, 3.0), 2))) > 5


def test_large_scales_too():
    assert scale_p_value(draw_noise(20_000, 200.0), 200.0) > ALARM
    for wrong in (184.0, 216.0):
        assert scale_p_value(draw_noise(20_000, wrong), 200.0) < ALARM


def test_two_draws_differ_and_no_noise_is_zeros():
    assert not np.array_equal(draw_noise(100, 3.0), draw_noise(100, 3.0))
    np.testing.assert_array_equal(draw_noise(3, 0), np.zeros(3, dtype=np.int64))
    assert draw_noise(0, 3.0).shape == (0,)
    assert draw_noise(0, 3.0).dtype == np.int64


@pytest.mark.parametrize("count", [0, 1, 2**16, 2**16 + 1, 3 * 2**16 - 1])
def test_noise_comes_in_blocks_that_are_as_many_draws_together(count):
    blocks = list(noise_blocks(count, 0.0))
    assert sum(map(len, blocks)) == count == len(draw_noise(count, 0.0))
    assert all(0 < len(block) <= 2**16 and block.dtype == np.int64 for block in blocks)


@pytest.mark.slow
def test_each_block_is_drawn_anew():
    first, second, last = noise_blocks(2**17 + 3, 3.0)
    assert not np.array_equal(first, second)  # known-wrong: one block for all
    assert law_p_value(np.concatenate([first, second]), 3.0) > ALARM
    assert abs(dependence(np.concatenate([first, second]))) < 5
    assert len(last) == 3


@pytest.mark.parametrize(("count", "noise_stddev"), [(-1, 1.0), (1, -1.0), (1, math.nan), (1, math.inf)])
def test_noise_refuses_what_is_no_noise(count, noise_stddev):
    with pytest.raises(ValueError, match=r"draw|noise_stddev"):
        draw_noise(count, noise_stddev)


def test_a_word_is_released_exactly_when_its_noisy_count_reaches_the_threshold():
    counts = {"d": 5, "c": 5, "b": 5, "a": 5}
    assert release(counts, np.array([0, -1, 1, -4]), threshold=5) == {"c": 6, "a": 5}
    assert release(counts, np.array([0, 0, 0, 0]), threshold=6) == {}
    assert release({}, np.zeros(0, dtype=np.int64), threshold=1) == {}


def test_sums_do_not_wrap_around():
    highest = np.array([np.iinfo(np.int64).max])
    assert release({"a": 5}, highest, threshold=1) == {"a": 5 + int(highest[0])}


COUNTS = st.dictionaries(st.text("abcdé", min_size=1, max_size=4), st.integers(1, 9), max_size=12)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(counts=COUNTS, threshold=st.integers(1, 8), seed=st.integers(0, 1000))
def test_release_by_brute_force_and_whatever_the_order_of_the_counts(counts, threshold, seed):
    rng = random.Random(seed)
    noise = np.array([rng.randint(-5, 5) for _ in counts], dtype=np.int64)
    noisy = {word: counts[word] + int(extra) for word, extra in zip(sorted(counts), noise, strict=True)}
    shown = release(counts, noise, threshold)
    assert shown == {word: count for word, count in noisy.items() if count >= threshold}
    shuffled = dict(rng.sample(list(counts.items()), len(counts)))
    assert list(release(shuffled, noise, threshold).items()) == list(shown.items())
    # The order is a function of the released set alone: it shows nothing of the words that were left out.
    assert list(shown) == sorted(shown, key=lambda word: (-shown[word], word))


@pytest.mark.parametrize(
    ("counts", "noise", "message"),
    [
        ({"a": 1, "b": 1}, np.array([1]), "2 words"),
        ({"a": 1, "b": 1}, np.array([[1, 2]]), "2 words"),
        ({"a": 1}, np.array([0.5]), "integer"),
        ({"a": 1, "b": 0}, np.array([1, 1]), "does not occur"),
    ],
)
def test_release_refuses_what_breaks_the_law(counts, noise, message):
    with pytest.raises(ValueError, match=message):
        release(counts, noise, threshold=1)


def test_counts_of_public_words_hide_which_of_them_occur():
    assert noisy_counts(["a", "b", "c"], {"b": 5}, np.array([3, -7, 0])) == {"a": 3, "b": -2, "c": 0}
    for words, counts, noise in ((["a"], {"b": 1}, [0]), (["a", "b"], {}, [0]), (["a"], {}, [0.5])):
        with pytest.raises(ValueError, match=r"public|noise"):
            noisy_counts(words, counts, np.array(noise))


def test_examples_in_docstrings():
    results = doctest.testmod(select)
    assert results.attempted > 0
    assert results.failed == 0


def test_whether_there_is_a_word_decides_nothing_about_opendp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it cannot be imported, a corpus without a word would else be released, and one more unit end the run."""
    monkeypatch.setitem(sys.modules, "opendp.measurements", None)
    for count in (0, 1):
        with pytest.raises(ImportError):
            draw_noise(count, 2.0)
    assert len(draw_noise(0, 0.0)) == 0  # nothing is drawn, whatever the text
