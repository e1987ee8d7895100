"""Held-out scores: the noise of their sum, its sensitivity, and the scores themselves against plain loops."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as nps
from scipy import stats
from transformers import BertForMaskedLM

from tacit.config import ModelOptions
from tacit.engine.noise import on_grid
from tacit.evaluation import masked_lm
from tacit.evaluation.masked_lm import Scores, means_of_sum, noisy_sum, score_units, unigram, unit_vectors
from tacit.randomness import KeyedRandomness
from tacit.training.masking import MaskedRows, Masking, mask_rows
from tacit.training.sequences import SequenceStream

from ..networks import build_bert

torch.set_num_threads(1)

STREAMS = KeyedRandomness(bytes(range(32)))
LENGTH, SPECIAL, VOCABULARY = 12, 5, 50
MASKING = Masking(0.3, 4, range(SPECIAL), VOCABULARY)
BOUND = 1.5 * math.log(VOCABULARY)


def stream_of(units: dict[str, list[list[int]]]) -> SequenceStream:
    rows = [tokens for own in units.values() for tokens in own]
    ids = np.zeros((len(rows), LENGTH), dtype=np.int32)
    for number, tokens in enumerate(rows):
        ids[number, : len(tokens) + 2] = [2, *tokens, 3]
    lengths = np.array([len(tokens) + 2 for tokens in rows], dtype=np.int32)
    return SequenceStream(
        ids, lengths, np.concatenate([[0], np.cumsum([len(x) for x in units.values()])]), tuple(units)
    )


def some_units(number: int = 12) -> dict[str, list[list[int]]]:
    generator = np.random.default_rng(4)
    units = {
        f"u{n}": [
            generator.integers(SPECIAL, VOCABULARY, size=generator.integers(1, 11)).tolist()
            for _ in range(generator.integers(1, 12))
        ]
        for n in range(number)
    }
    return {**units, "empty": [], "unmaskable": [[1, 1]], "long": [[6, 7, 8, 9, 10, 11, 12, 13, 14, 15]] * 40}


def tiny_bert() -> BertForMaskedLM:
    options = ModelOptions(layers=1, width=16, heads=2, length=LENGTH, dropout=0.5)
    return build_bert(options, VOCABULARY, 0, 3)


# the noisy sum -------------------------------------------------------------------------------------------------------

NoisySum = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]


def check_scale(noisy: NoisySum, measured: int = 7, multiplier: float = 1.7) -> None:
    """Mean 0 and standard deviation multiplier * sqrt(M) on every entry: chi-square and mean, false alarm below 1e-6."""
    vectors = np.zeros((3, measured))
    vectors[:, 0] = 1.0
    draws = 9000
    totals = np.stack([noisy(vectors, multiplier, STREAMS.generator("test", n)) for n in range(draws)])
    normals = (totals - vectors.sum(axis=0)) / (multiplier * math.sqrt(measured))
    low, high = stats.chi2.ppf([2e-7, 1 - 2e-7], normals.size)
    assert low < (normals**2).sum() < high
    assert abs(normals.mean()) < stats.norm.isf(2e-7) / math.sqrt(normals.size)


def scaled(factor: float) -> NoisySum:
    """Known wrong: the noise is off by a factor."""
    return lambda vectors, multiplier, generator: noisy_sum(vectors, multiplier * factor, generator)


def without_root(vectors: np.ndarray, multiplier: float, generator: np.random.Generator) -> np.ndarray:
    """Known wrong: the noise is that of a vector of norm 1, not sqrt(M)."""
    return vectors.sum(axis=0) + multiplier * generator.standard_normal(vectors.shape[1])


def shared_noise(vectors: np.ndarray, multiplier: float, generator: np.random.Generator) -> np.ndarray:
    """Known wrong: one number for all entries; their differences would be exact."""
    measured = vectors.shape[1]
    return vectors.sum(axis=0) + multiplier * math.sqrt(measured) * np.full(measured, generator.standard_normal())


def test_the_noise_of_the_sum_has_its_scale() -> None:
    check_scale(noisy_sum)


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [scaled(0.97), scaled(1.03), without_root])
def test_the_check_of_the_scale_catches(wrong: NoisySum) -> None:
    with pytest.raises(AssertionError):
        check_scale(wrong)


def check_independent(noisy: NoisySum) -> None:
    totals = np.stack([noisy(np.zeros((0, 5)), 1.0, STREAMS.generator("pair", n)) for n in range(2000)])
    correlations = np.corrcoef(totals.T)[np.triu_indices(5, 1)]
    assert np.abs(correlations).max() < stats.norm.isf(1e-6 / 20) / math.sqrt(2000)


def test_the_entries_have_independent_noise() -> None:
    check_independent(noisy_sum)
    with pytest.raises(AssertionError):
        check_independent(shared_noise)


@pytest.mark.parametrize("entry", [1.0001, -0.0001, float("nan"), float("inf")])
def test_a_vector_out_of_its_range_is_refused(entry: float) -> None:
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        noisy_sum(np.array([[1.0, 0.5], [1.0, entry]]), 1.0, STREAMS.generator("x"))


def test_no_units_give_noise_alone() -> None:
    found = noisy_sum(np.zeros((0, 3)), 2.0, STREAMS.generator("x"))
    stddev, grid = on_grid(2.0, math.sqrt(3), 3)
    expected = np.rint(STREAMS.generator("x").standard_normal(3) * stddev / grid.spacing) * grid.spacing
    np.testing.assert_array_equal(found, expected)
    assert 2.0 * math.sqrt(3) < stddev < 2.0 * math.sqrt(3) * 1.001


# its sensitivity -----------------------------------------------------------------------------------------------------

any_loss = st.floats(0, 1e300) | st.just(math.inf) | st.just(math.nan)


@given(st.integers(0, 6), st.integers(1, 3), st.data())
@settings(max_examples=200, deadline=None)
def test_one_unit_moves_the_sum_by_at_most_root_m(units: int, models: int, data: st.DataObject) -> None:
    """Whatever the losses are, also infinite or not a number, as a model that diverged gives them."""
    accuracy = nps.arrays(float, units + 1, elements=st.floats(0, 1))
    loss = nps.arrays(float, units + 1, elements=any_loss)
    scores = {f"m{n}": Scores(data.draw(accuracy), data.draw(loss)) for n in range(models)}
    fewer = {name: Scores(score.accuracy_U[:-1], score.loss_U[:-1]) for name, score in scores.items()}
    larger, smaller = unit_vectors(scores, BOUND), unit_vectors(fewer, BOUND)
    measured = 1 + 2 * models
    assert larger.shape == (units + 1, measured)
    totals = [noisy_sum(vectors, 0.0, STREAMS.generator("x")) for vectors in (larger, smaller)]
    assert np.linalg.norm(totals[0] - totals[1]) <= math.sqrt(measured) + 1e-9


def test_losses_that_are_not_bounded_would_move_it_further() -> None:
    """The known-wrong vectors: what the range check of `noisy_sum` is for."""
    wrong = np.array([[1.0, 1.0, 900.0 / BOUND]])
    assert np.linalg.norm(wrong.sum(axis=0)) > math.sqrt(3)
    with pytest.raises(ValueError, match=r"\[0, 1\]"):
        noisy_sum(wrong, 0.0, STREAMS.generator("x"))


def test_one_held_out_unit_changes_no_other_units_score() -> None:
    units = some_units()
    models = {"bert": tiny_bert(), "unigram": unigram(stream_of(units), range(SPECIAL), VOCABULARY)}
    whole = score_units(models, stream_of(units), 3, MASKING, STREAMS)
    fewer = score_units(models, stream_of({k: v for k, v in units.items() if k != "u4"}), 3, MASKING, STREAMS)
    for name in models:  # rows fall into other batches of the model: equal to rounding, not bit for bit
        assert np.array_equal(np.delete(whole[name].accuracy_U, 4), fewer[name].accuracy_U)
        np.testing.assert_allclose(np.delete(whole[name].loss_U, 4), fewer[name].loss_U, rtol=1e-5)


# means ---------------------------------------------------------------------------------------------------------------


def test_without_noise_the_means_are_plain_means() -> None:
    generator = np.random.default_rng(5)
    scores = {name: Scores(generator.random(9), generator.random(9) * BOUND) for name in ("a", "b")}
    means = means_of_sum(unit_vectors(scores, BOUND).sum(axis=0), ("a", "b"), 0.0, BOUND)
    for name, score in scores.items():
        assert means[name]["accuracy"] == pytest.approx(score.accuracy_U.mean())
        assert means[name]["perplexity"] == pytest.approx(math.exp(score.loss_U.mean()))
        assert means[name]["accuracy_interval"] == pytest.approx([score.accuracy_U.mean()] * 2)
        assert means[name]["perplexity_interval"] == pytest.approx([math.exp(score.loss_U.mean())] * 2)


@given(nps.arrays(float, 5, elements=st.floats(-1e6, 1e6)), st.floats(0, 1e4))
@settings(max_examples=200, deadline=None)
def test_means_of_any_noisy_sum_are_possible_values(total: np.ndarray, noise: float) -> None:
    for found in means_of_sum(total, ("a", "b"), noise, BOUND).values():
        low, high = found["accuracy_interval"]
        assert 0 <= low <= found["accuracy"] <= high <= 1
        low, high = found["perplexity_interval"]
        assert 1 <= low <= found["perplexity"] <= high <= math.exp(BOUND) * (1 + 1e-12)


def test_the_interval_holds_the_exact_mean_in_95_of_100_draws() -> None:
    """Known wrong: the noise of the sum alone. The count's is in the ratio too, and 88 % of such intervals held the mean."""
    vectors = np.tile([1.0, 0.4, 0.8], (400, 1))
    inside, wrong = [0, 0], 0
    for draw in range(4000):
        total = noisy_sum(vectors, 1.0, STREAMS.generator("interval", draw))
        found = means_of_sum(total, ("a",), math.sqrt(3), BOUND)["a"]
        for place, (name, mean) in enumerate((("accuracy", 0.4), ("perplexity", math.exp(0.8 * BOUND)))):
            low, high = found[f"{name}_interval"]
            inside[place] += low <= mean <= high
        wrong += abs(total[2] / total[0] - 0.8) <= 1.96 * math.sqrt(3) / total[0]
    assert all(stats.binomtest(held, 4000, 0.95).pvalue > 1e-6 for held in inside), inside
    assert stats.binomtest(wrong, 4000, 0.95).pvalue < 1e-6, wrong


