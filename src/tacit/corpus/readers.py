"""Readers of text corpora: plain text, JSON lines, JSON arrays, CSV, Parquet, Arrow, CoNLL, and directories of these.

Readers stream: one record (Parquet, Arrow: one batch) is in memory at a time. Every error names a file, a line and the option
to change. It never holds the text, nor does an exception chained to it: the errors of ``json``, ``csv`` and
``bytes.decode`` quote or keep their input, so they are dropped before ours is raised.
"""

from __future__ import annotations

import csv
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tacit.corpus.arrow_files import arrow_batches, broken_arrow, checked_batch, saved_dataset
from tacit.corpus.chats import read_chat, read_exchange
from tacit.corpus.columns import header_names, key_names, listed
from tacit.corpus.json_objects import Numbered, objects_by_line, objects_of_array
from tacit.corpus.lines import attempt, numbered_lines, place_of, too_long
from tacit.corpus.records import Record, identity, unicode_bytes
from tacit.corpus.turns import Turns, dialogue_text
from tacit.errors import DataError, UsageError
from tacit.files import refuse_pipe

__all__ = ["MOST_RECORD_BYTES", "READERS", "Source", "field_names", "files_of", "read_objects", "read_records"]

_ALIASES = {".bio": "conll", ".iob": "conll"}
_PARQUET_ROWS = 256
_NEVER_ZIPPED = ("parquet", "arrow")
_LOOKED_AT = 20  # records whose keys are compared for the names of fields
_FEWEST_WITH_A_KEY = 5

MOST_RECORD_BYTES = 2**40
"""The largest ``max_record_bytes``; no record comes near it."""


@dataclass(frozen=True, slots=True)
class Source:
    """A corpus on disk and how to read it.

    Args:
        path: a file, or a dataset directory: its files with known endings, sorted by name (sub-directories and hidden
            files are left out). The last part may be a pattern, such as ``dialogues_*.json``, for some files of a directory. Of a
            folder that ``datasets.Dataset.save_to_disk`` wrote, the data files that it names are read.
        format: a key of ``READERS``; "auto" goes by each file's ending. In a directory any other value keeps the files
            of that format only. All but Parquet and Arrow may be gzipped (``.gz`` after the ending).
        text_field: the field (JSON, CSV, Parquet, Arrow) that holds the text or, with ``turns``, the list of turns.
        id_field: the field that holds the document's id; without it the id is ``<file name>:<line number>``.
        user_field: the field that holds the id of the person the text belongs to.
        max_record_bytes: a record whose text, line or CSV field is longer than this is refused.
        limit: read this many records and stop.
        turns: how a list of turns becomes text, one turn a line (JSON, Parquet, Arrow); None: the field holds the text.
        messages_field: the field (JSON, Parquet, Arrow) with a conversation, a list of messages with ``role`` and ``content``, in
            place of a text (`tacit.corpus.chats`).
        prompt_field: the field (JSON, CSV, Parquet, Arrow) with a prompt, instead of a text.
        response_field: the field with the response to it.

    Raises:
        UsageError: an unknown format, a number out of range, or a prompt without a response.
    """

    path: Path
    format: str = "auto"
    text_field: str = "text"
    id_field: str | None = None
    user_field: str | None = None
    max_record_bytes: int = 1_000_000
    limit: int | None = None
    turns: Turns | None = None
    messages_field: str | None = None
    prompt_field: str | None = None
    response_field: str | None = None

    def __post_init__(self) -> None:
        if (self.prompt_field is None) != (self.response_field is None):
            raise UsageError("prompt_field and response_field go together; give both, or neither")
        if self.format != "auto" and self.format not in READERS:
            raise UsageError(f"format {self.format!r} is not known; use auto or one of {', '.join(READERS)}")
        if not 1 <= self.max_record_bytes <= MOST_RECORD_BYTES:
            raise UsageError(f"max_record_bytes must be from 1 to 2**40, not {self.max_record_bytes}")
        if self.limit is not None and self.limit < 1:
            raise UsageError(f"limit must be at least 1, not {self.limit}; leave it out to read everything")


def read_records(source: Source) -> Iterator[Record]:
    """Stream the records of a source, file by file.

    Raises:
        DataError: a missing file, no known ending, no record at all, or a malformed line; the first of these at the
            call, the others when the iterator gets there.
        UsageError: an id or user field was asked of a format that has no fields.
    """
    return _stream(_files(source), source)


