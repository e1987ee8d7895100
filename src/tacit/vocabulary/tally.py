"""Sums by word that may outgrow memory: what does not fit waits on disk, in a folder that only its owner can read.

The words are private text. Those of some hundred thousand additions are added up at once, in arrays without an object for each word,
and held in memory up to a cap; beyond it they go to a file, in order, and counting goes on with none. In the end the files are
merged, and the sums of a word added up, in memory that grows with no corpus. The result is the same with and without files: sums, in
the order of the words' code points, which is that of their UTF-8 bytes.
"""

from __future__ import annotations

import dataclasses
import math
import os
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tacit.errors import DataError
from tacit.files import private_folder
from tacit.storage.keyed_rows import KeyedRows
from tacit.storage.sorted_runs import SortedRuns, read_run, write_run

__all__ = ["SortedCounts", "Spill", "Tally", "spill_folder", "write_ordered"]

_MIB = 1 << 20
_MOST_AT_ONCE = 1 << 13  # words that are put in order together
_BYTES_AT_ONCE = 1 << 16  # of them
_MOST_SUM = float(1 << 62)
_BETWEEN = b"\n"  # stands in no word
_MOST_NEW = 1 << 26  # bytes that adding up what has come in may take
_MOST_HELD = 1 << 22  # bytes that are held before those of one word are joined, at least
_NEW_BYTES = 40  # of them for a word, beside three for each of its own
_NOTHING = KeyedRows.of_columns([], [[]])


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

    counts: Mapping[str, int] | KeyedRows | Path
    size: int

    @classmethod
    def of(cls, counts: Mapping[str, int]) -> SortedCounts:
        """The sorted counts of a table in memory."""
        return cls(counts, len(counts))

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[str, int]]:
        counts = self.counts
        if isinstance(counts, Mapping):
            return ((word, counts[word]) for word in sorted(counts))
        batches = _pieces(counts) if isinstance(counts, KeyedRows) else read_run(counts)
        return ((word.decode("utf-8", "surrogatepass"), count) for batch in batches for word, count in batch.tuples())

    def __repr__(self) -> str:
        return "SortedCounts(<private>)"


