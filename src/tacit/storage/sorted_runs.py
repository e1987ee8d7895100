"""Sorted runs on disk, and their merge: memory grows neither with rows nor with runs, and no more than a few times with the longest key.

What is in a run may be private: files go to one folder, which is the caller's to protect and to remove; no error quotes a row.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, Generic, NamedTuple, TypeVar

import numpy as np

from tacit.errors import DataError

__all__ = ["SortedRuns", "read_run", "write_run"]

_BATCH_ROWS = 1 << 10
_BATCH_BYTES = 1 << 18  # of keys
_AT_ONCE = 64  # runs that are merged in one pass
_MERGE_BYTES = 1 << 25  # of keys, in the batches of all runs that are merged in one pass

R = TypeVar("R", bound=tuple[bytes, *tuple[int, ...]])
"""A row: a key, and numbers that fit in 64 bits, of every row as many."""


class Written(NamedTuple):
    """What a run has: rows, and the bytes of the keys of its largest batch."""

    rows: int
    largest: int


class SortedRuns(Generic[R]):
    """Runs, and their rows in the order of the keys' bytes; rows of one key in the order of the runs, and within a run in its own.

    At most 64 runs are merged at once, and fewer where keys are long; of more, some are merged into longer ones first.

    Args:
        folder: where the files go.
        name: begins their names.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = name
        self._runs: list[Path] = []
        self._files = 0
        self._largest = 1

    def __len__(self) -> int:
        return len(self._runs)

    def append(self, rows: Iterable[R]) -> None:
        """One more run, of rows in the order of their keys."""
        self._runs.append(self._written(rows))

    def __iter__(self) -> Iterator[R]:
        """All rows; a run's file is open only while a batch is read.

        Raises:
            DataError: a file is damaged.
        """
        at_once = max(2, min(_AT_ONCE, _MERGE_BYTES // self._largest))
        while len(self._runs) > at_once:
            self._merge_some(at_once)
        return _merge(self._runs)

    def _merge_some(self, at_once: int) -> None:
        """One pass from the first run on, of no more of them than must be so that ``at_once`` are left."""
        longer: list[Path] = []
        while self._runs and (excess := len(longer) + len(self._runs) - at_once) > 0:
            group = self._runs[: min(at_once, excess + 1)]
            longer.append(self._written(_merge(group)))
            for path in group:
                path.unlink()
            del self._runs[: len(group)]
        self._runs[:0] = longer

    def _written(self, rows: Iterable[R]) -> Path:
        path = self._folder / f"{self._name}-{self._files}.rows"
        self._files += 1
        self._largest = max(self._largest, write_run(path, rows).largest)
        return path


def _merge(runs: Iterable[Path]) -> Iterator[Any]:
    return heapq.merge(*map(read_run, runs), key=itemgetter(0))  # stable


# Files: batches of rows, each its numbers of rows, of numbers in a row and of bytes of keys; the ends of the keys; the numbers, column
# by column; and the keys -----------------------------------------------------------------------------------------------------------


def write_run(path: Path, rows: Iterable[tuple[bytes, *tuple[int, ...]]]) -> Written:
    """Write rows as they come, batch by batch."""
    count = largest = 0
    with path.open("wb") as file:
        for batch in _batches(rows):
            count += len(batch)
            largest = max(largest, _write(file, batch))
    return Written(count, largest)


def read_run(path: Path) -> Iterator[Any]:
    """The rows of a run, of which a batch is in memory.

    Raises:
        DataError: the file is damaged.
    """
    at = 0
    while True:
        with path.open("rb") as file:  # not left open: how many files may be open would be a limit that some corpora meet
            file.seek(at)
            found = _read(file)
            at = file.tell()
        if found is None:
            return
        yield from found


def _batches(rows: Iterable[tuple[bytes, *tuple[int, ...]]]) -> Iterator[list[tuple[bytes, *tuple[int, ...]]]]:
    """Rows, by as many as a batch may have; one of them, where its key is longer than that."""
    batch: list[tuple[bytes, *tuple[int, ...]]] = []
    size = 0
    for row in rows:
        size += len(row[0])
        if len(batch) == _BATCH_ROWS or (size > _BATCH_BYTES and batch):
            yield batch
            batch, size = [], len(row[0])
        batch.append(row)
    if batch:
        yield batch


def _write(file: IO[bytes], batch: list[tuple[bytes, *tuple[int, ...]]]) -> int:
    """Write a batch; gives the bytes of its keys."""
    keys, *columns = zip(*batch, strict=True)
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    head = np.array([len(keys), len(columns), ends[-1]], dtype=np.int64)
    file.writelines(array.data for array in (head, ends, *(np.array(column, dtype=np.int64) for column in columns)))
    file.writelines(keys)
    return int(ends[-1])


def _read(file: IO[bytes]) -> Iterator[tuple[Any, ...]] | None:
    """The rows of the next batch; None at the end."""
    head = file.read(24)
    if not head:
        return None
    rows, columns, size = np.frombuffer(head, np.int64).tolist() if len(head) == 24 else (0, 0, -1)
    start = 8 * rows * (1 + columns)
    content = file.read(start + size) if size >= 0 else b""
    if size < 0 or len(content) != start + size:
        raise DataError(f"{file.name}: the file is damaged; repair the disk, and run the same command again")
    ends, *numbers = np.frombuffer(content, np.int64, rows * (1 + columns)).reshape(1 + columns, rows)
    bounds = [start, *(start + ends).tolist()]
    keys = map(content.__getitem__, map(slice, bounds, bounds[1:]))
    return zip(keys, *(column.tolist() for column in numbers), strict=True)
