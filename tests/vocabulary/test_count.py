"""Word counts: a brute-force count, and the sensitivity that the private release rests on."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from hypothesis import find, given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from tacit.errors import DataError
from tacit.randomness import KeyedRandomness
from tacit.vocabulary.count import choose_words, count_words, distinct_words
from tacit.vocabulary.tokenizer import MAX_WORD_LENGTH, TokenizerOptions, words_of

OPTIONS = TokenizerOptions()
STREAMS = KeyedRandomness(bytes(range(32)))
Unit = tuple[str, list[str]]
CountFunction = Callable[[Sequence[Unit], int], dict[str, int]]

# Everything that separates, joins or changes characters somewhere in Python or in the pipeline.
ODD_CHARACTERS = "aAbÀeÉéI1°. ,-\t\n\r\x0b\x0c\x00\x1c\x85\xa0\xad\u0301\u0323\u200b\u2028\u3000\ufffdİſßΣς中가"
LIMITS = st.integers(1, 10)
TEXTS = st.lists(st.text(alphabet="abc .", max_size=12), max_size=3)


def allowed(word: str) -> bool:
    return len(word) <= MAX_WORD_LENGTH and set(word) <= set(OPTIONS.alphabet)


def counted(units: Sequence[Unit], max_words: int) -> dict[str, int]:
    return count_words(units, max_words, STREAMS, OPTIONS)


def is_one_contribution(before: dict[str, int], after: dict[str, int], max_words: int) -> bool:
    """Adding one unit moved the counts by a 0/1 vector with at most ``max_words`` ones."""
    moved = [after.get(word, 0) - before.get(word, 0) for word in before.keys() | after.keys()]
    return set(moved) <= {0, 1} and sum(moved) <= max_words and math.hypot(*moved) <= math.sqrt(max_words) + 1e-12


@st.composite
def neighbours(draw) -> tuple[list[Unit], list[Unit], int]:
    """Units, the same with one more somewhere, and max_words; some units repeat their texts."""
    bodies = draw(st.lists(TEXTS, min_size=1, max_size=5))
    repeats = draw(st.lists(st.integers(1, 3), min_size=len(bodies), max_size=len(bodies)))
    larger = [(f"unit-{n}", body * times) for n, (body, times) in enumerate(zip(bodies, repeats, strict=True))]
    removed = draw(st.integers(0, len(larger) - 1))
    return larger[:removed] + larger[removed + 1 :], larger, draw(st.integers(1, 4))


@pytest.mark.slow
@settings(max_examples=500, derandomize=True, deadline=None)
@given(neighbours())
def test_one_unit_moves_at_most_max_words_counts_by_one(case):
    smaller, larger, max_words = case
    assert is_one_contribution(counted(smaller, max_words), counted(larger, max_words), max_words)


def with_multiplicity(units: Sequence[Unit], max_words: int) -> dict[str, int]:
    words = (word for unit_id, texts in units for text in texts for word in sorted(words_of(text, OPTIONS))[:max_words])
    return dict(Counter(words))


def with_a_limit_for_each_text(units: Sequence[Unit], max_words: int) -> dict[str, int]:
    chosen = (sorted(set().union(*(sorted(words_of(t, OPTIONS))[:max_words] for t in texts))) for _, texts in units)
    return dict(Counter(word for words in chosen for word in words))


def with_a_global_generator(units: Sequence[Unit], max_words: int) -> dict[str, int]:
    rng = random.Random(7)
    choices = []
    for _, texts in units:
        words = sorted(distinct_words(texts, OPTIONS))
        choices += rng.sample(words, min(max_words, len(words)))
    return dict(Counter(choices))


def with_the_most_frequent_words_so_far(units: Sequence[Unit], max_words: int) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for _, texts in units:
        words = sorted(distinct_words(texts, OPTIONS), key=lambda word: (-counts[word], word))
        counts.update(words[:max_words])
    return dict(counts)


@pytest.mark.parametrize(
    "wrong",
    [with_multiplicity, with_a_limit_for_each_text, with_a_global_generator, with_the_most_frequent_words_so_far],
)
def test_the_same_check_catches_wrong_counts(wrong: CountFunction):
    def violates(case) -> bool:
        smaller, larger, max_words = case
        return not is_one_contribution(wrong(smaller, max_words), wrong(larger, max_words), max_words)

    find(neighbours(), violates, settings=settings(max_examples=5000, derandomize=True, deadline=None, database=None))


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(TEXTS, max_size=6))
def test_counts_without_a_limit_are_document_frequencies(bodies):
    units = [(str(number), body) for number, body in enumerate(bodies)]
    expected = Counter(word for body in bodies for word in {word for text in body for word in words_of(text, OPTIONS)})
    assert counted(units, 1000) == dict(expected)


@pytest.mark.slow
@settings(max_examples=1000, derandomize=True, deadline=None)
@given(text=st.text(alphabet=ODD_CHARACTERS, max_size=30) | st.text(max_size=30), lowercase=st.booleans())
def test_chunks_give_the_words_of_the_whole_text(text, lowercase):
    options = TokenizerOptions(lowercase=lowercase)
    whole = {word for word in words_of(text, options) if len(word) <= 100 and set(word) <= set(options.alphabet)}
    assert distinct_words([text], options) == whole


@pytest.mark.parametrize("lowercase", [True, False])
def test_ascii_is_cut_as_the_library_cuts_it(lowercase):
    """Every sign of ASCII, controls included, beside every other one."""
    options = TokenizerOptions(lowercase=lowercase)
    signs = [chr(code) for code in range(128)]
    for one in signs:
        text = "".join(one + other + " " for other in signs)
        assert distinct_words([text], options) == {
            w for w in words_of(text, options) if set(w) <= set(options.alphabet)
        }


def test_words_outside_the_public_rule_are_dropped():
    texts = ["fever жар 발열 " + "a" * MAX_WORD_LENGTH, "b" * (MAX_WORD_LENGTH + 1) + " naïve"]
    assert distinct_words(texts, OPTIONS) == {"fever", "a" * MAX_WORD_LENGTH, "naive"}
    assert distinct_words(["cab bad"], TokenizerOptions(alphabet="abc")) == {"cab"}


@settings(max_examples=200, derandomize=True, deadline=None)
@given(words=st.sets(st.text("abcdef", min_size=1, max_size=3), max_size=30), max_words=LIMITS, data=st.data())
def test_choice_is_a_consistent_subset(words, max_words, data):
    chosen = set(choose_words("unit", words, max_words, STREAMS))
    assert chosen <= words
    assert len(chosen) == min(max_words, len(words))
    assert set(choose_words("unit", frozenset(data.draw(st.permutations(sorted(words)))), max_words, STREAMS)) == chosen
    fewer = chosen | {word for word in words if data.draw(st.booleans())}
    assert set(choose_words("unit", fewer, max_words, STREAMS)) == chosen


def test_choice_is_uniform_and_differs_between_units_and_keys():
    words = {f"w{number}" for number in range(20)}
    chosen = [frozenset(choose_words(f"unit-{n}", words, 5, STREAMS)) for n in range(4000)]
    times = Counter(word for choice in chosen for word in choice)
    # Without replacement the counts vary less than the chi-square law says: the false alarm rate is below 1e-6.
    assert chisquare([times[word] for word in sorted(words)]).pvalue > 1e-6
    assert len(set(chosen)) > 3000
    other_key = KeyedRandomness(bytes(32))
    assert [frozenset(choose_words(f"unit-{n}", words, 5, other_key)) for n in range(4000)] != chosen


def test_order_of_units_does_not_matter():
    units = [(f"unit-{n}", [f"a{n % 3} b{n % 5} c{n % 7} d{n}"]) for n in range(50)]
    shuffled = random.Random(1).sample(units, len(units))
    assert counted(units, 2) == counted(shuffled, 2)
    assert max(counted(units, 2).values()) > 1


def test_refuses_a_unit_that_comes_twice():
    with pytest.raises(DataError, match="unit number 3 has the id of an earlier unit") as error:
        counted([("alice", ["fever"]), ("bob", []), ("alice", ["cough"])], 2)
    assert "alice" not in str(error.value)


def test_refuses_text_that_is_not_unicode_without_showing_it():
    with pytest.raises(DataError, match="unit number 2 holds a lone surrogate") as error:
        counted([("a", ["fever"]), ("b", ["secret\ud800"])], 2)
    assert "secret" not in str(error.value)
    assert error.value.__suppress_context__


def test_refuses_a_limit_below_one():
    with pytest.raises(ValueError, match="max_words"):
        counted([], 0)


@st.composite
def weighted_neighbours(draw) -> tuple[list[Unit], list[Unit], int, frozenset[str], frozenset[str] | None]:
    """As `neighbours`, with words that are public already and, sometimes, words that alone are counted."""
    smaller, larger, max_words = draw(neighbours())
    some = st.frozensets(st.text("abc", min_size=1, max_size=2), max_size=4)
    return smaller, larger, max_words, draw(some), draw(st.none() | some)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(weighted_neighbours())
def test_one_unit_moves_the_weights_by_equal_ones_of_norm_at_most_the_resolution(case):
    smaller, larger, max_words, without, only = case
    before, after = (
        count_words(units, max_words, STREAMS, OPTIONS, resolution=1000, without=without, only=only)
        for units in (smaller, larger)
    )
    moved = [after.get(word, 0) - before.get(word, 0) for word in before.keys() | after.keys()]
    moved = [weight for weight in moved if weight]
    assert len(moved) <= max_words
    assert len(set(moved)) <= 1  # the same weight for each of its words
    assert all(weight == math.isqrt(1_000_000 // len(moved)) for weight in moved)
    assert sum(weight**2 for weight in moved) <= 1000**2
    assert not after.keys() & without
    assert only is None or after.keys() <= only


def test_a_weight_for_each_word_alone_is_caught():
    """Without the division the norm is sqrt(words) times the resolution."""
    units = [("a", ["one two three four"])]
    weights = count_words(units, 4, STREAMS, OPTIONS, resolution=1000)
    assert weights == dict.fromkeys(("one", "two", "three", "four"), 500)
    assert math.hypot(*weights.values()) <= 1000 < math.hypot(*[1000] * 4)


def test_what_is_public_leaves_room_for_the_rest():
    units = [("a", ["one two three four"])]
    assert count_words(units, 2, STREAMS, OPTIONS, without={"one", "two", "three"}) == {"four": 1}
    assert count_words(units, 1, STREAMS, OPTIONS, only={"four", "five"}) == {"four": 1}
