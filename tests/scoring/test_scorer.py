"""Scores against float64 one record at a time, and that no record's score depends on another record, bit for bit."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel

from tacit.errors import TacitError
from tacit.scoring.rho import PrivacyProbability
from tacit.scoring.scorer import Scorer, ScorerOptions, TextScore
from tacit.vocabulary.given import read_given

from ..folders import (
    END,
    NAMES,
    TEXTS,
    bert_folder,
    byte_bpe,
    edit_json,
    gpt2_folder,
    lstm_folder,
    save_tokenizer,
    wordpiece,
)

Score = Callable[[Sequence[str]], list[TextScore]]

LENGTHS = (0, 1, 2, 7, 8, 9, 15, 16, 17, 30, 31, 32, 33, 40, 64, 65, 100)  # around padded lengths and windows


def some_texts(count: int = 40) -> list[str]:
    draw = random.Random(3)
    words = " ".join(TEXTS).split()
    return [" ".join(draw.choices(words, k=LENGTHS[number % len(LENGTHS)])) for number in range(count)]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    places = {name: tmp_path_factory.mktemp(name) for name in ("gpt2", "lstm")}
    gpt2_folder(places["gpt2"])
    lstm_folder(places["lstm"])
    return places


@pytest.fixture(params=["gpt2", "lstm"])
def options(request: pytest.FixtureRequest, folders: dict[str, Path]) -> ScorerOptions:
    return ScorerOptions(folders[request.param], length=32)


def by_record(options: ScorerOptions, text: str) -> TextScore:
    """In float64, one window alone, without padding, from the whole logits of the model's own forward pass."""
    scorer = options.load()
    model, given = scorer._model.double(), read_given(options.folder)
    given.tokenizer.encode_special_tokens = True
    ids = given.tokenizer.encode(text, add_special_tokens=False).ids
    nats = 0.0
    for first in range(0, len(ids), scorer.length):
        window = ids[first : first + scorer.length]
        inputs = torch.tensor([[given.special.start, *window[:-1]]])
        with torch.inference_mode():
            logits = model(input_ids=inputs).logits[0]
        nats += float(torch.nn.functional.cross_entropy(logits, torch.tensor(window), reduction="sum"))
    return TextScore(nats, len(ids))


@pytest.mark.slow
def test_scores_are_those_of_float64_by_record(options: ScorerOptions) -> None:
    texts = [*some_texts(), f"the {END} patient", "ꙮ𓀀"]
    for text, found in zip(texts, options.load().score(texts), strict=True):
        expected = by_record(options, text)
        assert found.tokens == expected.tokens
        assert found.nats == pytest.approx(expected.nats, rel=2e-6)


def test_a_text_without_tokens_cannot_be_scored(options: ScorerOptions) -> None:
    empty, one = options.load().score(["", "x"])
    assert (empty, math.isnan(empty.log_perplexity)) == (TextScore(0.0, 0), True)
    assert one.tokens == 1
    assert math.isfinite(one.log_perplexity)
    assert PrivacyProbability(0.0, 1.0).of(empty.log_perplexity) == 1.0


# independence --------------------------------------------------------------------------------------------------------


def depends_on_mates(score: Score) -> bool:
    """Whether some text gets other bits alone, in another order, or among fewer or other texts."""
    texts = some_texts()
    alone = {text: score([text])[0] for text in set(texts)}
    draw = random.Random(5)
    tried = [texts, texts[::-1], texts[::2], texts[3:9], [*texts, *["pain " * 31] * 70], draw.sample(texts, 20)]
    return any(
        found != alone[text] for part in tried for text, found in zip(part, score(part), strict=True) if text in alone
    )


def test_no_score_depends_on_another_text(options: ScorerOptions) -> None:
    scorer = options.load()
    assert not depends_on_mates(scorer.score)
    assert all(scorer.rows_at_once(tokens) >= 1 for tokens in range(1, 33))


def test_padding_that_is_counted_is_caught(folders: dict[str, Path]) -> None:
    """Known-wrong: one padded batch, of which every position counts."""
    options = ScorerOptions(folders["gpt2"], length=32)
    scorer = options.load()

    def padded(texts: Sequence[str]) -> list[TextScore]:
        rows = [list(scorer._tokenizer.encode(text, add_special_tokens=False).ids[:32]) for text in texts]
        longest = max(1, *map(len, rows), 1)
        ids = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
        start = torch.full((len(rows), 1), scorer._special.start)
        with torch.inference_mode():
            nats_BT = scorer._read(torch.cat([start, ids[:, :-1]], dim=1), ids)
        return [TextScore(float(nats.double().sum()), longest) for nats in nats_BT]

    assert depends_on_mates(padded)


