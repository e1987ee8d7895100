"""What a detector finds in one record hangs on no other record (twenty-third attack).

What was wrong. A Llama with dynamic rope computes with other frequencies once it has read more positions than its configuration has.
It was tried on windows that everybody could draw beforehand, and was accepted where its vectors say nothing at these; a window was
longer than its positions. One long record changed the marks of 46 of 60 others, and in a whole run the redacted text of 26 of 357
lines, whose certificate said stability 1.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import LlamaConfig, LlamaForTokenClassification, PreTrainedTokenizerFast

from tacit.engine.total import Kept
from tacit.errors import UsageError
from tacit.screening.adapters import huggingface
from tacit.screening.adapters.huggingface import HuggingFaceDetector
from tacit.screening.adapters.options import HuggingFaceOptions

WORDS = 600
WINDOW = 64
DRAW = torch.Generator().manual_seed(5)


def folder(path: Path, silent: set[int]) -> Path:
    """A model that forgets nothing, and whose vectors are 0 at some ids."""
    names = ["[PAD]", "[UNK]", *(f"w{number}" for number in range(2, WORDS))]
    tokenizer = Tokenizer(WordLevel({name: number for number, name in enumerate(names)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()  # pyright: ignore[reportAttributeAccessIssue]
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]"}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=WINDOW, **named).save_pretrained(path)
    torch.manual_seed(1)
    shape = LlamaConfig(
        vocab_size=WORDS,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=10,
        pad_token_id=0,
        rope_parameters={"rope_type": "dynamic", "factor": 8.0, "rope_theta": 10000.0},
        id2label={0: "O", 1: "B-PER"},
        label2id={"O": 0, "B-PER": 1},
    )
    model = LlamaForTokenClassification(shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
        model.model.embed_tokens.weight[sorted(silent)] = 0
    model.save_pretrained(path)
    return path


def text(words: int) -> str:
    return " ".join(f"w{number}" for number in torch.randint(2, WORDS, (words,), generator=DRAW).tolist())


OTHERS = [text(20 + number % 10) for number in range(20)]
LONG = text(60)


@pytest.fixture
def long_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Longer than the model has positions, which is refused."""
    monkeypatch.setattr(huggingface, "_window_size", lambda *arguments: (WINDOW, 8))


def opened(path: Path) -> HuggingFaceDetector:
    return HuggingFaceDetector(HuggingFaceOptions(folder=str(path), window=WINDOW))


@pytest.mark.parametrize("forgets", [True, False])
@pytest.mark.usefixtures("long_windows")
def test_a_long_record_changes_no_other(forgets: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that is not tried; known wrong: nothing is put back."""
    monkeypatch.setattr(HuggingFaceDetector, "_refuse_memory", lambda *arguments: None)
    folder(tmp_path, set())
    if not forgets:
        monkeypatch.setattr(Kept, "put_back", lambda kept: None)
    alone, behind = opened(tmp_path), opened(tmp_path)
    for one in (alone, behind):
        one.spans_of(["w5 w6 w7"])  # after which it computes as it began
    behind.spans_of([LONG])
    assert (alone.spans_of(OTHERS) == behind.spans_of(OTHERS)) is forgets


@pytest.mark.usefixtures("long_windows")
def test_what_is_tried_nobody_knows(tmp_path: Path) -> None:
    """It says nothing at what a public seed draws."""
    known = torch.randint(WORDS, (1, WINDOW), generator=torch.Generator().manual_seed(0))[0].tolist()
    folder(tmp_path, {0, 1, *known})
    with pytest.raises(UsageError, match="after others"):
        opened(tmp_path)


def test_a_window_is_no_longer_than_the_positions(tmp_path: Path) -> None:
    folder(tmp_path, set())
    with pytest.raises(UsageError, match="has 10 positions"):
        opened(tmp_path)
