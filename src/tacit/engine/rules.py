"""How a layer's parameters get their per-unit gradients: one function a parameter, one line in ``RULES`` a layer.

Legend: U units, R positions of a unit, d input features, p output features, w a parameter's own shape.

A rule's function sees the layer's input and the gradient at its output, both as (unit, position, features), and returns
a ``Factor``. To add a layer, write its functions and its line in ``RULES``; the contract suite asks for a case of it.
The lookup is by exact type: a subclass may have another forward, so it needs its own line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.engine.factors import Dense, Factor, Lookup, Outer

__all__ = ["CROSS_EXAMPLE_MODULES", "RULES", "UNREAD_PARAMETERS", "FactorFunction", "Rule"]

FactorFunction = Callable[[Any, Tensor, Tensor], Factor]


def _no_objection(module: Any) -> str | None:
    return None


@dataclass(frozen=True)
class Rule:
    """What the engine must know of a layer that takes one tensor, called ``input``, and returns one tensor.

    Args:
        factors: for each parameter's name, ``function(module, input_UR, output_gradient_UR) -> Factor``.
        input_features: how many trailing dimensions of the input belong to one position.
        output_features: the same for the output.
        objection: why this instance of the layer cannot be clipped per example, or None.
    """

    factors: Mapping[str, FactorFunction]
    input_features: Callable[[Any], int]
    output_features: Callable[[Any], int]
    objection: Callable[[Any], str | None] = field(default=_no_objection)


def _linear_weight(module: nn.Linear, input_URd: Tensor, gradient_URp: Tensor) -> Factor:
    return Outer(gradient_URp, input_URd)


def _sum_over_positions(module: nn.Module, input_UR: Tensor, gradient_URw: Tensor) -> Factor:
    return Dense(gradient_URw.sum(1))


def _embedding_weight(module: nn.Embedding, index_UR: Tensor, gradient_URd: Tensor) -> Factor:
    if module.padding_idx is not None:
        gradient_URd = gradient_URd.masked_fill((index_UR == module.padding_idx)[:, :, None], 0)
    return Lookup(index_UR, gradient_URd, module.num_embeddings)


def _embedding_objection(module: nn.Embedding) -> str | None:
    if module.max_norm is not None:
        return "max_norm rewrites the table with the examples of the batch"
    if module.scale_grad_by_freq:
        return "scale_grad_by_freq divides by counts over the whole batch"
    return None


def _layer_norm_weight(module: nn.LayerNorm, input_URw: Tensor, gradient_URw: Tensor) -> Factor:
    normalised_URw = F.layer_norm(input_URw, module.normalized_shape, eps=module.eps)
    return Dense((gradient_URw * normalised_URw).sum(1))


def _layer_norm_features(module: nn.LayerNorm) -> int:
    return len(module.normalized_shape)


RULES: dict[type[nn.Module], Rule] = {
    nn.Linear: Rule({"weight": _linear_weight, "bias": _sum_over_positions}, lambda _: 1, lambda _: 1),
    nn.Embedding: Rule({"weight": _embedding_weight}, lambda _: 0, lambda _: 1, _embedding_objection),
    nn.LayerNorm: Rule(
        {"weight": _layer_norm_weight, "bias": _sum_over_positions}, _layer_norm_features, _layer_norm_features
    ),
}

# Parameters that a module owns and never reads itself, by the class's full name, so that nothing is imported. BERT's head
# holds the decoder's bias a second time (modeling_bert.py): tied, it is the decoder's own parameter; untied, its gradient
# is zero. Should a version read it after all, the backward is refused by the parameter's name.
UNREAD_PARAMETERS: dict[str, tuple[str, ...]] = {
    "transformers.models.bert.modeling_bert.BertLMPredictionHead": ("bias",),
}

# Layers that mix the examples of a batch, whatever their parameters: no per-example gradient exists.
CROSS_EXAMPLE_MODULES: tuple[type[nn.Module], ...] = (torch.nn.modules.batchnorm._BatchNorm,)
