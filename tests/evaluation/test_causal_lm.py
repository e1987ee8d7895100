"""Perplexities: by hand, of models that are known exactly, against plain loops; and the sensitivity of their release."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from tacit.config import ModelOptions
from tacit.corpus.units import Unit
from tacit.errors import DataError
from tacit.evaluation import causal_lm
from tacit.evaluation.causal_lm import (
    TOKENS_PER_BYTE,
    TOKENS_PER_WORD,
    UnitLosses,
    UnitSizes,
    means_of_sum,
    perplexities,
    score_units,
    text_sizes,
    uniform,
    unigram,
    unit_sizes,
    unit_vectors,
)
from tacit.evaluation.masked_lm import noisy_sum
from tacit.models.lstm import LstmConfig, LstmForCausalLM
from tacit.randomness import KeyedRandomness
from tacit.training.sequences import SequenceStream, tokenize_units
from tacit.vocabulary.special import OWN_NAMES, special_tokens
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, build_tokenizer

from ..networks import build_gpt2, build_lstm

torch.set_num_threads(1)

STREAMS = KeyedRandomness(bytes(range(32)))
LENGTH, SPECIAL, VOCABULARY = 12, 5, 50
BOUND = 1.5 * math.log(VOCABULARY)
OPTIONS = ModelOptions(layers=1, width=16, heads=2, length=LENGTH, dropout=0.5)
Units = dict[str, list[list[int]]]


def stream_of(units: Units) -> SequenceStream:
    rows = [tokens for own in units.values() for tokens in own]
    ids = np.zeros((len(rows), LENGTH), dtype=np.int32)
    for number, tokens in enumerate(rows):
        ids[number, : len(tokens) + 2] = [2, *tokens, 3]
    lengths = np.array([len(tokens) + 2 for tokens in rows], dtype=np.int32)
    starts = np.concatenate([[0], np.cumsum([len(own) for own in units.values()])]).astype(np.int64)
    return SequenceStream(ids, lengths, starts, tuple(units))


def some_units(number: int = 12) -> Units:
    generator = np.random.default_rng(4)
    units = {
        f"u{n}": [
            generator.integers(SPECIAL, VOCABULARY, size=generator.integers(1, 11)).tolist()
            for _ in range(generator.integers(1, 12))
        ]
        for n in range(number)
    }
    return {**units, "empty": [], "special": [[1, 4, 1]], "long": [[6, 7, 8, 9, 10, 11, 12, 13, 14, 15]] * 40}


def gpt2() -> PreTrainedModel:
    return build_gpt2(OPTIONS, VOCABULARY, 0, 2, 3, 3)


def lstm() -> PreTrainedModel:
    return build_lstm(OPTIONS, VOCABULARY, 0, 2, 3, 3)


def ones(stream: SequenceStream) -> tuple[np.ndarray, np.ndarray]:
    return np.ones(stream.units, dtype=int), np.ones(stream.units, dtype=int)


# by hand -----------------------------------------------------------------------------------------------------------------


def test_the_three_measures_by_hand() -> None:
    """6 bits in all: of 3 tokens 2 bits each, of 2 words 3 bits each, of 5 bytes 1.2 bits each."""
    losses = UnitLosses(np.array([4.0, 0.0, 2.0]) * math.log(2), np.array([2, 0, 1]), whole=True)
    words, sizes = text_sizes([Unit("a", ("ab",)), Unit("b", ("",)), Unit("c", (" é",))])
    assert (words.tolist(), sizes.tolist()) == ([1, 0, 1], [2, 0, 3])
    found = perplexities(losses, words, sizes)
    assert (found.per_token, found.per_word, found.bits_per_byte) == pytest.approx((4.0, 8.0, 1.2))
    assert (found.tokens, found.words, found.bytes) == (3, 2, 5)
    uneven = UnitLosses(np.array([4.0, 0.0, 5.0]) * math.log(2), np.array([2, 0, 1]), whole=True)
    assert perplexities(uneven, words, sizes).per_token == pytest.approx(
        8.0
    )  # of the units' means it would be 2 ** 3.5


def test_sizes_of_texts() -> None:
    units = [Unit("a", ("µ  is\tmu\n", "x")), Unit("b", ()), Unit("c", (" \n",)), Unit("d", ("naïve 😀",))]
    words, sizes = text_sizes(units)
    assert words.tolist() == [4, 0, 0, 2]
    assert sizes.tolist() == [10 + 1, 0, 2, 6 + 1 + 4]
    assert doctest.testmod(causal_lm).failed == 0


def test_unigram_by_hand() -> None:
    """[SEP] (id 3) is predicted twice, [CLS] and padding never; then one more of each of the ten ids."""
    table = unigram(stream_of({"a": [[5, 5, 6]], "b": [[1]]}), 10)
    assert np.exp(table) == pytest.approx(np.array([1, 2, 1, 3, 1, 3, 2, 1, 1, 1]) / 16)


def test_unigram_and_uniform_are_distributions() -> None:
    for table in (
        unigram(stream_of(some_units()), VOCABULARY),
        unigram(stream_of({}), VOCABULARY),
        uniform(VOCABULARY),
    ):
        assert table.shape == (VOCABULARY,)
        assert np.exp(table).sum() == pytest.approx(1.0)
        assert np.isfinite(table).all()


# models that are known exactly -----------------------------------------------------------------------------------------


def test_a_uniform_model_has_perplexity_v() -> None:
    stream = stream_of(some_units())
    models: dict[str, PreTrainedModel | np.ndarray] = {"gpt2": gpt2(), "lstm": lstm(), "table": uniform(VOCABULARY)}
    for model in models.values():
        if not isinstance(model, np.ndarray):
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter.zero_()
    for name, losses in score_units(models, stream, STREAMS).items():
        found = perplexities(losses, *ones(stream))
        assert found.per_token == pytest.approx(VOCABULARY, rel=1e-5), name
        nats = math.log(VOCABULARY) * found.tokens
        assert found.bits_per_byte == pytest.approx(nats / math.log(2) / stream.units, rel=1e-5)
        assert found.per_word == pytest.approx(math.exp(min(700, nats / stream.units)), rel=1e-3)
    assert score_units(models, stream, STREAMS)["table"].tokens_U.sum() == (stream.lengths_S - 1).sum()


def bigram_lstm(log_p_VV: np.ndarray) -> LstmForCausalLM:
    """Gates open or shut, so that the state is tanh(1) at the last token and 0 elsewhere; the head reads off its row."""
    size = len(log_p_VV)
    model = LstmForCausalLM(LstmConfig(vocab_size=size, embedding_size=size, hidden_size=size)).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight.copy_(100 * torch.eye(size))
        _, _, cell, _ = model.lstm.weight_ih_l0.chunk(4)
        cell.copy_(torch.eye(size))
        into, forget, _, out = model.lstm.bias_ih_l0.chunk(4)
        into.fill_(100)
        forget.fill_(-100)
        out.fill_(100)
        model.lm_head.weight.copy_(torch.from_numpy(log_p_VV.T) / math.tanh(1))
    return model


def bigram_gpt2(log_p_VV: np.ndarray) -> GPT2LMHeadModel:
    """Blocks that add nothing, tables of unit vectors, a last norm that gives these back; the head reads off a row."""
    size = len(log_p_VV)
    config = GPT2Config(
        vocab_size=size, n_positions=LENGTH, n_embd=size, n_layer=1, n_head=1, tie_word_embeddings=False
    )
    model = GPT2LMHeadModel(config).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.transformer.wte.weight.copy_(torch.eye(size))
        variance = (size - 1) / size**2  # of a unit vector's entries
        model.transformer.ln_f.weight.fill_(math.sqrt(variance + config.layer_norm_epsilon))
        model.transformer.ln_f.bias.fill_(1 / size)
        model.lm_head.weight.copy_(torch.from_numpy(log_p_VV.T))
    return model


def test_a_bigram_model_has_its_exact_perplexity() -> None:
    size = 10
    generator = np.random.default_rng(8)
    log_p_VV = np.log(generator.dirichlet(np.ones(size), size=size))
    units = {f"u{n}": [generator.integers(5, size, size=length).tolist() for length in (1, 7, 10)] for n in range(30)}
    stream = stream_of(units)
    expected = [
        -sum(log_p_VV[one, other] for row in own for one, other in zip([2, *row], [*row, 3], strict=True))
        for own in units.values()
    ]
    models: dict[str, PreTrainedModel | np.ndarray] = {"lstm": bigram_lstm(log_p_VV), "gpt2": bigram_gpt2(log_p_VV)}
    for name, losses in score_units(models, stream, STREAMS).items():
        assert losses.nats_U == pytest.approx(expected, rel=1e-9), name
        assert losses.tokens_U.tolist() == [1 + 7 + 10 + 3] * 30
        found = perplexities(losses, *ones(stream))
        assert found.per_token == pytest.approx(math.exp(np.sum(expected) / (30 * 21)), rel=1e-9)


def test_tokenizers_compare_by_word_and_byte() -> None:
    """Uniform over the pieces: longer pieces cost fewer nats a text, though the perplexity per token is higher."""
    characters = [*SPECIAL_TOKENS, *"ab", "##a", "##b"]
    pairs = [*characters, "ab", "##ab"]
    units = [Unit("x", ("abab ab", "b")), Unit("y", ()), Unit("z", ("ba" * 9,))]
    words, sizes = text_sizes(units)
    found = []
    for pieces in (characters, pairs):
        tokenizer = build_tokenizer(pieces, TokenizerOptions(alphabet="ab"))
        stream = tokenize_units(units, tokenizer, special_tokens(tokenizer, OWN_NAMES), LENGTH, STREAMS)
        losses = score_units({"uniform": uniform(len(pieces))}, stream, STREAMS)["uniform"]
        found.append(perplexities(losses, words, sizes))
    one, other = found
    # 6 + 1 + 18 pieces of one character (2 rows of 10 at most for the long one) and 4 ends; 3 + 1 + 10 pieces and 3 ends
    assert (one.tokens, other.tokens) == (6 + 1 + 18 + 4, 3 + 1 + 10 + 3)
    assert (one.per_token, other.per_token) == pytest.approx((9, 11))
    for each, size in ((one, 9), (other, 11)):
        nats = each.tokens * math.log(size)
        assert each.per_word == pytest.approx(math.exp(nats / 4))
        assert each.bits_per_byte == pytest.approx(nats / math.log(2) / (7 + 1 + 18))
    assert other.bits_per_byte < one.bits_per_byte


# scores ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_unit", [None, 1, 3])
def test_scores_by_a_plain_loop(per_unit: int | None) -> None:
    """A row at a time, without padding, through transformers' own mean loss."""
    units = some_units()
    stream = stream_of(units)
    table = unigram(stream, VOCABULARY)
    models: dict[str, PreTrainedModel | np.ndarray] = {"gpt2": gpt2(), "lstm": lstm(), "unigram": table}
    found = score_units(models, stream, STREAMS, per_unit)
    for name, model in models.items():
        nats, tokens = [], []
        for unit, key in enumerate(units):
            own = stream.rows_of(unit)
            if per_unit is not None:
                own = stream.choose_rows(unit, per_unit, STREAMS.generator("evaluation", key))
            assert per_unit is None or len(own) <= per_unit
            rows = [stream.ids_ST[row, : stream.lengths_S[row]].tolist() for row in own]
            tokens.append(sum(len(row) - 1 for row in rows))
            if isinstance(model, np.ndarray):
                nats.append(-sum(model[token] for row in rows for token in row[1:]))
                continue
            model.eval()
            with torch.no_grad():
                ids = [torch.tensor([row]) for row in rows]
                nats.append(sum(float(model(input_ids=x, labels=x).loss) * (x.shape[1] - 1) for x in ids))
        assert found[name].tokens_U.tolist() == tokens
        assert found[name].nats_U == pytest.approx(nats, rel=1e-5)
        assert found[name].whole == (per_unit is None)


