"""Which parameters of a given model are trained, where not all are: what is frozen has neither gradient nor noise."""

from __future__ import annotations

from torch import nn

from tacit.config.model import Trained
from tacit.errors import UsageError

__all__ = ["freeze_but"]


def freeze_but(model: nn.Module, trained: Trained) -> None:
    """Freeze, in place, all but what is to be trained.

    Args:
        trained: ``all`` freezes nothing; ``without-embeddings`` those of every ``nn.Embedding``, also where a head shares one;
            ``biases-and-norms`` those that do not have exactly one dimension.

    Raises:
        UsageError: nothing would be left.
    """
    if trained == "all":
        return
    tables = {
        parameter for module in model.modules() if isinstance(module, nn.Embedding) for parameter in module.parameters()
    }
    for parameter in model.parameters():
        is_frozen = parameter in tables if trained == "without-embeddings" else parameter.dim() != 1
        if is_frozen:
            parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError(f"model.trained: {trained} leaves nothing of a {type(model).__name__} to train; leave it out")
