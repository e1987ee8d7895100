"""Rows in the order of a key, also where they are more than memory holds: then duckdb sorts them, within limits, on disk.

What is sorted may be private: files go to one folder, which is the caller's to protect and to remove.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

__all__ = ["IN_MEMORY", "ExternalSort", "limited_database"]

IN_MEMORY = 1 << 16
"""Rows that are sorted in memory."""

_BATCH = 1 << 14
_MEMORY_MB = 128

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
        self._parts: list[Path] = []

    def add(self, row: Row) -> None:
        """One more."""
        self._rows.append(row)
        if len(self._rows) > self._most:
            self._write_part()

    def __iter__(self) -> Iterator[Row]:
        if not self._parts:
            return iter(sorted(self._rows, key=lambda row: row[0]))  # a stable sort
        if self._rows:
            self._write_part()
        return self._sorted_on_disk()

    def _write_part(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        keys, first, second = zip(*self._rows, strict=True)
        table = pa.table(
            [pa.array(keys, pa.binary()), pa.array(first, pa.int64()), pa.array(second, pa.int64())], _NAMES
        )
        path = self._folder / f"{self._name}-{len(self._parts)}.parquet"
        pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
        self._parts.append(path)
        self._rows = []

    def _sorted_on_disk(self) -> Iterator[Row]:
        import pyarrow as pa

        schema = pa.schema([("key", pa.binary()), ("first", pa.int64()), ("second", pa.int64()), ("place", pa.int64())])
        with limited_database(self._folder, _MEMORY_MB) as database:
            database.register("unsorted", pa.RecordBatchReader.from_batches(schema, self._batches()))
            query = 'SELECT key, "first", "second" FROM unsorted ORDER BY key, place'
            for batch in database.sql(query).fetch_record_batch(_BATCH):
                yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        import numpy as np
        import pyarrow as pa
        import pyarrow.parquet as pq

        place = 0
        for part in self._parts:
            for batch in pq.ParquetFile(part).iter_batches(_BATCH):
                places = pa.array(np.arange(place, place + batch.num_rows))
                place += batch.num_rows
                yield pa.RecordBatch.from_arrays([*batch.columns, places], [*_NAMES, "place"])


_NAMES = ["key", "first", "second"]
