"""Does what a model has read change how it reads? Then one unit decides what is computed of others, which no bound covers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tacit.engine.draws import generator_states

__all__ = ["remembered_length"]


def remembered_length(read: Callable[[int], np.ndarray], lengths: Sequence[int]) -> int | None:
    """Try made-up rows: the longest first, then all upwards, and downwards again.

    Args:
        read: what the model says of a row of this length, always the same row.
        lengths: ascending.

    Returns:
        a length whose row had other bits the next time, or random numbers of its own; None where there was none.
    """
    found: dict[int, np.ndarray] = {}
    for length in (lengths[-1], *lengths, *reversed(lengths)):
        before, now = generator_states(), read(length)
        if generator_states() != before or not np.array_equal(found.setdefault(length, now), now, equal_nan=True):
            return length
    return None
