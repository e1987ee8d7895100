"""Records that are rows of a table: CSV, Parquet and Arrow."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from tacit.corpus.arrow_files import arrow_batches, broken_arrow, checked_batch
from tacit.corpus.columns import header_names, shown_header
from tacit.corpus.fields import no_field, record_of, wanted_fields
from tacit.corpus.lines import attempt, numbered_lines, place_of, too_long
from tacit.corpus.places import Place, native_file
from tacit.corpus.records import Record
from tacit.errors import DataError, UsageError

if TYPE_CHECKING:
    from tacit.corpus.source import Source  # asks which formats there are

__all__ = ["arrow_names", "csv_names", "parquet_names", "read_arrow", "read_csv", "read_parquet"]

_PARQUET_ROWS, _PARQUET_BYTES = 256, 1 << 30
"""Read at once, at most: beyond 2 GiB of one column, a column of messages is one that pyarrow cannot read."""
_MOST_THRIFT = 2**31 - 1


def read_csv(path: Place, source: Source) -> Iterator[Record]:
    """Comma-separated rows under a header; quoted fields may hold line breaks (RFC 4180)."""
    if source.turns is not None:
        raise UsageError(f"{path}: a CSV file has no lists of turns; leave out the option turns")
    if source.messages_field is not None:
        raise UsageError(
            f"{path}: a CSV file has no lists of messages; use prompt_field and response_field, or JSON lines"
        )
    rows = _csv_rows(path, source)
    _, header = next(rows, (1, None))
    if header is None:
        return
    _check_columns(header, source, place_of(path, 1))
    file = source.name_of(path)
    for number, row in rows:
        place = place_of(path, number)
        if len(row) != len(header):
            raise DataError(f"{place}: the row has {len(row)} fields and the header {len(header)}; repair the row")
        yield record_of(dict(zip(header, row, strict=True)), f"{file}:{number}", place, source)


def _csv_rows(path: Place, source: Source) -> Iterator[tuple[int, list[str]]]:
    """Rows that are not blank, with the number of the line on which each begins."""
    reader = csv.reader((line for _, line in numbered_lines(path, source.max_record_bytes)), strict=True)
    while True:
        first_line = reader.line_num + 1
        row = _next_row(reader, place_of(path, first_line), source)
        if row is None:
            return
        if row:
            yield first_line, row


def _next_row(reader: Iterator[list[str]], place: str, source: Source) -> list[str] | None:
    """The next row, or None at the end.

    The csv module's cap on a field is one number for the whole process, 131,072 characters at first: ours is set for
    this one row and the old one put back.
    """
    old_cap = csv.field_size_limit(source.max_record_bytes)
    try:
        return next(reader, None)
    except csv.Error as error:
        over_cap = "field limit" in str(error)
    finally:
        csv.field_size_limit(old_cap)
    problem = f"{place}: this is not valid CSV; check its quotes"
    raise DataError(too_long(place, source.max_record_bytes) if over_cap else problem)


def csv_names(path: Place, source: Source) -> list[str]:
    """The names in a file's header; none of them where it may be no header."""
    return header_names(next(_csv_rows(path, source), (1, []))[1])


def _check_columns(columns: Sequence[str], source: Source, place: str) -> None:
    """The fields that the source asks for are there, each once: of two columns with one name nobody knows which one is meant."""
    for option, name in wanted_fields(source):
        if name not in columns:
            raise no_field(option, name, place, shown_header(columns))
        if columns.count(name) > 1:
            raise DataError(f"{place}: there are {columns.count(name)} columns {name!r} ({option}); rename all but one")


def read_parquet(path: Place, source: Source) -> Iterator[Record]:
    """One record per row; the row number takes the line number's place."""
    broken, damaged = _broken(path), (pa.ArrowException, OSError)
    with (
        attempt(lambda: native_file(path), damaged, broken) as opened,
        attempt(lambda: _parquet_file(opened), damaged, broken) as file,
    ):
        _check_columns(attempt(lambda: file.schema_arrow.names, (ValueError,), broken), source, str(path))
        names = sorted({name for _, name in wanted_fields(source)})
        batches = _parquet_batches(file, _leaves(file, names, source), _rows_at_once(source))
        yield from _rows_of_batches(path, source, batches, broken)


