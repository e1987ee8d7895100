"""Sorted runs on disk, and their merge: memory grows neither with rows nor with runs, and only with the few longest keys.

What is in a run may be private: files go to one folder, which is the caller's to protect and to remove; no error quotes a row.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from tacit.errors import DataError
from tacit.storage.keyed_rows import KeyedRows

__all__ = ["SortedRuns", "Written", "read_run", "write_run"]

_BATCH_ROWS = 1 << 11  # that are written, read and merged together
_BATCH_BYTES = 1 << 17  # of keys
_AT_ONCE = 64  # runs that are merged in one pass
_MERGE_BYTES = 1 << 24  # of keys, of all runs that are merged in one pass; of what is given there are two copies more


class SortedRuns:
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

    def append(self, blocks: Iterable[KeyedRows]) -> None:
        """One more run, of rows in the order of their keys, some at a time."""
        self._runs.append(self._written(blocks))

    def blocks(self) -> Iterator[KeyedRows]:
        """All rows, some at a time; no block is without one.

        Raises:
            DataError: a file is damaged.
        """
        at_once = max(2, min(_AT_ONCE, _MERGE_BYTES // self._largest))
        while len(self._runs) > at_once:
            self._merge_some(at_once)
        return _merged(self._runs)

    def _merge_some(self, at_once: int) -> None:
        """One pass from the first run on, through no more of them than must be so that ``at_once`` are left."""
        longer: list[Path] = []
        while self._runs and (excess := len(longer) + len(self._runs) - at_once) > 0:
            group = self._runs[: min(at_once, excess + 1)]
            longer.append(self._written(_merged(group)))
            for path in group:
                path.unlink()
            del self._runs[: len(group)]
        self._runs[:0] = longer

    def _written(self, blocks: Iterable[KeyedRows]) -> Path:
        path = self._folder / f"{self._name}-{self._files}.rows"
        self._files += 1
        self._largest = max(self._largest, write_run(path, blocks).largest)
        return path


def _merged(runs: Iterable[Path]) -> Iterator[KeyedRows]:
    """Merge in blocks: one batch of each run is held; the one whose last key comes first is used up, with what comes before it."""
    readers = [read_run(path) for path in runs]
    held = {run: rows for run, reader in enumerate(readers) if (rows := next(reader, None)) is not None}
    starts = [0] * len(readers)
    while held:
        first = min(held, key=lambda run: held[run].key(len(held[run]) - 1))  # the first such run
        last = held[first].key(len(held[first]) - 1)
        block: list[KeyedRows] = []
        for run, rows in held.items():
            # Rows of this very key may come in the run's next batch: those of later runs wait for them.
            cut = bisect_right if run <= first else bisect_left
            end = cut(range(len(rows)), last, lo=starts[run], key=rows.key)
            if end > starts[run]:
                block.append(rows.part(starts[run], end))
            starts[run] = end
        following, starts[first] = next(readers[first], None), 0
        if following is None:
            del held[first]
        else:
            held[first] = following
        if len(block) < 2:
            yield from block
            continue
        merged = KeyedRows.joined(block)
        del block  # of which there is a copy now
        yield merged.taken(merged.order())


# Files: batches of rows, each how many rows, numbers in a row and bytes of keys; the ends of the keys; the numbers, column by column;
# and the keys ----------------------------------------------------------------------------------------------------------------------


class Written(NamedTuple):
    """What a run has: rows, and the bytes of the keys of its largest batch."""

    rows: int
    largest: int


def write_run(path: Path, blocks: Iterable[KeyedRows]) -> Written:
    """Write rows as they come."""
    count = largest = 0
    with path.open("wb") as file:
        for block in blocks:
            count += len(block)
            for start in range(0, len(block), _BATCH_ROWS):
                largest = max(largest, _write(file, block.part(start, min(len(block), start + _BATCH_ROWS))))
    return Written(count, largest)


def read_run(path: Path) -> Iterator[KeyedRows]:
    """The batches of a run, none of them empty.

    Raises:
        DataError: the file is damaged.
    """
    at = 0
    while True:
        # Not left open: how many files may be open would be a limit that only some corpora meet.
        with path.open("rb") as file:
            file.seek(at)
            batch = _read(file)
            at = file.tell()
        if batch is None:
            return
        yield batch


def _write(file: IO[bytes], rows: KeyedRows) -> int:
    """Write a batch, or more where keys are long; gives the bytes of the keys of the largest one."""
    size = len(rows.keys)
    if size > _BATCH_BYTES and len(rows) > 1:
        middle = len(rows) // 2
        return max(_write(file, rows.part(0, middle)), _write(file, rows.part(middle, len(rows))))
    head = np.array([len(rows), len(rows.numbers), size], np.int64)
    file.writelines([head.tobytes(), rows.ends.tobytes(), rows.numbers.tobytes(), rows.keys])
    return size


def _read(file: IO[bytes]) -> KeyedRows | None:
    """The next batch; None at the end."""
    head = file.read(24)
    if not head:
        return None
    rows, columns, size = np.frombuffer(head, np.int64).tolist() if len(head) == 24 else (0, 0, 0)
    numbers, keys = file.read(8 * rows * (1 + columns)), file.read(size)
    if not rows or len(numbers) != 8 * rows * (1 + columns) or len(keys) != size:
        raise DataError(f"{file.name}: the file is damaged; check the disk, and run the same command again")
    table = np.frombuffer(numbers, np.int64).reshape(1 + columns, rows)
    return KeyedRows(keys, table[0], table[1:])
