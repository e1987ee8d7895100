"""The records and the units of a corpus as tables, read from its files by tasks, each file by one."""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tacit.corpus.formats import READERS
from tacit.corpus.places import Place, look_at
from tacit.corpus.readers import no_record
from tacit.corpus.records import Record
from tacit.corpus.source import Source, files_and_formats
from tacit.corpus.units import Unit, UnitKind, cut_tuples, is_held_out, key_of_record, ordinal_id
from tacit.randomness import KeyedRandomness
from tacit.spark.runner import Chained, Function, Runner, Shared, batches_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["LIMBS", "Checksum", "RecordCorpus", "as_bytes", "as_text", "records_table", "units_in", "units_table"]

_PLACE = ["file", "row"]
_PART_BYTES = 1 << 24
_OF_ZIPPED = 4  # bytes of text, about, of a zipped one
LIMBS = 4
"""Numbers of a checksum."""


# Records --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Files:
    """The path of each file, its format, how many records are read (None: all); and records behind them, as another file's."""

    source: Source
    files: list[tuple[Place, str, int | None]]
    planted: Sequence[Record] = ()


@dataclass(frozen=True)
class _ReadRecords:
    """Reads the records of files that are given by their numbers."""

    shared: Shared[_Files]

    schema = "file long, row long, document binary, user binary, text binary"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names = [("file", pa.int64()), ("row", pa.int64())]
        names += [(name, pa.binary()) for name in ("document", "user", "text")]
        about = self.shared.get()
        rows = (row for batch in batches for file in batch["id"].to_pylist() for row in self._rows(about, file))
        return batches_of(rows, pa.schema(names))

    def _rows(self, about: _Files, file: int) -> Iterator[tuple[object, ...]]:
        records = iter(about.planted)
        if file < len(about.files):
            path, format_, most = about.files[file]
            records = itertools.islice(READERS[format_](path, about.source), most)
        for row, record in enumerate(records):
            user = None if record.user_id is None else as_bytes(record.user_id)
            yield file, row, as_bytes(record.document_id), user, as_bytes(record.text)


def records_table(
    runner: Runner, source: Source, planted: Sequence[Record] = (), then: Function | None = None, schema: str = ""
) -> DataFrame:
    """The records of a source, and those planted behind it, in order: file, row (its number there), document, user, text.

    Args:
        then: what is made of them, in the same tasks, and its schema.

    Raises:
        DataError: as `tacit.corpus.readers.read_records`, also when the table is computed.
    """
    found = files_and_formats(source)
    limit, source = source.limit, dataclasses.replace(source, limit=None)
    files: list[tuple[Place, str, int | None]] = [(path, format_, limit) for path, format_ in found]
    if limit is not None and len(files) > 1:
        counts = dict.fromkeys(range(len(files)), 0)
        with runner.kept(_table(runner, _Files(source, files)).groupBy("file").count()) as counted:
            counts |= {row["file"]: row["count"] for row in counted.collect()}
        before = [0, *itertools.accumulate(counts[file] for file in range(len(files)))]
        files = [(*one, max(0, limit - start)) for one, start in zip(found, before, strict=False)]
    return _table(runner, _Files(source, files, planted), then, schema)


def _table(runner: Runner, files: _Files, then: Function | None = None, schema: str = "") -> DataFrame:
    read = _ReadRecords(runner.share(files))
    parts = runner.numbers(len(files.files) + 1)
    if then is None:
        return runner.map_batches(parts, read, read.schema)
    return runner.map_batches(parts, Chained((read, then)), schema)


class RecordCorpus:
    """The records of a source, and those planted behind it, read by tasks anew each time, in their order."""

    def __init__(self, runner: Runner, source: Source, planted: Sequence[Record] = ()) -> None:
        self._runner = runner
        self._source = source
        self._planted = planted

    def __iter__(self) -> Iterator[Record]:
        read = 0
        for batch in self._runner.batches(records_table(self._runner, self._source, self._planted)):
            for document, user, text in zip(
                *(batch[name].to_pylist() for name in ("document", "user", "text")), strict=True
            ):
                read += 1
                yield Record(as_text(document), None if user is None else as_text(user), as_text(text))
        if read <= len(self._planted):
            raise no_record(self._source)