def test_scoring_leaves_the_mode_of_a_model_as_it_was() -> None:
    model, stream = gpt2().train(), stream_of(some_units(2))
    first = score_units({"m": model}, stream, STREAMS)["m"]
    assert model.training
    second = score_units({"m": model.eval()}, stream, STREAMS)["m"]
    assert not model.training
    assert np.array_equal(first.nats_U, second.nats_U)  # without dropout both times


def test_one_held_out_unit_changes_no_other_units_score() -> None:
    units = some_units()
    models: dict[str, PreTrainedModel | np.ndarray] = {"gpt2": gpt2(), "lstm": lstm(), "uniform": uniform(VOCABULARY)}
    whole = score_units(models, stream_of(units), STREAMS, 3)
    fewer = score_units(models, stream_of({k: v for k, v in units.items() if k != "u4"}), STREAMS, 3)
    for name in models:  # rows fall into other batches of the model: equal to rounding, not bit for bit
        assert np.array_equal(np.delete(whole[name].tokens_U, 4), fewer[name].tokens_U)
        np.testing.assert_allclose(np.delete(whole[name].nats_U, 4), fewer[name].nats_U, rtol=1e-5)


def test_no_units_and_units_without_text() -> None:
    models: dict[str, PreTrainedModel | np.ndarray] = {"gpt2": gpt2(), "uniform": uniform(VOCABULARY)}
    for units in ({}, {"empty": [], "also": []}):
        stream = stream_of(units)
        scores = score_units(models, stream, STREAMS)
        assert unit_vectors(scores, BOUND).shape == (0, 3)
        assert scores["gpt2"].nats_U.tolist() == [0.0] * len(units)
        with pytest.raises(DataError, match="no held-out text"):
            perplexities(scores["gpt2"], *ones(stream))