# scores --------------------------------------------------------------------------------------------------------------


def test_unigram_by_hand() -> None:
    table = unigram(stream_of({"a": [[5, 5, 6], [5]], "b": [[1, 9]]}), range(5), 10)
    assert np.isneginf(table[:5]).all()
    assert np.exp(table[5:]) == pytest.approx(np.array([4, 2, 1, 1, 2]) / 10)


@pytest.mark.parametrize("per_unit", [1, 3])
def test_scores_by_a_plain_loop(per_unit: int) -> None:
    """One unit and one row at a time, with transformers' own full head and no dropout."""
    units = some_units()
    stream, model = stream_of(units), tiny_bert()
    table = unigram(stream, range(SPECIAL), VOCABULARY)
    found = score_units({"bert": model, "unigram": table}, stream, per_unit, MASKING, STREAMS)
    model.eval()
    expected: dict[str, list[tuple[float, float]]] = {"bert": [], "unigram": []}
    for unit, key in enumerate(units):
        generator = STREAMS.generator("evaluation", key)
        own = stream.choose_rows(unit, per_unit, generator)
        drawn = generator.random((len(own), 3, LENGTH))
        right: dict[str, list[bool]] = {"bert": [], "unigram": []}
        loss: dict[str, list[float]] = {"bert": [], "unigram": []}
        for row, uniforms in zip(own, drawn, strict=True):
            masked = mask_rows(stream.ids_ST[[row]].astype(int), stream.lengths_S[[row]], uniforms[None], MASKING)
            with torch.no_grad():
                attention = torch.from_numpy(masked.attention_BT.astype(int))
                logits = model(input_ids=torch.from_numpy(masked.ids_BT), attention_mask=attention).logits[0]
            for slot in masked.slots_BK[masked.real_BK]:
                label = int(stream.ids_ST[row, slot])
                right["bert"].append(int(logits[slot].argmax()) == label)
                loss["bert"].append(-float(logits[slot].double().log_softmax(-1)[label]))
                right["unigram"].append(int(table.argmax()) == label)
                loss["unigram"].append(-float(table[label]))
        for name in expected:
            if right[name]:
                expected[name].append((float(np.mean(right[name])), float(np.mean(loss[name]))))
    for name, pairs in expected.items():
        assert found[name].accuracy_U == pytest.approx([pair[0] for pair in pairs])
        assert found[name].loss_U == pytest.approx([pair[1] for pair in pairs], rel=1e-5)
        assert len(pairs) == len(units) - 2


