"""Exact ranks: a model that knows nothing, one that knows everything, and nulls by enumeration."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit.audit.candidates import (
    candidate_exposure,
    max_exposure_p_value,
    mean_exposure_p_value,
    measure_candidates,
    null_max_exposure,
    null_mean_exposure,
)
from tacit.audit.scorers import StateScorer, scorer_of
from tacit.audit.trie import build_trie, score_candidates
from tacit.corpus.secrets import draw_secret_canaries
from tacit.errors import UsageError
from tacit.models.lstm import LstmConfig, LstmForCausalLM
from tacit.randomness import KeyedRandomness

from .tiny import DIGITS, FORM, MERGING, START, TinyLstm, brute, sharpened, tiny_lstm, tokenizer_with

torch.set_num_threads(1)

ALARM = 1e-6
STREAMS = KeyedRandomness(bytes(range(32)))


def test_ranks_are_places_in_the_order() -> None:
    scores_N = score_candidates(StateScorer(tiny_lstm()), build_trie(MERGING, FORM), [START])
    order = np.argsort(-brute("lstm", FORM)).tolist()
    found = candidate_exposure(scores_N, range(0, 1000, 7))
    assert found.ranks == tuple(1.0 + order.index(secret) for secret in range(0, 1000, 7))


# memory, and its absence ---------------------------------------------------------------------------------------------


def project_lstm() -> LstmForCausalLM:
    torch.manual_seed(3)
    return LstmForCausalLM(
        LstmConfig(vocab_size=MERGING.get_vocab_size(), embedding_size=24, hidden_size=24, dropout=0.3)
    )


def test_memorisation_is_seen() -> None:
    model = project_lstm()
    secret = draw_secret_canaries(1, STREAMS, FORM)
    ids = torch.tensor([[START, *MERGING.encode(FORM.text(secret[0])).ids]])
    before = measure_candidates(model, MERGING, secret, [START], FORM)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    model.train()
    for _ in range(80):
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    after = measure_candidates(model, MERGING, secret, [START], FORM)
    assert before.max_p_value > 1e-2
    assert after.ranks == (1.0,)
    assert after.mean_bits == after.max_bits == after.ceiling_bits == math.log2(1000)
    assert after.max_p_value == pytest.approx(1e-3)
    assert after == measure_candidates(model, MERGING, secret, [START], FORM)  # no dropout


def test_an_untrained_model_is_at_its_null() -> None:
    """Over all secrets that could have been drawn: the mean exposure is the null's, and p-values are uniform."""
    model = project_lstm().eval()
    scores_N = score_candidates(scorer_of(model), build_trie(MERGING, FORM), [START])
    rows = [candidate_exposure(scores_N, [secret]) for secret in range(1000)]
    assert np.mean([row.mean_bits for row in rows]) == pytest.approx(null_mean_exposure(1000), abs=1e-9)
    assert sorted(row.max_p_value for row in rows) == pytest.approx((np.arange(1000) + 1) / 1000)


# ties ----------------------------------------------------------------------------------------------------------------


def test_a_constant_model_has_the_middle_rank() -> None:
    model = TinyLstm(DIGITS.get_vocab_size())
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    scores_N = score_candidates(StateScorer(model), build_trie(DIGITS, FORM), [START])
    found = candidate_exposure(scores_N, [7, 123, 900])
    assert found.ranks == (500.5,) * 3
    assert found.max_p_value == found.mean_p_value == 1.0


def share_below(p_values: np.ndarray) -> float:
    """The largest P[p <= x] / x: at most 1 for a valid p-value."""
    values, counts = np.unique(p_values, return_counts=True)
    return float((counts.cumsum() / len(p_values) / values).max())


def test_p_values_hold_where_the_tokenizer_lumps_candidates() -> None:
    """7, 8 and 9 are unknown: only 8^3 sequences are distinct. All secrets are enumerated."""
    lumping = tokenizer_with([], "0123456MyIDis:")
    trie = build_trie(lumping, FORM)
    assert len(set(zip(trie.depth_N.tolist(), trie.node_N.tolist(), strict=True))) == 8**3
    scores_N = score_candidates(StateScorer(sharpened(TinyLstm(40))), trie, [START])
    rows = [candidate_exposure(scores_N, [secret]) for secret in range(1000)]
    assert share_below(np.array([row.max_p_value for row in rows])) <= 1 + 1e-9
    assert share_below(np.array([row.mean_p_value for row in rows])) <= 1 + 1e-9
    halves = np.array([max_exposure_p_value(row.ranks[0], 1000, 1) for row in rows])
    assert share_below(halves) > 1.5  # ranks with ties half are no p-values


