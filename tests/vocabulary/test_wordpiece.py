"""The trainer against a brute-force one (exactly) and against ``tokenizers.trainers.WordPieceTrainer``."""

from __future__ import annotations

import doctest
import functools
import gzip
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.trainers import WordPieceTrainer

from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness
from tacit.vocabulary import wordpiece
from tacit.vocabulary.count import count_words, distinct_words
from tacit.vocabulary.select import draw_noise, release
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, normalizer_and_pretokenizer, words_of
from tacit.vocabulary.wordpiece import base_pieces, train_wordpiece

OPTIONS = TokenizerOptions()
BASE = base_pieces(OPTIONS.alphabet)
CHAIN_MERGES = 1000  # where the generated text has no tie, so that the library gives one answer and not several


def brute_force(counts: Mapping[str, int], size: int, alphabet: str, min_frequency: int) -> list[str]:
    """The definition: count all pairs of all words again before every merge."""
    pieces = base_pieces(alphabet, ["[UNK]"])
    words = [([word[0], *("##" + c for c in word[1:])], count) for word, count in counts.items()]
    while len(pieces) < size:
        pairs: Counter[tuple[str, str]] = Counter()
        for spelled, count in words:
            for pair in pairwise(spelled):
                pairs[pair] += count
        if not pairs or max(pairs.values()) < min_frequency:
            break
        left, right = min(pairs, key=lambda pair: (-pairs[pair], pieces.index(pair[0]), pieces.index(pair[1])))
        joined = left + right[2:]
        if joined not in pieces:
            pieces.append(joined)
        for spelled, _ in words:
            place = 0
            while place < len(spelled) - 1:
                if spelled[place : place + 2] == [left, right]:
                    spelled[place : place + 2] = [joined]
                place += 1
    return pieces


