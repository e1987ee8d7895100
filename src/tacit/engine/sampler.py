"""Poisson sampling of units, and its draws cut into micro-batches of one shape.

Every step includes every unit independently with the same probability: the law that the accountant assumes (Abadi et
al. 2016, arXiv 1607.00133; Mironov et al. 2019, arXiv 1908.10530). The size of a draw varies, and may be 0. It is never
cut to a cap: a large draw becomes more micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tacit.errors import UsageError

__all__ = ["PADDING", "micro_batches", "poisson_sample"]

PADDING = -1

_UNIFORMS_AT_ONCE = 1 << 20


def poisson_sample(units: int, sampling_probability: float, generator: np.random.Generator) -> np.ndarray:
    """The units of one step: each of ``0 .. units - 1`` is in with ``sampling_probability``, independently.

    One global draw, of which ranks take slices (`Ranks.slice`). It takes one float64 uniform a unit whatever the
    probability is, so a unit's fate depends on the generator and on its own place only. Memory is that of the result.

    Args:
        units: how many units there are.
        sampling_probability: q, from 0 to 1.
        generator: a fresh one a step, such as ``streams.generator("sampling", phase, step)``.

    Returns:
        sorted int64 indices.

    Raises:
        UsageError: units is negative, or the probability is outside [0, 1].
    """
    if units < 0:
        raise UsageError(f"units must not be negative, not {units}")
    if not 0 <= sampling_probability <= 1:
        raise UsageError(f"sampling_probability must be in [0, 1], not {sampling_probability}")
    parts = [np.zeros(0, dtype=np.int64)]
    for start in range(0, units, _UNIFORMS_AT_ONCE):
        uniforms = generator.random(min(_UNIFORMS_AT_ONCE, units - start))
        parts.append(start + np.flatnonzero(uniforms < sampling_probability))
    return np.concatenate(parts)


def micro_batches(indices: np.ndarray, size: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cut a draw into pieces of one shape, ``(indices (size,), real (size,))``; ``PADDING`` (-1) fills the last one.

    ``real`` is True where the index is a unit. The caller puts blank rows with loss 0 in the other places. No indices,
    no pieces: the step is then noise alone. To go on inside a draw, whose first n are done, cut ``indices[n:]``.

        >>> [(i.tolist(), real.tolist()) for i, real in micro_batches(np.array([4, 7, 9]), 2)]
        [([4, 7], [True, True]), ([9, -1], [True, False])]

    Raises:
        UsageError: size is below 1.
    """
    if size < 1:
        raise UsageError(f"the micro-batch size must be at least 1, not {size}")
    for start in range(0, len(indices), size):
        piece = np.full(size, PADDING, dtype=np.int64)
        chosen = indices[start : start + size]
        piece[: len(chosen)] = chosen
        yield piece, np.arange(size) < len(chosen)
