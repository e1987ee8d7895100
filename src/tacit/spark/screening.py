"""Screening on Spark: tasks judge records and look for copies; in order, the driver writes what they found.

Which copy is the first is decided by the place of a data point in the corpus (file, record, number in the record), which is the
order in which one machine reads: the result is the same function of the corpus, and so is its stability (docs/deduplication.md).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Generator, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tacit.corpus.records import Record
from tacit.corpus.source import Source
from tacit.corpus.units import is_held_out
from tacit.errors import DataError, UsageError
from tacit.randomness import KeyedRandomness
from tacit.screening.adapters.contents import contents_digest, model_place
from tacit.screening.corpus import ScreenPlan, policies_of, screener_options
from tacit.screening.deduplicate import DeduplicateOptions, KeepFirst
from tacit.screening.policy import PolicyOptions
from tacit.screening.split import Copies, Point, Screener, Stream, Tally, compared_stream, deduplicated_streams
from tacit.screening.work import Chunk, copies_streams
from tacit.screening.workers import Screened, ScreenerOptions
from tacit.spark.runner import Runner, Shared, batches_of
from tacit.spark.units import RecordCorpus, as_bytes, as_text, records_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

__all__ = ["SparkScreening"]

_PLACE = ("file", "row", "point")
_CHUNK_RECORDS = 256


class SparkScreening:
    """What `tacit.screening.corpus.screen_corpus` asks of whoever screens for it.

    Args:
        runner: of the run.
        source: what is screened.
        planted: records behind it.
        plan: how.
        streams: of the run's key.
    """

    def __init__(
        self, runner: Runner, source: Source, planted: list[Record], plan: ScreenPlan, streams: KeyedRandomness
    ) -> None:
        self.records = RecordCorpus(runner, source, planted)
        self._runner = runner
        self._source = source
        self._planted = planted
        self._plan = plan
        self._streams = streams
        self._flags: Iterator[tuple[tuple[int, int], bool]] = iter(())

    @property
    def copies(self) -> Mapping[Stream, Copies]:
        """Who says what is a copy, for each stream that is deduplicated; asked in the order of the corpus."""
        return dict.fromkeys(deduplicated_streams(self._plan.deduplicate), self)

    def mark(self, text: str) -> bool:
        """Whether the next data point that is compared is a copy of an earlier one."""
        found = next(self._flags, None)
        if found is None:
            raise DataError("the corpus changed while it was screened; start the screening again")
        return not found[1]

    def screened(self, done: int) -> Generator[tuple[Chunk, Screened], None, None]:
        """The records behind those that are done, in order, each chunk with what is screened of it."""
        shared = self._runner.share(_Made.of(self._plan, self._streams))
        judge = _Judge(shared)
        with ExitStack() as open_:
            table = records_table(self._runner, self._source, self._planted, judge, judge.schema)
            judged = open_.enter_context(self._runner.kept(table))
            rows = itertools.islice(_rows(self._runner, judged), done, None)
            first = next(rows, None)
            if first is None:
                return
            if self._plan.copies is not None:
                flags = _flags(self._runner, judged, shared)
                self._flags = itertools.dropwhile(lambda flag: flag[0] < first.place, flags)
            open_.callback(self._forget_flags)
            rest = itertools.chain([first], rows)
            while chunk := list(itertools.islice(rest, _CHUNK_RECORDS)):
                yield _chunk(chunk)

    def _forget_flags(self) -> None:
        """Now, so that their table is let go before the session ends."""
        self._flags = iter(())


@dataclass(frozen=True)
class _Made:
    """What tasks are made of."""

    screener: ScreenerOptions
    held_out: float
    corpus: KeyedRandomness
    copies: DeduplicateOptions | None
    plan: ScreenPlan
    streams: KeyedRandomness
    contents: tuple[str, ...]

    @classmethod
    def of(cls, plan: ScreenPlan, streams: KeyedRandomness) -> _Made:
        options = screener_options(plan, policies_of(plan), streams)
        return cls(options, plan.held_out, streams.child("corpus"), plan.copies, plan, streams, _contents_of(options))

    def refuse_other_contents(self) -> None:
        """A detector names its model by a path or a name: what lies there is another machine's.

        Raises:
            UsageError: this executor has another library or other files than the driver.
        """
        if _contents_of(self.screener) != self.contents:
            raise UsageError(
                "a detector's library, or files of its model, differ between driver and executor; put the same on every machine"
            )


_digested: dict[str, str] = {}
"""What a detector of these options is on this machine, once in a process: a model may be gigabytes."""


def _contents_of(options: ScreenerOptions) -> tuple[str, ...]:
    """The digests of the contents of the detectors of both policies, on this machine."""
    policies = [own for own in (options.balanced, options.conservative) if isinstance(own, PolicyOptions)]
    found: list[str] = []
    for detector in (detector for own in policies for detector in own.detectors):
        named = f"{detector.model_dump_json()} {model_place(detector)}"  # two may name their models alike, each beside its policy
        if named not in _digested:
            _digested[named] = contents_digest(detector)
        found.append(_digested[named])
    return tuple(found)


# Judging ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Judge:
    """Makes of records their data points, redacted."""

    shared: Shared[_Made]

    schema = (
        "file long, row long, document binary, user binary, text binary, held_out boolean, "
        "points array<binary>, marked array<boolean>, tally string"
    )

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        made = self.shared.get()
        made.refuse_other_contents()
        screener = made.screener.screener()
        for batch in batches:
            documents, texts = (list(map(as_text, batch[name].to_pylist())) for name in ("document", "text"))
            held_out = [is_held_out(document, made.held_out, made.corpus) for document in documents]
            screened = iter(_screened_each(screener, [t for t, side in zip(texts, held_out, strict=True) if not side]))
            found = [([], Tally()) if side else next(screened) for side in held_out]
            added = {
                "held_out": pa.array(held_out, pa.bool_()),
                "points": pa.array([[as_bytes(p.text) for p in points] for points, _ in found], pa.list_(pa.binary())),
                "marked": pa.array([[p.marked for p in points] for points, _ in found], pa.list_(pa.bool_())),
                "tally": pa.array([json.dumps(asdict(tally)) for _, tally in found], pa.string()),
            }
            names = ["file", "row", "document", "user", "text"]
            yield pa.RecordBatch.from_arrays(
                [*(batch[name] for name in names), *added.values()], [*names, *added.keys()]
            )


def _screened_each(screener: Screener, texts: list[str]) -> list[tuple[list[Point], Tally]]:
    """The data points of each text, and their counts."""
    found = []
    for judged in screener.judge(texts):
        tally = Tally()
        for one in judged:
            tally.add(one)
        found.append(([one.point for one in judged], tally))
    return found


@dataclass(frozen=True)
class _Row:
    place: tuple[int, int]
    record: Record
    held_out: bool
    points: list[Point]
    tally: Tally

    def __repr__(self) -> str:
        return "_Row(<private>)"


def _rows(runner: Runner, judged: DataFrame) -> Iterator[_Row]:
    for batch in runner.batches(judged):
        for row in batch.to_pylist():
            user = None if row["user"] is None else as_text(row["user"])
            points = [Point(as_text(text), mark) for text, mark in zip(row["points"], row["marked"], strict=True)]
            record = Record(as_text(row["document"]), user, as_text(row["text"]))
            yield _Row((row["file"], row["row"]), record, row["held_out"], points, Tally(**json.loads(row["tally"])))


def _chunk(rows: list[_Row]) -> tuple[Chunk, Screened]:
    tally = Tally()
    for row in rows:
        tally.update(row.tally)
    chunk = Chunk([row.record for row in rows], [row.held_out for row in rows])
    return chunk, ([row.points for row in rows if not row.held_out], tally)


# Copies ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Digests:
    """Makes of judged records a keyed digest of each data point that is compared with others."""

    shared: Shared[_Made]

    schema = "file long, row long, point long, copy binary"

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        names = [(name, pa.int64()) for name in _PLACE]
        return batches_of(self._digests(batches), pa.schema([*names, ("copy", pa.binary())]))

    def _digests(self, batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
        made = self.shared.get()
        assert made.copies is not None
        which = made.plan.deduplicate
        of = {name: KeepFirst(made.copies, own) for name, own in copies_streams(which, made.streams).items()}
        for batch in batches:
            columns = (batch[name].to_pylist() for name in ("file", "row", "points", "marked"))
            for file, row, points, marked in zip(*columns, strict=True):
                for number, point in enumerate(map(Point, map(as_text, points), marked)):
                    stream = compared_stream(point, which)
                    if stream is not None:
                        copy = stream.encode() + of[stream].digest(point.text)
                        yield file, row, number, copy


def _flags(runner: Runner, judged: DataFrame, shared: Shared[_Made]) -> Iterator[tuple[tuple[int, int], bool]]:
    """The place of each compared data point's record, in order, and whether it is the first of its copies."""
    digests = _Digests(shared)
    found = runner.first_by_key(runner.map_batches(judged, digests, digests.schema), ["copy"], _PLACE)
    for batch in runner.batches(found.select("file", "row", "point", "first").orderBy(*_PLACE)):
        for file, row, _, first in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield (file, row), first
