"""Search files for words in every coding in which they could leave: gzip, zip (torch's files too), SQLite, JSON, HTML, UTF-16."""

from __future__ import annotations

import base64
import gzip
import html
import io
import json
import sqlite3
import urllib.parse
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["found_in", "needles_of"]

_GZIP, _ZIP, _SQLITE = b"\x1f\x8b", b"PK\x03\x04", b"SQLite format 3\0"


def needles_of(words: Sequence[str]) -> tuple[bytes, ...]:
    """The words in lower case, in every coding."""
    found: set[bytes] = set()
    for word in words:
        for form in (word, json.dumps(word)[1:-1], html.escape(word), urllib.parse.quote(word)):
            found |= {form.lower().encode(), form.lower().encode("utf-16-le")}
        found.add(word.lower().encode("latin-1", "replace"))
        found |= {code.lower() for code in _in_base64(word.encode())}
    return tuple(sorted(found))


def _in_base64(word: bytes) -> Iterator[bytes]:
    """The whole groups of three bytes, at each of the three places where a word may begin."""
    for skipped in range(3):
        part = word[skipped : skipped + (len(word) - skipped) // 3 * 3]
        if len(part) >= 6:
            yield base64.b64encode(part)


def found_in(root: Path, needles: Sequence[bytes], leave_out: Sequence[str] = ()) -> list[str]:
    """Names below a folder (or of a file) that hold a needle, in their content or as a name; folders at its top may be left out."""
    found = []
    for path in sorted([root, *root.rglob("*")] if root.is_dir() else [root]):
        name = path.relative_to(root).as_posix()
        if name.split("/")[0] in leave_out:
            continue
        if path != root and any(needle in path.name.lower().encode() for needle in needles):
            found.append(f"the name {name}")
        if path.is_file() and not path.is_symlink() and holds(path.read_bytes(), needles):
            found.append(name if path != root else path.name)
    return found


def holds(data: bytes, needles: Sequence[bytes], depth: int = 3) -> bool:
    """Whether bytes hold a needle, in either case, as they are or unpacked."""
    if any(needle in data.lower() for needle in needles):
        return True
    return depth > 0 and any(holds(part, needles, depth - 1) for part in _unpacked(data))


def _unpacked(data: bytes) -> Iterator[bytes]:
    if data.startswith(_GZIP):
        try:
            yield gzip.decompress(data)
        except (OSError, EOFError, zlib.error):
            return
    if data.startswith(_ZIP):
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                for name in archive.namelist():
                    yield name.encode()
                    yield archive.read(name)
        except (zipfile.BadZipFile, zlib.error):
            return
    if data.startswith(_SQLITE):
        yield from _rows(data)


def _rows(data: bytes) -> Iterator[bytes]:
    """Every value of every table: a long one is spread over pages of the file."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.deserialize(data[:18] + b"\1\1" + data[20:])  # a file that has a write-ahead log, read without it
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (table,) in tables:
            for row in connection.execute(f'SELECT * FROM "{table}"'):
                yield b"\0".join(value if isinstance(value, bytes) else str(value).encode() for value in row)
    except sqlite3.DatabaseError:
        return
    finally:
        connection.close()
