"""Sums by word that may outgrow memory: what does not fit waits on disk, in a folder that only its owner can read.

The words are private text. They are held in memory up to a cap; beyond it they go to a file, and counting goes on with none. In the
end duckdb adds the files up, itself within the cap. The result is the same with and without files: sums, in the order of the words'
code points, which is that of their UTF-8 bytes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import DataError
from tacit.files import private_folder
from tacit.storage.external_sort import limited_database

__all__ = ["SortedCounts", "Spill", "Tally", "spill_folder", "write_ordered"]

_MIB = 1 << 20
_BYTES_A_WORD = 200
"""Of a word of usual length in the table of counts; about 130 once the table is full, more just after it has grown."""

_BATCH = 1 << 16


@dataclass(frozen=True)
class Spill:
    """Where counts go that do not fit.

    Args:
        folder: from `spill_folder`.
        memory_mb: MiB that the words may take before they go there, and that adding them up may take.
    """

    folder: Path
    memory_mb: int

    @property
    def most_words(self) -> int:
        """Words that fit."""
        return max(1, self.memory_mb * _MIB // _BYTES_A_WORD)


@contextmanager
def spill_folder(folder: Path) -> Iterator[Path]:
    """An empty folder of mode 0700, where files get the mode 0600, until the block ends. What a killed process left is removed first.

    The modes come from the process' umask, which is stricter within the block.
    """
    shutil.rmtree(folder, ignore_errors=True)
    before = os.umask(0o077)
    try:
        yield private_folder(folder)
    finally:
        os.umask(before)
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class SortedCounts:
    """Words and their counts in the order of code points, read again at every iteration. Private."""

    counts: Mapping[str, int] | Path
    size: int

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> SortedCounts:
        """Those of a table in memory."""
        return cls(counts, len(counts))

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[str, int]]:
        if isinstance(self.counts, Path):
            return _rows(self.counts)
        counts = self.counts
        return ((word, counts[word]) for word in sorted(counts))

    def __repr__(self) -> str:
        return "SortedCounts(<private>)"


class Tally:
    """Sums by word, in memory while they fit.

    Args:
        spill: where they go that do not; None: all are held in memory.
    """

    def __init__(self, spill: Spill | None = None) -> None:
        self._spill = spill
        self._sums: dict[str, int] = {}
        self._parts: list[Path] = []

    def add(self, words: Collection[str], weight: int) -> None:
        """Add the weight to the sum of each word.

        Raises:
            DataError: the words cannot be written.
        """
        sums = self._sums
        get = sums.get
        for word in words:
            sums[word] = get(word, 0) + weight
        if self._spill is not None and len(sums) > self._spill.most_words:
            self._write_part(self._spill)

    def in_memory(self) -> dict[str, int]:
        """The sums of a tally that does not spill."""
        assert self._spill is None
        return self._sums

    def sums(self) -> SortedCounts:
        """All sums; they last as long as the folder.

        Raises:
            DataError: they cannot be added up in the memory and on the disk that there are.
        """
        if self._spill is None or not self._parts:
            return SortedCounts.of(self._sums)
        self._write_part(self._spill)
        with _no_text_in_errors(self._spill):
            return _added_up(self._parts, self._spill)

    def _write_part(self, spill: Spill) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = spill.folder / f"part-{len(self._parts)}.parquet"
        with _no_text_in_errors(spill):
            table = pa.table(
                [pa.array(self._sums.keys(), pa.string()), pa.array(self._sums.values(), pa.int64())], _NAMES
            )
            pq.write_table(table, path, compression="zstd", use_dictionary=False, write_statistics=False)
        self._parts.append(path)
        self._sums = {}


_NAMES = ["word", "count"]


def write_ordered(batches: Iterable[tuple[Sequence[bytes], Sequence[int]]], spill: Spill) -> SortedCounts:
    """Sums that were added up elsewhere, as `Tally.sums` gives them: words as UTF-8, in order, and their counts; on disk.

    Raises:
        DataError: they cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, size = spill.folder / "counts.parquet", 0
    schema = pa.schema([("word", pa.string()), ("count", pa.int64())])
    with _no_text_in_errors(spill), pq.ParquetWriter(path, schema, compression="zstd", write_statistics=False) as file:
        for words, counts in batches:
            own = [pa.array(words, pa.binary()).cast(pa.string()), pa.array(counts, pa.int64())]
            file.write_table(pa.Table.from_arrays(own, schema=schema))
            size += len(words)
    return SortedCounts(path, size)


def _added_up(parts: list[Path], spill: Spill) -> SortedCounts:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("word", pa.string()), ("count", pa.int64())])
    batches = (batch for part in parts for batch in pq.ParquetFile(part).iter_batches(_BATCH))
    path = spill.folder / "counts.parquet"
    with limited_database(spill.folder, spill.memory_mb) as database:
        database.register("parts", pa.RecordBatchReader.from_batches(schema, batches))
        query = 'SELECT word, CAST(sum("count") AS BIGINT) AS "count" FROM parts GROUP BY word ORDER BY word'
        database.sql(query).write_parquet(str(path), compression="zstd")
    return SortedCounts(path, pq.ParquetFile(path).metadata.num_rows)


def _rows(path: Path) -> Iterator[tuple[str, int]]:
    import pyarrow.parquet as pq

    for batch in pq.ParquetFile(path).iter_batches(_BATCH):
        words, counts = (column.to_pylist() for column in batch.columns)
        yield from zip(words, counts, strict=True)


@contextmanager
def _no_text_in_errors(spill: Spill) -> Iterator[None]:
    """Errors of the libraries become one line, `from None`, since they may quote what they were given."""
    import duckdb
    import pyarrow as pa

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError, MemoryError) as error:
        raise DataError(
            f"{spill.folder}: the words cannot be counted on disk ({type(error).__name__}); "
            f"make room there, or raise compute.counting_memory_mb (now {spill.memory_mb})"
        ) from None
