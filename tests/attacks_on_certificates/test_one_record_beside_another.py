"""What a Hugging Face model marked in one record depended on the records beside it.

Windows of many texts were one padded batch, and the rounding of a product of matrices depends on the shape of the batch: the score of
a word was 0.58934895 beside a short record and 0.58934887 beside a long one. With a public threshold between the two it was masked
in one corpus and not in the other, though the record was the same; the account says that a record's marks are of that record alone.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForTokenClassification, PreTrainedTokenizerFast

from tacit.screening.adapters.huggingface import HuggingFaceDetector
from tacit.screening.adapters.options import HuggingFaceOptions

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = [*SPECIAL, *(f"w{number}" for number in range(60))]
SHORT, LONG = "w1 w2", " ".join(f"w{number % 60}" for number in range(40))


class Together(HuggingFaceDetector):
    """Known wrong: windows of all texts in one batch, as it was."""

    def spans_of(self, texts: Any) -> Any:
        windows = [window for text in texts for window in self._windows(text)]
        scored = list(self._scored(windows))
        return [[token.tag_score for token in own] for own in scored]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ner")
    tokenizer = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, "[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **names).save_pretrained(folder)
    torch.manual_seed(0)
    labels = {0: "O", 1: "B-PER", 2: "I-PER"}
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=64,
        id2label=labels,
        label2id={name: number for number, name in labels.items()},
    )
    model = BertForTokenClassification(config)
    for parameter in model.parameters():
        parameter.data *= 4 if parameter.dim() > 1 else 1
    model.save_pretrained(folder)
    return folder


def records() -> list[str]:
    drawn = random.Random(1)
    return [" ".join(drawn.choice(WORDS[4:]) for _ in range(7)) for _ in range(40)]


def test_the_score_of_a_record_is_of_that_record_alone(folder: Path) -> None:
    reader = HuggingFaceDetector(HuggingFaceOptions(folder=str(folder), least_tag_score=1e-9))
    for record in records():
        alone = reader.spans_of([record])[0]
        assert alone
        assert reader.spans_of([record, SHORT])[0] == reader.spans_of([LONG, record])[1] == alone  # to the bit


def test_read_together_another_record_moves_it(folder: Path) -> None:
    """Without this the test above could not fail on the machine that runs it."""
    reader = Together(HuggingFaceOptions(folder=str(folder), least_tag_score=1e-9))
    beside = [(reader.spans_of([record, SHORT])[0], reader.spans_of([record, LONG])[0]) for record in records()]
    moved = max(abs(one - other) for pair in beside for one, other in zip(*pair, strict=True))
    assert 0 < moved < 1e-5  # a threshold between the two masks the word in one corpus, and not in the other