def read_objects(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, or number of the record; the whole object) of each record of JSON files, which hold more than text.

    Raises:
        UsageError: a file of another format.
        DataError: as `read_records`.
    """
    for path, format_ in _files(source):
        if format_ not in _OBJECTS:
            raise UsageError(f"{path}: only JSON files have objects; use jsonl or json")
        for _, place, values in _OBJECTS[format_](path, source.max_record_bytes):
            yield place, values


def _stream(files: list[tuple[Path, str]], source: Source) -> Iterator[Record]:
    records = itertools.chain.from_iterable(READERS[format_](path, source) for path, format_ in files)
    records = itertools.islice(records, source.limit)
    first = next(records, None)
    if first is None:
        raise DataError(f"{source.path}: the corpus is empty: there is no record; check the path and the format")
    yield first
    yield from records


# Which files


def files_of(source: Source) -> list[Path]:
    """The files that `read_records` reads.

    Raises:
        DataError: there is none, or one of no known ending.
    """
    return [path for path, _ in _files(source)]


def field_names(source: Source) -> list[str] | None:
    """The names of the fields in the first file of a source; None where its format has none, as plain text.

    Of a table it is the header, of JSON those keys of all the first objects that look like names. No value is looked at, and
    nothing is counted.

    Raises:
        DataError: as `read_records`; or no names can be told.
    """
    path, format_ = _files(source)[0]
    names: list[str] = []
    if format_ == "csv":
        names = header_names(next(_csv_rows(path, source), (1, []))[1])
    elif format_ == "parquet":
        broken = f"{path}: this is not a readable Parquet file; write it again"
        names = attempt(lambda: list(pq.read_schema(path).names), (pa.ArrowException, OSError, ValueError), broken)
    elif format_ == "arrow":
        with arrow_batches(path) as (names, _):
            pass
    elif format_ in _OBJECTS:
        names = _shared_keys(_OBJECTS[format_](path, source.max_record_bytes), 1)
    else:
        return None
    if not names:
        raise DataError(
            f"{path}: no names of fields can be told; a table needs a header, and JSON objects with named fields"
        )
    return names


def _files(source: Source) -> list[tuple[Path, str]]:
    """The files to read with the format of each."""
    refuse_pipe(source.path)
    if source.path.is_dir():
        saved = saved_dataset(source.path) if source.format in ("auto", "arrow") else None
        if saved is not None:
            return [(path, "arrow") for path in saved]
        listed = source.path.iterdir()
    elif source.path.exists():
        return [(source.path, _format_of_file(source))]
    else:
        listed = source.path.parent.glob(source.path.name)
    files = [(path, _format_by_ending(path)) for path in sorted(listed) if _is_visible_file(path)]
    if not files and not source.path.is_dir():
        raise DataError(f"{source.path}: there is no such file or directory; check the path")
    known = [(path, name) for path, name in files if name is not None and source.format in ("auto", name)]
    if not known:
        raise DataError(f"{source.path}: no file there has one of the endings {_known_endings(source)}")
    return known


def _format_of_file(source: Source) -> str:
    name = source.format if source.format != "auto" else _format_by_ending(source.path)
    if name is None:
        endings = _known_endings(source)
        raise DataError(f"{source.path}: this ending is not known; set the option format, or use one of {endings}")
    return name


def _is_visible_file(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(".")


def _format_by_ending(path: Path) -> str | None:
    """The format that the name's ending stands for: ``a.txt.gz`` is txt, ``a.pdf`` and ``a.parquet.gz`` are None."""
    zipped = path.suffix.lower() == ".gz"
    name = _endings().get(Path(path.stem).suffix.lower() if zipped else path.suffix.lower())
    return None if zipped and name in _NEVER_ZIPPED else name


def _endings() -> dict[str, str]:
    return {f".{name}": name for name in READERS} | _ALIASES


def _known_endings(source: Source) -> str:
    names = [ending for ending, name in _endings().items() if source.format in ("auto", name)]
    return ", ".join(names) + " (all but .parquet and .arrow also with .gz)"


# Records