def test_perplexities_are_of_whole_units_and_of_their_own_texts() -> None:
    stream = stream_of(some_units())
    some = score_units({"u": uniform(VOCABULARY)}, stream, STREAMS, 1)["u"]
    with pytest.raises(ValueError, match="rows were left out"):
        perplexities(some, *ones(stream))
    every = score_units({"u": uniform(VOCABULARY)}, stream, STREAMS)["u"]
    with pytest.raises(ValueError, match="15 units and sizes of 14"):
        perplexities(every, *(sizes[1:] for sizes in ones(stream)))


@pytest.mark.parametrize("nats", [1e6, math.inf])
def test_a_model_that_diverged_has_infinite_perplexity(nats: float) -> None:
    found = perplexities(UnitLosses(np.array([nats]), np.array([3]), True), np.array([2]), np.array([9]))
    assert (found.per_token, found.per_word) == (math.inf, math.inf)
    diverged = UnitLosses(np.array([math.nan]), np.array([3]), True)
    assert math.isnan(perplexities(diverged, np.array([2]), np.array([9])).per_token)


# the release -----------------------------------------------------------------------------------------------------------

any_loss = st.floats(0, 1e300) | st.just(math.inf) | st.just(math.nan)


@given(st.integers(0, 6), st.integers(1, 3), st.data())
@settings(max_examples=200, deadline=None)
def test_one_unit_moves_the_sum_by_at_most_root_m(units: int, models: int, data: st.DataObject) -> None:
    """Whatever the losses and lengths are, also infinite or not a number; `noisy_sum` checks the range."""
    tokens_U = data.draw(nps.arrays(np.int64, units + 1, elements=st.integers(0, 1000)))
    nats = nps.arrays(float, units + 1, elements=any_loss)
    losses = {f"m{n}": UnitLosses(data.draw(nats), tokens_U, False) for n in range(models)}
    fewer = {name: UnitLosses(loss.nats_U[:-1], tokens_U[:-1], False) for name, loss in losses.items()}
    totals = [noisy_sum(unit_vectors(each, BOUND), 0.0, STREAMS.generator("x")) for each in (losses, fewer)]
    assert totals[0].shape == (1 + models,)
    assert np.linalg.norm(totals[0] - totals[1]) <= math.sqrt(1 + models) + 1e-9


