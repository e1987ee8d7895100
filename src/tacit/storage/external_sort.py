"""Rows in the order of a key, also where they are more than memory holds: then duckdb sorts them, within limits, on disk.

What is sorted may be private: files go to one folder, which is the caller's to protect and to remove.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np

from tacit.errors import DataError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["IN_MEMORY", "ExternalSort", "limited_database"]

IN_MEMORY = 1 << 16
"""Rows that are sorted in memory."""

_BATCH = 1 << 14
_MEMORY_MB = 128
_MOST_BYTES = 1 << 26  # of keys in memory

Row = tuple[bytes, int, int]
"""A key, and two numbers."""


def limited_database(folder: Path, memory_mb: int) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
    """A database in memory that spills to a folder, with one thread, and fetches nothing."""
    import duckdb

    limits: dict[str, str | bool | int | float | list[str]] = {
        "memory_limit": f"{memory_mb}MiB",
        "threads": 1,
        "temp_directory": str(folder / "sorting"),
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
    }
    return duckdb.connect(config=limits)


class ExternalSort:
    """Collects rows, and gives them in the order of their keys' bytes; rows of one key in the order in which they came.

    Args:
        folder: where rows wait that are many.
        name: of the files there.
        in_memory: rows that are sorted in memory.
    """

    def __init__(self, folder: Path, name: str, in_memory: int = IN_MEMORY) -> None:
        self._folder = folder
        self._name = name
        self._most = in_memory
        self._rows: list[Row] = []
        self._bytes = 0
        self._parts = 0

    def add(self, row: Row) -> None:
        """One more."""
        self._rows.append(row)
        self._bytes += len(row[0])
        if len(self._rows) > self._most or self._bytes > _MOST_BYTES:
            self._write_part()

    def __iter__(self) -> Iterator[Row]:
        if not self._parts:
            return iter(sorted(self._rows, key=lambda row: row[0]))  # a stable sort
        if self._rows:
            self._write_part()
        return self._sorted_on_disk()

    def _write_part(self) -> None:
        with _part(self._folder, self._name, self._parts).open("wb") as file:
            _write(file, *zip(*self._rows, strict=True))
        self._parts += 1
        self._rows, self._bytes = [], 0

    def _sorted_on_disk(self) -> Iterator[Row]:
        done = subprocess.run(
            [sys.executable, "-m", "tacit.storage.external_sort", str(self._folder), self._name, str(self._parts)],
            check=False,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # an error of the library may quote a row
        )
        if done.returncode:
            raise DataError(f"{self._folder}: records cannot be sorted on disk; make room there, and in memory")
        with _sorted_file(self._folder, self._name).open("rb") as file:
            while (found := _read(file)) is not None:
                keys, ends, first, second = found
                starts = [0, *ends[:-1].tolist()]
                slices = map(slice, starts, ends.tolist())
                yield from zip(map(keys.__getitem__, slices), first.tolist(), second.tolist(), strict=True)


# Files: batches of rows, each its number of rows and of bytes of keys, the ends of the keys, the two numbers, and the keys ------


def _write(file: IO[bytes], keys: Sequence[bytes], first: Iterable[int], second: Iterable[int]) -> None:
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    numbers = (np.array([len(keys), ends[-1]]), ends, np.array(first), np.array(second))
    file.writelines(np.ascontiguousarray(array, dtype=np.int64).data for array in numbers)
    file.write(b"".join(keys))


def _read(file: IO[bytes]) -> tuple[bytes, np.ndarray, np.ndarray, np.ndarray] | None:
    """Keys, their ends, and the two numbers; None at the end."""
    head = file.read(16)
    if not head:
        return None
    rows, size = np.frombuffer(head, np.int64)
    ends, first, second = (np.frombuffer(file.read(8 * rows), np.int64) for _ in range(3))
    keys = file.read(int(size))
    if len(keys) != size or len(second) != rows:
        raise ValueError("the file ends too early")
    return keys, ends, first, second


def _part(folder: Path, name: str, number: int) -> Path:
    return folder / f"{name}-{number}.rows"


def _sorted_file(folder: Path, name: str) -> Path:
    return folder / f"{name}-sorted.rows"


def _sort_parts(folder: Path, name: str, parts: int) -> None:
    """What a process of its own does, with whose end all memory comes back that the libraries have taken."""
    import pyarrow as pa

    schema = pa.schema([("key", pa.binary()), ("first", pa.int64()), ("second", pa.int64()), ("place", pa.int64())])
    with limited_database(folder, _MEMORY_MB) as database, _sorted_file(folder, name).open("wb") as file:
        database.register("unsorted", pa.RecordBatchReader.from_batches(schema, _batches(folder, name, parts)))
        query = 'SELECT key, "first", "second" FROM unsorted ORDER BY key, place'
        for batch in database.sql(query).fetch_record_batch(_BATCH):
            if batch.num_rows:
                _write(file, *(column.to_pylist() for column in batch.columns))


def _batches(folder: Path, name: str, parts: int) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    place = 0
    for number in range(parts):
        with _part(folder, name, number).open("rb") as file:
            while (found := _read(file)) is not None:
                keys, ends, first, second = found
                offsets = np.concatenate([[0], ends]).astype(np.int32)
                own = pa.Array.from_buffers(
                    pa.binary(), len(ends), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(keys)]
                )
                places = np.arange(place, place + len(ends))
                place += len(ends)
                arrays = [own, *(pa.array(numbers) for numbers in (first, second, places))]
                yield pa.RecordBatch.from_arrays(arrays, ["key", "first", "second", "place"])


if __name__ == "__main__":
    _sort_parts(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
