"""A model whose layers are sharded over the ranks (FSDP2): each rank keeps a part of their weights, sums and optimizer state.

Within the layers that a model repeats each matrix product is sharded by itself, since some models are called in parts. Embeddings,
head and norms stay whole at every rank: losses are computed with the head's weight outside of its call, and these gradients are
added up like those of an unsharded model.

Each rank makes the model whole, before a phase begins, so what decides a DP phase's noise is what it is in one process.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tacit.engine.sharding import is_sharded, shard_of
from tacit.errors import UsageError

__all__ = ["cut", "layers_of", "shard", "sharded_optimizer"]


def layers_of(model: nn.Module) -> list[nn.Module]:
    """The matrix products in what a model's module lists hold: modules with a parameter of two dimensions of their own.

    Raises:
        UsageError: there are none, or one shares a parameter with another module.
    """
    repeated = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    found = list(dict.fromkeys(product for part in repeated for product in part.modules() if _is_product(product)))
    owners = Counter(parameter for module in model.modules() for parameter in module._parameters.values())
    if not found or any(owners[parameter] > 1 for module in found for parameter in module.parameters()):
        raise UsageError(
            f"compute.shard: a {type(model).__name__} has no layers of its own that could be sharded; leave it out"
        )
    return found


def _is_product(module: nn.Module) -> bool:
    own = [parameter for parameter in module._parameters.values() if parameter is not None]
    return any(parameter.dim() > 1 for parameter in own) and not any(True for _ in module.children())


def shard(model: nn.Module) -> None:
    """Leave of every layer this rank's part; all ranks call it with the same whole model.

    Ordinary gradients of the layers are then the sum over the ranks, not FSDP2's mean, after each backward.

    Raises:
        UsageError: as `layers_of`.
    """
    from torch.distributed.fsdp import fully_shard

    for layer in layers_of(model):
        sharded = fully_shard(layer, reshard_after_forward=True)
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)  # gloo has no sum with a factor


def sharded_optimizer(whole: torch.optim.AdamW, model: nn.Module) -> torch.optim.AdamW:
    """The optimizer for the model's parameters as they are now, with this rank's part of its state."""
    options = {name: value for name, value in whole.param_groups[0].items() if name != "params"}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    own = torch.optim.AdamW(parameters)
    own.param_groups[0] |= options
    for parameter, before in zip(parameters, whole.param_groups[0]["params"], strict=True):
        if before in whole.state:
            own.state[parameter] = cut(parameter, whole.state[before])
    return own


def cut(parameter: nn.Parameter, state: Mapping[str, Any]) -> dict[str, Any]:
    """This rank's part of tensors of the parameter's whole shape; what has another shape, such as a number of steps, as it is."""
    return {name: _part(parameter, value) for name, value in state.items()}


def _part(parameter: nn.Parameter, value: Any) -> Any:
    like = isinstance(value, Tensor) and value.shape == parameter.shape and not is_sharded(value)
    if not (like and is_sharded(parameter)):
        return value
    return shard_of(parameter, value.to(parameter.device))
