"""Three operations on tables of records, and their order: map, sum by key, first by key.

A table is a DataFrame whose private columns are bytes, so that text with half a surrogate pair travels too, and no plan, event log or
web page of Spark shows it. Functions get Arrow record batches. What they need of the run, its key above all, reaches them as a
broadcast, never in a setting, an environment variable or the plan.

Of a failed task one line comes back: the message of an error of ours, which holds no private text, or the name of another's class.
"""

from __future__ import annotations

import base64
import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from tacit.errors import DataError, TacitError, UsageError
from tacit.progress import without_warnings
from tacit.version import VERSION, installed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import Broadcast
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["Chained", "Function", "Runner", "Shared", "batches_of"]

T = TypeVar("T")
Function = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]
"""What a task does with a part of a table: its batches come one by one, and so do those that it gives."""

_FAILED = "tacit-task-error:"
_FOUND = re.compile(rf"{_FAILED}([A-Za-z0-9+/=]+):")
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_BLOB_BYTES = 1 << 22
_BLOBS_AT_ONCE = 4
_BLOB = "blob binary"


class Shared(Generic[T]):
    """A value that tasks read, and that travels as a broadcast; a function holds this in place of the value."""

    def __init__(self, broadcast: Broadcast[T]) -> None:
        self._broadcast = broadcast

    def get(self) -> T:
        """The value."""
        return self._broadcast.value