# Units ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Keyed:
    """Adds to records what they are grouped by."""

    kind: UnitKind

    schema = "key binary, file long, row long, text binary"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            columns = (batch[name].to_pylist() for name in ("document", "user", "row"))
            keys = [self._key(*values) for values in zip(*columns, strict=True)]
            arrays = [pa.array(keys, pa.binary()), batch["file"], batch["row"], batch["text"]]
            yield pa.RecordBatch.from_arrays(arrays, ["key", "file", "row", "text"])

    def _key(self, document: bytes, user: bytes | None, row: int) -> bytes:
        if self.kind.kind != "user":
            return document
        record = Record("", None if user is None else as_text(user), "")
        return as_bytes(key_of_record(record, row + 1, self.kind))


@dataclass(frozen=True)
class _GroupUnits:
    """Makes units of records, those of one key behind each other."""

    kind: UnitKind
    prefix: str
    held_out: float
    streams: Shared[KeyedRandomness]

    schema = "unit binary, texts array<binary>, held_out boolean"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names = [("unit", pa.binary()), ("texts", pa.list_(pa.binary())), ("held_out", pa.bool_())]
        return batches_of(self._rows(batches), pa.schema(names))

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
        streams = self.streams.get()
        rows = (row for batch in batches for row in zip(*map(_values, (batch["key"], batch["text"])), strict=True))
        for key, group in itertools.groupby(rows, lambda row: row[0]):
            for own_id, texts in self._units(as_text(key), [text for _, text in group]):
                unit_id = self.prefix + own_id
                side = is_held_out(unit_id, self.held_out, streams)
                yield as_bytes(unit_id), texts, side

    def _units(self, name: str, texts: list[bytes]) -> Iterable[tuple[str, list[bytes]]]:
        if self.kind.words is not None:
            texts = [as_bytes(piece) for piece in cut_tuples([as_text(text) for text in texts], self.kind.words)]
        elif self.kind.kind != "record":
            return [(name, texts)]
        return [(ordinal_id(name, ordinal), [text]) for ordinal, text in enumerate(texts)]


def units_table(
    runner: Runner, source: Source, kind: UnitKind, prefix: str, held_out: float, streams: Shared[KeyedRandomness]
) -> DataFrame:
    """The units of a source in the order of their ids' bytes: unit (its id), texts, held_out.

    Args:
        prefix: of each id.
        held_out: the share of units that is held out.
        streams: for who is.
    """
    keyed, group = _Keyed(kind), _GroupUnits(kind, prefix, held_out, streams)
    records = records_table(runner, source, then=keyed, schema=keyed.schema)
    units = runner.map_batches(runner.by_key(records, "key", _PLACE), group, group.schema)
    return units.repartitionByRange(_parts_of(source), "unit").sortWithinPartitions("unit")


def _parts_of(source: Source) -> int:
    """Into how many parts the units go: each comes to the driver as one result, which has to fit in memory there."""
    sizes = ((look_at(path)[0], path.suffix == ".gz") for path, _ in files_and_formats(source))
    text = sum(size * (_OF_ZIPPED if is_zipped else 1) for size, is_zipped in sizes)
    return 1 + text // _PART_BYTES


def units_in(batch: pa.RecordBatch) -> list[tuple[Unit, bool]]:
    """Each unit of a batch of such a table, and whether it is held out."""
    columns = [batch[name].to_pylist() for name in ("unit", "texts", "held_out")]
    return [
        (Unit(as_text(unit_id), tuple(map(as_text, texts))), held_out)
        for unit_id, texts, held_out in zip(*columns, strict=True)
    ]


class Checksum:
    """A sum of keyed digests of units in any order and any parts, so that what is computed later is computed of the same.

    Args:
        streams: of the run's key.
    """

    def __init__(self, streams: KeyedRandomness) -> None:
        self._empty = hashlib.blake2b(key=streams.derive("spark-checksum"), digest_size=4 * LIMBS)
        self.limbs = np.zeros(LIMBS, dtype=np.int64)

    def add(self, unit: Unit) -> None:
        """One more unit; fewer than 2^31 fit."""
        digest = self._empty.copy()
        digest.update(json.dumps([unit.unit_id, *unit.texts]).encode())
        self.limbs += np.frombuffer(digest.digest(), "<u4")


def as_bytes(text: str) -> bytes:
    """UTF-8, in which half a surrogate pair stays what it is; its order is that of the code points."""
    return text.encode("utf-8", "surrogatepass")


def as_text(content: bytes) -> str:
    """What `as_bytes` was given."""
    return content.decode("utf-8", "surrogatepass")


def _values(column: pa.Array) -> list[bytes]:
    return column.to_pylist()
