"""A corpus of units on Spark: written to a store, its words counted, its rows made, each the same as on one machine."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.corpus.source import Source
from tacit.corpus.unit_writing import SideBatch, UnitBatch, write_ordered_units
from tacit.corpus.units import Unit, UnitKind
from tacit.errors import DataError
from tacit.files import read_result, write_json
from tacit.randomness import KeyedRandomness
from tacit.spark.runner import Runner, Shared
from tacit.spark.units import LIMBS, Checksum, RecordCorpus, as_bytes, units_in, units_table
from tacit.training.sequences import SequenceStream
from tacit.training.tokenising import Tokenising, copies_of
from tacit.vocabulary.count import ContributionBound, distinct_of_units
from tacit.vocabulary.tally import SortedCounts, Spill, write_ordered
from tacit.vocabulary.tokenizer import TokenizerOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["CorpusPart", "SparkCorpus"]

_CHECKSUMS = "checksums.json"
_WORDS_AT_ONCE = 1 << 18
_TEXTS_AT_ONCE = 2000
_BYTES_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class CorpusPart:
    """A source, what a unit of it is, what the ids of its units begin with, and how it is trained on.

    Args:
        is_chat: whether its texts may be conversations.
        times: how often each unit is trained on; the copies have other ids.
    """

    source: Source
    kind: UnitKind
    prefix: str = ""
    is_chat: bool = False
    times: int = 1


class SparkCorpus:
    """Units of sources, one after the other; which are held out is a function of the key and the unit's id.

    Args:
        open_runner: of the run; a corpus whose stores are there needs none.
        parts: no two of one prefix.
        held_out: the share of units that is held out.
        streams: of the corpus.
    """

    def __init__(
        self, open_runner: Callable[[], Runner], parts: Sequence[CorpusPart], held_out: float, streams: KeyedRandomness
    ) -> None:
        self._open_runner = open_runner
        self._parts = parts
        self._held_out = held_out
        self._streams = streams
        self._checksums: list[list[int]] | None = None

    @functools.cached_property
    def _runner(self) -> Runner:
        return self._open_runner()

    @functools.cached_property
    def _tables(self) -> list[DataFrame]:
        """The units of each part, computed once."""
        streams = self._runner.share(self._streams)
        made = (
            units_table(self._runner, part.source, part.kind, part.prefix, self._held_out, streams)
            for part in self._parts
        )
        return [self._runner.keep(table) for table in made]

    def write(self, folder: Path) -> None:
        """Write a store of all units, as `tacit.corpus.unit_writing.write_units` does.

        Raises:
            DataError: as the readers; a source without a record.
        """
        limbs = np.zeros((2, LIMBS), dtype=np.int64)
        function = _ForStore(self._runner.share(self._streams))

        def batches() -> Iterator[UnitBatch]:
            for part, table in zip(self._parts, self._tables, strict=True):
                none = True
                for batch in self._runner.batches(self._runner.map_batches(table, function, function.schema)):
                    for row in batch.to_pylist():
                        none = False
                        limbs[:] += np.array(row["checksums"]).reshape(2, LIMBS)
                        yield _unit_batch(row)
                if none:  # a record of blanks has no tuple, and is one
                    next(iter(RecordCorpus(self._runner, part.source)))

        write_ordered_units(folder, batches(), self._streams)
        write_json(folder / _CHECKSUMS, {"checksums": limbs.tolist()})

    def counts(
        self, bound: ContributionBound, options: TokenizerOptions, behind: Sequence[Unit], spill: Spill
    ) -> SortedCounts:
        """The sums of the words of the training units, as `tacit.vocabulary.count.sorted_word_counts` gives them.

        Args:
            behind: more units, which are not in the sources.

        Raises:
            DataError: the corpus is not the one in the store; or a text is no Unicode.
        """
        count = _CountWords(self._runner.share((bound, options, self._streams)))
        tables = [self._runner.map_batches(table, count, count.schema) for table in self._tables]
        planted = _PlantedWords(self._runner.share(_sums(behind, bound, options)))
        tables.append(self._runner.map_batches(self._runner.numbers(1), planted, count.schema))
        total = self._runner.sum_by_key(functools.reduce(lambda one, other: one.union(other), tables))
        found: list[tuple[bytes, int]] = []

        def words() -> Iterator[tuple[list[bytes], list[int]]]:
            for batch in self._runner.batches(total):
                keys, values = (batch[name].to_pylist() for name in ("key", "value"))
                own = sum(not key.startswith(_CHECKED) for key in keys)
                found.extend(zip(keys[own:], values[own:], strict=True))
                yield keys[:own], values[:own]

        counts = write_ordered(words(), spill)
        self._compare(False, [value for _, value in found])
        return counts

    def rows(self, how: Tokenising, *, held_out: bool) -> Iterator[SequenceStream]:
        """The rows of the units of one side, in order, part by part.

        Raises:
            DataError: the corpus is not the one in the store.
        """
        shared = self._runner.share((how, self._streams))
        limbs = np.zeros(LIMBS, dtype=np.int64)
        for part, table in zip(self._parts, self._tables, strict=True):
            function = _Tokenise(shared, held_out, part.is_chat, part.times)
            pieces: list[dict[str, Any]] = []
            for batch in self._runner.batches(self._runner.map_batches(table, function, function.schema)):
                for row in batch.to_pylist():
                    pieces.append(row)
                    if not row["more"]:
                        limbs += np.array(pieces[0]["checksum"])
                        yield _stream_of(pieces, how.length)
                        pieces = []
        self._compare(held_out, limbs.tolist())

    def bind(self, store: Path) -> None:
        """Compare what is computed from now on with a store that `write` wrote."""
        self._checksums = read_result(store / _CHECKSUMS)["checksums"]

    def _compare(self, held_out: bool, limbs: Sequence[int]) -> None:
        if self._checksums is None:
            raise ValueError("bind the corpus to its store first")
        expected = self._checksums[held_out]
        if expected != (list(limbs) or [0] * len(expected)):
            raise DataError(
                "the corpus that the executors read is not the one that this run began with; let its files be, "
                "in a place that all machines share"
            )


# Stores ----------------------------------------------------------------------------------------------------------------------

_SIDE = ("id_sizes_U", "texts_U", "at_N", "sizes_N")


@dataclass(frozen=True)
class _ForStore:
    """Makes of units the bytes of a store, and the checksums of both sides."""

    streams: Shared[KeyedRandomness]

    schema = (
        "texts binary, lines binary, "
        + "".join(f"{side}_{name} binary, " for side in ("training", "held_out") for name in ("ids", *_SIDE))
        + "checksums array<long>"
    )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        sides = [f"{side}_{name}" for side in ("training", "held_out") for name in ("ids", *_SIDE)]
        names = [(name, pa.binary()) for name in ("texts", "lines", *sides)]
        schema = pa.schema([*names, ("checksums", pa.list_(pa.int64()))])
        for batch in batches:
            for units in _parts(units_in(batch)):
                sums = {side: Checksum(self.streams.get()) for side in (False, True)}
                for unit, held_out in units:
                    sums[held_out].add(unit)
                limbs = [int(limb) for side in (False, True) for limb in sums[side].limbs]
                yield pa.RecordBatch.from_pylist([_row_of_units(UnitBatch.of(units)) | {"checksums": limbs}], schema)


def _row_of_units(batch: UnitBatch) -> dict[str, object]:
    row: dict[str, object] = {"texts": batch.texts, "lines": batch.lines}
    for side, own in (("training", batch.training), ("held_out", batch.held_out)):
        row |= {f"{side}_ids": own.ids} | {f"{side}_{name}": getattr(own, name).tobytes() for name in _SIDE}
    return row


def _unit_batch(row: dict[str, bytes]) -> UnitBatch:
    sides = (
        SideBatch(row[f"{side}_ids"], *(np.frombuffer(row[f"{side}_{name}"], np.int64) for name in _SIDE))
        for side in ("training", "held_out")
    )
    return UnitBatch(row["texts"], row["lines"], *sides)


# Words -----------------------------------------------------------------------------------------------------------------------

_CHECKED = b"\xff"
"""Begins the keys of a checksum: no word's bytes begin so, and all words stand before it."""


