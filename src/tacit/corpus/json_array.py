"""Cuts a JSON array into its objects without parsing them: a file of any size is read an object at a time."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator

__all__ = ["NotAnArray", "ObjectTooLong", "array_objects"]

_CHUNK = 1 << 16
_BLANKS = re.compile(rb"[ \t\r\n]*")
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|["{}\[\]]', re.DOTALL)  # a whole string, the beginning of one, or a bracket
_DEPTH = {b"{": 1, b"[": 1, b"}": -1, b"]": -1}


class NotAnArray(ValueError):
    """The bytes are no array of objects, or end before it does."""


class ObjectTooLong(ValueError):
    """An object has more bytes than it may have."""


def array_objects(read: Callable[[int], bytes], most_bytes: int) -> Iterator[bytes]:
    """The raw bytes of each object of a JSON array, ``[{...}, {...}]``; what is inside an object is not checked.

    At most about twice ``most_bytes`` are held. Time is linear in the bytes.

    Args:
        read: gives so many bytes of the file, fewer only at its end.
        most_bytes: of an object.

    Raises:
        NotAnArray: something else stands between the objects, or around them; or the file ends early.
        ObjectTooLong: an object is longer; it is not read to its end.

    >>> import io
    >>> list(array_objects(io.BytesIO(b'[{"a": "]"}, {}]').read, 100))
    [b'{"a": "]"}', b'{}']
    """
    cursor = _Cursor(read)
    if cursor.mark() != b"[":
        raise NotAnArray
    mark = cursor.mark()
    while mark != b"]":
        if mark != b"{":
            raise NotAnArray
        yield cursor.object(most_bytes)
        mark = cursor.mark()
        if mark == b",":
            mark = cursor.mark()
            if mark != b"{":
                raise NotAnArray
        elif mark != b"]":
            raise NotAnArray
    if cursor.mark():
        raise NotAnArray


class _Cursor:
    """A place in the bytes; what lies before it is forgotten."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._held = read(_CHUNK).removeprefix(codecs.BOM_UTF8)
        self._at = 0

    def mark(self) -> bytes:
        """Take the next byte that is not blank; b"" at the end."""
        while True:
            blanks = _BLANKS.match(self._held, self._at)
            assert blanks is not None  # it matches the empty text
            self._at = blanks.end() + 1
            if self._at <= len(self._held):
                return self._held[self._at - 1 : self._at]
            self._at = len(self._held)
            if not self._more():
                return b""

    def object(self, most_bytes: int) -> bytes:
        """Take the rest of an object, whose first brace was taken."""
        depth, looked = 1, 0
        while True:
            depth, end = _depth_after(self._held, self._at + looked, depth)
            stop = len(self._held) if depth else end
            if 1 + stop - self._at > most_bytes:
                raise ObjectTooLong
            if depth == 0:
                begin, self._at = self._at, end
                return b"{" + self._held[begin:end]
            looked = end - self._at
            if not self._more():
                raise NotAnArray

    def _more(self) -> bool:
        """Read as much again as is held, so that looking at the same string twice stays linear."""
        piece = self._read(max(_CHUNK, len(self._held) - self._at))
        self._held, self._at = self._held[self._at :] + piece, 0
        return bool(piece)


def _depth_after(held: bytes, at: int, depth: int) -> tuple[int, int]:
    """(depth, where to look on): after the closing brace at depth 0, else at the end or where a string begins that goes on."""
    for token in _TOKEN.finditer(held, at):
        if token[0] == b'"':
            return depth, token.start()
        depth += _DEPTH.get(token[0], 0)
        if depth == 0:
            return 0, token.end()
    return depth, len(held)
