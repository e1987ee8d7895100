"""Writing the units of a corpus to disk, in one pass over its records (`tacit.corpus.unit_store` reads them).

Grouping and order are those of `tacit.corpus.units.group_units`: units sorted by id, which an external sort gives for records that
are spread over the files.

Shapes: U units, N texts, B bytes.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.corpus.records import Record
from tacit.corpus.unit_store import HELD_OUT, TRAINING, UNITS_AT_ONCE, decoded
from tacit.corpus.units import (
    Unit,
    UnitKind,
    cut_tuples,
    fingerprint_begun,
    fingerprint_line,
    key_of_record,
    ordinal_id,
    unit_fingerprint,
)
from tacit.randomness import KeyedRandomness
from tacit.storage.arrays import ArrayWriter, write_shapes
from tacit.storage.external_sort import IN_MEMORY, ExternalSort, Row

__all__ = ["Part", "SideBatch", "UnitBatch", "write_ordered_units", "write_units"]


@dataclass(frozen=True)
class Part:
    """Records that are grouped together.

    Args:
        records: read once.
        kind: what a unit is.
        prefix: begins the id of each unit: no two parts may have the same.
    """

    records: Iterable[Record]
    kind: UnitKind
    prefix: str = ""


def write_units(
    folder: Path,
    parts: Iterable[Part],
    is_held_out: Callable[[str], bool],
    streams: KeyedRandomness,
    in_memory: int = IN_MEMORY,
) -> None:
    """Write the units of parts, one part after the other.

    Args:
        folder: empty, and its owner's alone.
        parts: records and how they are grouped.
        is_held_out: of the id of a unit.
        streams: for the fingerprint.
        in_memory: records that are sorted in memory; more are sorted on disk.

    Raises:
        DataError: as `group_units`, and of whatever reads the records.
    """
    scratch = folder / "unsorted"
    scratch.mkdir()
    texts, sides = _Texts(folder, "texts_B"), _sides(folder)

    def written() -> Iterator[Unit]:
        for part in parts:
            for unit_id, spans in _grouped(scratch, part, texts, in_memory):
                sides[is_held_out(unit_id)].add(unit_id, spans)
                yield Unit(unit_id, tuple(texts.read(at, size) for at, size in spans))

    _finish(folder, texts, sides, unit_fingerprint(written(), streams))
    shutil.rmtree(scratch)


@dataclass(frozen=True)
class SideBatch:
    """Which texts are whose, of units that follow one another on one side. Shapes: U units, N texts.

    Args:
        ids: UTF-8, one behind the other.
        id_sizes_U, texts_U: bytes of each id, and how many texts are its unit's.
        at_N, sizes_N: where each text begins, and its bytes.
    """

    ids: bytes
    id_sizes_U: np.ndarray
    texts_U: np.ndarray
    at_N: np.ndarray
    sizes_N: np.ndarray

    def __repr__(self) -> str:
        return "SideBatch(<private>)"

    @classmethod
    def of(cls, ids: Sequence[bytes], spans: Sequence[Sequence[_Span]]) -> SideBatch:
        """The batch of units with these ids, whose texts lie at these places."""
        all_N2 = np.array(list(itertools.chain.from_iterable(spans)), dtype=np.int64).reshape(-1, 2)
        id_sizes_U, texts_U = (np.array(list(map(len, each)), dtype=np.int64) for each in (ids, spans))
        return cls(b"".join(ids), id_sizes_U, texts_U, all_N2[:, 0], all_N2[:, 1])


@dataclass(frozen=True)
class UnitBatch:
    """Units that follow one another, as the bytes that a store and a fingerprint want of them.

    Args:
        texts: of all units, in order.
        lines: `tacit.corpus.units.fingerprint_line` of each.
        training, held_out: by sides; texts are counted from the first of this batch.
    """

    texts: bytes
    lines: bytes
    training: SideBatch
    held_out: SideBatch

    def __repr__(self) -> str:
        return "UnitBatch(<private>)"

    @classmethod
    def of(cls, units: Sequence[tuple[Unit, bool]]) -> UnitBatch:
        """The batch of these units; each comes with whether it is held out."""
        texts: list[bytes] = []
        ids: dict[bool, list[bytes]] = {False: [], True: []}
        spans: dict[bool, list[list[_Span]]] = {False: [], True: []}
        at = 0
        for unit, held_out in units:
            own = []
            for text in unit.texts:
                texts.append(text.encode("utf-8", "surrogatepass"))
                own.append((at, len(texts[-1])))
                at += len(texts[-1])
            ids[held_out].append(unit.unit_id.encode("utf-8", "surrogatepass"))
            spans[held_out].append(own)
        lines = b"".join(fingerprint_line(unit) for unit, _ in units)
        sides = (SideBatch.of(ids[side], spans[side]) for side in (False, True))
        return cls(b"".join(texts), lines, *sides)


def write_ordered_units(folder: Path, batches: Iterable[UnitBatch], streams: KeyedRandomness) -> None:
    """Write, as `write_units`, units that were grouped, ordered and divided elsewhere, part by part, each with its part's prefix."""
    texts, sides = _Texts(folder, "texts_B"), _sides(folder)
    fingerprint = fingerprint_begun(streams)
    for batch in batches:
        start = texts.writer.rows
        texts.writer.add_bytes(batch.texts)
        fingerprint.update(batch.lines)
        sides[False].append(batch.training, start)
        sides[True].append(batch.held_out, start)
    _finish(folder, texts, sides, fingerprint.hexdigest())


