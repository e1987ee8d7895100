"""A given BERT with another vocabulary: every new piece begins as the mean of what the model's own tokenizer makes of its text.

Without it a model of public text could not be trained on with a DP vocabulary of the private text, and would have to be trained
from scratch. It is a function of public weights and two vocabularies that are released, so it costs nothing. Everything but the
table of pieces and the bias of the head stays as it is.

Shapes: V pieces, D width.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import BertForMaskedLM

from tacit.models.seeded import seeded
from tacit.vocabulary.given import GivenTokenizer
from tacit.vocabulary.special import SpecialTokens

__all__ = ["rows_of_pieces", "with_vocabulary"]

_TABLE, _BIAS = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
_HEAD_TABLE, _HEAD_BIAS = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"


def with_vocabulary(
    model: BertForMaskedLM, old: GivenTokenizer, new: Tokenizer, special: SpecialTokens
) -> BertForMaskedLM:
    """The model for the ids of another tokenizer.

    Args:
        model: knows the ids of ``old``.
        old: the model's own tokenizer.
        new: the tokenizer that its rows are cut with from now on.
        special: of the new one.
    """
    config = copy.deepcopy(model.config)
    config.vocab_size, config.pad_token_id = special.size, special.pad
    rows = rows_of_pieces(old, new, special)
    changed = {
        name: _means(tensor, rows) if name in (_TABLE, _BIAS, _HEAD_TABLE, _HEAD_BIAS) else tensor
        for name, tensor in model.state_dict().items()
    }
    found = seeded(BertForMaskedLM, config, 0)
    found.load_state_dict(changed)
    return found


def _means(values_VD: Tensor, rows: list[list[int]]) -> Tensor:
    return torch.stack([values_VD[own].mean(dim=0) for own in rows])


def rows_of_pieces(old: GivenTokenizer, new: Tokenizer, special: SpecialTokens) -> list[list[int]]:
    """The old ids whose mean each new id begins as: at least one.

    A special token is the old one of its role, a piece that both vocabularies have is itself, and any other is the old pieces of
    its text. What is none of these (an id without a token) is the old unknown token, or the padding where there is none.
    """
    known = old.tokenizer.get_vocab(with_added_tokens=True)
    nothing = old.special.pad if old.special.unknown is None else old.special.unknown
    roles = {
        mine: theirs
        for mine, theirs in (
            (special.pad, old.special.pad),
            (special.start, old.special.start),
            (special.end, old.special.end),
            (special.mask, old.special.mask),
            (special.unknown, nothing),
        )
        if mine is not None and theirs is not None
    }
    prefix, same_kind = _continuing(new), _continuing(new) == _continuing(old.tokenizer)
    rows: list[list[int]] = []
    for number in range(special.size):
        piece = new.id_to_token(number)
        if number in roles:
            rows.append([roles[number]])
        elif piece is None or number in special.ids:
            rows.append([nothing])
        elif piece in known and same_kind:
            rows.append([known[piece]])
        else:
            text = piece.removeprefix(prefix) if prefix else new.decode([number])
            rows.append(list(old.tokenizer.encode(text, add_special_tokens=False).ids) or [nothing])
    return rows


def _continuing(tokenizer: Tokenizer) -> str:
    """What a WordPiece tokenizer puts before a piece that does not begin a word; empty for other kinds."""
    model: dict[str, Any] = json.loads(tokenizer.to_str())["model"]
    return model["continuing_subword_prefix"] if model["type"] == "WordPiece" else ""
