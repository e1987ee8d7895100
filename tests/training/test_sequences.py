"""Rows of tokens: nothing is dropped, no row holds two texts, and a unit's keyed choices are its own."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from tokenizers import Tokenizer

from tacit.corpus.units import Unit
from tacit.randomness import KeyedRandomness
from tacit.training.sequences import SequenceStream, tokenize_units
from tacit.vocabulary.special import OWN_NAMES, special_tokens
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, build_tokenizer

from .streams import stream_of

STREAMS = KeyedRandomness(bytes(range(32)))
CLS, SEP, MASK = (SPECIAL_TOKENS.index(token) for token in ("[CLS]", "[SEP]", "[MASK]"))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    options = TokenizerOptions()
    characters = list(options.alphabet)
    pieces = [*SPECIAL_TOKENS, *characters, *(f"##{c}" for c in characters), "mask", "pain", "##ful", "the"]
    built = build_tokenizer(list(dict.fromkeys(pieces)), options)
    built.encode_special_tokens = True  # as the run's own tokenizer
    return built


def tokenized(units: list[Unit], tokenizer: Tokenizer, length: int, streams: KeyedRandomness) -> SequenceStream:
    """With the special tokens of our own WordPiece."""
    return tokenize_units(units, tokenizer, special_tokens(tokenizer, OWN_NAMES), length, streams)


def bodies(stream: SequenceStream, unit: int) -> list[list[int]]:
    """What stands between [CLS] and [SEP] in a unit's rows, after checking the frame."""
    found = []
    for row in stream.rows_of(unit):
        ids, length = stream.ids_ST[row].tolist(), int(stream.lengths_S[row])
        assert ids[0] == CLS
        assert ids[length - 1] == SEP
        assert ids[length:] == [0] * (len(ids) - length)
        found.append(ids[1 : length - 1])
    return found


def check_windows(stream: SequenceStream, units: list[Unit], tokenizer: Tokenizer, length: int) -> None:
    """Every text's rows in order: all full but the last, and together the text's tokens, in rows of its own."""
    for number, unit in enumerate(units):
        rows = bodies(stream, number)
        for text in unit.texts:
            tokens = tokenizer.encode(text, add_special_tokens=False).ids
            count = -(-len(tokens) // (length - 2))
            own, rows = rows[:count], rows[count:]
            assert [len(row) for row in own[:-1]] == [length - 2] * max(0, count - 1)
            assert all(own)
            assert list(itertools.chain(*own)) == tokens
        assert rows == []


texts = st.lists(st.text("abcXYZ é[]MASK!µ \n", max_size=60), max_size=4)


@given(st.lists(texts, max_size=5), st.integers(8, 20))
@settings(max_examples=100, deadline=None)
def test_rows_hold_every_token_of_one_text(tokenizer: Tokenizer, corpus: list[list[str]], length: int) -> None:
    units = [Unit(f"u{number}", tuple(own)) for number, own in enumerate(corpus)]
    stream = tokenized(units, tokenizer, length, STREAMS)
    assert stream.units == len(units)
    assert stream.sequences == len(stream.ids_ST) == stream.starts_U1[-1]
    assert stream.ids_ST.shape[1:] == (length,)
    check_windows(stream, units, tokenizer, length)


def test_the_check_of_the_windows_catches_rows_over_two_texts_and_dropped_ends(tokenizer: Tokenizer) -> None:
    units = [Unit("u", ("a b c d e f g", "h i"))]
    joined = tokenized([Unit("u", ("a b c d e f g h i",))], tokenizer, 8, STREAMS)
    dropped = tokenized([Unit("u", ("a b c d e f", "h i"))], tokenizer, 8, STREAMS)
    check_windows(tokenized(units, tokenizer, 8, STREAMS), units, tokenizer, 8)
    for wrong in (joined, dropped):
        with pytest.raises(AssertionError):
            check_windows(wrong, units, tokenizer, 8)


def test_more_texts_than_one_batch_of_the_tokenizer(tokenizer: Tokenizer) -> None:
    units = [Unit(f"u{number}", (f"pain {number}", "") * 3) for number in range(1500)]
    check_windows(tokenized(units, tokenizer, 8, STREAMS), units, tokenizer, 8)


@pytest.mark.parametrize("token", SPECIAL_TOKENS)
def test_a_special_token_that_stands_in_a_text_is_text(tokenizer: Tokenizer, token: str) -> None:
    written = [Unit("u", (f"the {token} pain",))]
    (body,) = bodies(tokenized(written, tokenizer, 30, STREAMS), 0)
    assert min(body) >= len(SPECIAL_TOKENS)
    # The known-wrong setting, the library's default, reads it as the token itself; in a row it is then an unknown word.
    naive = Tokenizer.from_str(tokenizer.to_str())
    naive.encode_special_tokens = False
    assert SPECIAL_TOKENS.index(token) in naive.encode(written[0].texts[0], add_special_tokens=False).ids
    (unknown,) = bodies(tokenized(written, naive, 30, STREAMS), 0)
    assert set(unknown) & set(range(len(SPECIAL_TOKENS))) == {SPECIAL_TOKENS.index("[UNK]")}


def test_a_units_key_is_its_own_whatever_else_is_in_the_corpus(tokenizer: Tokenizer) -> None:
    units = [Unit(f"patient-{number}", ("the pain",)) for number in range(6)]
    keys = tokenized(units, tokenizer, 10, STREAMS).keys_U
    assert len(set(keys)) == 6
    assert tokenized(units[3:], tokenizer, 10, STREAMS).keys_U == keys[3:]
    assert not set(keys) & set(tokenized(units, tokenizer, 10, KeyedRandomness(bytes(32))).keys_U)
    assert not any("patient" in key for key in keys)


def test_choose_rows_is_keyed_and_takes_at_most_k() -> None:
    stream = stream_of({"a": [[9]] * 3, "b": [[9]] * 7, "c": []})
    for at_most in (1, 2, 5, 7, 9):
        first, second = (stream.choose_rows(1, at_most, STREAMS.generator("unit", 0, "b")) for _ in range(2))
        assert np.array_equal(first, second)
        assert len(first) == len(set(first.tolist())) == min(at_most, 7)
        assert set(first.tolist()) <= set(range(3, 10))
        assert first.tolist() == sorted(first.tolist())
    assert stream.choose_rows(2, 4, STREAMS.generator("unit", 0, "c")).tolist() == []


def test_choose_rows_takes_every_pair_equally_often() -> None:
    stream = stream_of({"a": [[9]] * 5})
    draws = [tuple(stream.choose_rows(0, 2, STREAMS.generator("unit", step, "a")).tolist()) for step in range(4000)]
    counts = [draws.count(pair) for pair in itertools.combinations(range(5), 2)]
    assert sum(counts) == 4000
    assert stats.chisquare(counts).pvalue > 1e-6
