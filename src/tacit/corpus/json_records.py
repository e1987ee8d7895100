"""Records that are JSON objects, one a line or all in one array."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tacit.corpus.columns import key_names
from tacit.corpus.fields import no_field, record_of, wanted_fields
from tacit.corpus.json_objects import Numbered, objects_by_line, objects_of_array
from tacit.corpus.places import Place
from tacit.corpus.records import Record
from tacit.errors import DataError

if TYPE_CHECKING:
    from tacit.corpus.source import Source  # asks which formats there are

__all__ = ["OBJECTS", "json_names", "jsonl_names", "read_json", "read_jsonl"]

_LOOKED_AT = 20  # records whose keys are compared for the names of fields
_FEWEST_WITH_A_KEY = 5

OBJECTS: dict[str, Callable[[Place, int], Iterator[Numbered]]] = {"jsonl": objects_by_line, "json": objects_of_array}
"""The objects of a file of each format, with the place of each."""


def read_jsonl(path: Place, source: Source) -> Iterator[Record]:
    """One JSON object per line; blank lines are skipped."""
    return _read_objects(path, source, objects_by_line)


def read_json(path: Place, source: Source) -> Iterator[Record]:
    """One object per record, in an array that is the whole file; the record's number takes the line number's place."""
    return _read_objects(path, source, objects_of_array)


def _read_objects(path: Place, source: Source, objects: Callable[[Place, int], Iterator[Numbered]]) -> Iterator[Record]:
    file, wanted = source.name_of(path), wanted_fields(source)
    for number, where, values in objects(path, source.max_record_bytes):
        for option, name in wanted:
            if name not in values:
                raise no_field(option, name, where, _other_keys(objects(path, source.max_record_bytes)))
        yield record_of(values, f"{file}:{number}", where, source)


def jsonl_names(path: Place, source: Source) -> list[str]:
    """The keys that all the first objects of a file of lines have and that look like names."""
    return _shared_keys(objects_by_line(path, source.max_record_bytes))


def json_names(path: Place, source: Source) -> list[str]:
    """The keys that all the first objects of an array have and that look like names."""
    return _shared_keys(objects_of_array(path, source.max_record_bytes))


def _other_keys(objects: Iterator[Numbered]) -> list[str]:
    """The keys that the first objects share, for an error about one record; none where another record is malformed."""
    try:
        return _shared_keys(objects, _FEWEST_WITH_A_KEY)
    except DataError:  # it is said when it is that record's turn
        return []


def _shared_keys(objects: Iterator[Numbered], fewest: int = 1) -> list[str]:
    """The keys that all of a file's first objects have, if there are so many: a key of one record may be text of its own.

    Raises:
        DataError: one of these objects is malformed.
    """
    first = [values for _, _, values in itertools.islice(objects, _LOOKED_AT)]
    return [] if len(first) < fewest else key_names(name for name in first[0] if all(name in one for one in first))
