"""Rows of a corpus of which only a part holds conversations, made part by part."""

from __future__ import annotations

import dataclasses
import pickle
from pathlib import Path

import numpy as np
import pytest

from tacit.corpus.units import Unit
from tacit.randomness import KeyedRandomness
from tacit.training.row_store import open_rows, write_rows
from tacit.training.tokenising import Tokenising, copies_of
from tacit.vocabulary.chat_template import own_template
from tacit.vocabulary.special import OWN_NAMES
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, build_tokenizer

OPTIONS = TokenizerOptions()
LENGTH = 12
PLAIN = [Unit("a", ("pain and fever",)), Unit("b", ("fever", ""))]
OTHERS = [Unit("c", ("and pain",))]


@pytest.fixture(scope="module")
def how() -> Tokenising:
    pieces = [*SPECIAL_TOKENS, "pain", "and", "fever"]
    tokenizer = build_tokenizer(pieces, OPTIONS).to_str()
    return Tokenising(tokenizer, OWN_NAMES, LENGTH, KeyedRandomness(bytes(32)), (own_template(), "a test"), True)


def test_parts_with_and_without_conversations_go_into_one_store(how: Tokenising, tmp_path: Path) -> None:
    """Known wrong: to look for each part whether it holds some, as it was; the first part then says nothing of what counts."""
    for name, first in (("right", how), ("wrong", dataclasses.replace(how, has_chats=False))):
        (tmp_path / name).mkdir()
        parts = [first.rows(PLAIN, [False, False]), how.rows(OTHERS, [True])]
        if first is how:
            write_rows(tmp_path / name, parts)
        else:
            with pytest.raises(KeyError):
                write_rows(tmp_path / name, parts)
    rows = open_rows(tmp_path / "right")
    assert rows.counted_ST is not None
    assert rows.counted_ST.shape == rows.ids_ST.shape
    # of plain text all tokens but the first count, and no padding
    places_T = np.arange(LENGTH)
    expected_ST = (places_T > 0) & (places_T < np.asarray(rows.lengths_S)[:, None])
    assert np.array_equal(np.asarray(rows.counted_ST), expected_ST)


def test_it_makes_the_same_rows_in_another_process(how: Tokenising) -> None:
    before = how.rows(PLAIN, [False, False])  # what it has made of the rest stays behind
    again = pickle.loads(pickle.dumps(how)).rows(PLAIN, [False, False])
    assert np.array_equal(before.ids_ST, again.ids_ST)
    assert before.keys_U == again.keys_U


def test_copies_have_ids_and_so_random_choices_of_their_own() -> None:
    copies = copies_of(PLAIN[0], 3)
    assert [copy.unit_id for copy in copies] == ["a", "a:copy 2", "a:copy 3"]
    assert {copy.texts for copy in copies} == {PLAIN[0].texts}
