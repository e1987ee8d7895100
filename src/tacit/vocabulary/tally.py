"""Sums by word that may outgrow memory: what does not fit waits on disk, in a folder that only its owner can read.

The words are private text. They are held in memory up to a cap; beyond it they go to a file, in order, and counting goes on with
none. In the end the files are merged, and the sums of a word added up, in memory that grows with no corpus. The result is the same
with and without files: sums, in the order of the words' code points, which is that of their UTF-8 bytes.
"""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np

from tacit.errors import DataError
from tacit.files import private_folder
from tacit.storage.keyed_rows import KeyedRows
from tacit.storage.sorted_runs import SortedRuns, read_run, write_run

__all__ = ["SortedCounts", "Spill", "Tally", "spill_folder", "write_ordered"]

_MIB = 1 << 20
_MOST_AT_ONCE = 1 << 13  # words that are encoded and written together
_BYTES_AT_ONCE = 1 << 16  # characters of them
_MOST_SUM = float(1 << 62)
_BYTES_AN_ENTRY = 144
"""Of a word in the table of counts, beside the word itself: at most 122, while the table grows, and what rounding takes."""


@dataclass(frozen=True)
class Spill:
    """Where counts go that do not fit.

    Args:
        folder: from `spill_folder`.
        memory_mb: MiB that the words and their counts may take before they go there; one unit's words may be above it.
    """

    folder: Path
    memory_mb: int

    @property
    def most_bytes(self) -> int:
        """The most bytes that words and their counts may take in memory."""
        return self.memory_mb * _MIB


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
        """The sorted counts of a table in memory."""
        return cls(counts, len(counts))

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[str, int]]:
        if isinstance(self.counts, Path):
            return ((word.decode(), count) for batch in read_run(self.counts) for word, count in batch.tuples())
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
        self._bytes = 0
        self._runs = None if spill is None else SortedRuns(spill.folder, "words")

    def add(self, words: Collection[str], weight: int) -> None:
        """Add the weight to the sum of each word.

        Raises:
            DataError: the words cannot be written.
        """
        sums = self._sums
        get, size = sums.get, sys.getsizeof
        for word in words:
            known = get(word)
            if known is None:
                sums[word] = weight
                self._bytes += _BYTES_AN_ENTRY + size(word)
            else:
                sums[word] = known + weight
        if self._spill is not None and self._bytes > self._spill.most_bytes:
            self._write_run(self._spill)

    def in_memory(self) -> dict[str, int]:
        """The sums of a tally that does not spill."""
        assert self._spill is None
        return self._sums

    def sums(self) -> SortedCounts:
        """All sums; they last as long as the folder.

        Raises:
            DataError: they cannot be added up on the disk that there is.
        """
        if self._spill is None or not self._runs:
            return SortedCounts.of(self._sums)
        self._write_run(self._spill)
        with _no_text_in_errors(self._spill):
            return _written(_added_up(self._runs.blocks()), self._spill)

    def _write_run(self, spill: Spill) -> None:
        assert self._runs is not None
        sums, self._sums, self._bytes = self._sums, {}, 0
        with _no_text_in_errors(spill):
            self._runs.append(_in_order(sums))


def write_ordered(batches: Iterable[tuple[Sequence[bytes], Sequence[int]]], spill: Spill) -> SortedCounts:
    """Sums that were added up elsewhere, as `Tally.sums` gives them: words as UTF-8, in order, and their counts; on disk.

    Raises:
        DataError: they cannot be written.
    """
    with _no_text_in_errors(spill):
        return _written((KeyedRows.of_columns(words, [counts]) for words, counts in batches), spill)


def _in_order(sums: dict[str, int]) -> Iterator[KeyedRows]:
    """Words in UTF-8, whose bytes have the order of code points, with their sums; both are let go of on the way."""
    words, numbers = list(sums), np.fromiter(sums.values(), np.int64, len(sums))
    sums.clear()
    words.reverse()  # they are taken from the end
    keys, ends = BytesIO(), np.zeros(len(words), np.int64)  # it gives its bytes without a copy
    at_once = max(1, min(_MOST_AT_ONCE, _BYTES_AT_ONCE * len(words) // sum(map(len, words)))) if words else 1
    for start in range(0, len(words), at_once):
        piece = words[: -at_once - 1 : -1]
        del words[-at_once:]
        joined = "".join(piece)
        lengths = map(len, piece) if joined.isascii() else (len(word.encode()) for word in piece)
        ends[start : start + at_once] = keys.tell() + np.cumsum(np.fromiter(lengths, np.int64, len(piece)))
        keys.write(joined.encode())
    rows = KeyedRows(keys.getvalue(), ends, numbers[None])
    del keys
    order = rows.order()
    for start in range(0, len(rows), at_once):
        yield rows.taken(order[start : start + at_once])


def _added_up(blocks: Iterable[KeyedRows]) -> Iterator[KeyedRows]:
    """The rows of each word, which follow one another, as one.

    Raises:
        OverflowError: a sum does not fit in 64 bits.
    """
    carried: list[KeyedRows] = []
    for block in blocks:
        rows = KeyedRows.joined([*carried, block])
        starts = np.flatnonzero(rows.is_first_of_key())
        if np.add.reduceat(rows.numbers.astype(np.float64), starts, axis=1).max() > _MOST_SUM:
            raise OverflowError("a sum of words does not fit in 64 bits")
        added = dataclasses.replace(rows.taken(starts), numbers=np.add.reduceat(rows.numbers, starts, axis=1))
        yield added.part(0, len(added) - 1)
        carried = [added.part(len(added) - 1, len(added))]  # more of it may be in the next block
    yield from carried


def _written(blocks: Iterable[KeyedRows], spill: Spill) -> SortedCounts:
    path = spill.folder / "counts.rows"
    return SortedCounts(path, write_run(path, blocks).rows)


@contextmanager
def _no_text_in_errors(spill: Spill) -> Iterator[None]:
    """Errors of the libraries become one line, `from None`, since they may quote what they were given."""
    try:
        yield
    except (OSError, MemoryError) as error:
        raise DataError(
            f"{spill.folder}: the words cannot be counted on disk ({type(error).__name__}); "
            f"make room there, or raise compute.counting_memory_mb (now {spill.memory_mb})"
        ) from None
