"""How a layer's parameters get their per-unit gradients: one function a parameter, one line in ``RULES`` a layer.

Legend: U units, R positions of a unit, d input features, p output features, w a parameter's own shape.

A rule's function sees the layer's input and the gradient at its output, both as (unit, position, features), and returns
a ``Factor``. To add a layer, write its functions and its line in ``RULES``; the contract suite asks for a case of it.
The lookup is by exact type: a subclass may have another forward, so it needs its own line. A class of another library is
named by its full name, so that nothing is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.engine.factors import Dense, Factor, Lookup, Outer
from tacit.engine.sharding import plain_class

__all__ = [
    "CROSS_EXAMPLE_MODULES",
    "FLATTENING_MODULES",
    "RULES",
    "SELF_CONTAINED_MODULES",
    "UNREAD_PARAMETERS",
    "FactorFunction",
    "Rule",
    "full_name",
    "lstm_objection",
    "rule_of",
]

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
    return Dense(normalised_URw.mul_(gradient_URw).sum(1))


def _layer_norm_features(module: nn.LayerNorm) -> int:
    return len(module.normalized_shape)


def _conv1d_weight(module: Any, input_URd: Tensor, gradient_URp: Tensor) -> Factor:
    """GPT-2's linear layer keeps its weight as (inputs, outputs)."""
    return Outer(input_URd, gradient_URp)


def _rms_norm_weight(module: nn.RMSNorm, input_URw: Tensor, gradient_URw: Tensor) -> Factor:
    normalised_URw = F.rms_norm(input_URw, list(module.normalized_shape), eps=module.eps)
    return Dense(normalised_URw.mul_(gradient_URw).sum(1))


def _llama_norm_weight(module: Any, input_URd: Tensor, gradient_URd: Tensor) -> Factor:
    """These modules normalise in float32, whatever their input is."""
    inverse_UR1 = torch.rsqrt(input_URd.float().square().mean(2, keepdim=True) + module.variance_epsilon)
    return Dense((gradient_URd * (input_URd.float() * inverse_UR1)).sum(1))


_LLAMA_NORM = Rule({"weight": _llama_norm_weight}, lambda _: 1, lambda _: 1)

RULES: dict[type[nn.Module] | str, Rule] = {
    nn.Linear: Rule({"weight": _linear_weight, "bias": _sum_over_positions}, lambda _: 1, lambda _: 1),
    nn.Embedding: Rule({"weight": _embedding_weight}, lambda _: 0, lambda _: 1, _embedding_objection),
    nn.LayerNorm: Rule(
        {"weight": _layer_norm_weight, "bias": _sum_over_positions}, _layer_norm_features, _layer_norm_features
    ),
    nn.RMSNorm: Rule({"weight": _rms_norm_weight}, _layer_norm_features, _layer_norm_features),
    "transformers.pytorch_utils.Conv1D": Rule(
        {"weight": _conv1d_weight, "bias": _sum_over_positions}, lambda _: 1, lambda _: 1
    ),
    "transformers.models.llama.modeling_llama.LlamaRMSNorm": _LLAMA_NORM,
    "transformers.models.mistral.modeling_mistral.MistralRMSNorm": _LLAMA_NORM,
    "transformers.models.qwen2.modeling_qwen2.Qwen2RMSNorm": _LLAMA_NORM,
    "transformers.models.qwen3.modeling_qwen3.Qwen3RMSNorm": _LLAMA_NORM,
    "transformers.models.phi3.modeling_phi3.Phi3RMSNorm": _LLAMA_NORM,
}

# Parameters that a module owns and never reads itself, by the class's full name, so that nothing is imported. BERT's head
# holds the decoder's bias a second time (modeling_bert.py): tied, it is the decoder's own parameter; untied, its gradient
# is zero. Should a version read it after all, the backward is refused by the parameter's name.
UNREAD_PARAMETERS: dict[str, tuple[str, ...]] = {
    "transformers.models.bert.modeling_bert.BertLMPredictionHead": ("bias",),
}

# Modules that put all positions of all examples in one row of inputs, examples first, for some of the layers inside them.
FLATTENING_MODULES: dict[str, tuple[str, ...]] = {
    "transformers.models.opt.modeling_opt.OPTDecoderLayer": ("final_layer_norm", "fc1", "fc2"),
}

# Layers that read the parameters of the modules inside them without calling these: they go to the fallback as a whole.
SELF_CONTAINED_MODULES: tuple[type[nn.Module], ...] = (nn.MultiheadAttention,)

# Layers that mix the examples of a batch, whatever their parameters: no per-example gradient exists.
CROSS_EXAMPLE_MODULES: tuple[type[nn.Module], ...] = (torch.nn.modules.batchnorm._BatchNorm,)


def full_name(module: nn.Module) -> str:
    """The module's class with its package: ``transformers.pytorch_utils.Conv1D``."""
    kind = plain_class(module)
    return f"{kind.__module__}.{kind.__qualname__}"


def rule_of(module: nn.Module) -> Rule | None:
    """The rule of exactly this class, if there is one."""
    return RULES.get(plain_class(module)) or RULES.get(full_name(module))


def lstm_objection(module: Any) -> str | None:
    """Why this ``nn.LSTM``, whose gradients ``lstm.py`` takes, cannot be clipped per example, or None."""
    if module.proj_size:
        return f"has projections (proj_size={module.proj_size}); use proj_size=0 and a linear layer"
    unknown = [name for name, _ in module.named_parameters() if name not in module._flat_weights_names]
    return f"has a parameter {unknown[0]!r} that is none of an LSTM's" if unknown else None
