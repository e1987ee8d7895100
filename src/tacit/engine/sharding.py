"""Models whose parameters are sharded over ranks by FSDP2 (``torch.distributed.fsdp.fully_shard``).

Every rank runs its own units through the whole model, so a rank knows its units' whole gradients: norms need no
communication. What is shared is the sum: a rank's weighted sum of one full parameter is reduce-scattered into the shards,
one parameter at a time. Noise is drawn for the full parameter from its own stream and each rank keeps its shard's part, so
it is the noise that one process would have added.

``torch.distributed.tensor`` is imported only where a sharded parameter exists.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor

__all__ = ["has_shards", "is_sharded", "plain_class", "shard_of", "sharding_of", "summed", "zero_gradient"]


def is_sharded(tensor: Tensor | None) -> TypeGuard[DTensor]:
    """Whether this is a tensor of which a rank holds one part."""
    module = sys.modules.get("torch.distributed.tensor")
    return module is not None and isinstance(tensor, module.DTensor)


def has_shards(model: nn.Module) -> bool:
    """Whether a parameter of the model is sharded."""
    return any(is_sharded(parameter) for parameter in model.parameters())


def plain_class(module: nn.Module) -> type[nn.Module]:
    """The module's class as its author wrote it: ``fully_shard`` puts a subclass of its own over it."""
    kind = type(module)
    fsdp = sys.modules.get("torch.distributed.fsdp")
    return kind.__bases__[1] if fsdp is not None and issubclass(kind, fsdp.FSDPModule) else kind


def zero_gradient(parameter: nn.Parameter) -> Tensor:
    """Zeros of the parameter's shape, sharded as it is."""
    return torch.zeros_like(parameter, memory_format=torch.contiguous_format)


def sharding_of(tensor: Tensor) -> DTensor | None:
    """The tensor itself where it is sharded, for a caller who goes on with it as it was."""
    return tensor if is_sharded(tensor) else None


def summed(parameter: DTensor, total: Tensor) -> Tensor:
    """The sum over all ranks of ``total``, a full tensor, in float64 and sharded as the parameter is; every rank must call it.

    Which precision a rank's own sum has is a function of its units, and nobody asks bytes for their type.
    """
    from torch.distributed.tensor import DTensor, Partial

    mesh = parameter.device_mesh
    partial: Any = DTensor.from_local(total.double(), mesh, [Partial()] * mesh.ndim, run_check=False)
    return partial.redistribute(placements=parameter.placements)


def shard_of(parameter: DTensor, full: Tensor) -> Tensor:
    """This rank's part of a full tensor that every rank holds, as a sharded tensor; nothing is communicated."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full, parameter.device_mesh, parameter.placements, src_data_rank=None)
