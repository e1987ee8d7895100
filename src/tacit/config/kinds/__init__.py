"""The kinds of models, one row each: shape, counts and cost, what they are asked, and where their networks are.

A new kind is one file here with its row, and one line in `KINDS` (docs/adding.md). A network that transformers does not have is a
module of `tacit.models`, which the row names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from tacit.config.base import name_in
from tacit.config.kinds.bert import BERT
from tacit.config.kinds.families import FAMILIES, PLAIN_HEADS, family_of, is_routed
from tacit.config.kinds.gpt2 import GPT2
from tacit.config.kinds.kind import Kind, ModelShape, Tagger, attention_cost, attention_parameters
from tacit.config.kinds.llama import LLAMA
from tacit.config.kinds.lstm import LSTM

__all__ = [
    "FAMILIES",
    "KINDS",
    "PLAIN_HEADS",
    "Kind",
    "KindName",
    "ModelShape",
    "Tagger",
    "attention_cost",
    "attention_parameters",
    "is_routed",
    "kind_named",
    "kind_of_config",
    "kind_of_type",
    "one_of",
]

KINDS: dict[str, Kind] = {
    "bert": BERT,
    "gpt2": GPT2,
    "llama": LLAMA,
    "lstm": LSTM,
}


def kind_named(name: str) -> Kind:
    """A row, or a family."""
    return KINDS[name] if name in KINDS else FAMILIES[name]


def kind_of_config(values: Mapping[str, Any]) -> Kind | None:
    """The row of a config.json's ``model_type``, else the family of its ``architectures``; None where there is neither."""
    return kind_of_type(values.get("model_type")) or family_of(values)


def kind_of_type(model_type: object) -> Kind | None:
    """The kind whose config.json has this ``model_type``; None where there is none."""
    return next((kind for kind in KINDS.values() if kind.model_type == model_type), None)


def one_of(kinds: Iterable[Kind]) -> str:
    """Their names, as "gpt2 or lstm".

    >>> one_of([BERT, GPT2, LSTM])
    'bert, gpt2 or lstm'
    """
    *others, last = (kind.name for kind in kinds)
    return f"{', '.join(others)} or {last}" if others else last


KindName = Annotated[str, name_in(lambda: (*KINDS, *FAMILIES))]
"""A key of `KINDS` or `FAMILIES`."""