class Tally:
    """Sums by word, in memory while they fit.

    Args:
        spill: where they go that do not; None: all are held in memory.
    """

    def __init__(self, spill: Spill | None = None) -> None:
        self._spill = spill
        self._most_new = _MOST_NEW if spill is None else min(_MOST_NEW, spill.most_bytes // 4)
        self._room = math.inf if spill is None else spill.most_bytes // 4  # what is joined is there three times
        self._most_held = min(_MOST_HELD, self._room)
        self._new = bytearray()
        self._weights: list[int] = []
        self._words: list[int] = []
        self._held: list[KeyedRows] = []
        self._runs = None if spill is None else SortedRuns(spill.folder, "words")

    def add(self, words: Collection[str], weight: int) -> None:
        """Add the weight to the sum of each word, in which there is no line break.

        Raises:
            DataError: the words cannot be written.
            OverflowError: a sum does not fit in 64 bits.
        """
        if not words:
            return
        self._new += "\n".join(words).encode("utf-8", "surrogatepass")
        self._new += _BETWEEN
        self._weights.append(weight)
        self._words.append(self._words[-1] + len(words) if self._words else len(words))
        if 3 * len(self._new) + _NEW_BYTES * self._words[-1] > self._most_new:
            self._gather()

    def in_memory(self) -> dict[str, int]:
        """The sums of a tally that does not spill."""
        assert self._spill is None
        return dict(self.sums())

    def sums(self) -> SortedCounts:
        """All sums; they last as long as the folder.

        Raises:
            DataError: they cannot be added up on the disk that there is.
        """
        self._gather()
        with self._no_text_in_errors():
            if self._spill is None or not self._runs:
                self._held = [KeyedRows.joined([_NOTHING, *self._in_order()])]
                return SortedCounts(self._held[0], len(self._held[0]))
            if self._held:
                self._runs.append(self._in_order())
            return _written(_added_up(self._runs.blocks()), self._spill)

    def _gather(self) -> None:
        """Add up what has come in."""
        if not self._words:
            return
        with self._no_text_in_errors():
            self._held.append(_summed(self._new, self._words, self._weights))
            self._new, self._words, self._weights = bytearray(), [], []
            if sum(map(_bytes_of, self._held)) > self._most_held:
                self._join()

    def _join(self) -> None:
        """Make one of what is held, or a file where that is still much."""
        joined = list(self._in_order())
        size = sum(map(_bytes_of, joined))
        if self._runs is not None and 2 * size > self._room:
            self._runs.append(joined)
        else:
            self._held = [KeyedRows.joined(joined)]
            self._most_held = min(max(_MOST_HELD, 4 * size), self._room)  # so that a sum is not joined again and again

    def _in_order(self) -> Iterator[KeyedRows]:
        """The sums of what is held, which is let go of."""
        rows = KeyedRows.joined([_NOTHING, *self._held])
        self._held = []
        return _added_up(_in_order(rows))

    def _no_text_in_errors(self) -> AbstractContextManager[None]:
        return nullcontext() if self._spill is None else _no_text_in_errors(self._spill)


def write_ordered(batches: Iterable[tuple[Sequence[bytes], Sequence[int]]], spill: Spill) -> SortedCounts:
    """Sums that were added up elsewhere, as `Tally.sums` gives them: words as UTF-8, in order, and their counts; on disk.

    Raises:
        DataError: they cannot be written.
    """
    with _no_text_in_errors(spill):
        return _written((KeyedRows.of_columns(words, [counts]) for words, counts in batches), spill)


def _summed(new: bytearray, ends_N: Sequence[int], weights_N: Sequence[int]) -> KeyedRows:
    """The sum of each word, in any order.

    Args:
        new: the words, each with a line break behind it.
        ends_N, weights_N: up to which word each addition goes, and what it adds.

    Raises:
        OverflowError: a sum does not fit in 64 bits.
    """
    content = np.frombuffer(new, np.uint8)
    breaks = np.flatnonzero(content == _BETWEEN[0])
    if len(breaks) != ends_N[-1]:
        raise ValueError("there is a line break in a word")
    ends = np.append(0, breaks - np.arange(len(breaks)))
    own = pa.py_buffer(content[content != _BETWEEN[0]])
    words = pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(breaks), [None, pa.py_buffer(ends), own])
    found = words.dictionary_encode()
    places, weights = found.indices.to_numpy(), np.array(weights_N, np.int64)
    if float(weights.max()) * len(places) > _MOST_SUM:
        _refuse_large(np.bincount(places, np.repeat(weights, np.diff(ends_N, prepend=0)).astype(np.float64)))
    if weights.min() == weights.max():
        sums = np.bincount(places, minlength=len(found.dictionary)) * weights[0]
    else:
        sums = np.zeros(len(found.dictionary), np.int64)
        np.add.at(sums, places, np.repeat(weights, np.diff(ends_N, prepend=0)))
    _, key_ends, keys = found.dictionary.buffers()
    bounds = np.frombuffer(key_ends, np.int64)[: len(sums) + 1]
    own_keys = b"" if keys is None else keys.slice(0, int(bounds[-1])).to_pybytes()
    return KeyedRows(own_keys, bounds[1:].copy(), sums[None])


def _refuse_large(sums: np.ndarray) -> None:
    if sums.max(initial=0.0) > _MOST_SUM:
        raise OverflowError("a sum of words does not fit in 64 bits")


def _bytes_of(rows: KeyedRows) -> int:
    return len(rows.keys) + rows.ends.nbytes + rows.numbers.nbytes


def _pieces(rows: KeyedRows) -> Iterator[KeyedRows]:
    at_once = _at_once(rows)
    return (rows.part(start, min(start + at_once, len(rows))) for start in range(0, len(rows), at_once))


def _at_once(rows: KeyedRows) -> int:
    return max(1, min(_MOST_AT_ONCE, _BYTES_AT_ONCE * len(rows) // max(1, len(rows.keys))))


def _in_order(rows: KeyedRows) -> Iterator[KeyedRows]:
    """The rows in the order of their words, some at a time."""
    order, at_once = rows.order(), _at_once(rows)
    for start in range(0, len(rows), at_once):
        yield rows.taken(order[start : start + at_once])


def _added_up(blocks: Iterable[KeyedRows]) -> Iterator[KeyedRows]:
    """The rows of each word, which follow one another, as one.

    Raises:
        OverflowError: a sum does not fit in 64 bits.
    """
    carried: list[KeyedRows] = []
    for block in blocks:
        rows = KeyedRows.joined([*carried, block]) if carried else block
        starts = np.flatnonzero(rows.is_first_of_key())
        added = rows
        if len(starts) < len(rows):
            if float(rows.numbers.max()) * len(rows) > _MOST_SUM:
                _refuse_large(np.add.reduceat(rows.numbers.astype(np.float64), starts, axis=1))
            sums = np.add.reduceat(rows.numbers, starts, axis=1)
            added = dataclasses.replace(rows.taken(starts), numbers=sums)
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