@given(st.integers(0, 6), st.data())
@settings(max_examples=200, deadline=None)
def test_with_sizes_too_one_unit_moves_the_sum_by_at_most_root_m(units: int, data: st.DataObject) -> None:
    """Whatever the lengths are; a unit may be a billion words long, or hold no word at all."""
    lengths = nps.arrays(np.int64, units + 1, elements=st.integers(0, 10**12))
    tokens_U = data.draw(nps.arrays(np.int64, units + 1, elements=st.integers(0, 1000)))
    nats_U = data.draw(nps.arrays(float, units + 1, elements=any_loss))
    sizes = UnitSizes(data.draw(lengths), data.draw(lengths), data.draw(lengths))
    fewer = UnitSizes(sizes.tokens_U[:-1], sizes.words_U[:-1], sizes.bytes_U[:-1])
    vectors = (
        unit_vectors({"m": UnitLosses(nats_U, tokens_U, False)}, BOUND, sizes),
        unit_vectors({"m": UnitLosses(nats_U[:-1], tokens_U[:-1], False)}, BOUND, fewer),
    )
    one, other = (noisy_sum(each, 0.0, STREAMS.generator("x")) for each in vectors)
    assert one.shape == (4,)
    assert np.linalg.norm(one - other) <= math.sqrt(4) + 1e-9


