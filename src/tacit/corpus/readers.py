"""Readers of text corpora: plain text, JSON lines, JSON arrays, CSV, Parquet, Arrow, CoNLL, and directories of these.

Readers stream: one record (Parquet, Arrow: one batch) is in memory at a time. Every error names a file, a line and the option
to change. It never holds the text, nor does an exception chained to it: the errors of ``json``, ``csv`` and
``bytes.decode`` quote or keep their input, so they are dropped before ours is raised.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from tacit.corpus.formats import FIELD_NAMES, READERS
from tacit.corpus.json_records import OBJECTS
from tacit.corpus.lines import is_empty
from tacit.corpus.places import Place
from tacit.corpus.records import Record
from tacit.corpus.source import Source, files_and_formats
from tacit.errors import DataError, UsageError

__all__ = ["field_names", "no_record", "read_objects", "read_records"]


def read_records(source: Source) -> Iterator[Record]:
    """Stream the records of a source, file by file.

    Raises:
        DataError: a missing file, no known ending, no record at all, or a malformed line; the first of these at the
            call, the others when the iterator gets there.
        UsageError: an id or user field was asked of a format that has no fields.
    """
    return _stream(files_and_formats(source), source)


def read_objects(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    """(file and line, or number of the record; the whole object) of each record of JSON files, which hold more than text.

    Raises:
        UsageError: a file of another format.
        DataError: as `read_records`.
    """
    for path, format_ in files_and_formats(source):
        if format_ not in OBJECTS:
            raise UsageError(f"{path}: only JSON files have objects; use jsonl or json")
        for _, place, values in OBJECTS[format_](path, source.max_record_bytes):
            yield place, values


def _stream(files: list[tuple[Place, str]], source: Source) -> Iterator[Record]:
    records = itertools.chain.from_iterable(READERS[format_](path, source) for path, format_ in files)
    records = itertools.islice(records, source.limit)
    first = next(records, None)
    if first is None:
        raise no_record(source)
    yield first
    yield from records


def no_record(source: Source) -> DataError:
    """The error of a source without any."""
    return DataError(f"{source.path}: the corpus is empty: there is no record; check the path and the format")


def field_names(source: Source) -> list[str] | None:
    """The names of the fields in the first file of a source that is not empty; None where its format has none, as plain text.

    Of a table it is the header, of JSON those keys of all the first objects that look like names. No value is looked at, and
    nothing is counted.

    Raises:
        DataError: as `read_records`; or all files are empty, or no names can be told.
    """
    files = files_and_formats(source)
    path, format_ = next(((path, format_) for path, format_ in files if not is_empty(path)), (None, ""))
    if path is None:
        raise DataError(f"{source.path}: {'the file is' if len(files) == 1 else 'all its files are'} empty")
    if format_ not in FIELD_NAMES:
        return None
    names = FIELD_NAMES[format_](path, source)
    if not names:
        raise DataError(
            f"{path}: no names of fields can be told; a table needs a header, and JSON objects with named fields"
        )
    return names
