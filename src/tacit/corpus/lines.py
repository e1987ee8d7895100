"""The lines of text files, and errors that hold no text: what every reader is made of.

U+FEFF where a line begins is an encoding mark and no text, on every line alike. Were it taken from a file's first line alone, a
record that begins with one would lose it only where no other record stands before it.
"""

from __future__ import annotations

import codecs
import itertools
import re
import zlib
from collections.abc import Callable, Iterator
from typing import IO, TypeVar

from tacit.corpus.places import Place, open_place, unzipped
from tacit.errors import DataError

__all__ = ["UNREADABLE", "attempt", "is_empty", "numbered_lines", "open_bytes", "place_of", "too_long", "without_marks"]

_MARKS = re.compile(b"(?:" + re.escape(codecs.BOM_UTF8) + b")+")

T = TypeVar("T")

UNREADABLE: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)
"""What reading a damaged file raises."""


def place_of(path: Place, line: int, noun: str = "line") -> str:
    """Where something is, for errors."""
    return f"{path}, {noun} {line}"


def attempt(call: Callable[[], T], errors: tuple[type[Exception], ...], problem: str) -> T:
    """The call's result; one of ``errors`` becomes a DataError that does not chain it.

    It is raised outside the handler, so that even ``__context__`` is empty: the original may hold text.
    """
    try:
        return call()
    except errors:
        pass
    raise DataError(problem)


def too_long(where: str, most_bytes: int) -> str:
    """That a record is over the cap."""
    return f"{where}: the record is longer than {most_bytes} bytes; split it, or raise max_record_bytes where there is that option"


def open_bytes(path: Place) -> IO[bytes]:
    """The file's bytes, unpacked where its name ends in .gz."""
    opener = unzipped if path.suffix.lower() == ".gz" else open_place
    return attempt(lambda: opener(path), (OSError,), f"{path}: the file cannot be opened; check its permissions")


def is_empty(path: Place) -> bool:
    """Whether a file has no bytes but encoding marks.

    Raises:
        DataError: it cannot be read.
    """
    problem = "the file cannot be read: it is corrupted or cut short (bad gzip data?)"
    with open_bytes(path) as file:
        return not without_marks(attempt(lambda: file.read(1 << 10), UNREADABLE, f"{path}: {problem}"))


def numbered_lines(path: Place, most_bytes: int) -> Iterator[tuple[int, str]]:
    """Numbered lines, decoded, each with its line ending and without the encoding marks that it begins with.

    Raises:
        DataError: the file cannot be read, or a line is longer than the cap or no UTF-8.
    """
    with open_bytes(path) as file:
        for number in itertools.count(1):
            line = _read_line(file, path, number, most_bytes)
            if not line:
                return
            yield number, _decoded(line, path, number)


def without_marks(line: bytes) -> bytes:
    """The line without the encoding marks (U+FEFF) that it begins with, however many.

    >>> without_marks("\ufeff\ufeffa\ufeff".encode()).decode()
    'a\ufeff'
    """
    return line[found.end() :] if (found := _MARKS.match(line)) else line


def _read_line(file: IO[bytes], path: Place, number: int, most_bytes: int) -> bytes:
    """The next line, b"" at the end; never holds more of a line than the cap allows. As `attempt`, without its cost a line."""
    room = most_bytes + len(b"\r\n")
    try:
        line = file.readline(room)
        while line.startswith(codecs.BOM_UTF8):  # the cap is for what stands behind them
            line = without_marks(line)
            if not line.endswith(b"\n"):
                line += file.readline(room - len(line))
    except UNREADABLE:
        line = None  # raised outside the handler
    if line is None:
        problem = "the file cannot be read from here on: it is corrupted or cut short (bad gzip data?)"
        raise DataError(f"{place_of(path, number)}: {problem}")
    cut_short = len(line) == room and not line.endswith(b"\n")
    if cut_short or (len(line) > most_bytes and len(line.rstrip(b"\r\n")) > most_bytes):
        raise DataError(too_long(place_of(path, number), most_bytes))
    return line


def _decoded(line: bytes, path: Place, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        pass
    raise DataError(f"{place_of(path, number)}: this is not valid UTF-8; convert the file to UTF-8")
