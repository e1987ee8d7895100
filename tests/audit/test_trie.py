"""The trie against one candidate at a time; every prefix is read once, in chunks."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.audit.scorers import CacheScorer, PrefixScorer, Read, Scorer, StateScorer
from tacit.audit.trie import Trie, build_trie, score_candidates
from tacit.corpus.secrets import SecretFormat
from tacit.errors import DataError, UsageError

from .tiny import (
    BARE,
    DIGITS,
    FORM,
    MERGES,
    MERGING,
    START,
    TinyLstm,
    brute,
    brute_steps,
    silent,
    steps_of,
    tiny_gpt2,
    tiny_lstm,
    tokenizer_with,
)

torch.set_num_threads(1)


def check_scores(found_N: np.ndarray, kind: str, form: SecretFormat) -> None:
    """Scores to 1e-9, and every rank."""
    expected_N = brute(kind, form)
    assert np.abs(found_N - expected_N).max() < 1e-9
    assert np.array_equal(np.argsort(-found_N), np.argsort(-expected_N))


SCORERS: dict[str, tuple[str, Any]] = {
    "gpt2 prefixes": ("gpt2", lambda: PrefixScorer(tiny_gpt2())),
    "gpt2 cache": ("gpt2", lambda: CacheScorer(tiny_gpt2())),
    "lstm prefixes": ("lstm", lambda: PrefixScorer(tiny_lstm())),
    "lstm state": ("lstm", lambda: StateScorer(tiny_lstm())),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", [FORM, BARE, SecretFormat("", 3, " x")], ids=["template", "digits", "suffix"])
@pytest.mark.parametrize("name", SCORERS)
def test_the_trie_gives_what_one_candidate_at_a_time_gives(name: str, form: SecretFormat) -> None:
    kind, scorer = SCORERS[name]
    check_scores(score_candidates(scorer(), build_trie(MERGING, form), [START]), kind, form)


@pytest.mark.parametrize("budget", [1, 5_000, 40_000])
@pytest.mark.parametrize("name", SCORERS)
def test_small_chunks_change_nothing(name: str, budget: int) -> None:
    kind, scorer = SCORERS[name]
    check_scores(score_candidates(scorer(), build_trie(MERGING, BARE), [START], budget), kind, BARE)


def wrong_scores(kind: str, form: SecretFormat) -> dict[str, np.ndarray]:
    """What a careless scorer computes."""
    steps = brute_steps(kind, form)
    return {
        "last token only": np.array([row[-1] for row in steps]),
        "mean instead of total": np.array([row.mean() for row in steps]),
        "no start token": np.array([row[1:].sum() for row in steps]),
    }


@pytest.mark.parametrize("wrong", ["last token only", "mean instead of total", "no start token"])
@pytest.mark.parametrize("kind", ["gpt2", "lstm"])
def test_wrong_scorers_are_caught(kind: str, wrong: str) -> None:
    found_N = wrong_scores(kind, BARE)[wrong]
    with pytest.raises(AssertionError):
        check_scores(found_N, kind, BARE)
    right, order = np.argsort(-brute(kind, BARE)), np.argsort(-found_N)
    assert np.count_nonzero(right != order) > 900  # nearly every rank, not the last digits of a few


def test_a_start_token_is_asked_for() -> None:
    with pytest.raises(UsageError, match="start token"):
        score_candidates(StateScorer(tiny_lstm()), build_trie(MERGING, FORM), [])


def test_a_longer_start_is_a_context() -> None:
    start = [START, *DIGITS.encode("x x").ids]
    scores_N = score_candidates(CacheScorer(tiny_gpt2()), build_trie(DIGITS, BARE), start)
    expected = steps_of(tiny_gpt2(), DIGITS.encode("407").ids, start).sum()
    assert scores_N[407] == pytest.approx(expected, abs=1e-9)


def test_not_a_number_is_an_error() -> None:
    model = TinyLstm(MERGING.get_vocab_size())
    nn.init.constant_(model.head.bias, math.nan)
    with pytest.raises(DataError, match="not numbers"):
        score_candidates(StateScorer(model), build_trie(MERGING, FORM), [START])


# the trie ------------------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class CountingScorer:
    """Counts the rows that are read at one time, and keeps every prefix that is read."""

    scorer: Scorer[Any]
    rows: list[int]
    prefixes: list[tuple[int, ...]]
    row_bytes: int

    def begin(self, ids: Sequence[int]) -> Read[Any]:
        return self._counted([()], self.scorer.begin(ids))

    def extend(self, state: Any, rows_M: Tensor, tokens_M: Tensor) -> Read[Any]:
        inner, known = state
        prefixes = [(*known[row], token) for row, token in zip(rows_M.tolist(), tokens_M.tolist(), strict=True)]
        return self._counted(prefixes, self.scorer.extend(inner, rows_M, tokens_M))

    def _counted(self, prefixes: list[tuple[int, ...]], read: Read[Any]) -> Read[Any]:
        self.rows.append(len(prefixes))
        self.prefixes += prefixes
        return Read(read.logits_MV, (read.state, prefixes), self.row_bytes)


def test_every_prefix_is_read_once_and_in_chunks() -> None:
    trie = build_trie(MERGING, FORM)
    sequences = [tuple(MERGING.encode(FORM.text(secret)).ids) for secret in range(1000)]
    expected = {row[:end] for row in sequences for end in range(len(row))}
    counting = CountingScorer(StateScorer(tiny_lstm()), [], [], row_bytes=100)
    score_candidates(counting, trie, [START], budget_bytes=700)
    assert sorted(counting.prefixes) == sorted(expected)
    assert max(counting.rows) == 7
    assert trie.evaluations == len(expected)


def test_single_digits_need_one_evaluation_a_prefix() -> None:
    """1 + 10 + 100 prefixes of digits; in front of them the pieces of the template."""
    assert build_trie(DIGITS, BARE).evaluations == 111
    assert build_trie(DIGITS, FORM).evaluations == 111 + len(DIGITS.encode("My ID is: ").ids)


def test_padding_and_truncation_of_the_tokenizer_are_ignored() -> None:
    padded = tokenizer_with(MERGES)
    padded.enable_padding(length=40)
    padded.enable_truncation(max_length=2)
    expected, found = build_trie(MERGING, FORM), build_trie(padded, FORM)
    assert np.array_equal(found.depth_N, expected.depth_N)
    assert np.array_equal(found.node_N, expected.node_N)
    assert padded.truncation is not None  # and left as they are
    assert padded.padding is not None


def test_a_candidate_without_tokens_is_refused() -> None:
    with pytest.raises(UsageError, match="no token at all"):
        build_trie(silent(), FORM)


def test_a_trie_is_read_as_it_was_written(tmp_path: Path) -> None:
    """In another process the same candidates get the same scores."""
    found = build_trie(MERGING, FORM)
    found.save(tmp_path / "trie.npz")
    again = Trie.load(tmp_path / "trie.npz")
    assert len(again.levels) == len(found.levels)
    for one, other in zip(again.levels, found.levels, strict=True):
        assert np.array_equal(one.token_M, other.token_M)
        assert np.array_equal(one.first_M1, other.first_M1)
    assert np.array_equal(again.depth_N, found.depth_N)
    assert np.array_equal(again.node_N, found.node_N)