def _parquet_batches(file: pq.ParquetFile, leaves: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """So many rows at once; one by one in a row group in which that fails.

    Turns of nothing but blanks are no text, however long they are: several records with such turns may be more than pyarrow reads
    at once, and each of them is one that can be read.
    """
    for group in range(file.num_row_groups):
        done = 0
        try:
            for batch in file.iter_batches(rows, [group], leaves):
                done += batch.num_rows
                yield batch
        except (pa.ArrowException, OSError):
            yield from islice(file.iter_batches(1, [group], leaves), done, None)


def _rows_at_once(source: Source) -> int:
    if source.turns is not None and not _wanted_of_turns(source.text_field, source):
        return 1  # turns by their places in lists: what else is in those is read, too
    return max(1, min(_PARQUET_ROWS, _PARQUET_BYTES // source.max_record_bytes))


def _parquet_file(opened: Any) -> pq.ParquetFile:
    """The file, without pyarrow's own limits on a footer, which some number of row groups would meet."""
    return pq.ParquetFile(opened, thrift_string_size_limit=_MOST_THRIFT, thrift_container_size_limit=_MOST_THRIFT)


def _leaves(file: pq.ParquetFile, names: Sequence[str], source: Source) -> list[str]:
    """What is read of these columns: of turns and messages what is asked for, so that nothing else of a record takes memory."""
    paths = [file.schema.column(number).path for number in range(len(file.schema))]
    columns = file.schema_arrow.names
    found: list[str] = []
    for name in names:
        wanted = _wanted_of_turns(name, source)
        others = {other for other in columns if other.startswith(f"{name}.")}  # a column's name may have a dot
        own = [path for path in paths if path.startswith(f"{name}.") and path not in others]
        found += _fields_of_turns(own, len(name) + 1, set(wanted or ())) or [name]
    return found


def _fields_of_turns(paths: Sequence[str], begin: int, wanted: Collection[str]) -> list[str]:
    """The paths of wanted fields of the turns themselves, and not of a field with that name inside another one.

    >>> _fields_of_turns(["m.list.element.role", "m.list.element.meta.role"], 2, {"role"})
    ['m.list.element.role']
    """
    parts = {path: path[begin:].split(".") for path in paths}
    depths = [place for own in parts.values() for place, part in enumerate(own) if part in wanted]
    at = min(depths, default=0)
    return [path for path, own in parts.items() if at < len(own) and own[at] in wanted]


def parquet_names(path: Place, source: Source) -> list[str]:
    """The names of a file's columns."""
    damaged = (pa.ArrowException, OSError, ValueError)
    with attempt(lambda: native_file(path), damaged, _broken(path)) as opened:
        return attempt(lambda: list(pq.read_schema(opened).names), damaged, _broken(path))


def _broken(path: Place) -> str:
    return f"{path}: this is not a readable Parquet file; write it again"


def read_arrow(path: Place, source: Source) -> Iterator[Record]:
    """One record per row, as of Parquet: a file in Arrow's IPC format, as a stream (which ``datasets`` writes) or with a footer."""
    with arrow_batches(path) as (columns, batches):
        _check_columns(columns, source, str(path))
        names = sorted({name for _, name in wanted_fields(source)})
        yield from _rows_of_batches(
            path, source, (checked_batch(batch, names) for batch in batches), broken_arrow(path)
        )


def arrow_names(path: Place, source: Source) -> list[str]:
    """The names of a file's columns."""
    with arrow_batches(path) as (names, _):
        return names


def _rows_of_batches(path: Place, source: Source, batches: Iterator[pa.RecordBatch], broken: str) -> Iterator[Record]:
    file, number = source.name_of(path), 0
    while (batch := attempt(lambda: next(batches, None), (pa.ArrowException, OSError), broken)) is not None:
        for row in range(batch.num_rows):
            number += 1
            place = place_of(path, number, "row")
            yield record_of(_table_row(batch, row, source, place), f"{file}:{number}", place, source)


def _table_row(batch: pa.RecordBatch, row: int, source: Source, place: str) -> dict[str, Any]:
    problem = f"{place}: a value is not valid UTF-8, or one that cannot be read; convert the file"
    columns = zip(batch.schema.names, batch.columns, strict=True)
    # Of an odd time, time zone or struct pyarrow raises almost anything.
    return attempt(
        lambda: {name: _table_value(column[row], name, source) for name, column in columns},
        (ValueError, ArithmeticError, LookupError, TypeError, AttributeError, ImportError, pa.ArrowException),
        problem,
    )


def _table_value(value: Any, name: str, source: Source) -> Any:
    """The value; of turns and messages the fields that the source asks for: one that nobody asked for must stop nothing."""
    wanted = _wanted_of_turns(name, source)
    if wanted is None or not isinstance(value, pa.ListScalar) or not value.is_valid:
        return value.as_py()
    return [
        {field: turn[field].as_py() for field in wanted if field in turn}
        if isinstance(turn, pa.StructScalar) and turn.is_valid
        else turn.as_py()
        for turn in value
    ]


def _wanted_of_turns(name: str, source: Source) -> list[str] | None:
    """The fields of a turn or message that are read; None: this column has no turns."""
    if name == source.messages_field:
        return ["role", "content"]
    if source.turns is None or name != source.text_field:
        return None
    return [where for where in (source.turns.text, source.turns.speaker) if isinstance(where, str)]