def _sums(units: Iterable[Unit], bound: ContributionBound, options: TokenizerOptions) -> dict[bytes, int]:
    sums: dict[bytes, int] = {}
    _add_words(sums, units, bound, options)
    return sums


def _add_words(
    sums: dict[bytes, int], units: Iterable[Unit], bound: ContributionBound, options: TokenizerOptions
) -> None:
    for unit_id, distinct in distinct_of_units(((unit.unit_id, unit.texts) for unit in units), options):
        words, weight = bound.of(unit_id, distinct)
        for word in words:
            key = as_bytes(word)
            sums[key] = sums.get(key, 0) + weight


@dataclass(frozen=True)
class _CountWords:
    """Makes of units the sums by word of those that are trained on, and the checksum of these."""

    shared: Shared[tuple[ContributionBound, TokenizerOptions, KeyedRandomness]]

    schema = "key binary, value long"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        bound, options, streams = self.shared.get()
        sums: dict[bytes, int] = {}
        checksum = Checksum(streams)
        for batch in batches:
            training = [unit for unit, held_out in units_in(batch) if not held_out]
            for unit in training:
                checksum.add(unit)
            _add_words(sums, training, bound, options)
            if len(sums) > _WORDS_AT_ONCE:
                yield _as_batch(sums)
                sums = {}
        sums |= {_CHECKED + bytes([limb]): int(value) for limb, value in enumerate(checksum.limbs)}
        yield _as_batch(sums)


