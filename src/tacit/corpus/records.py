"""The one thing that readers produce: a text and whose it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tacit.corpus.lines import attempt
from tacit.errors import DataError

__all__ = ["Record", "identity", "require_rereadable", "text_bytes", "unicode_bytes"]


@dataclass(frozen=True, slots=True)
class Record:
    """One piece of text as it stands in a file.

    Args:
        document_id: the document that the text belongs to; several records may share one.
        user_id: the person that the text belongs to, where the source names one.
        text: the text itself; private, so it is left out of ``repr``.
    """

    document_id: str
    user_id: str | None
    text: str

    def __repr__(self) -> str:
        return "Record(<private>)"


def text_bytes(record: Record) -> int:
    """Bytes of a record's text in UTF-8."""
    return len(record.text.encode("utf-8", "surrogatepass"))


def identity(value: Any, option: str, name: str, place: str) -> str:
    """An id as a string: of a document or a person.

    Floats are refused, since 7 and 7.0 would make two people of one; so are empty ids, which would make one of many.

    Args:
        option, name, place: for the error: which option names the field, the field, file and line.
    """
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        raise DataError(f"{place}: the field {name!r} is not a whole number or a non-empty string; see option {option}")
    unicode_bytes(str(value), place)
    return str(value)


def unicode_bytes(text: str, place: str) -> int:
    """Bytes of a text in UTF-8; JSON can smuggle in half a surrogate pair, which no UTF-8 file can hold, and which is refused."""
    problem = f"{place}: there is half a surrogate pair, which is not valid Unicode; repair the record"
    return len(attempt(text.encode, (UnicodeEncodeError,), problem))


def require_rereadable(records: Iterable[Record]) -> None:
    """Raise `ValueError` where records can be read only once, as an iterator's."""
    if iter(records) is records:
        raise ValueError("records are read twice: give a list, or an object whose __iter__ starts anew")
