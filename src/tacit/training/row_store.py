"""Rows of token ids on disk: written part by part, and read by the step, so that they may be more than memory holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import overload

import numpy as np

from tacit.storage.arrays import ArrayWriter, DiskArray, open_arrays, write_shapes
from tacit.training.sequences import SequenceStream

__all__ = ["open_rows", "write_rows"]

_KEY_BYTES = 16


class _Keys(Sequence[str]):
    """The keys of units on disk, in hexadecimal."""

    def __init__(self, keys_U: DiskArray) -> None:
        self._keys_U = keys_U

    def __len__(self) -> int:
        return len(self._keys_U)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        found = self._keys_U[index]
        return tuple(key.tobytes().hex() for key in found) if isinstance(index, slice) else found.tobytes().hex()

    def __iter__(self) -> Iterator[str]:
        return (key.tobytes().hex() for key in self._keys_U)


def write_rows(folder: Path, parts: Iterable[SequenceStream]) -> None:
    """Write the rows of parts, one behind the other.

    Args:
        folder: empty, and its owner's alone.
        parts: of the same length, at least one, with keys of `tacit.training.sequences.unit_keys`; all with counted tokens, or none.
            Their privacy probabilities are left out.
    """
    writers: dict[str, ArrayWriter] = {}
    for part in parts:
        if not writers:
            writers = _writers(folder, part)
            writers["starts_U1"].add([0])
        writers["starts_U1"].add(writers["lengths_S"].rows + np.asarray(part.starts_U1)[1:])
        writers["ids_ST"].add(np.asarray(part.ids_ST))
        writers["lengths_S"].add(np.asarray(part.lengths_S))
        writers["keys_U"].add(_as_bytes(part.keys_U))
        if part.counted_ST is not None:
            writers["counted_ST"].add(np.asarray(part.counted_ST))
    write_shapes(folder, list(writers.values()), {})


def open_rows(folder: Path) -> SequenceStream:
    """The rows that lie in a folder.

    Raises:
        DataError: a file is missing or damaged.
    """
    arrays, _ = open_arrays(folder)
    keys = _Keys(arrays.pop("keys_U"))
    return SequenceStream(
        arrays["ids_ST"], arrays["lengths_S"], arrays["starts_U1"], keys, counted_ST=arrays.get("counted_ST")
    )


def _writers(folder: Path, part: SequenceStream) -> dict[str, ArrayWriter]:
    width = (part.ids_ST.shape[1],)
    kinds = {"ids_ST": (np.int32, width), "lengths_S": (np.int32, ()), "starts_U1": (np.int64, ())}
    kinds["keys_U"] = (np.uint8, (_KEY_BYTES,))
    if part.counted_ST is not None:
        kinds["counted_ST"] = (np.bool_, width)
    return {name: ArrayWriter(folder, name, *kind) for name, kind in kinds.items()}


def _as_bytes(keys: Sequence[str]) -> np.ndarray:
    return np.frombuffer(bytes.fromhex("".join(keys)), np.uint8).reshape(-1, _KEY_BYTES)
