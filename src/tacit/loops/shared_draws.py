"""Random numbers that a model draws once for a whole micro-batch, such as layerdrop and stochastic depth.

All units of the micro-batch would share them, and who shares a draw with whom hangs on how many units come before: one unit more
would change what all others add.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from tacit.errors import RefusedError

__all__ = ["SharedDraws"]

_DROPOUTS = (torch.dropout, F.dropout, F.alpha_dropout, F.feature_alpha_dropout)

_DRAWS = {
    torch.rand,
    torch.randn,
    torch.randint,
    torch.rand_like,
    torch.randn_like,
    torch.randint_like,
    torch.normal,
    torch.bernoulli,
    torch.multinomial,
    torch.poisson,
    torch.binomial,
    torch.randperm,
    Tensor.bernoulli,
    Tensor.bernoulli_,
    Tensor.multinomial,
    Tensor.geometric_,
    Tensor.cauchy_,
    Tensor.log_normal_,
    Tensor.uniform_,
    Tensor.normal_,
    Tensor.random_,
    Tensor.exponential_,
    *_DROPOUTS,
}


class SharedDraws(TorchFunctionMode):
    """While it is active, a draw of torch's that has fewer numbers than the batch has rows is refused, and one for all rows alike.

    A draw of as many numbers is taken for one of every row's own: what else a model does with it is not seen.

    Args:
        rows: of the batch; with one there is nothing to share.

    Raises:
        RefusedError: ``cross-example-operation``, where the model draws.
    """

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in _DRAWS and isinstance(result, Tensor) and _is_drawn(func, kwargs, args) and self._is_shared(result):
            raise RefusedError(
                "cross-example-operation",
                f"the model draws {result.numel()} random numbers for {self._rows} rows, which share them ({_name(func)}); "
                "turn off layerdrop, stochastic depth or the like in its configuration",
            )
        return result

    def _is_shared(self, drawn: Tensor) -> bool:
        return self._rows > 1 and (drawn.numel() < self._rows or drawn.shape[0] == 1)


def _is_drawn(func: Any, kwargs: Any, args: tuple[Any, ...]) -> bool:
    """Whether a dropout is one that drops."""
    if func not in _DROPOUTS:
        return True
    named = dict(zip(("input", "p", "train" if func is torch.dropout else "training"), args, strict=False))
    named |= kwargs or {}
    is_training = named.get("train", named.get("training", func is F.dropout or func is torch.dropout))
    return bool(named.get("p", 0.5)) and bool(is_training)


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", "a draw"))
