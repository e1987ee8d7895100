"""What a model does at private rows decides no other rows: an error at them ends nothing, and what it changes in itself is undone.

Model code may look at values and raise: I-BERT asserts that no activation is NaN, ESM's table of places ends where ids are missing.
Weights that somebody made can let one unit do that, and a run that ends there, after it is paid for, tells of the unit. So rows that
raise together are computed again, each alone in the same shape (docs/decisions/0013-a-step-is-total.md). Memory that is refused, an
interrupt, and errors of our own before the model is called go out as ever.

Model code may also change the model: BigBird takes another kind of attention at the first short row, for good. So after each
micro-batch the model is put back as it was, and no unit decides how those after it are computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig

from tacit.errors import TacitError
from tacit.failures import is_out_of_memory

__all__ = ["Kept", "bits_of_weights", "read_rows", "sum_of_bits"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device)
_OF_TORCH = vars(nn.Module()).keys() - {"training"}
"""Attributes of every module: its parameters, buffers and modules, which are looked at by themselves, and hooks."""


class Kept:
    """What a model keeps beside its parameters: its tree of modules, and their buffers, attributes and configurations.

    Of attributes those that are numbers, words, tensors, and lists, tuples, sets and dictionaries of these. Another object that a
    model keeps is not known: what that changes is for the trials before a run to find. So are parameters, since to keep them takes a
    model more: one that writes its own is refused (`bits_of_weights`).

    Args:
        model: as it is to be put back.
    """

    def __init__(self, model: nn.Module) -> None:
        modules = list(model.modules())
        self._trees = [(module._modules, dict(module._modules)) for module in modules]
        holders = [*(module._buffers for module in modules), *map(vars, modules), *map(vars, _configurations(modules))]
        self._attributes = [(values, frozenset(values), *_held(values)) for values in holders]

    @torch.no_grad()
    def put_back(self) -> None:
        """Whatever was changed since is gone."""
        for now, before in self._trees:
            if now != before:
                now.clear()
                now.update(before)
        for now, names, scalars, others in self._attributes:
            if now.keys() != names:
                for name in [name for name, value in now.items() if name not in names and _is_kept(name, value)]:
                    del now[name]
            for name, value in scalars:
                if now.get(name, scalars) is not value:
                    now[name] = value
            for name, value, contents in others:
                _restore(now, name, value, contents)


def bits_of_weights(model: nn.Module) -> dict[str, int]:
    """A sum over the numbers of each parameter, each one's bits times its place: it changes where a model writes one of them.

    RWKV divides weights in its first forward of evaluation, and remembers that it did: put back, it would do so again at every row.
    """
    return {name: sum_of_bits(parameter.detach()) for name, parameter in model.named_parameters()}


_AT_ONCE = 1 << 22
_WHOLE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def sum_of_bits(tensor: Tensor) -> int:
    """The bits of each number times its place, added up: it changes where one of them does, but by chance."""
    flat = tensor.contiguous().view(-1).view(_WHOLE[tensor.element_size()])
    place = torch.arange(1, min(_AT_ONCE, len(flat)) + 1, device=flat.device)
    parts = enumerate(flat.split(_AT_ONCE), start=1)
    return sum(int((part * place[: len(part)]).sum()) * number for number, part in parts)


def _configurations(modules: list[nn.Module]) -> list[PreTrainedConfig]:
    """Each that a module has, with those that are in it, once."""
    found: dict[int, PreTrainedConfig] = {}
    waiting: list[Any] = [value for module in modules for value in vars(module).values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, PreTrainedConfig) and id(value) not in found:
            found[id(value)] = value
            waiting += vars(value).values()
    return list(found.values())


_Held = tuple[list[tuple[str, Any]], list[tuple[str, Any, Any]]]


def _held(values: dict[str, Any]) -> _Held:
    """Names and values that cannot change in place; and those that can, with their contents."""
    kept = [(name, value) for name, value in values.items() if _is_kept(name, value)]
    return (
        [pair for pair in kept if isinstance(pair[1], _PLAIN)],
        [(name, value, _contents(value)) for name, value in kept if not isinstance(value, _PLAIN)],
    )


def _is_kept(name: str, value: Any) -> bool:
    return name not in _OF_TORCH and _is_known(value)


def _is_known(value: Any) -> bool:
    if type(value) is dict:
        return all(_is_known(one) for pair in value.items() for one in pair)
    if type(value) in (list, tuple, set):
        return all(map(_is_known, value))
    return isinstance(value, (*_PLAIN, Tensor)) and not isinstance(value, nn.Parameter)


def _contents(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {name: _contents(one) for name, one in value.items()}
    return type(value)(map(_contents, value)) if isinstance(value, list | tuple | set) else value


def _are_same(one: Any, other: Any) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, Tensor):
        return one.shape == other.shape and torch.equal(one, other)
    if isinstance(one, dict):
        return list(one) == list(other) and all(map(_are_same, one.values(), other.values()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_are_same, one, other))
    return one is other or one == other


def _restore(now: dict[str, Any], name: str, value: Any, contents: Any) -> None:
    if isinstance(value, Tensor):
        now[name] = value
        value.copy_(contents)
    elif name not in now or now[name] is not value or not _are_same(value, contents):
        now[name] = _contents(contents)


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
    finally:
        kept.put_back()
    return None