def test_an_infinite_loss_where_nothing_is_scored_warns_of_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model made for a word has one at a slot that is none; numpy's warning told of the unit. 28th attack, TACIT-47."""
    stream = stream_of({"a": [[5, 5, 6]], "b": [[7, 8, 9, 5, 6, 7, 8]]})

    def with_infinity(model: object, masked: MaskedRows) -> tuple[np.ndarray, np.ndarray]:
        assert not masked.real_BK.all(), "no slot is left over"
        return np.zeros_like(masked.real_BK), np.where(masked.real_BK, 1.0, np.inf)

    monkeypatch.setattr(masked_lm, "_score_model", with_infinity)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = score_units({"bert": tiny_bert()}, stream, 2, Masking(0.9, 4, range(SPECIAL), VOCABULARY), STREAMS)
    assert set(scores["bert"].loss_U) <= {1.0}


def test_a_uniform_model_has_perplexity_v() -> None:
    model = tiny_bert()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    stream = stream_of(some_units())
    uniform = np.full(VOCABULARY, -math.log(VOCABULARY))
    scores = score_units({"zeros": model, "table": uniform}, stream, 2, MASKING, STREAMS)
    means = means_of_sum(unit_vectors(scores, BOUND).sum(axis=0), ("zeros", "table"), 0.0, BOUND)
    assert means["zeros"]["perplexity"] == pytest.approx(VOCABULARY, rel=1e-5)
    assert means["table"]["perplexity"] == pytest.approx(VOCABULARY, rel=1e-9)


def test_no_held_out_units_at_all() -> None:
    stream = stream_of({})
    scores = score_units({"bert": tiny_bert(), "unigram": np.zeros(VOCABULARY)}, stream, 2, MASKING, STREAMS)
    assert unit_vectors(scores, BOUND).shape == (0, 5)
    assert dataclasses.asdict(scores["bert"])["loss_U"].shape == (0,)


@pytest.mark.parametrize("at_once", [1, 4, 15])
def test_units_are_scored_alike_however_many_at_once(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    stream = stream_of(some_units())
    models = {"bert": tiny_bert(), "unigram": masked_lm.unigram(stream, range(SPECIAL), VOCABULARY)}
    whole = score_units(models, stream, 3, MASKING, STREAMS)
    monkeypatch.setattr(masked_lm, "_UNITS_AT_ONCE", at_once)
    for name, found in score_units(models, stream, 3, MASKING, STREAMS).items():
        assert np.array_equal(found.accuracy_U, whole[name].accuracy_U)
        assert np.array_equal(found.loss_U, whole[name].loss_U)
