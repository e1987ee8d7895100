"""GPT-2: next tokens; transformers' own model.

The shape of Zhao et al. 2022 (appendix A.3) is that of distilgpt2: 6 layers, width 768, 12 heads. A shape for a laptop is
4 layers of width 256. A new model's config lets it keep keys and values, as a released model needs that to write text at speed;
training and scoring (`tacit.models.causal`) switch that off at every call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tacit.config.kinds.kind import Kind, ModelShape, attention_parameters

__all__ = ["GPT2"]


def _parameters(shape: ModelShape, vocabulary: int) -> int:
    head = 0 if shape.tied else vocabulary * shape.width
    rows = vocabulary + (shape.positions or 0)
    return rows * shape.width + attention_parameters(shape) + 2 * shape.width + head


def _completed(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values, in which a feed-forward part without a width of its own is four times as wide as the rest."""
    width = values.get("n_embd")
    if values.get("n_inner") is not None or not isinstance(width, int):
        return values
    return {**values, "n_inner": 4 * width}


def _objection(values: Mapping[str, Any]) -> str | None:
    return "as part of an encoder and decoder" if values.get("add_cross_attention") else None


GPT2 = Kind(
    name="gpt2",
    model_type="gpt2",
    objective="causal",
    network="transformers:GPT2LMHeadModel",
    keys={
        "layers": "n_layer",
        "width": "n_embd",
        "embedding": "n_embd",
        "heads": "n_head",
        "intermediate": "n_inner",
        "positions": "n_positions",
    },
    dropout=("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    tied=True,
    parameters=_parameters,
    completed=_completed,
    objection=_objection,
)
