"""Random numbers that a model draws once for a whole micro-batch, such as layerdrop and stochastic depth.

All units of the micro-batch would share them, and who shares a draw with whom hangs on how many units come before: one unit more
would change what all others add.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tacit.engine.draws import torch_states
from tacit.errors import RefusedError

__all__ = ["SharedDraws"]


class SharedDraws(TorchFunctionMode):
    """While it is active, a call that draws and gives fewer numbers than the batch has rows is refused, and one for all rows alike.

    A call that gives as many is taken for a draw of every row's own: what else a model does with it is not seen.

    Args:
        rows: of the batch; with one there is nothing to share.

    Raises:
        RefusedError: ``cross-example-operation``, where the model draws.
    """

    def __init__(self, rows: int) -> None:
        super().__init__()
        self._rows = rows

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        before = _states(named)
        result = func(*args, **named)
        if self._rows > 1 and not all(map(torch.equal, before, _states(named))):
            for drawn in result if isinstance(result, tuple | list) else (result,):
                self._check(func, drawn)
        return result

    def _check(self, func: Any, drawn: Any) -> None:
        if isinstance(drawn, Tensor) and (drawn.numel() < self._rows or drawn.shape[0] == 1):
            raise RefusedError(
                "cross-example-operation",
                f"the model draws {drawn.numel()} random numbers for {self._rows} rows, which share them ({_name(func)}); "
                "turn off layerdrop, stochastic depth or the like in its configuration",
            )


def _states(named: Mapping[str, Any]) -> list[Tensor]:
    """Where torch's generators are, and one that the call is given."""
    own = named.get("generator")
    return torch_states([own] if isinstance(own, torch.Generator) else [])


def _name(func: Any) -> str:
    return str(getattr(func, "__name__", "a draw"))