@dataclass(frozen=True)
class _PlantedWords:
    """The sums of units that are in no source; as a function's, and not as a table's, no plan holds them."""

    sums: Shared[dict[bytes, int]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            yield _as_batch(self.sums.get())


def _as_batch(sums: dict[bytes, int]) -> pa.RecordBatch:
    import pyarrow as pa

    arrays = [pa.array(sums.keys(), pa.binary()), pa.array(sums.values(), pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, ["key", "value"])


# Rows ------------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Tokenise:
    """Makes of units rows of token ids, of some units together as the bytes of arrays, in several pieces where they are many."""

    shared: Shared[tuple[Tokenising, KeyedRandomness]]
    held_out: bool
    is_chat: bool
    times: int

    schema = "keys array<string>, starts binary, lengths binary, ids binary, counted binary, checksum array<long>, more boolean"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        how, streams = self.shared.get()
        names = [("keys", pa.list_(pa.string()))]
        names += [(name, pa.binary()) for name in ("starts", "lengths", "ids", "counted")]
        schema = pa.schema([*names, ("checksum", pa.list_(pa.int64())), ("more", pa.bool_())])
        for batch in batches:
            own = (pair for pair in units_in(batch) if pair[1] is self.held_out)
            for units in ([unit for unit, _ in part] for part in _parts(own)):
                checksum = Checksum(streams)
                for unit in units:
                    checksum.add(unit)
                copies = [copy for unit in units for copy in copies_of(unit, self.times)]
                stream = how.rows(copies, [self.is_chat] * len(copies))
                for piece in _pieces_of(stream, checksum, max(1, _PIECE_BYTES // (_OF_A_POSITION * how.length))):
                    yield pa.RecordBatch.from_pylist([piece], schema)


def _parts(units: Iterable[tuple[Unit, bool]]) -> Iterator[list[tuple[Unit, bool]]]:
    """Units and whether they are held out, a few at once."""
    part: list[tuple[Unit, bool]] = []
    texts = size = 0
    for unit, held_out in units:
        if part and (texts >= _TEXTS_AT_ONCE or size >= _BYTES_AT_ONCE):
            yield part
            part, texts, size = [], 0, 0
        part.append((unit, held_out))
        texts, size = texts + len(unit.texts), size + sum(map(len, unit.texts))
    if part:
        yield part


_PIECE_BYTES, _OF_A_POSITION = 64 << 20, 5
"""A cell of a table holds less than 2 GiB, which the rows of one unit may exceed: they go in several (TACIT-47)."""


def _pieces_of(stream: SequenceStream, checksum: Checksum, most: int) -> Iterator[dict[str, Any]]:
    """Rows of a table with at most so many rows of ids each; what is there once is in the first one."""
    rows = len(stream.lengths_S)
    for start in range(0, max(1, rows), most):
        own = slice(start, start + most)
        counted_ST, first = stream.counted_ST, start == 0
        yield {
            "keys": list(stream.keys_U) if first else [],
            "starts": np.asarray(stream.starts_U1, np.int64).tobytes() if first else b"",
            "lengths": np.asarray(stream.lengths_S[own], np.int32).tobytes(),
            "ids": np.asarray(stream.ids_ST[own], np.int32).tobytes(),
            "counted": None if counted_ST is None else np.asarray(counted_ST[own]).tobytes(),
            "checksum": checksum.limbs.tolist() if first else [],
            "more": start + most < rows,
        }


def _stream_of(pieces: Sequence[dict[str, Any]], length: int) -> SequenceStream:
    first = pieces[0]

    def joined(name: str, dtype: type[np.generic]) -> np.ndarray:
        return np.concatenate([np.frombuffer(piece[name], dtype) for piece in pieces])

    return SequenceStream(
        joined("ids", np.int32).reshape(-1, length),
        joined("lengths", np.int32),
        np.frombuffer(first["starts"], np.int64),
        tuple(map(str, first["keys"])),
        counted_ST=None if first["counted"] is None else joined("counted", np.bool_).reshape(-1, length),
    )
