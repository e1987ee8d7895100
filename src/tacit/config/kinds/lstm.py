"""The LSTM of Zhao et al. 2022 (appendix A.3: one layer, embedding 200, hidden 200): next tokens; a network of our own."""

from __future__ import annotations

from tacit.config.kinds.kind import Kind, ModelShape

__all__ = ["LSTM"]


def _parameters(shape: ModelShape, vocabulary: int) -> int:
    width = shape.width
    table, head = vocabulary * shape.embedding, 0 if shape.tied else vocabulary * width
    first = 4 * width * (shape.embedding + width) + 8 * width
    return table + first + (shape.layers - 1) * (8 * width * width + 8 * width) + head + vocabulary


def _layer_cost(shape: ModelShape, length: int) -> int:
    """Multiplications of one layer at one position: the same at every position, however long the row is."""
    return 8 * shape.width**2


LSTM = Kind(
    name="lstm",
    model_type="tacit-lstm",
    objective="causal",
    network="tacit.models.lstm:LstmForCausalLM",
    keys={"layers": "num_hidden_layers", "width": "hidden_size", "embedding": "embedding_size"},
    dropout=("dropout",),
    tied=False,
    parameters=_parameters,
    layer_cost=_layer_cost,
    forward="tacit.models.lstm:head_and_hidden",
    releases_state=True,
)