def library_vocabulary(texts: Iterable[str], size: int, min_frequency: int = 0) -> set[str]:
    """What the library's trainer makes of the texts with our pipeline and alphabet."""
    tokenizer = Tokenizer(WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer_and_pretokenizer(OPTIONS)
    trainer = WordPieceTrainer(
        vocab_size=size,
        min_frequency=min_frequency,
        initial_alphabet=list(OPTIONS.alphabet),
        limit_alphabet=len(OPTIONS.alphabet),
        continuing_subword_prefix="##",
        special_tokens=list(SPECIAL_TOKENS),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return set(tokenizer.get_vocab())


def merged_pieces(counts: Mapping[str, int], texts: Sequence[str], merges: int, min_frequency: int = 1):
    """The pieces that merges made, (ours, the library's), after the same number of merges.

    Ours has every ``##`` character, the library only those that occur: they are left out of the comparison, and each
    trainer's size is its own base plus ``merges``.
    """
    continued = {character for word in counts for character in word[1:]}
    library_base = len(SPECIAL_TOKENS) + len(OPTIONS.alphabet) + len(continued)
    ours = train_wordpiece(counts, len(BASE) + merges, OPTIONS.alphabet, min_frequency=min_frequency)
    library = library_vocabulary(texts, library_base + merges, min_frequency)
    assert len(library - set(BASE)) == len(library) - library_base
    return set(ours) - set(BASE), library - set(BASE)


def agreement(ours: set[str], library: set[str]) -> float:
    return len(ours & library) / max(len(ours), len(library))


COUNTS = st.dictionaries(st.text("ab#", min_size=1, max_size=8), st.integers(1, 4), max_size=10)


@settings(max_examples=500, derandomize=True, deadline=None)
@given(counts=COUNTS, extra=st.integers(0, 25), min_frequency=st.integers(1, 4), seed=st.integers(0, 100))
def test_equals_brute_force_in_every_order_of_the_counts(counts, extra, min_frequency, seed):
    size = 7 + extra
    ours = train_wordpiece(counts, size, "ab#", ["[UNK]"], min_frequency)
    assert ours == brute_force(counts, size, "ab#", min_frequency)
    shuffled = dict(random.Random(seed).sample(list(counts.items()), len(counts)))
    assert train_wordpiece(shuffled, size, "ab#", ["[UNK]"], min_frequency) == ours
    # Counts beyond 32 bits, where the library's sums wrap around.
    large = {word: count * 3_000_000_000 for word, count in counts.items()}
    assert train_wordpiece(large, size, "ab#", ["[UNK]"], min_frequency * 3_000_000_000) == ours


def test_equals_brute_force_on_generated_text(generated_texts):
    counts = Counter(word for text in generated_texts for word in words_of(text, OPTIONS) if word.isalpha())
    alphabet = "".join(sorted({c for word in counts for c in word}))
    size = len(base_pieces(alphabet, ["[UNK]"])) + 80
    assert train_wordpiece(counts, size, alphabet, ["[UNK]"]) == brute_force(counts, size, alphabet, 1)


@pytest.mark.parametrize(("merges", "min_frequency"), [(300, 1), (1500, 1), (10**6, 40)])
def test_agrees_with_the_library_on_generated_text(generated_texts, merges, min_frequency):
    counts = Counter(word for text in generated_texts for word in words_of(text, OPTIONS))
    ours, library = merged_pieces(counts, generated_texts, merges, min_frequency)
    assert len(ours) >= 300
    assert agreement(ours, library) >= 0.99
    # Known wrong: the same trainer on counts without their weights.
    unweighted, _ = merged_pieces(dict.fromkeys(counts, 1), generated_texts, merges)
    assert agreement(unweighted, library) < 0.99


@functools.cache
def clinical_notes(data_dir: Path) -> tuple[list[str], Counter[str]]:
    """300 notes, and how often each word of the alphabet stands in them."""
    with gzip.open(data_dir / "mtsamples/mtsamples.jsonl.gz", "rt", encoding="utf-8") as lines:
        texts = [json.loads(line)["text"] for _, line in zip(range(300), lines, strict=False)]
    letters = set(OPTIONS.alphabet)
    return texts, Counter(word for text in texts for word in words_of(text, OPTIONS) if set(word) <= letters)


@pytest.mark.parametrize(("merges", "min_frequency"), [(5000, 1), (10**6, 10)])
def test_agrees_with_the_library_on_clinical_notes(data_dir: Path, merges, min_frequency):
    texts, counts = clinical_notes(data_dir)
    ours, library = merged_pieces(counts, texts, merges, min_frequency)
    assert len(ours) >= 1000
    assert agreement(ours, library) >= 0.99


@pytest.mark.parametrize("threshold", [0, 1])
def test_the_chain_without_noise_is_the_library_on_each_units_distinct_words(generated_texts, threshold):
    units = [(f"unit-{n}", generated_texts[n : n + 2]) for n in range(0, len(generated_texts), 2)]
    counts = count_words(units, 10**6, KeyedRandomness(bytes(32)), OPTIONS)
    released = release(counts, draw_noise(len(counts), 0), threshold)
    assert released == counts
    once_a_unit = [" ".join(sorted(distinct_words(texts, OPTIONS))) for _, texts in units]
    ours, library = merged_pieces(released, once_a_unit, CHAIN_MERGES)
    assert ours == library
    # Known wrong: the text itself, where a word counts as often as it stands there.
    every_word = Counter(word for text in generated_texts for word in words_of(text, OPTIONS))
    assert merged_pieces(every_word, generated_texts, CHAIN_MERGES)[1] != library


def test_released_noisy_counts_decide_alone():
    """Two corpora whose releases agree give one vocabulary: training is post-processing."""
    first, second = {"abab": 9, "ab": 7, "rare": 1}, {"abab": 7, "ab": 8, "secret": 2}
    one = release(first, np.array([0, 0, 0]), threshold=5)
    two = release(second, np.array([-1, 2, 0]), threshold=5)
    assert one == two == {"abab": 9, "ab": 7}
    assert train_wordpiece(one, 290, OPTIONS.alphabet) == train_wordpiece(two, 290, OPTIONS.alphabet)


def test_base_pieces_are_there_whatever_the_counts():
    assert train_wordpiece({}, 1000, OPTIONS.alphabet) == BASE
    assert train_wordpiece({"ab": 1}, len(BASE), OPTIONS.alphabet) == BASE
    assert BASE[:5] == list(SPECIAL_TOKENS)
    assert len(set(BASE)) == len(BASE) == 5 + 2 * len(OPTIONS.alphabet)


def test_a_merge_that_spells_a_piece_which_is_there_adds_none():
    special = train_wordpiece({"abc": 3}, 100, "abc", ["ab"])
    assert special == [*base_pieces("abc", ["ab"]), "abc"]
    prefixed = train_wordpiece({"##a": 3, "a": 1}, 100, "a#", ["[UNK]"])
    assert prefixed == [*base_pieces("a#", ["[UNK]"]), "##"]


@pytest.mark.parametrize("count", [0, -3])
def test_refuses_counts_that_no_release_gives(count):
    with pytest.raises(ValueError, match="count below 1"):
        train_wordpiece({"ab": 2, "ba": count}, 100, "ab")


@pytest.mark.parametrize("word", ["", "secret"])
def test_refuses_words_outside_the_alphabet_without_naming_them(word):
    with pytest.raises(ValueError, match="outside the alphabet") as error:
        train_wordpiece({"ab": 2, word: 1}, 100, "ab")
    assert "secret" not in str(error.value)


def test_refuses_a_size_below_the_base():
    with pytest.raises(UsageError, match="a vocabulary of 8 does not hold the 9"):
        train_wordpiece({"ab": 2}, 8, "ab")


def test_examples_in_docstrings():
    results = doctest.testmod(wordpiece)
    assert results.attempted > 0
    assert results.failed == 0
