"""Marked rows: one a unit, and no public token holds a character of a private run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tacit.corpus.units import Unit
from tacit.randomness import KeyedRandomness
from tacit.training.marked import split_marks, tokenize_marked, unmarked
from tacit.training.sequences import tokenize_units
from tacit.vocabulary.special import OWN_NAMES, special_tokens
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, build_tokenizer

STREAMS = KeyedRandomness(bytes(range(32)))
LENGTH = 24


def made_tokenizer() -> Tokenizer:
    options = TokenizerOptions()
    characters = list(options.alphabet)
    pieces = [*SPECIAL_TOKENS, *characters, *(f"##{c}" for c in characters), "call", "##ing", "me", "at", "55", "##55"]
    built = build_tokenizer(list(dict.fromkeys(pieces)), options)
    built.encode_special_tokens = True
    return built


TOKENIZER = made_tokenizer()
SPECIAL = special_tokens(TOKENIZER, OWN_NAMES)
SIZE = TOKENIZER.get_vocab_size()

texts = st.text(alphabet="aAeé55cligm .,-\u0301\u200b[]", max_size=30)
runs = st.lists(st.tuples(st.integers(0, 29), st.integers(1, 8)), max_size=4)


def one_row(text: str, marked: list[tuple[int, int]], length: int = LENGTH) -> tuple[np.ndarray, np.ndarray]:
    """(ids, private) of the row's real positions."""
    stream = tokenize_marked([Unit("u", (text,))], [marked], TOKENIZER, SPECIAL, length, STREAMS)
    assert stream.sequences == stream.units == 1
    return split_marks(stream.ids_ST[0, : stream.lengths_S[0]], SIZE)


@given(text=texts, starts=runs)
@settings(max_examples=200, deadline=None)
def test_tokens_are_private_where_a_character_of_theirs_is(text: str, starts: list[tuple[int, int]]) -> None:
    marked = sorted((start, start + size) for start, size in starts)
    inside = {place for start, end in marked for place in range(start, end)}
    encoding = TOKENIZER.encode(text, add_special_tokens=False)
    ids, private = one_row(text, marked)
    expected = [bool(inside & set(range(start, end))) for start, end in encoding.offsets[: LENGTH - 2]]
    assert ids.tolist() == [2, *encoding.ids[: LENGTH - 2], 3]
    assert private.tolist() == [False, *expected, False]


def test_half_a_word_makes_its_tokens_private() -> None:
    ids, private = one_row("calling 5555 me", [(6, 10)])  # from "ng" to "55"
    pieces = [TOKENIZER.id_to_token(int(token)) for token in ids]
    assert pieces == ["[CLS]", "call", "##ing", "55", "##55", "me", "[SEP]"]
    assert private.tolist() == [False, False, True, True, False, False, False]


def test_an_unknown_word_is_private_as_a_whole() -> None:
    ids, private = one_row("me \u4e00\u5f20 at", [(4, 5)])
    names = [TOKENIZER.id_to_token(int(token)) for token in ids]
    assert [own for name, own in zip(names, private, strict=True) if name == "[UNK]"][-1]
    assert not private[1]
    assert not private[-2]


def test_a_row_is_the_first_tokens_of_its_text_and_there_is_one_of_every_unit() -> None:
    units = [Unit("a", ("me at " * 40,)), Unit("b", ("",)), Unit("c", ("call",))]
    stream = tokenize_marked(units, [[(0, 2)], [], [(0, 4)]], TOKENIZER, SPECIAL, 10, STREAMS)
    assert stream.lengths_S.tolist() == [10, 2, 3]
    assert stream.starts_U1.tolist() == [0, 1, 2, 3]
    assert (stream.ids_ST[0] >= SIZE).tolist() == [False, True, *[False] * 8]
    assert stream.ids_ST[2, 1] == TOKENIZER.token_to_id("call") + SIZE


def test_without_marks_the_rows_and_keys_are_those_of_an_ordinary_stream() -> None:
    units = [Unit("a", ("me at 5555",)), Unit("b", ("calling",))]
    marked = tokenize_marked(units, [[(0, 4)], [(0, 7)]], TOKENIZER, SPECIAL, LENGTH, STREAMS)
    plain, ordinary = unmarked(marked, SIZE), tokenize_units(units, TOKENIZER, SPECIAL, LENGTH, STREAMS)
    assert np.array_equal(plain.ids_ST, ordinary.ids_ST)
    assert np.array_equal(plain.lengths_S, ordinary.lengths_S)
    assert plain.keys_U == ordinary.keys_U
    assert not np.array_equal(marked.ids_ST, plain.ids_ST)


def test_units_are_tokenised_in_parts_as_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    units = [Unit(str(number), (f"me at {number}",)) for number in range(7)]
    spans = [[(6, 7)]] * 7
    whole = tokenize_marked(units, spans, TOKENIZER, SPECIAL, LENGTH, STREAMS)
    monkeypatch.setattr("tacit.training.marked._TEXTS_AT_ONCE", 3)
    parts = tokenize_marked(units, spans, TOKENIZER, SPECIAL, LENGTH, STREAMS)
    assert np.array_equal(whole.ids_ST, parts.ids_ST)