def _sides(folder: Path) -> dict[bool, _SideWriter]:
    """The writers of both sides, by whether it is held out."""
    return {True: _SideWriter(folder, HELD_OUT), False: _SideWriter(folder, TRAINING)}


def _finish(folder: Path, texts: _Texts, sides: dict[bool, _SideWriter], fingerprint: str) -> None:
    writers = [texts.writer, *(writer for side in sides.values() for writer in side.closed())]
    write_shapes(folder, writers, {"fingerprint": fingerprint})


_Span = tuple[int, int]
"""Where a text begins in the file of texts, and its bytes."""


class _Texts:
    """The bytes of texts, appended, and read again while more are written."""

    def __init__(self, folder: Path, name: str) -> None:
        self.writer = ArrayWriter(folder, name, np.uint8)
        self._reader = (folder / f"{name}.bin").open("rb")

    def append(self, text: str) -> _Span:
        at = self.writer.rows
        content = text.encode("utf-8", "surrogatepass")
        self.writer.add_bytes(content)
        return at, len(content)

    def read(self, at: int, size: int) -> str:
        self.writer.flush()
        self._reader.seek(at)
        return decoded(self._reader.read(size))


class _SideWriter:
    """The arrays of one side: which texts are a unit's."""

    def __init__(self, folder: Path, name: str) -> None:
        kinds = {
            "ids_B": np.uint8,
            "id_ends_U": np.int64,
            "text_ends_U": np.int64,
            "at_N": np.int64,
            "sizes_N": np.int64,
        }
        self._writers = {key: ArrayWriter(folder, f"{name}-{key}", kind) for key, kind in kinds.items()}
        self._ids: list[bytes] = []
        self._texts: list[Sequence[_Span]] = []

    def add(self, unit_id: str, spans: Sequence[_Span]) -> None:
        self._ids.append(unit_id.encode("utf-8", "surrogatepass"))
        self._texts.append(spans)
        if len(self._ids) == UNITS_AT_ONCE:
            self._write()

    def closed(self) -> Iterable[ArrayWriter]:
        self._write()
        return self._writers.values()

    def append(self, batch: SideBatch, start: int) -> None:
        """Units whose texts are counted from the place ``start`` on."""
        writers = self._writers
        writers["id_ends_U"].add(writers["ids_B"].rows + np.cumsum(batch.id_sizes_U))
        writers["text_ends_U"].add(writers["at_N"].rows + np.cumsum(batch.texts_U))
        writers["ids_B"].add_bytes(batch.ids)
        writers["at_N"].add(start + batch.at_N)
        writers["sizes_N"].add(batch.sizes_N)

    def _write(self) -> None:
        self.append(SideBatch.of(self._ids, self._texts), 0)
        self._ids, self._texts = [], []


def _grouped(scratch: Path, part: Part, texts: _Texts, in_memory: int) -> Iterator[tuple[str, list[_Span]]]:
    """The id of each unit of a part, in order, and where its texts are."""
    kind = part.kind
    into = _Texts(scratch, "whole") if kind.words is not None else texts
    by_group = ExternalSort(scratch, "groups", in_memory)
    for number, record in enumerate(part.records, start=1):
        key = key_of_record(record, number, kind)
        by_group.add((key.encode("utf-8", "surrogatepass"), *into.append(record.text)))
    groups = ((decoded(key), [row[1:] for row in rows]) for key, rows in itertools.groupby(by_group, _key))
    if kind.kind in ("record", "tuple"):
        by_unit = ExternalSort(scratch, "units", in_memory)
        groups = _several_of_each(kind, groups, into, texts, by_unit)
    yield from ((part.prefix + unit_id, spans) for unit_id, spans in groups)


def _several_of_each(
    kind: UnitKind,
    documents: Iterator[tuple[str, list[_Span]]],
    whole: _Texts,
    texts: _Texts,
    by_unit: ExternalSort,
) -> Iterator[tuple[str, list[_Span]]]:
    """The units of documents that are records or tuples, under ids of their own."""
    for name, spans in documents:
        if kind.words is not None:
            pieces = cut_tuples([whole.read(*span) for span in spans], kind.words)
            spans = [texts.append(piece) for piece in pieces]
        for ordinal, span in enumerate(spans):
            by_unit.add((ordinal_id(name, ordinal).encode("utf-8", "surrogatepass"), *span))
    return ((decoded(key), [(at, size)]) for key, at, size in by_unit)


def _key(row: Row) -> bytes:
    return row[0]
