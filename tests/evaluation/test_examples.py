"""What models write, against transformers' own generation, and against the logits of a row by itself."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import WordPiece as WordPieceDecoder
from tokenizers.models import WordLevel
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from tacit.evaluation.examples import GUESSES, PROMPT, WRITTEN, completions, fillings
from tacit.training.sequences import SequenceStream
from tacit.vocabulary.special import OWN_NAMES, special_tokens
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS

torch.set_num_threads(1)

SIZE, LENGTH = 40, 24


def _tokenizer() -> Tokenizer:
    words = [*SPECIAL_TOKENS, *(f"w{number}" for number in range(SIZE - len(SPECIAL_TOKENS)))]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.decoder = WordPieceDecoder()
    return tokenizer


TOKENIZER = _tokenizer()
SPECIAL = special_tokens(TOKENIZER, OWN_NAMES)


def _rows(lengths: list[int]) -> SequenceStream:
    generator = np.random.default_rng(7)
    ids = np.full((len(lengths), LENGTH), SPECIAL.pad)
    for row, length in enumerate(lengths):
        inner = generator.integers(max(SPECIAL.ids) + 1, SIZE, size=length - 2)
        ids[row, :length] = [SPECIAL.start, *inner, SPECIAL.end]
    return SequenceStream(ids, np.array(lengths), np.arange(len(lengths) + 1), tuple(map(str, range(len(lengths)))))


def _gpt2(seed: int) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    config = GPT2Config(
        vocab_size=SIZE, n_positions=LENGTH, n_embd=16, n_layer=1, n_head=2, initializer_range=0.5, resid_pdrop=0.5
    )
    return GPT2LMHeadModel(config)


def _bert(seed: int) -> BertForMaskedLM:
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=SIZE,
        max_position_embeddings=LENGTH,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=32,
        initializer_range=0.5,
    )
    return BertForMaskedLM(config)


def test_a_continuation_is_what_transformers_generates() -> None:
    stream, models = _rows([20, LENGTH, 5]), {"one": _gpt2(1), "other": _gpt2(2)}
    found = list(completions(models, TOKENIZER, stream, SPECIAL))
    assert len(found) == 2  # the third row is too short
    for row, example in enumerate(found):
        given = stream.ids_ST[row, : PROMPT + 1]
        tokens = min(WRITTEN, int(stream.lengths_S[row]) - PROMPT - 1)
        for name, model in models.items():
            made = model.eval().generate(
                torch.from_numpy(given)[None],
                attention_mask=torch.ones(1, len(given), dtype=torch.long),
                do_sample=False,
                max_new_tokens=tokens,
                min_new_tokens=tokens,
                suppress_tokens=list(SPECIAL.ids),
                pad_token_id=SPECIAL.pad,
            )
            assert example.written[name] == TOKENIZER.decode(made[0, len(given) :].tolist())
        assert example.prompt == TOKENIZER.decode(given.tolist())
    assert found[0].written["one"] != found[0].written["other"]


def test_the_gap_is_filled_by_the_largest_logits_and_never_by_a_special_token() -> None:
    stream, model = _rows([16, 4, 12]), _bert(3)
    found = list(fillings({"one": model}, TOKENIZER, stream, SPECIAL, SPECIAL.mask or 0))
    assert len(found) == 2
    for row, example in zip((0, 2), found, strict=True):
        length = int(stream.lengths_S[row])
        gap, ids = length // 2, torch.from_numpy(stream.ids_ST[row : row + 1, :length].copy())
        assert example.text == TOKENIZER.decode([int(ids[0, gap])])
        ids[0, gap] = SPECIAL.mask or 0
        logits = model.eval()(ids).logits[0, gap].tolist()
        text = sorted((one for one in range(SIZE) if one not in SPECIAL.ids), key=lambda one: -logits[one])
        assert example.written["one"] == ", ".join(TOKENIZER.decode([one]) for one in text[:GUESSES])
        assert example.prompt.split()[gap - 1] == "___"  # the first token of a row is no text
        assert example.text not in example.prompt.split()[gap - 1 : gap]


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_left_to_chance(seed: int) -> None:
    stream, model = _rows([16]), _gpt2(seed)
    torch.manual_seed(seed)
    once = next(iter(completions({"one": model.train()}, TOKENIZER, stream, SPECIAL)))
    torch.manual_seed(seed + 100)
    assert next(iter(completions({"one": model.train()}, TOKENIZER, stream, SPECIAL))) == once


def test_what_a_page_cannot_show_is_left_out() -> None:
    words = [*SPECIAL_TOKENS, *(f"a\x07b\u2028{number}" for number in range(SIZE - len(SPECIAL_TOKENS)))]
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(words)}, unk_token="[UNK]"))
    example = next(iter(completions({"one": _gpt2(1)}, tokenizer, _rows([16]), SPECIAL)))
    for text in (example.prompt, example.text, *example.written.values()):
        assert text.isprintable()
        assert text
