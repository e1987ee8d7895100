"""Rows on disk are the rows in memory, to every reader of them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from tacit.randomness import KeyedRandomness
from tacit.storage.arrays import DiskArray
from tacit.training.row_store import open_rows, write_rows
from tacit.training.sequences import SequenceStream
from tacit.training.sums import _add_keys, scores_digest

LENGTH = 9
STREAMS = KeyedRandomness(bytes(range(32)))


def part_of(seed: int, units: int, counted: bool = False) -> SequenceStream:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 4, units)
    rows = int(counts.sum())
    return SequenceStream(
        rng.integers(0, 99, (rows, LENGTH)).astype(np.int32),
        rng.integers(2, LENGTH + 1, rows).astype(np.int32),
        np.concatenate([[0], np.cumsum(counts)]),
        tuple(rng.bytes(16).hex() for _ in range(units)),
        counted_ST=rng.random((rows, LENGTH)) < 0.5 if counted else None,
    )


def joined(parts: list[SequenceStream]) -> SequenceStream:
    starts = np.cumsum([0, *(part.sequences for part in parts)])
    counted = [part.counted_ST for part in parts if part.counted_ST is not None]
    return SequenceStream(
        np.concatenate([part.ids_ST for part in parts]),
        np.concatenate([part.lengths_S for part in parts]),
        np.concatenate([[0], *(part.starts_U1[1:] + start for part, start in zip(parts, starts, strict=False))]),
        tuple(key for part in parts for key in part.keys_U),
        counted_ST=np.concatenate(counted) if counted else None,
    )


def stored(folder: Path, parts: list[SequenceStream]) -> SequenceStream:
    folder.mkdir()
    write_rows(folder, parts)
    return open_rows(folder)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("sizes", [[40], [7, 0, 30, 5], [0], [0, 3]])
def test_parts_become_one_stream(tmp_path: Path, sizes: list[int], counted: bool) -> None:
    parts = [part_of(seed, units, counted) for seed, units in enumerate(sizes)]
    whole, found = joined(parts), stored(tmp_path / "rows", parts)
    assert isinstance(found.ids_ST, DiskArray)
    for name in ("ids_ST", "lengths_S", "starts_U1", "counted_ST"):
        one, other = getattr(whole, name), getattr(found, name)
        assert (one is None) == (other is None)
        assert one is None or (np.array_equal(one, np.asarray(other)) and one.dtype == other.dtype), name
    assert tuple(found.keys_U) == whole.keys_U
    assert (found.units, found.sequences) == (whole.units, whole.sequences)
    for unit in range(whole.units):
        assert found.keys_U[unit] == whole.keys_U[unit]
        assert np.array_equal(found.rows_of(unit), whole.rows_of(unit))
    assert found.keys_U[1:3] == whole.keys_U[1:3]


def test_the_digest_of_sums_is_the_same_and_tells_rows_apart(tmp_path: Path) -> None:
    """The address of all noise: it must not move with where rows lie, and must with what they are."""
    parts = [part_of(seed, 20, counted=True) for seed in range(3)]
    whole, found = joined(parts), stored(tmp_path / "rows", parts)

    def digest(stream: SequenceStream) -> str:
        return scores_digest({}, stream, "a plan", STREAMS)

    assert digest(found) == digest(whole)
    other = joined(parts)
    np.asarray(other.ids_ST)[-1, -1] += 1  # in memory: the same array
    keys = (*whole.keys_U[:-1], "0" * 32)
    assert len({digest(whole), digest(other), digest(dataclasses.replace(whole, keys_U=keys))}) == 3


def test_a_hundred_million_rows_are_opened_without_reading_them(tmp_path: Path) -> None:
    """Of files with holes, as large as those of so many rows. Known-wrong: an array in memory, which this machine has no room for."""
    rows, folder = 10**8, tmp_path / "rows"
    stored(folder, [part_of(0, 1)])
    shapes = json.loads((folder / "arrays.json").read_text())
    for name, (kind, shape) in shapes["arrays"].items():
        shape[0] = rows + (name == "starts_U1")
        os.truncate(folder / f"{name}.bin", np.dtype(kind).itemsize * math.prod(shape))
    with (folder / "starts_U1.bin").open("rb+") as file:
        file.seek(-16, os.SEEK_END)
        file.write(np.array([rows - 1, rows], np.int64).tobytes())
    with (folder / "ids_ST.bin").open("rb+") as file:
        file.seek(-4 * LENGTH, os.SEEK_END)
        file.write(np.arange(LENGTH, dtype=np.int32).tobytes())
    (folder / "arrays.json").write_text(json.dumps(shapes))
    before = _own_memory()
    stream = open_rows(folder)
    assert (stream.units, stream.sequences) == (rows, rows)
    assert stream.ids_ST[stream.rows_of(rows - 1)].tolist() == [list(range(LENGTH))]
    assert _own_memory() - before < 10 << 20


def _own_memory() -> int:
    """Bytes of this process that are no file's."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon")]
    return int(line.split()[1]) << 10


def test_longest_rows_of_units() -> None:
    stream = part_of(5, 60)
    wanted = [max([0, *(int(stream.lengths_S[row]) for row in stream.rows_of(unit))]) for unit in range(60)]
    assert 0 in wanted  # of units without rows
    chosen = np.random.default_rng(1).permutation(60)[:31]
    assert stream.longest_of(chosen).tolist() == [wanted[unit] for unit in chosen]
    assert stream.longest_of(np.array([], dtype=np.int64)).tolist() == []


def test_keys_are_digested_as_one_text() -> None:
    """As in every run before: another digest would give another address, and so other noise."""
    for keys in ((), ("ab",), ("ab", "cd", "ef")):
        by_hand, found = hashlib.blake2b(), hashlib.blake2b()
        content = "\n".join(keys).encode()
        by_hand.update(len(content).to_bytes(8, "big") + content)
        _add_keys(found, keys)
        assert found.digest() == by_hand.digest()
