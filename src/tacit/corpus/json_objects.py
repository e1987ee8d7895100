"""The objects of JSON files, one at a time: an object a line, or an array of objects that is the whole file."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

from tacit.corpus.json_array import NotAnArray, ObjectTooLong, array_objects
from tacit.corpus.lines import UNREADABLE, attempt, numbered_lines, open_bytes, place_of, too_long
from tacit.corpus.places import Place
from tacit.errors import DataError

__all__ = ["Numbered", "objects_by_line", "objects_of_array"]

Numbered = tuple[int, str, dict[str, Any]]
"""Number of the line, or of the object in its array; the place, for errors; the object."""


def objects_by_line(path: Place, most_bytes: int) -> Iterator[Numbered]:
    """One JSON object per line; blank lines are skipped.

    Raises:
        DataError: a line is no object, no UTF-8 or too long, or the file cannot be read.
    """
    for number, line in numbered_lines(path, most_bytes):
        if line.strip():
            where = place_of(path, number)
            yield number, where, _object(line, where, "every line must be one object such as {...}")


def objects_of_array(path: Place, most_bytes: int) -> Iterator[Numbered]:
    """The objects of the one array that is the file.

    Raises:
        DataError: the file is no such array, an object is malformed, no UTF-8 or too long, or the file cannot be read.
    """
    broken = f"{path}: the file cannot be read from here on: it is corrupted or cut short (bad gzip data?)"
    with open_bytes(path) as file:
        objects = array_objects(lambda size: attempt(lambda: file.read(size), UNREADABLE, broken), most_bytes)
        for number in itertools.count(1):
            where = place_of(path, number, "record")
            content = _next(objects, where, most_bytes)
            if content is None:
                return
            problem = f"{where}: this is not valid UTF-8; convert the file to UTF-8"
            text = attempt(content.decode, (UnicodeDecodeError,), problem)
            yield number, where, _object(text, where, "repair the record")


def _next(objects: Iterator[bytes], where: str, most_bytes: int) -> bytes | None:
    problem = (
        f"{where}: here the file is no JSON array of objects, [{{...}}, {{...}}]; repair it, or set the option format"
    )

    def take() -> bytes | None:
        return attempt(lambda: next(objects, None), (NotAnArray,), problem)

    return attempt(take, (ObjectTooLong,), too_long(where, most_bytes))


def _object(text: str, where: str, advice: str) -> dict[str, Any]:
    problem = f"{where}: this is not a JSON object; {advice}"
    value = attempt(lambda: json.loads(text), (ValueError, RecursionError), problem)
    if not isinstance(value, dict):
        raise DataError(problem)
    return value
