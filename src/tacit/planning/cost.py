"""What a run needs of a machine: operations, seconds and memory, all rough."""

from __future__ import annotations

import math

from tacit.config import RunConfig
from tacit.config.shape import shape_of
from tacit.planning.vocabulary import vocabulary_size

__all__ = ["memory_bytes", "seconds_of", "sequence_flops"]

_FLOPS_PER_SECOND = 6e10
"""What two laptop cores reach on these small models (measured by `tacit demo`); only for the expected time."""


def seconds_of(flops: float) -> float:
    """Expected time of so many floating-point operations."""
    return flops / _FLOPS_PER_SECOND


def sequence_flops(config: RunConfig) -> float:
    """Forward and backward of one sequence: six times parameters times positions."""
    shape, length = shape_of(config.model), config.model.length
    layer = 4 * shape.width**2 + 2 * shape.width * shape.intermediate
    attention = 2 * length * shape.width
    if shape.kind == "lstm":
        layer, attention = 8 * shape.width**2, 0
    head = (vocabulary_size(config) + shape.width) * shape.width
    return 6.0 * (length * shape.layers * (layer + attention) + _head_positions(config) * head)


def memory_bytes(config: RunConfig, parameters: int) -> int:
    """Weights, gradients, two Adam moments, and the activations of one micro-batch (float32), plus the libraries."""
    shape, length = shape_of(config.model), config.model.length
    per_position = shape.layers * (16 * shape.width + 2 * shape.intermediate + (shape.heads or 0) * length)
    logits = 4 * _head_positions(config) * vocabulary_size(config)
    activations = config.compute.micro_batch * (length * per_position + logits)
    return 4 * (5 * parameters + activations) + 600_000_000


def _head_positions(config: RunConfig) -> int:
    """Positions of a sequence at which the head is evaluated."""
    length = config.model.length
    return length if config.model.is_causal else math.ceil(config.masking_probability * length)