@dataclass(frozen=True)
class Chained:
    """Functions one after the other, in one task: each that stands alone costs a process and a way through Java."""

    functions: tuple[Function, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for function in self.functions:
            batches = function(batches)
        return batches


class Runner:
    """Runs functions over tables on a Spark session.

    Args:
        session: of `tacit.spark.session.open_session`.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    def share(self, value: T) -> Shared[T]:
        """Send a value to all tasks that ask for it."""
        return Shared(self._session.sparkContext.broadcast(value))

    def numbers(self, count: int) -> DataFrame:
        """A table with one column, ``id``: 0, 1, ... each in a part of its own."""
        return self._session.range(0, count, 1, max(count, 1))

    def map_batches(self, table: DataFrame, function: Function, schema: str) -> DataFrame:
        """What the function makes of each part; parts and rows keep their order.

        Args:
            function: pickled; what it holds must not be private (`share`).
            schema: of what it gives, as "name type, ...".
        """
        return table.mapInArrow(functools.partial(_guarded, function, installed()), schema)

    def sum_by_key(self, table: DataFrame) -> DataFrame:
        """The sum of each key of a table with ``key`` (bytes) and ``value`` (whole numbers), in the order of bytes."""
        from pyspark.sql import functions as F

        return table.groupBy("key").agg(F.sum("value").alias("value")).orderBy("key")

    def first_by_key(self, table: DataFrame, key: Sequence[str], order: Sequence[str]) -> DataFrame:
        """The table, and in the column ``first`` whether a row is the first of its key in that order, which must be total."""
        from pyspark.sql import Window
        from pyspark.sql import functions as F

        place = F.row_number().over(Window.partitionBy(*key).orderBy(*order))
        return table.withColumn("first", place == 1)

    def by_key(self, table: DataFrame, key: str, order: Sequence[str]) -> DataFrame:
        """The rows of one key in one part and behind each other, in that order, which must be total."""
        return table.repartition(key).sortWithinPartitions(key, *order)

    def keep(self, table: DataFrame) -> DataFrame:
        """The table, computed now, all parts at once, and kept on the executors' disks until the session ends."""
        return self._counted(table)[0]

    def _counted(self, table: DataFrame) -> tuple[DataFrame, int]:
        """The table, as by `keep`, and how many rows it has."""
        from pyspark import StorageLevel

        with _one_line_errors():
            kept = table.persist(StorageLevel.DISK_ONLY)
            return kept, kept.count()

    @contextmanager
    def kept(self, table: DataFrame) -> Iterator[DataFrame]:
        """The table, kept as by `keep` for what is done in the block."""
        with _until_done(self.keep(table)) as kept:
            yield kept

    def batches(self, table: DataFrame) -> Iterator[pa.RecordBatch]:
        """All rows, here, in the order of parts and rows, a few MiB at once.

        Spark hands over a part as a whole, of which Java holds several copies at once. So what is large is cut into pieces first, by
        the numbers of its blobs, and each piece comes by itself. It comes from the RDD: Spark keeps what the jobs of a query have
        given until the query ends, 2.6 bytes for each byte.

        Args:
            table: with a total order of its rows: what an executor that is lost had, another one cuts into the same blobs.
        """
        from pyspark.sql import functions as F

        numbered = table.mapInArrow(_as_blobs, _BLOB).withColumn("at", F.monotonically_increasing_id())
        kept, blobs = self._counted(numbered)
        with _until_done(kept):
            for row in _in_pieces(kept, blobs).select("blob").rdd.toLocalIterator(prefetchPartitions=True):
                yield from _batches_in(bytes(row.blob))


def batches_of(rows: Iterator[tuple[Any, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Rows as record batches of a few MiB, with all that they hold.

    Args:
        rows: the values of each.
        schema: of the values.
    """
    import pyarrow as pa

    columns: list[list[Any]] = [[] for _ in schema]
    size = 0

    def taken() -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)], schema=schema
        )

    for values in rows:
        for column, value in zip(columns, values, strict=True):
            column.append(value)
            size += _bytes_in(value)
        if size >= _BLOB_BYTES or len(columns[0]) >= _MOST_ROWS:
            yield taken()
            columns, size = [[] for _ in schema], 0
    if columns[0]:
        yield taken()


_MOST_ROWS = 10_000


def _bytes_in(value: bytes | list[bytes] | float | None) -> int:
    """The bytes of a value, of names and ids too: a text may be short where its id is long."""
    if isinstance(value, list):
        return sum(map(len, value))
    return len(value) if isinstance(value, bytes) else 8


# In a task ----------------------------------------------------------------------------------------------------------------


def _guarded(function: Function, drivers: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The function, whose errors say nothing of the text; driver and executor must have the same installed.

    Which executor computes a unit, other units decide: what reads or marks text otherwise would be decided by them.
    """
    try:
        if installed() != drivers:
            differing = sorted(set(drivers.split("; ")) ^ set(installed().split("; ")))
            raise UsageError(
                "driver and executor differ in Python, tacit or a library: install the same on every machine of the cluster "
                f"({', '.join(differing)})"
            )
        with without_warnings():
            yield from function(batches)
    except TacitError as error:
        raise RuntimeError(_told(type(error).__name__, str(error))) from None
    except Exception as error:
        raise RuntimeError(_told("DataError", f"a task on Spark failed ({type(error).__name__})")) from None


def _told(kind: str, message: str) -> str:
    content = base64.b64encode(json.dumps([kind, message]).encode()).decode()
    return f"{_FAILED}{content}:"


def _as_blobs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    for batch in batches:
        rows = max(1, batch.num_rows * _BLOB_BYTES // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as writer:
                writer.write_batch(batch.slice(start, rows))
            yield pa.RecordBatch.from_pydict(
                {"blob": [sink.getvalue().to_pybytes()]}, pa.schema([("blob", pa.binary())])
            )


# On the driver ---------------------------------------------------------------------------------------------------------------


@contextmanager
def _until_done(kept: DataFrame) -> Iterator[DataFrame]:
    """What executors keep of a table goes with the end of the block."""
    with _one_line_errors():
        try:
            yield kept
        finally:
            kept.unpersist()


def _in_pieces(numbered: DataFrame, blobs: int) -> DataFrame:
    """So many blobs in the order of their numbers, in parts of about `_BLOBS_AT_ONCE` of them."""
    pieces = -(-blobs // _BLOBS_AT_ONCE)
    return numbered if pieces <= 1 else numbered.repartitionByRange(pieces, "at").sortWithinPartitions("at")


def _batches_in(blob: bytes) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    with pa.ipc.open_stream(blob) as reader:
        yield from reader


@contextmanager
def _one_line_errors() -> Iterator[None]:
    """What Spark raises quotes the task's traceback, pages of it; of it one line stays."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        found = _FOUND.search(str(error))
        missing = _MISSING.search(str(error))
        if missing is not None:
            raise UsageError(
                f"an executor has no module {missing.group(1)}: install tacit {VERSION} on every machine of the cluster, for the "
                "Python that PYSPARK_PYTHON names"
            ) from None
        if found is None:
            raise DataError(
                f"Spark could not finish the work ({type(error).__name__}); its log says why, and the same command goes on"
            ) from None
        kind, message = json.loads(base64.b64decode(found.group(1)))
        raise _error_of(kind, message) from None


def _error_of(kind: str, message: str) -> TacitError:
    made: Mapping[str, type[TacitError]] = {"DataError": DataError, "UsageError": UsageError}
    return made.get(kind, DataError)(message)