def _record(fields: Mapping[str, Any], default_id: str, place: str, source: Source) -> Record:
    """A record from named fields, each checked.

    Raises:
        DataError: a field is missing or of a wrong type, or the text is over the cap or not Unicode.
    """
    document_id = default_id if source.id_field is None else _identity(fields, "id_field", source.id_field, place)
    user_id = None if source.user_field is None else _identity(fields, "user_field", source.user_field, place)
    return Record(document_id, user_id, _checked_text(_text(fields, place, source), place, source))


def _text(fields: Mapping[str, Any], place: str, source: Source) -> str:
    """The text of a record, or that of its conversation, or of its prompt and response."""
    if source.messages_field is not None:
        values = _field(fields, "messages_field", source.messages_field, place)
        return read_chat(values, place, source.messages_field)
    if source.prompt_field is not None and source.response_field is not None:
        prompt = _string(fields, "prompt_field", source.prompt_field, place)
        return read_exchange(prompt, _string(fields, "response_field", source.response_field, place))
    if source.turns is not None:
        values = _field(fields, "text_field", source.text_field, place)
        return dialogue_text(values, source.turns, place, source.text_field)
    return _string(fields, "text_field", source.text_field, place, ", or turns for a list of turns")


def _string(fields: Mapping[str, Any], option: str, name: str, place: str, otherwise: str = "") -> str:
    value = _field(fields, option, name, place)
    if not isinstance(value, str):
        raise DataError(f"{place}: the field {name!r} is not a string; set the option {option}{otherwise}")
    return value


def _field(fields: Mapping[str, Any], option: str, name: str, place: str) -> Any:
    if name not in fields:
        raise _no_field(option, name, place)
    return fields[name]


def _no_field(option: str, name: str, place: str, others: Sequence[str] = ()) -> DataError:
    there = f"a field that is there: {listed(others)}" if others else "a field that is there"
    return DataError(f"{place}: there is no field {name!r}; set the option {option} to {there}")


def _identity(fields: Mapping[str, Any], option: str, name: str, place: str) -> str:
    return identity(_field(fields, option, name, place), option, name, place)


def _checked_text(text: str, place: str, source: Source) -> str:
    if unicode_bytes(text, place) > source.max_record_bytes:
        raise DataError(too_long(place, source.max_record_bytes))
    return text


# Formats


def _read_txt(path: Path, source: Source) -> Iterator[Record]:
    """One record per line that is not blank."""
    _refuse_fields(path, source)
    for number, line in numbered_lines(path, source.max_record_bytes):
        if line.strip():
            yield Record(f"{path.name}:{number}", None, line.rstrip("\r\n"))


def _refuse_fields(path: Path, source: Source) -> None:
    asked = {
        "id_field": source.id_field,
        "user_field": source.user_field,
        "turns": source.turns,
        "messages_field": source.messages_field,
        "prompt_field": source.prompt_field,
    }
    for option, value in asked.items():
        if value is not None:
            raise UsageError(f"{path}: a file of this format has no fields; leave out the option {option}")


def _read_jsonl(path: Path, source: Source) -> Iterator[Record]:
    """One JSON object per line; blank lines are skipped."""
    return _read_objects(path, source, objects_by_line)


def _read_json(path: Path, source: Source) -> Iterator[Record]:
    """One object per record, in an array that is the whole file; the record's number takes the line number's place."""
    return _read_objects(path, source, objects_of_array)


def _read_objects(path: Path, source: Source, objects: Callable[[Path, int], Iterator[Numbered]]) -> Iterator[Record]:
    wanted = _wanted_fields(source)
    for number, where, values in objects(path, source.max_record_bytes):
        for option, name in wanted:
            if name not in values:
                others = _shared_keys(objects(path, source.max_record_bytes), _FEWEST_WITH_A_KEY)
                raise _no_field(option, name, where, others)
        yield _record(values, f"{path.name}:{number}", where, source)


def _shared_keys(objects: Iterator[Numbered], fewest: int) -> list[str]:
    """The keys that all of a file's first objects have, if there are so many: a key of one record may be text of its own."""
    try:
        first = [values for _, _, values in itertools.islice(objects, _LOOKED_AT)]
    except DataError:  # another record is malformed, which is said when it is its turn
        return []
    return [] if len(first) < fewest else key_names(name for name in first[0] if all(name in one for one in first))


def _read_csv(path: Path, source: Source) -> Iterator[Record]:
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
    for number, row in rows:
        place = place_of(path, number)
        if len(row) != len(header):
            raise DataError(f"{place}: the row has {len(row)} fields and the header {len(header)}; repair the row")
        yield _record(dict(zip(header, row, strict=True)), f"{path.name}:{number}", place, source)


