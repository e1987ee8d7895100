"""Llama: next tokens, with turned positions, gated feed-forward layers and no bias; transformers' own model.

New ones are tied, as small ones are; a folder's config.json says what it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.config.kinds.kind import Kind, ModelShape, stored_parameters

__all__ = ["LLAMA"]


def _parameters(shape: ModelShape, vocabulary: int) -> int:
    if shape.stored is not None:  # a folder's heads may have a width of their own, or biases
        return stored_parameters(shape, vocabulary)
    width = shape.width
    feature = width // (shape.heads or 1)
    keys = (shape.key_value_heads or shape.heads or 1) * feature
    layer = 2 * width * width + 2 * width * keys + 3 * width * shape.intermediate + 2 * width
    return (1 if shape.tied else 2) * vocabulary * width + shape.layers * layer + width


def _layer_cost(shape: ModelShape, length: int) -> int:
    """Multiplications of one layer at one position: as of other attention, with three products in the feed-forward part."""
    return 4 * shape.width**2 + 3 * shape.width * shape.intermediate + 2 * length * shape.width


def _completed(values: Mapping[str, Any]) -> Mapping[str, Any]:
    return {"tie_word_embeddings": False, "num_key_value_heads": values.get("num_attention_heads"), **values}


LLAMA = Kind(
    name="llama",
    model_type="llama",
    objective="causal",
    network="transformers:LlamaForCausalLM",
    keys={
        "layers": "num_hidden_layers",
        "width": "hidden_size",
        "embedding": "hidden_size",
        "heads": "num_attention_heads",
        "key_value_heads": "num_key_value_heads",
        "intermediate": "intermediate_size",
        "positions": "max_position_embeddings",
    },
    dropout=("attention_dropout",),
    tied=True,
    parameters=_parameters,
    layer_cost=_layer_cost,
    completed=_completed,
    counts_stored=True,
)
