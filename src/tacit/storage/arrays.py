"""Arrays that lie in files and are read by pieces, so that a corpus may be larger than memory.

A file is mapped, and what was read of it leaves the process again: the system's page cache keeps it while there is room, once for all
processes of a machine, and memory of a process is that of the pieces which it holds.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from tacit.errors import DataError

__all__ = ["Array", "ArrayWriter", "DiskArray", "open_arrays", "row_pieces", "write_shapes"]

_SHAPES = "arrays.json"
_DROP_AFTER = 1 << 22  # bytes that may be mapped before they are let go
_ROWS_AT_ONCE = 1 << 12
_LEAST_MAPPED = 1 << 16  # with a page the system maps those around it

_Key = int | np.integer | slice | np.ndarray | Sequence[int] | tuple[Any, ...]


class DiskArray:
    """An array in a file, read only: an index gives a copy of a part, as of a numpy array.

    Args:
        path: its numbers, row after row.
        dtype: their type.
        shape: rows first.

    Raises:
        DataError: the file is missing or has another size.
    """

    def __init__(self, path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.dtype = dtype
        self.shape = shape
        self._bytes_a_row = dtype.itemsize * math.prod(shape[1:])
        wanted = self._bytes_a_row * shape[0]
        if not path.is_file() or path.stat().st_size != wanted:
            raise DataError(f"{path}: missing or damaged; remove its folder, and it is made again")
        self._mapped: mmap.mmap | None = None
        if wanted:
            with path.open("rb") as file:
                self._mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            self._view = np.frombuffer(self._mapped, dtype).reshape(shape)
        else:  # nothing cannot be mapped
            self._view = np.zeros(shape, dtype)
        self._touched = 0

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: _Key) -> Any:
        found = self._view[key].copy()
        first = key[0] if isinstance(key, tuple) else key
        scattered = first.size if isinstance(first, np.ndarray) else 1
        self._touched += max(_LEAST_MAPPED * scattered, found.nbytes)
        if self._touched > _DROP_AFTER:
            self._let_go()
        return found

    def __iter__(self) -> Iterator[Any]:
        return (row for piece in row_pieces(self) for row in piece)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """All of it, in memory."""
        found = self[:]
        return found if dtype is None else found.astype(dtype)

    def __repr__(self) -> str:
        return f"DiskArray(<private>, shape={self.shape})"

    def _let_go(self) -> None:
        self._touched = 0
        if self._mapped is not None and sys.platform != "win32":
            self._mapped.madvise(mmap.MADV_DONTNEED)


Array = np.ndarray | DiskArray
"""In memory, or in a file of which parts are read."""


def row_pieces(array: Array) -> Iterator[np.ndarray]:
    """An array in order, some thousand rows at once."""
    return (np.asarray(array[start : start + _ROWS_AT_ONCE]) for start in range(0, len(array), _ROWS_AT_ONCE))


class ArrayWriter:
    """Writes the rows of one array as they come.

    Args:
        folder: where the file NAME.bin is made.
        name: of the array.
        dtype: of its numbers.
        width: the shape of a row; () for numbers.
    """

    def __init__(self, folder: Path, name: str, dtype: Any, width: tuple[int, ...] = ()) -> None:
        self.name = name
        self._dtype = np.dtype(dtype)
        self._width = width
        self._file: IO[bytes] = _path(folder, name).open("wb")
        self.rows = 0

    def add(self, rows: np.ndarray | Sequence[int]) -> None:
        """Append rows; their type must hold what they are."""
        array = np.ascontiguousarray(np.asarray(rows).astype(self._dtype, casting="same_kind"))
        assert array.shape[1:] == self._width, "rows of one shape"
        self._file.write(array.data)
        self.rows += len(array)

    def add_bytes(self, content: bytes) -> None:
        """Append numbers of one byte each."""
        assert (self._dtype.itemsize, self._width) == (1, ())
        self._file.write(content)
        self.rows += len(content)

    def flush(self) -> None:
        """Let readers of the file see what was added."""
        self._file.flush()

    def close(self) -> tuple[str, tuple[int, ...]]:
        """Bring the file to the disk; gives type and shape, for `write_shapes`."""
        _sync_and_close(self._file)
        return self._dtype.str, (self.rows, *self._width)


def write_shapes(folder: Path, writers: Sequence[ArrayWriter], about: Mapping[str, Any]) -> None:
    """Close the writers of a folder, and write what the arrays are, with whatever else is to be known of them."""
    arrays = {writer.name: writer.close() for writer in writers}
    file = (folder / _SHAPES).open("wb")
    file.write(json.dumps({"arrays": arrays, "about": dict(about)}).encode())
    _sync_and_close(file)


def open_arrays(folder: Path) -> tuple[dict[str, DiskArray], dict[str, Any]]:
    """The arrays of a folder by name, and what else was written of them.

    Raises:
        DataError: a file is missing or damaged.
    """
    path = folder / _SHAPES
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        arrays = {name: (np.dtype(kind), tuple(shape)) for name, (kind, shape) in found["arrays"].items()}
    except (OSError, ValueError, KeyError, TypeError):
        raise DataError(f"{path}: missing or damaged; remove its folder, and it is made again") from None
    return {name: DiskArray(_path(folder, name), *own) for name, own in arrays.items()}, found["about"]


def _sync_and_close(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())
    file.close()


def _path(folder: Path, name: str) -> Path:
    return folder / f"{name}.bin"