def _csv_rows(path: Path, source: Source) -> Iterator[tuple[int, list[str]]]:
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


def _wanted_fields(source: Source) -> list[tuple[str, str]]:
    """(option, field) of the fields that the source asks for."""
    instead = {
        "messages_field": source.messages_field,
        "prompt_field": source.prompt_field,
        "response_field": source.response_field,
    }
    text = {"text_field": source.text_field} if set(instead.values()) == {None} else instead
    named = {**text, "id_field": source.id_field, "user_field": source.user_field}
    return [(option, name) for option, name in named.items() if name is not None]


def _check_columns(columns: Sequence[str], source: Source, place: str) -> None:
    """The fields that the source asks for are there, each once: of two columns with one name nobody knows which one is meant."""
    for option, name in _wanted_fields(source):
        if name not in columns:
            raise _no_field(option, name, place, header_names(columns))
        if columns.count(name) > 1:
            raise DataError(f"{place}: there are {columns.count(name)} columns {name!r} ({option}); rename all but one")


def _read_parquet(path: Path, source: Source) -> Iterator[Record]:
    """One record per row; the row number takes the line number's place."""
    broken = f"{path}: this is not a readable Parquet file; write it again"
    with attempt(lambda: pq.ParquetFile(path), (pa.ArrowException, OSError), broken) as file:
        _check_columns(attempt(lambda: file.schema_arrow.names, (ValueError,), broken), source, str(path))
        names = sorted({name for _, name in _wanted_fields(source)})
        batches = file.iter_batches(batch_size=_PARQUET_ROWS, columns=names)
        yield from _rows_of_batches(path, source, batches, broken)


def _rows_of_batches(path: Path, source: Source, batches: Iterator[pa.RecordBatch], broken: str) -> Iterator[Record]:
    number = 0
    while (batch := attempt(lambda: next(batches, None), (pa.ArrowException, OSError), broken)) is not None:
        for row in range(batch.num_rows):
            number += 1
            place = place_of(path, number, "row")
            yield _record(_table_row(batch, row, source, place), f"{path.name}:{number}", place, source)


def _read_arrow(path: Path, source: Source) -> Iterator[Record]:
    """One record per row, as of Parquet: a file in Arrow's IPC format, as a stream (which ``datasets`` writes) or with a footer."""
    with arrow_batches(path) as (columns, batches):
        _check_columns(columns, source, str(path))
        names = sorted({name for _, name in _wanted_fields(source)})
        yield from _rows_of_batches(
            path, source, (checked_batch(batch, names) for batch in batches), broken_arrow(path)
        )


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


def _read_conll(path: Path, source: Source) -> Iterator[Record]:
    """``token<TAB>tag`` lines, a blank line between sentences; the text is the tokens joined by spaces.

    In a dataset directory a file is one document and one record; in a single file each sentence is a record.
    """
    _refuse_fields(path, source)
    sentences = _sentences(path, source)
    if path != source.path:
        tokens = [token for _, sentence in sentences for token in sentence]
        sentences = iter([(1, tokens)] if tokens else [])
    for number, tokens in sentences:
        text = _checked_text(" ".join(tokens), place_of(path, number), source)
        yield Record(f"{path.name}:{number}", None, text)


def _sentences(path: Path, source: Source) -> Iterator[tuple[int, list[str]]]:
    """(number of its first line, tokens) of each sentence."""
    numbered = numbered_lines(path, source.max_record_bytes)
    for blank, group in itertools.groupby(numbered, key=lambda line: not line[1].strip()):
        if not blank:
            lines = list(group)
            yield lines[0][0], [_token(line, place_of(path, number)) for number, line in lines]


def _token(line: str, place: str) -> str:
    token, tab, _ = line.partition("\t")
    if not tab or not token.strip():
        raise DataError(f"{place}: this is not token<TAB>tag; check the file, or set the option format")
    return token


_OBJECTS = {"jsonl": objects_by_line, "json": objects_of_array}

READERS: dict[str, Callable[[Path, Source], Iterator[Record]]] = {
    "txt": _read_txt,
    "jsonl": _read_jsonl,
    "json": _read_json,
    "csv": _read_csv,
    "parquet": _read_parquet,
    "arrow": _read_arrow,
    "conll": _read_conll,
}
