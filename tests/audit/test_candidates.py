"""Exact ranks: the trie against one candidate at a time, nulls by enumeration, planting that couples no units."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import json
import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from tacit.audit.candidates import (
    CacheScorer,
    PrefixScorer,
    Read,
    Scorer,
    StateScorer,
    build_trie,
    candidate_exposure,
    max_exposure_p_value,
    mean_exposure_p_value,
    measure_candidates,
    null_max_exposure,
    null_mean_exposure,
    score_candidates,
    scorer_of,
)
from tacit.corpus.secrets import SecretFormat, draw_secret_canaries, insert_texts
from tacit.corpus.units import Unit
from tacit.errors import DataError, TacitError, UsageError
from tacit.models.lstm import LstmConfig, LstmForCausalLM
from tacit.randomness import Streams

torch.set_num_threads(1)

ALARM = 1e-6
STREAMS = Streams(bytes(range(32)))
START = 1
FORM = SecretFormat(digits=3)
BARE = SecretFormat(prefix="", digits=3)
MERGES = [("1", "2"), ("12", "3"), ("0", "0"), ("9", "9"), ("00", "0"), ("5", "7"), ("i", "s"), ("is", ":")]


def tokenizer_with(merges: list[tuple[str, str]], characters: str = "0123456789MyIDis:x") -> Tokenizer:
    pieces = ["<unk>", "<s>", *dict.fromkeys(characters), *(one + other for one, other in merges)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(BPE(vocabulary, merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    return tokenizer


MERGING = tokenizer_with(MERGES)
DIGITS = tokenizer_with([])


class TinyLstm(nn.Module):
    """An LSTM with the interface that `StateScorer` asks for, or with that of any causal model."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.table, self.lstm = nn.Embedding(vocabulary, 8), nn.LSTM(8, 12, num_layers=2, batch_first=True)
        self.head = nn.Linear(12, vocabulary)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, state: Any = None) -> SimpleNamespace:
        hidden, state = self.lstm(self.table(input_ids), state)
        return SimpleNamespace(logits=self.head(hidden), state=state)


def sharpened(model: nn.Module) -> nn.Module:
    """Float64, and weights so large that the predictions differ."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator))
    return model.double().eval()


@functools.cache
def tiny_lstm() -> nn.Module:
    return sharpened(TinyLstm(MERGING.get_vocab_size()))


@functools.cache
def tiny_gpt2() -> nn.Module:
    config = GPT2Config(vocab_size=MERGING.get_vocab_size(), n_positions=24, n_embd=16, n_layer=2, n_head=2)
    return sharpened(GPT2LMHeadModel(config))


# the oracle ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def steps_of(model: nn.Module, ids: list[int], start: list[int]) -> np.ndarray:
    """Log-probability of each token, with transformers' convention, one whole sequence at a time."""
    whole = torch.tensor([start + ids])
    logits = model(input_ids=whole, attention_mask=torch.ones_like(whole)).logits[0]
    labels = torch.tensor([-100] * (len(start) - 1) + ids)
    losses = F.cross_entropy(logits[:-1], labels, reduction="none", ignore_index=-100)
    return -losses[len(start) - 1 :].numpy()


@functools.cache
def brute_steps(kind: str, form: SecretFormat) -> list[np.ndarray]:
    model = {"gpt2": tiny_gpt2, "lstm": tiny_lstm}[kind]()
    texts = [form.text(secret) for secret in range(form.candidates)]
    return [steps_of(model, MERGING.encode(text).ids, [START]) for text in texts]


def brute(kind: str, form: SecretFormat) -> np.ndarray:
    return np.array([steps.sum() for steps in brute_steps(kind, form)])


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


def test_ranks_are_places_in_the_order() -> None:
    scores_N = score_candidates(StateScorer(tiny_lstm()), build_trie(MERGING, FORM), [START])
    order = np.argsort(-brute("lstm", FORM)).tolist()
    found = candidate_exposure(scores_N, range(0, 1000, 7))
    assert found.ranks == tuple(1.0 + order.index(secret) for secret in range(0, 1000, 7))


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


def test_the_scorer_of_a_model() -> None:
    lstm = LstmForCausalLM(LstmConfig(vocab_size=40, embedding_size=4, hidden_size=4))
    assert isinstance(scorer_of(tiny_gpt2()), CacheScorer)
    assert isinstance(scorer_of(lstm), StateScorer)
    assert isinstance(scorer_of(SimpleNamespace(config=SimpleNamespace(model_type="llama"))), PrefixScorer)


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


# secrets and planting ------------------------------------------------------------------------------------------------


def test_secrets_are_keyed_distinct_and_uniform() -> None:
    one = draw_secret_canaries(10, STREAMS)
    assert one == draw_secret_canaries(10, STREAMS) != draw_secret_canaries(10, STREAMS.child("other"))
    assert len(set(draw_secret_canaries(1000, STREAMS, FORM))) == 1000
    many = [secret for number in range(300) for secret in draw_secret_canaries(10, STREAMS.child("many", number))]
    check_uniform([secret / 10**6 for secret in many])
    assert SecretFormat().text(7) == "My ID is: 000007"


