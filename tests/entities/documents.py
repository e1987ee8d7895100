"""Made-up documents, a tokenizer whose words say their own tag, and a tiny tagger."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import BertConfig, BertForTokenClassification

from tacit.corpus.annotated import AnnotatedDocument, Sentence, tag_set
from tacit.entities.rows import RowCutter
from tacit.vocabulary.special import special_tokens
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS

TYPES = ("problem", "test")
TAGS = tag_set(TYPES)
NAMES = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token", "mask_token"), SPECIAL_TOKENS, strict=True))
LENGTH = 12


def telling_tokenizer() -> Tokenizer:
    """The first piece of a word is ``t`` and the number of its tag; pieces ``##x`` make it long."""
    pieces = [*SPECIAL_TOKENS, *(f"t{label}" for label in range(len(TAGS))), "##x"]
    tokenizer = Tokenizer(WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    return tokenizer


def telling_cutter(overlap: int = 4, length: int = LENGTH) -> RowCutter:
    tokenizer = telling_tokenizer()
    return RowCutter(tokenizer, special_tokens(tokenizer, NAMES), length, overlap, TAGS)


def random_tags(words: int, generator: np.random.Generator) -> list[str]:
    tags: list[str] = []
    for _ in range(words):
        before = tags[-1] if tags else "O"
        goes_on = before != "O" and generator.random() < 0.6
        tags.append(f"I-{before[2:]}" if goes_on else TAGS[generator.choice([0, 0, 1, 3])])
    return tags


def telling_documents(number: int, generator: np.random.Generator, longest: int = 40) -> list[AnnotatedDocument]:
    """Documents of a few sentences, whose words have 1 to 4 pieces."""
    documents: list[AnnotatedDocument] = []
    for place in range(number):
        sentences = []
        for _ in range(generator.integers(1, 4)):
            tags = random_tags(int(generator.integers(1, longest)), generator)
            tokens = [f"t{TAGS.index(tag)}" + "x" * int(generator.integers(0, 4)) for tag in tags]
            sentences.append(Sentence(tuple(tokens), tuple(tags), tuple(range(1, len(tags) + 1))))
        documents.append(AnnotatedDocument(f"{place:03d}", Path("made-up"), tuple(sentences), True))
    return documents


class TellingModel(torch.nn.Module):
    """Says the tag that a word's first piece names: an identity."""

    device = torch.device("cpu")

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> TellingModel:
        labels_BT = (input_ids - len(SPECIAL_TOKENS)).clamp(0, len(TAGS) - 1)
        self.logits = torch.nn.functional.one_hot(labels_BT, len(TAGS)).float()
        return self


class ContextModel(TellingModel):
    """Knows B- from I- only by the word before: at a window's beginning it takes every word for a beginning."""

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> ContextModel:
        super().forward(input_ids, attention_mask)
        labels = self.logits.argmax(-1).tolist()
        for row, ids in enumerate(input_ids.tolist()):
            firsts = [place for place, piece in enumerate(ids) if 5 <= piece < 5 + len(TAGS)]
            for number, place in enumerate(firsts):
                if number == 0 and labels[row][place] in (2, 4):
                    labels[row][place] -= 1
        self.logits = torch.nn.functional.one_hot(torch.tensor(labels), len(TAGS)).float()
        return self


def tags_of(documents: Sequence[AnnotatedDocument]) -> list[list[list[str]]]:
    """The true ones, by document and sentence."""
    return [[list(sentence.tags) for sentence in document.sentences] for document in documents]


def tiny_tagger(cutter: RowCutter, width: int = 8, seed: int = 1) -> BertForTokenClassification:
    """One layer, in float64, without dropout."""
    config = BertConfig(
        vocab_size=cutter.special.size,
        hidden_size=width,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=cutter.length,
        pad_token_id=cutter.special.pad,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=len(TAGS),
        initializer_range=0.3,
    )
    torch.manual_seed(seed)
    model = BertForTokenClassification(config)
    torch.nn.Module.double(model)
    return model
