"""Rows in the order of a key, also where they are more than memory holds: then sorted runs go to disk, and are merged.

What is sorted may be private: files go to one folder, which is the caller's to protect and to remove.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from pathlib import Path

from tacit.storage.keyed_rows import KeyedRows
from tacit.storage.sorted_runs import SortedRuns

__all__ = ["IN_MEMORY", "ExternalSort", "Row"]

IN_MEMORY = 1 << 16
"""Rows that are sorted in memory."""

_MOST_BYTES = 1 << 26  # of keys in memory
_ROWS_AT_ONCE = 1 << 13  # that are written together
_BYTES_AT_ONCE = 1 << 17  # of keys that are written together

Row = tuple[bytes, int, int]
"""A key, and two numbers."""


class ExternalSort:
    """Collects rows, and gives them in the order of their keys' bytes; rows of one key in the order in which they came.

    Args:
        folder: where rows wait that are many.
        name: of the files there.
        in_memory: rows that are sorted in memory.
    """

    def __init__(self, folder: Path, name: str, in_memory: int = IN_MEMORY) -> None:
        self._most = in_memory
        self._rows: list[Row] = []
        self._bytes = 0
        self._runs = SortedRuns(folder, name)

    def add(self, row: Row) -> None:
        """One more."""
        self._rows.append(row)
        self._bytes += len(row[0])
        if len(self._rows) > self._most or self._bytes > _MOST_BYTES:
            self._write_run()

    def __iter__(self) -> Iterator[Row]:
        """All rows.

        Raises:
            DataError: a file on disk is damaged.
        """
        if not self._runs:
            return iter(sorted(self._rows, key=itemgetter(0)))  # a stable sort
        if self._rows:
            self._write_run()
        return ((key, first, second) for block in self._runs.blocks() for key, first, second in block.tuples())

    def _write_run(self) -> None:
        self._rows.sort(key=itemgetter(0))
        self._runs.append(_some_at_a_time(self._rows))
        self._rows, self._bytes = [], 0


def _some_at_a_time(rows: list[Row]) -> Iterator[KeyedRows]:
    """Rows, few at a time: of their keys there is a copy then."""
    some: list[Row] = []
    size = 0
    for row in rows:
        some.append(row)
        size += len(row[0])
        if len(some) >= _ROWS_AT_ONCE or size >= _BYTES_AT_ONCE:
            yield KeyedRows.of(some)
            some, size = [], 0
    if some:
        yield KeyedRows.of(some)
