"""How many rows an evaluation reads together: a row's place among others, which these decide, may not decide how it is rounded."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from weakref import WeakKeyDictionary

import torch
from transformers import PreTrainedModel

from tacit.engine.places import PlaceWatch
from tacit.engine.total import Kept
from tacit.errors import TacitError
from tacit.failures import is_out_of_memory
from tacit.models.places import together

__all__ = ["rows_at_once"]


_DECIDED: WeakKeyDictionary[PreTrainedModel, dict[Hashable, int]] = WeakKeyDictionary()
"""By model, so that each is tried once. Tried before every reading, it would read rows of all widths in between, and a model that
remembers them would look steady to the trial that is to find it (`tacit.models.memory`)."""


def _is_measured(device: torch.device) -> bool:
    """Whether `tacit.models.places` was measured on this kind of processor."""
    return device.type == "cpu" and torch.backends.cpu.get_cpu_capability() == "AVX512"


def rows_at_once(
    model: PreTrainedModel,
    most: int,
    widths: Iterable[int],
    asked: Iterable[int],
    read: Callable[[int, int], object],
) -> int:
    """How many rows are read at once: at most so many, and 1 where a place shows, as measured, or as tried on other processors.

    Args:
        model: in evaluation, on its device.
        most: rows.
        widths: all widths of rows.
        asked: all numbers of places of a row at which a head is asked.
        read: blank rows, given their width and number, as the evaluation reads rows.
    """
    widths, asked = sorted(widths), sorted(asked)
    rows = together(model, most, 1, widths, asked)
    if rows == 1 or _is_measured(model.device):
        return rows
    decided = _DECIDED.setdefault(model, {})
    key = (rows, tuple(widths), tuple(asked), torch.get_num_threads())
    if key not in decided:
        decided[key] = _tried(model, rows, widths, read)
    return decided[key]


def _tried(model: PreTrainedModel, rows: int, widths: list[int], read: Callable[[int, int], object]) -> int:
    """So many, or 1 where an operation differs by place."""
    kept, watch = Kept(model), PlaceWatch(rows)
    try:
        with watch:
            for width in widths:
                read(width, rows)
    except Exception as error:
        if isinstance(error, TacitError) or is_out_of_memory(error):
            raise
        return 1  # as rows at which a model raises are read
    finally:
        kept.put_back()
    return 1 if watch.differing else rows