def test_sums_of_words_and_bytes_would_move_it_further() -> None:
    """The known-wrong vectors: the unit's words themselves, for a quotient of sums over all units."""
    losses = {"m": UnitLosses(np.array([10.0]), np.array([10]), True)}
    sizes = UnitSizes(np.array([10]), np.array([5]), np.array([40]))
    assert unit_vectors(losses, BOUND, sizes)[0, 2:].tolist() == [2 / TOKENS_PER_WORD, 0.25 / TOKENS_PER_BYTE]
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        noisy_sum(np.array([[1.0, 0.5, 5.0, 40.0]]), 0.0, STREAMS.generator("x"))


def test_a_text_of_white_space_counts_as_the_bound() -> None:
    losses = {"m": UnitLosses(np.array([1.0, 1.0]), np.array([1, 0]), True)}
    sizes = UnitSizes(np.array([1, 0]), np.array([0, 0]), np.array([3, 0]))
    assert unit_vectors(losses, BOUND, sizes)[:, 2:].tolist() == [[1.0, 1 / 3]]


def test_without_noise_words_and_bytes_are_those_of_equal_units() -> None:
    """Units that are alike: there the means over units are the quotients of sums, which `perplexities` gives."""
    tokens_U, words_U, bytes_U = (np.full(5, size) for size in (12, 8, 50))
    losses = UnitLosses(np.full(5, 30.0), tokens_U, True)
    vectors = unit_vectors({"m": losses}, BOUND, UnitSizes(tokens_U, words_U, bytes_U))
    found = means_of_sum(vectors.sum(axis=0), ("m",), 0.0, BOUND, with_sizes=True)["m"]
    exact = perplexities(losses, words_U, bytes_U)
    assert found["perplexity"] == pytest.approx(exact.per_token)
    assert found["perplexity_per_word"] == pytest.approx(exact.per_word)
    assert found["bits_per_byte"] == pytest.approx(exact.bits_per_byte)
    assert found["bits_per_byte_interval"] == pytest.approx([exact.bits_per_byte] * 2)


def test_the_interval_of_a_product_holds_it_as_often_as_it_says() -> None:
    """Known wrong: the noise of the two sums alone, without the count's."""
    count, stddev = 1e5, 300.0
    true_M = count * np.array([1.0, 0.8, 0.3, 0.75])
    noise = np.random.default_rng(3).normal(0, stddev, (2000, 4))
    bits = 0.8 * BOUND * 0.75 * TOKENS_PER_BYTE / math.log(2)
    held, wrong = 0, 0
    for one in noise:
        low, high = means_of_sum(true_M + one, ("m",), stddev, BOUND, with_sizes=True)["m"]["bits_per_byte_interval"]
        held += low <= bits <= high
        product = (true_M + one)[1] * (true_M + one)[3] / (true_M + one)[0] ** 2
        wrong += abs(product - 0.6) <= 1.96 * stddev / count * math.hypot(0.8, 0.75)
    assert held / len(noise) == pytest.approx(0.95, abs=0.015)
    assert wrong / len(noise) < 0.85


