"""Text without fields: plain lines, and CoNLL's tokens with their tags."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tacit.corpus.fields import checked_text, refuse_fields
from tacit.corpus.lines import numbered_lines, place_of
from tacit.corpus.places import Place
from tacit.corpus.records import Record
from tacit.errors import DataError

if TYPE_CHECKING:
    from tacit.corpus.source import Source  # asks which formats there are

__all__ = ["read_conll", "read_txt"]


def read_txt(path: Place, source: Source) -> Iterator[Record]:
    """One record per line that is not blank."""
    refuse_fields(path, source)
    file = source.name_of(path)
    for number, line in numbered_lines(path, source.max_record_bytes):
        if line.strip():
            yield Record(f"{file}:{number}", None, line.rstrip("\r\n"))


def read_conll(path: Place, source: Source) -> Iterator[Record]:
    """``token<TAB>tag`` lines, a blank line between sentences; the text is the tokens joined by spaces.

    In a dataset directory a file is one document and one record; in a single file each sentence is a record.
    """
    refuse_fields(path, source)
    file, sentences = source.name_of(path), _sentences(path, source)
    if path != source.path:
        tokens = [token for _, sentence in sentences for token in sentence]
        sentences = iter([(1, tokens)] if tokens else [])
    for number, tokens in sentences:
        text = checked_text(" ".join(tokens), place_of(path, number), source)
        yield Record(f"{file}:{number}", None, text)


def _sentences(path: Place, source: Source) -> Iterator[tuple[int, list[str]]]:
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
