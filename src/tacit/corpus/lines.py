"""The lines of text files, and errors that hold no text: what every reader is made of."""

from __future__ import annotations

import codecs
import gzip
import itertools
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, TypeVar, cast

from tacit.errors import DataError

__all__ = ["UNREADABLE", "attempt", "numbered_lines", "open_bytes", "place_of", "too_long"]

T = TypeVar("T")

UNREADABLE: tuple[type[Exception], ...] = (OSError, EOFError, zlib.error)
"""What reading a damaged file raises."""


def place_of(path: Path, line: int, noun: str = "line") -> str:
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
    return f"{where}: the record is longer than {most_bytes} bytes; raise the option max_record_bytes"


def open_bytes(path: Path) -> IO[bytes]:
    """The file's bytes, unpacked where its name ends in .gz."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    file = attempt(lambda: opener(path, "rb"), (OSError,), f"{path}: the file cannot be opened; check its permissions")
    return cast(IO[bytes], file)


def numbered_lines(path: Path, most_bytes: int) -> Iterator[tuple[int, str]]:
    """Numbered lines, decoded, each with its line ending.

    Raises:
        DataError: the file cannot be read, or a line is longer than the cap or no UTF-8.
    """
    with open_bytes(path) as file:
        for number in itertools.count(1):
            line = _read_line(file, path, number, most_bytes)
            if not line:
                return
            yield number, _decoded(line.removeprefix(codecs.BOM_UTF8) if number == 1 else line, path, number)


def _read_line(file: IO[bytes], path: Path, number: int, most_bytes: int) -> bytes:
    """The next line, b"" at the end; never reads more of a line than the cap allows. As `attempt`, without its cost a line."""
    room_for_ending = len(b"\r\n")
    try:
        line = file.readline(most_bytes + room_for_ending)
    except UNREADABLE:
        line = None  # raised outside the handler
    if line is None:
        problem = "the file cannot be read from here on: it is corrupted or cut short (bad gzip data?)"
        raise DataError(f"{place_of(path, number)}: {problem}")
    if len(line) > most_bytes and len(line.rstrip(b"\r\n")) > most_bytes:
        raise DataError(too_long(place_of(path, number), most_bytes))
    return line


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError:
        pass
    raise DataError(f"{place_of(path, number)}: this is not valid UTF-8; convert the file to UTF-8")