def test_sizes_are_of_whole_units() -> None:
    stream = stream_of({"a": [[5, 6], [7]], "b": [], "c": [[8, 9, 10]]})
    units = [Unit("a", ("fünf sechs", "sieben")), Unit("b", ()), Unit("c", ("x",))]
    sizes = unit_sizes(stream, units)
    assert [sizes.tokens_U.tolist(), sizes.words_U.tolist(), sizes.bytes_U.tolist()] == [
        [5, 0, 4],
        [3, 0, 1],
        [17, 0, 1],
    ]


def test_sums_of_nats_would_move_it_further() -> None:
    """The known-wrong vectors: a unit's total instead of its mean, and a mean that is not clipped."""
    long = UnitLosses(np.array([400 * BOUND / 2]), np.array([400]), True)
    assert unit_vectors({"m": long}, BOUND).tolist() == [[1.0, 0.5]]
    for wrong in (long.nats_U / BOUND, np.array([3.0])):
        with pytest.raises(ValueError, match=r"\[0, 1\]"):
            noisy_sum(np.stack([np.ones(1), wrong], axis=1), 0.0, STREAMS.generator("x"))


def test_a_diverged_model_counts_as_the_bound() -> None:
    losses = UnitLosses(np.array([math.nan, math.inf, 1e9, 0.0]), np.ones(4, dtype=int), True)
    assert unit_vectors({"m": losses}, BOUND)[:, 1].tolist() == [1.0, 1.0, 1.0, 0.0]


def test_without_noise_the_means_are_plain_means() -> None:
    generator = np.random.default_rng(5)
    tokens_U = np.array([1, 5, 0, 80, 7, 2, 2, 9, 30])
    losses = {name: UnitLosses(generator.random(9) * BOUND * tokens_U, tokens_U, True) for name in ("a", "b")}
    means = means_of_sum(unit_vectors(losses, BOUND).sum(axis=0), ("a", "b"), 0.0, BOUND)
    for name, loss in losses.items():
        own = [nats / tokens for nats, tokens in zip(loss.nats_U, tokens_U, strict=True) if tokens]
        assert means[name]["perplexity"] == pytest.approx(math.exp(np.mean(own)))
        assert means[name]["perplexity_interval"] == pytest.approx([math.exp(np.mean(own))] * 2)
    with pytest.raises(ValueError, match="zip"):
        means_of_sum(np.ones(3), ("a",), 0.0, BOUND)


@given(nps.arrays(float, 3, elements=st.floats(-1e6, 1e6)), st.floats(0, 1e4))
@settings(max_examples=200, deadline=None)
def test_means_of_any_noisy_sum_are_possible_values(total: np.ndarray, noise: float) -> None:
    for found in means_of_sum(np.append(total, total[:2]), ("a", "b"), noise, BOUND, with_sizes=True).values():
        for name, least, most in (
            ("perplexity_per_word", 1, math.exp(BOUND * TOKENS_PER_WORD)),
            ("bits_per_byte", 0, BOUND * TOKENS_PER_BYTE / math.log(2)),
        ):
            low, high = found[f"{name}_interval"]
            assert least <= low <= found[name] <= high <= most * (1 + 1e-12)
    for found in means_of_sum(total, ("a", "b"), noise, BOUND).values():
        low, high = found["perplexity_interval"]
        assert 1 <= low <= found["perplexity"] <= high <= math.exp(BOUND) * (1 + 1e-12)


@pytest.mark.parametrize("at_once", [1, 4, 15])
def test_units_are_scored_alike_however_many_at_once(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    stream = stream_of(some_units())
    models = {"gpt2": gpt2(), "unigram": causal_lm.unigram(stream, VOCABULARY)}
    whole, sizes = score_units(models, stream, STREAMS, 3), causal_lm.unit_sizes(stream, [])
    monkeypatch.setattr(causal_lm, "_UNITS_AT_ONCE", at_once)
    for name, found in score_units(models, stream, STREAMS, 3).items():
        assert np.array_equal(found.nats_U, whole[name].nats_U)
        assert np.array_equal(found.tokens_U, whole[name].tokens_U)
        assert found.whole == whole[name].whole
    assert np.array_equal(causal_lm.unit_sizes(stream, []).tokens_U, sizes.tokens_U)
    assert np.array_equal(causal_lm.unigram(stream, VOCABULARY), models["unigram"])
