"""Files of spans: JSON lines, and CoNLL with a token and its tag on each line.

Every error names file and line and holds no text: the errors of ``json`` and ``bytes.decode``, which do, are dropped first.
"""

from __future__ import annotations

import gzip
import itertools
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tacit.corpus.lines import without_marks
from tacit.errors import DataError

__all__ = ["Entry", "FileSpan", "aligned_conll", "read_conll", "read_jsonl"]

_MOST_BYTES = 16_000_000
_TAG = re.compile(r"O|[BIELSU]-.+")
_DOCUMENT = "-DOCSTART-"

_Row = tuple[int, str, str]  # number of the line, token, tag


class FileSpan(NamedTuple):
    """Code points ``start`` to ``end`` (exclusive); ``score`` is None where the file has none."""

    start: int
    end: int
    label: str
    score: float | None


class Entry(NamedTuple):
    """A text's spans. ``place`` is file and line; ``text`` or ``id`` may be missing in JSON lines."""

    place: str
    text: str | None
    id: str | None
    spans: list[FileSpan]


# JSON lines


def read_jsonl(path: Path) -> Iterator[Entry]:
    """``{"text": ..., "id": ..., "spans": [[start, end, label], ...]}``, text or id or both; a span may have a score.

    Raises:
        DataError: the file cannot be read, a line is no such object, or a span is empty or outside its text.
    """
    for number, line in _lines(path):
        if line.strip():
            yield _entry(line, f"{path}, line {number}")


def _entry(line: str, place: str) -> Entry:
    values = _json(line)
    if not isinstance(values, dict) or not isinstance(values.get("spans"), list):
        raise DataError(f'{place}: this is not {{"text": "...", "spans": [[start, end, "label"], ...]}}')
    text, name = values.get("text"), values.get("id")
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if (text is None and name is None) or not isinstance(text, str | None) or not isinstance(name, str | None):
        raise DataError(f"{place}: it must have a text (a string), an id (a string or a whole number), or both")
    spans = [_span(item, f"{place}, span {number}") for number, item in enumerate(values["spans"], start=1)]
    return Entry(place, text, name, spans)


def _span(item: Any, place: str) -> FileSpan:
    values = item if isinstance(item, list) else []
    if [type(value) for value in values[:3]] != [int, int, str] or len(values) > 4:
        raise DataError(
            f"{place}: a span is [start, end, label] or [start, end, label, score]; start and end are whole"
        )
    start, end, label, score = *values[:3], values[3] if len(values) == 4 else None
    if not 0 <= start < end:
        raise DataError(f"{place}: it is empty, or begins before the text")
    if score is not None and not (type(score) in (int, float) and 0 <= score <= 1):
        raise DataError(f"{place}: its score is no number from 0 to 1")
    return FileSpan(start, end, label, score)


def _json(line: str) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


# CoNLL


def read_conll(path: Path) -> Iterator[Entry]:
    """Each sentence is a text: its tokens joined by single blanks, as the corpus reader of this format makes it.

    Raises:
        DataError: the file cannot be read, or a line is no token with a tag.
    """
    for rows in _sentences(path):
        ends = list(itertools.accumulate(len(token) + 1 for _, token, _ in rows))
        places = [(end - 1 - len(token), end - 1) for end, (_, token, _) in zip(ends, rows, strict=True)]
        text = " ".join(token for _, token, _ in rows)
        yield Entry(f"{path}, line {rows[0][0]}", text, None, _tagged(rows, places))


def aligned_conll(path: Path, texts: Iterable[str]) -> Iterator[Entry]:
    """The tokens' places in texts of a corpus, which they must make up in order: between tokens there are blanks only.

    A text ends where nothing but blanks is left of it; it may hold several sentences. Blank texts have no tokens. Lines
    ``-DOCSTART-`` are left out.

    Raises:
        DataError: as `read_conll`; or a token is not what comes next in the text, or one side ends before the other. Texts
            after the file's end are no error here; they are unknown.
    """
    waiting = (text for text in texts if text.strip())
    text, cursor, spans, begin = None, 0, [], ""
    for rows in _sentences(path):
        if rows[0][1] == _DOCUMENT:
            continue
        if text is None:
            begin = f"{path}, line {rows[0][0]}"
            text, cursor, spans = next(waiting, None), 0, []
        if text is None:
            raise DataError(f"{begin}: the file goes on after the last text of the corpus; they do not belong together")
        places: list[tuple[int, int]] = []
        for number, token, _ in rows:
            start = _after_blanks(text, cursor)
            if not text.startswith(token, start):
                raise DataError(f"{path}, line {number}: this token is not what comes next in the text of the corpus")
            cursor = start + len(token)
            places.append((start, cursor))
        spans += _tagged(rows, places)
        if _after_blanks(text, cursor) == len(text):
            yield Entry(begin, text, None, spans)
            text = None
    if text is not None:
        raise DataError(f"{begin}: the file ends within the text of the corpus that begins here")


def _after_blanks(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _tagged(rows: Sequence[_Row], places: Sequence[tuple[int, int]]) -> list[FileSpan]:
    return [
        FileSpan(places[first][0], places[last][1], label, None)
        for first, last, label in _runs([row[2] for row in rows])
    ]


def _runs(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """(first token, last token, label) of each entity: IOB1, BIO, BIOES and BILOU all at once."""
    first, label = None, ""
    for number, tag in enumerate([*tags, "O"]):
        prefix, _, name = tag.partition("-")
        if first is not None and (prefix not in "IEL" or name != label):
            yield first, number - 1, label
            first = None
        if first is None and prefix != "O":
            first, label = number, name
        if first is not None and prefix in "ELSU":
            yield first, number, label
            first = None


def _sentences(path: Path) -> Iterator[list[_Row]]:
    for is_blank, lines in itertools.groupby(_lines(path), key=lambda numbered: not numbered[1].strip()):
        if not is_blank:
            yield [_row(number, line.rstrip("\r\n"), f"{path}, line {number}") for number, line in lines]


def _row(number: int, line: str, place: str) -> _Row:
    columns = line.split("\t") if "\t" in line else line.split()
    if len(columns) < 2 or not columns[0].strip() or _TAG.fullmatch(columns[-1].strip()) is None:
        raise DataError(f"{place}: this is no token and tag (O, B-..., I-..., E-..., S-..., L-..., U-...)")
    return number, columns[0], columns[-1].strip()


# Lines


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a file that may be gzipped, as the corpus' readers see them."""
    opener = gzip.open if path.suffix.lower() == ".gz" else open
    try:
        with opener(path, "rb") as file:
            for number in itertools.count(1):
                line = file.readline(_MOST_BYTES + 1)
                if not line:
                    return
                yield number, _decoded(without_marks(line), path, number)
    except (OSError, EOFError, zlib.error):
        pass
    raise DataError(f"{path}: the file of spans cannot be read; check the path")


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        if len(line) <= _MOST_BYTES:
            return line.decode()
    except UnicodeDecodeError:
        pass
    raise DataError(f"{path}, line {number}: the line is not UTF-8, or is longer than {_MOST_BYTES} bytes")