class PlaceDependent(Scorer):
    """A library whose last bits follow from a row's place in the batch."""

    def _read(self, inputs_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        nats_BT = super()._read(inputs_BT, targets_BT)
        return torch.cat([nats_BT[:-1], nats_BT[-1:] * (1 + 2**-22)]) if len(nats_BT) > 1 else nats_BT


class MateDependent(Scorer):
    """A library whose last bits follow from the other rows."""

    def _read(self, inputs_BT: torch.Tensor, targets_BT: torch.Tensor) -> torch.Tensor:
        # the trial misses it where two sums of its random rows agree with a third: once in 2^24
        odd = int(inputs_BT.sum()) % 4096 if len(inputs_BT) > 1 else 0
        return super()._read(inputs_BT, targets_BT) * (1 + odd * 2**-22)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [PlaceDependent, MateDependent])
def test_where_bits_do_depend_rows_are_read_alone(
    folders: dict[str, Path], kind: type[Scorer], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = ScorerOptions(folders["gpt2"]).load()
    scorer = kind(plain._model, plain._tokenizer, plain._special, plain.length)
    assert scorer.rows_at_once(20) == 1
    assert not depends_on_mates(scorer.score)
    assert scorer.score(some_texts()) == plain.score(some_texts())
    trusting = kind(plain._model, plain._tokenizer, plain._special, plain.length)
    monkeypatch.setattr(trusting, "_independent", lambda rows, positions: True)
    assert depends_on_mates(trusting.score), "this test would not see it"


def test_threads_change_nothing(options: ScorerOptions) -> None:
    texts = some_texts()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = options.load().score(texts)
        torch.set_num_threads(2)
        assert options.load().score(texts) == one
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


# what the tokenizer cannot spell -------------------------------------------------------------------------------------


def test_what_cannot_be_spelled_is_no_likely_text(tmp_path: Path) -> None:
    """A model that is sure of [UNK]: text of characters that nobody knows would seem the most public of all."""
    tokenizer = wordpiece()
    size, unknown = tokenizer.get_vocab_size(), tokenizer.token_to_id("[UNK]")
    torch.manual_seed(1)
    model = GPT2LMHeadModel(
        GPT2Config(vocab_size=size, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0)
    )
    with torch.no_grad():
        model.transformer.ln_f.weight.zero_()
        model.transformer.ln_f.bias.copy_(1e4 * model.transformer.wte.weight[unknown])
    model.save_pretrained(tmp_path)
    save_tokenizer(tokenizer, tmp_path, **NAMES)
    options = ScorerOptions(tmp_path)
    assert by_record(options, "𓀀 𓀀").log_perplexity < 0.01
    [score] = options.load().score(["𓀀 𓀀"])
    assert score == TextScore(2 * math.log(size), 2)


# folders that are no scorer ------------------------------------------------------------------------------------------


def no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def larger_tokenizer(folder: Path) -> None:
    tokenizer = byte_bpe()
    tokenizer.add_tokens(["zqone", "zqtwo"])
    save_tokenizer(tokenizer, folder, bos_token=END, eos_token=END)


def classifier(folder: Path) -> None:
    config = GPT2Config.from_pretrained(folder)
    GPT2ForSequenceClassification(config).save_pretrained(folder)


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def other_kind(folder: Path) -> None:
    edit_json(folder / "config.json", model_type="t5", architectures=["T5ForConditionalGeneration"])


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


@pytest.mark.parametrize(
    ("spoil", "part"),
    [
        (no_tokenizer, "tokenizer"),
        (larger_tokenizer, "embedding ends at 299"),
        (classifier, "no causal language model"),
        (no_config, "config.json"),
        (other_kind, "'t5'"),
        (no_weights, "model.safetensors"),
    ],
)
def test_a_folder_that_is_no_scorer(tmp_path: Path, spoil: Callable[[Path], None], part: str) -> None:
    gpt2_folder(tmp_path)
    spoil(tmp_path)
    with pytest.raises(TacitError, match=part) as caught:
        ScorerOptions(tmp_path).load()
    assert "\n" not in str(caught.value)
    assert str(tmp_path) in str(caught.value)
    assert caught.value.exit_code == 4


def test_a_masked_model_is_no_scorer(tmp_path: Path) -> None:
    with pytest.raises(TacitError, match="no causal language model"):
        ScorerOptions(bert_folder(tmp_path)).load()


@pytest.mark.parametrize("length", [0, 33])
def test_a_window_that_the_model_cannot_read(folders: dict[str, Path], length: int) -> None:
    with pytest.raises(TacitError, match="32 positions"):
        ScorerOptions(folders["gpt2"], length).load()


def test_weights_stay_tied(folders: dict[str, Path]) -> None:
    model = ScorerOptions(folders["gpt2"]).load()._model
    assert isinstance(model, GPT2LMHeadModel)
    assert model.lm_head.weight is model.transformer.wte.weight


def test_nothing_moves_with_the_size_of_a_chunk(options: ScorerOptions) -> None:
    texts = some_texts(100)
    scorer = options.load()
    whole = scorer.score(texts)
    parts = [one for first in range(0, len(texts), 7) for one in scorer.score(texts[first : first + 7])]
    assert parts == whole
    assert np.isfinite([score.nats for score in whole]).all()
