"""An error that a model raises at private rows ends nothing: who raises it adds nothing, or counts as a loss that is no number.

Model code may look at values and raise: I-BERT asserts that no activation is NaN, ESM's table of places ends where ids are missing.
Weights that somebody made can let one unit do that, and a run that ends there, after it is paid for, tells of the unit. So rows that
raise together are computed again, each alone in the same shape (docs/decisions/0013-a-step-is-total.md). Memory that is refused, an
interrupt, and errors of our own before the model is called go out as ever.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from tacit.errors import TacitError
from tacit.failures import is_out_of_memory

__all__ = ["Kept", "read_rows"]

_PLAIN = (bool, int, float, str, type(None))


class Kept:
    """What a model keeps beside its parameters: its modules' buffers and plain values, which a half-done forward may have changed.

    Args:
        model: as it is to be put back.
    """

    def __init__(self, model: nn.Module) -> None:
        self._buffers = {
            module: {name: (buffer, None if buffer is None else buffer.clone()) for name, buffer in own.items()}
            for module in model.modules()
            if (own := module._buffers)
        }
        self._plain = {module: _plain_of(module) for module in model.modules()}

    @torch.no_grad()
    def put_back(self) -> None:
        """Whatever was written since is gone."""
        for module, plain in self._plain.items():
            for name in _plain_of(module).keys() - plain.keys():
                delattr(module, name)
            vars(module).update(plain)
            own = self._buffers.get(module, {})
            for name in module._buffers.keys() - own.keys():
                del module._buffers[name]
            for name, (buffer, values) in own.items():
                module._buffers[name] = buffer
                if buffer is not None and values is not None:
                    buffer.copy_(values)


def _plain_of(module: nn.Module) -> dict[str, object]:
    return {name: value for name, value in vars(module).items() if isinstance(value, _PLAIN)}


def read_rows(
    kept: Kept, rows: np.ndarray, read: Callable[[np.ndarray], np.ndarray], failed: float | np.ndarray = np.nan
) -> np.ndarray:
    """What a model says of rows in a forward without gradients.

    Args:
        kept: of the model.
        rows: numbers of rows.
        read: from numbers of rows to something of each; blank rows fill the others' places, so that its shapes do not hang on them.
        failed: what is said of a row at which the model raises alone.

    Raises:
        TacitError: ours, of models that are not known here; never a row's.
    """
    found = _read(kept, rows, read)
    if found is not None:
        return found
    parts = [None if len(rows) == 1 else _read(kept, rows[place : place + 1], read) for place in range(len(rows))]
    return np.concatenate([np.asarray(failed)[None] if part is None else part for part in parts])


def _read(kept: Kept, rows: np.ndarray, read: Callable[[np.ndarray], np.ndarray]) -> np.ndarray | None:
    try:
        return read(rows)
    except Exception as error:
        if isinstance(error, TacitError) or is_out_of_memory(error):
            raise
    kept.put_back()
    return None