# the null ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("candidates", "canaries"), [(1, 1), (2, 1), (2, 2), (5, 3), (7, 4), (40, 1), (30, 2)])
def test_null_by_enumeration(candidates: int, canaries: int) -> None:
    """All sets of distinct ranks are equally likely. The law of the maximum is exact, that of the mean is bounded."""
    sets = list(itertools.combinations(range(1, candidates + 1), canaries))
    bits = math.log2(candidates) - np.log2(np.array(sets))
    assert null_mean_exposure(candidates) == pytest.approx(bits.mean(), abs=1e-12)
    assert null_max_exposure(candidates, canaries) == pytest.approx(bits.max(axis=1).mean(), abs=1e-12)
    smallest, means = np.array(sets).min(axis=1), bits.mean(axis=1)
    for rank in range(1, candidates + 1):
        exact = np.mean(smallest <= rank)
        assert max_exposure_p_value(rank, candidates, canaries) == pytest.approx(exact, rel=1e-12)
    for mean in means:
        assert mean_exposure_p_value(mean, candidates, canaries) >= np.mean(means >= mean - 1e-12) - 1e-12


def test_null_of_soundness() -> None:
    """One canary 1.44 bits, the highest of ten 4.23: the sum of 1/k over ln 2."""
    assert null_mean_exposure(10**6) == pytest.approx(math.log2(math.e), abs=1e-4)
    harmonic = sum(1 / number for number in range(1, 11))
    assert null_max_exposure(10**6, 10) == pytest.approx(harmonic / math.log(2), abs=1e-3)
    assert round(null_max_exposure(10**6, 10), 2) == 4.23
    assert null_max_exposure(10**6, 1) == pytest.approx(null_mean_exposure(10**6), abs=1e-9)
    assert max_exposure_p_value(50_000, 10**6, 10) == pytest.approx(1 - 0.95**10, rel=1e-4)


@functools.cache
def simulated_ranks(canaries: int) -> np.ndarray:
    generator = np.random.default_rng(4)
    ranks = generator.integers(1, 10**6 + 1, size=(20_000, canaries))
    return ranks[[len(set(row)) == canaries for row in ranks.tolist()]]


def check_uniform(p_values: list[float]) -> None:
    assert stats.kstest(p_values, "uniform").pvalue > ALARM


@pytest.mark.parametrize("canaries", [1, 3, 10])
def test_p_values_of_simulated_ranks_are_uniform(canaries: int) -> None:
    ranks = simulated_ranks(canaries)
    means = (math.log2(10**6) - np.log2(ranks)).mean(axis=1)
    check_uniform([mean_exposure_p_value(mean, 10**6, canaries) for mean in means])
    check_uniform([max_exposure_p_value(best, 10**6, canaries) for best in ranks.min(axis=1)])
    assert means.mean() == pytest.approx(null_mean_exposure(10**6), abs=6 * means.std() / math.sqrt(len(means)))


@pytest.mark.slow
def test_wrong_nulls_are_caught() -> None:
    """One canary too few; a normal law for the mean; the law of one canary for the best of ten."""
    ranks = simulated_ranks(10)
    means = (math.log2(10**6) - np.log2(ranks)).mean(axis=1)
    normal = stats.norm(null_mean_exposure(10**6), 1 / math.log(2) / math.sqrt(10))
    for wrong in (
        [mean_exposure_p_value(mean * 10 / 9, 10**6, 9) for mean in means],
        [float(normal.sf(mean)) for mean in means],
        [max_exposure_p_value(best, 10**6, 1) for best in ranks.min(axis=1)],
    ):
        with pytest.raises(AssertionError):
            check_uniform(wrong)


def test_extreme_p_values() -> None:
    ceiling = math.log2(10**6)
    assert 1e-60 < mean_exposure_p_value(ceiling, 10**6, 10) < 1e-40
    assert max_exposure_p_value(1, 10**6, 10) == pytest.approx(1e-5, rel=1e-9)
    assert mean_exposure_p_value(-0.1, 10**6, 10) == 1.0
    assert max_exposure_p_value(10**6, 10**6, 10) == 1.0


def test_results_are_numbers_and_errors_hold_no_secret() -> None:
    found = candidate_exposure(np.arange(1000.0), [481, 7])
    assert found.ranks == (519.0, 993.0)
    assert json.loads(json.dumps(dataclasses.asdict(found)))["canaries"] == 2
    for secrets in ([481, 481], [4810], []):
        with pytest.raises(UsageError) as raised:
            candidate_exposure(np.arange(1000.0), secrets)
        assert "481" not in str(raised.value)
        assert "\n" not in str(raised.value)