def corpus(size: int) -> list[Unit]:
    return [Unit(f"d{number:04d}", (f"SYS: hello\nUSR: {number}", "a line")) for number in range(size)]


TEXTS = [SecretFormat().text(secret) for secret in draw_secret_canaries(3, STREAMS)]


@pytest.mark.parametrize("copies", [1, 10, 20, 100])
def test_copies_as_units_of_their_own(copies: int) -> None:
    units = corpus(200)
    planted = insert_texts(units, TEXTS, copies, STREAMS)
    new = [unit for unit in planted.units if unit.unit_id.startswith("canary-")]
    assert planted.copies == (copies,) * 3
    assert [unit for unit in planted.units if unit not in new] == units
    assert sorted(unit.texts[0] for unit in new) == sorted(TEXTS * copies)
    assert len({unit.unit_id for unit in new}) == 3 * copies
    assert planted == insert_texts(units, TEXTS, copies, STREAMS)


def test_places_are_anywhere() -> None:
    planted = insert_texts(corpus(200), TEXTS, 1000, STREAMS).units
    before = np.cumsum([not unit.unit_id.startswith("canary-") for unit in planted])
    gaps = [int(gap) for gap, unit in zip(before, planted, strict=True) if unit.unit_id.startswith("canary-")]
    assert (min(gaps), max(gaps)) == (0, 200)
    assert stats.chisquare(np.bincount(gaps, minlength=201)).pvalue > ALARM


def uncoupled(plant: Any, size: int = 60) -> None:
    """Without one unit, every other unit is what it was."""
    everything = {unit.unit_id: unit for unit in plant(corpus(size))}
    for left_out in range(0, size, 5):
        units = corpus(size)
        del units[left_out]
        assert all(everything[unit.unit_id] == unit for unit in plant(units))


def exact_copies(units: list[Unit]) -> list[Unit]:
    """A known-wrong version: exactly ten units, chosen among all."""
    chosen = STREAMS.generator("wrong").choice(len(units), size=10, replace=False)
    return [
        Unit(unit.unit_id, (*unit.texts, TEXTS[0])) if number in chosen else unit for number, unit in enumerate(units)
    ]


def test_planting_couples_no_units() -> None:
    uncoupled(lambda units: insert_texts(units, TEXTS, 10, STREAMS).units)
    uncoupled(lambda units: insert_texts(units, TEXTS, 10, STREAMS, expected_units=60).units)
    with pytest.raises(AssertionError):
        uncoupled(exact_copies)


def test_copies_inside_units() -> None:
    units = corpus(2000)
    planted = insert_texts(units, TEXTS, 100, STREAMS, expected_units=2000)
    for text, copies in zip(TEXTS, planted.copies, strict=True):
        assert sum(unit_text.split("\n").count(text) for unit in planted.units for unit_text in unit.texts) == copies
        assert stats.binomtest(copies, 2000, 0.05).pvalue > ALARM
    for before, after in zip(units, planted.units, strict=True):
        without = tuple("\n".join(line for line in text.split("\n") if line not in TEXTS) for text in after.texts)
        assert Unit(after.unit_id, without) == before
    assert insert_texts([], TEXTS, 1, STREAMS, expected_units=10).copies == (0, 0, 0)


def test_results_are_numbers_and_errors_hold_no_secret() -> None:
    found = candidate_exposure(np.arange(1000.0), [481, 7])
    assert found.ranks == (519.0, 993.0)
    assert json.loads(json.dumps(dataclasses.asdict(found)))["canaries"] == 2
    assert "481" not in repr(insert_texts(corpus(3), ["My ID is: 481"], 1, STREAMS))
    calls = [
        lambda: candidate_exposure(np.arange(1000.0), [481, 481]),
        lambda: candidate_exposure(np.arange(1000.0), [4810]),
        lambda: candidate_exposure(np.arange(1000.0), []),
        lambda: draw_secret_canaries(1001, STREAMS, FORM),
        lambda: SecretFormat(digits=8),
        lambda: insert_texts(corpus(3), ["481"], 0, STREAMS),
        lambda: insert_texts(corpus(3), ["481"], 5, STREAMS, expected_units=4),
        lambda: build_trie(tokenizer_with([]), SecretFormat("", 2, "")) and build_trie(silent(), FORM),
    ]
    for call in calls:
        with pytest.raises(TacitError) as raised:
            call()
        assert "481" not in str(raised.value)
        assert "\n" not in str(raised.value)


def silent() -> Tokenizer:
    """A tokenizer that knows nothing and has no unknown token: it drops every character."""
    return Tokenizer(BPE({"~": 0}, []))
