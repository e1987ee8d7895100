"""BERT: masked tokens (Devlin et al. 2019); transformers' own model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.config.kinds.kind import Kind, ModelShape, Tagger, attention_parameters

__all__ = ["BERT"]


def _parameters(shape: ModelShape, vocabulary: int) -> int:
    return _encoder_parameters(shape, vocabulary) + _head_parameters(shape, vocabulary)


def _encoder_parameters(shape: ModelShape, vocabulary: int) -> int:
    """The number of parameters of the tables, their norm, and the layers."""
    rows = vocabulary + (shape.positions or 0) + shape.token_types
    return rows * shape.width + 2 * shape.width + attention_parameters(shape)


def _head_parameters(shape: ModelShape, vocabulary: int) -> int:
    """The parameters of the head: a layer with its norm, and what predicts tokens; transformers ties its bias too."""
    width = shape.width
    predicting = vocabulary if shape.tied else 2 * vocabulary + vocabulary * width
    return (width * width + width + 2 * width) + predicting


def _objection(values: Mapping[str, Any]) -> str | None:
    is_part = values.get("add_cross_attention") or values.get("is_decoder")
    return "as part of an encoder and decoder" if is_part else None


BERT = Kind(
    name="bert",
    model_type="bert",
    objective="masked",
    network="transformers:BertForMaskedLM",
    keys={
        "layers": "num_hidden_layers",
        "width": "hidden_size",
        "embedding": "hidden_size",
        "heads": "num_attention_heads",
        "intermediate": "intermediate_size",
        "positions": "max_position_embeddings",
        "token_types": "type_vocab_size",
    },
    dropout=("hidden_dropout_prob", "attention_probs_dropout_prob"),
    tied=True,
    parameters=_parameters,
    forward="tacit.models.bert:logits_at",
    objection=_objection,
    initializers={"scaled": "tacit.models.bert:scaled_bert"},
    new_vocabulary="tacit.models.transfer:with_vocabulary",
    tagger=Tagger("transformers:BertForTokenClassification", _encoder_parameters),
)
