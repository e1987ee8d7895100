"""How a phase computes: in which precision, and with which activations computed a second time in the backward.

Autocast is around the forward alone; the backward then runs in the precisions that the forward chose, and the engine makes norms and
sums of what it passes on in the parameters' own. Recomputation is transformers' own, layer by layer, without reentrant autograd:
torch puts the state of its generators back, and here goes with it that of dropout by rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import transformers
from packaging.version import Version
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.errors import UsageError
from tacit.training.dropout import dropped_again

__all__ = ["in_precision", "recomputed"]

_RENAMED = Version("5.23")
"""Of transformers, from which on its functions of this subject have another name, and warn under the older one."""


def in_precision(compute: ComputeOptions, device: torch.device) -> AbstractContextManager[Any]:
    """The context of a forward of training; nothing where all is float32."""
    if compute.precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@contextmanager
def recomputed(model: PreTrainedModel, compute: ComputeOptions) -> Iterator[None]:
    """Where it is asked for, the model computes its layers' activations again in the backward, with the masks of the forward.

    To be entered before a clipper of the model is made, since transformers puts a hook on the embedding.

    Raises:
        UsageError: the model has no layers that can be computed again.
    """
    if not compute.checkpointing:
        yield
        return
    if not model.supports_gradient_checkpointing:
        raise UsageError(
            f"compute.checkpointing: a {type(model).__name__} has no layers that can be computed again; leave it out"
        )
    what = "activation" if Version(transformers.__version__) >= _RENAMED else "gradient"
    getattr(model, f"{what}_checkpointing_enable")({"use_reentrant": False, "context_fn": dropped_again})
    try:
        yield
    finally:
        getattr(model, f"{what}_checkpointing_disable")()
        model.disable_input_require_grads()  # a hook that transformers leaves behind
