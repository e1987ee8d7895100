"""Merged runs have the order of `sorted`, through several levels, in memory that does not grow with them."""

from __future__ import annotations

import errno
import heapq
import random
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from operator import itemgetter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.errors import DataError, StorageError
from tacit.files import one_line_of_storage
from tacit.storage import sorted_runs
from tacit.storage.keyed_rows import KeyedRows
from tacit.storage.sorted_runs import SortedRuns, read_run, write_run

from ..disks import small_disk

Row = tuple[bytes, int, int]
KEY = itemgetter(0)
MIB = 1 << 20


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds at which a few rows need several levels."""
    for name, bound in (("_BATCH_ROWS", 3), ("_BATCH_BYTES", 8), ("_AT_ONCE", 3)):
        monkeypatch.setattr(sorted_runs, name, bound)


def runs_of(folder: Path, runs: Iterable[list[Row]], name: str = "rows") -> SortedRuns:
    written = SortedRuns(folder, name)
    for rows in runs:
        written.append([KeyedRows.of(rows)] if rows else [])
    return written


def merged(runs: SortedRuns) -> list[tuple[bytes, *tuple[int, ...]]]:
    return list(chain.from_iterable(block.tuples() for block in runs.blocks()))


def numbered(runs: Iterable[Iterable[bytes]]) -> list[list[Row]]:
    """Sorted runs of keys, with two numbers that say where each row came from and do not grow."""
    return [
        sorted(((key, -number, place * 2**40) for place, key in enumerate(keys)), key=KEY)
        for number, keys in enumerate(runs)
    ]


KEYS = st.one_of(
    st.sampled_from([b"", b"\x00", b"\x00\x00", b"a", b"a\x00", b"\xff", b"a" * 20]), st.binary(max_size=3)
)


@settings(max_examples=60, derandomize=True, deadline=None)
@given(keys=st.lists(st.lists(KEYS, max_size=12), max_size=30))
@pytest.mark.usefixtures("tiny")
def test_the_order_is_that_of_a_stable_sort(tmp_path_factory: pytest.TempPathFactory, keys: list[list[bytes]]) -> None:
    """Empty runs, empty keys, NULs, equal keys within and across runs; and the same when it is read again."""
    rows = numbered(keys)
    runs = runs_of(tmp_path_factory.mktemp("runs"), rows)
    expected = sorted(chain.from_iterable(rows), key=KEY)
    assert merged(runs) == expected
    assert len(runs) <= 3
    assert merged(runs) == expected


@pytest.mark.usefixtures("tiny")
def test_rows_of_one_key_over_many_batches_stay_in_their_order(tmp_path: Path) -> None:
    rows = numbered([[b"a"] * 20, [b"a", b"b", b"b"] * 9, [b"b"] * 20, [b"a"] * 20, [b""]] * 8)
    assert merged(runs_of(tmp_path, rows)) == sorted(chain.from_iterable(rows), key=KEY)


@pytest.mark.usefixtures("tiny")
def test_a_merge_that_takes_all_rows_of_the_last_key_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known wrong: those of later runs come before those of an earlier one whose next batch has more."""
    rows = numbered([[b"a"] * 20, [b"a"] * 20])
    monkeypatch.setattr(sorted_runs, "bisect_left", sorted_runs.bisect_right)
    wrong = merged(runs_of(tmp_path, rows))
    assert wrong != sorted(chain.from_iterable(rows), key=KEY)
    assert sorted(wrong) == sorted(chain.from_iterable(rows))


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 66, 128, 200, 64 * 64 + 1])
def test_files_that_were_merged_go_and_no_more_are_merged_than_must_be(tmp_path: Path, count: int) -> None:
    """Of the last count 64 times 64 runs are merged into 64, and two of those into one."""
    rows = [[(b"%05d" % (number * 7919 % count), number, 0)] for number in range(count)]
    runs = runs_of(tmp_path, rows)
    assert merged(runs) == sorted(chain.from_iterable(rows), key=KEY)
    left = list(tmp_path.iterdir())
    assert len(left) == len(runs) == min(count, 64)
    sizes = sorted(path.stat().st_size for path in left)
    if count == 65:
        assert sizes[:-1] == [sizes[0]] * 63  # two of 65 became one


def test_long_keys_and_short_ones(tmp_path: Path) -> None:
    rng = random.Random(3)
    keys = [[bytes([rng.randrange(256)]) * rng.choice([0, 1, 30, MIB, 3 * MIB]) for _ in range(4)] for _ in range(9)]
    rows = numbered(keys)
    assert merged(runs_of(tmp_path, rows)) == sorted(chain.from_iterable(rows), key=KEY)


# Memory ---------------------------------------------------------------------------------------------------------------


def peak(work: Callable[[], Iterator[object]]) -> float:
    """MiB that were held at most while rows were taken one by one."""
    tracemalloc.start()
    for _ in work():
        pass
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found / MIB


def whole_runs(folder: Path) -> Iterator[object]:
    """Known wrong: every run is read at once."""
    runs = [list(chain.from_iterable(batch.tuples() for batch in read_run(path))) for path in sorted(folder.iterdir())]
    yield from heapq.merge(*runs, key=KEY)


def test_memory_does_not_grow_with_the_runs(tmp_path: Path) -> None:
    """40 MB of rows in 20 runs; of each a batch, 256 KiB of keys, is held, and of one what the block has."""
    rng = random.Random(1)
    runs = SortedRuns(tmp_path, "rows")
    for _ in range(20):
        runs.append([KeyedRows.of(sorted((rng.randbytes(1000), 0, 0) for _ in range(2000)))])
    assert peak(runs.blocks) < 12
    assert peak(lambda: whole_runs(tmp_path)) > 36


@pytest.mark.parametrize(("bytes_at_once", "least", "most"), [(4 * MIB, 3, 10), (1 << 40, 30, 80)])
def test_memory_is_a_few_long_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_at_once: int, least: int, most: int
) -> None:
    """Known wrong, and the second row here: as many runs are merged at once where keys have 1 MB."""
    monkeypatch.setattr(sorted_runs, "_MERGE_BYTES", bytes_at_once)
    runs = SortedRuns(tmp_path, "rows")
    for number in range(32):
        runs.append([KeyedRows.of([(b"%02d" % (number * 7 % 32) + bytes(MIB), number, 0)])])
    assert least < peak(runs.blocks) < most


# What fails ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 23, 24, 30, 100, -1])
def test_a_damaged_file_is_one_line_without_a_row(tmp_path: Path, size: int) -> None:
    path = tmp_path / "rows-0.rows"
    write_run(path, [KeyedRows.of([(b"sentinel", number, number) for number in range(9)])])
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(DataError, match="the file is damaged; check the disk") as refused:
        list(read_run(path))
    assert "sentinel" not in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_disk_that_fills_while_runs_are_merged_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorted_runs, "_AT_ONCE", 2)
    with small_disk(tmp_path / "disk", "2m") as disk:
        runs = runs_of(disk.folder, numbered([[b"sentinel%06d" % row for row in range(2000)]] * 4))
        disk.leave(0)
        with pytest.raises(StorageError, match="the disk is full") as refused, one_line_of_storage(disk.folder):
            merged(runs)
        assert "sentinel" not in str(refused.value)
        with pytest.raises(OSError, match="space") as said:
            runs.append([KeyedRows.of([(bytes(MIB), 0, 0)])])
        assert said.value.errno == errno.ENOSPC
