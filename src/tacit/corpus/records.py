"""The one thing that readers produce: a text and whose it is."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["Record", "require_rereadable", "text_bytes"]


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


def require_rereadable(records: Iterable[Record]) -> None:
    """Raise `ValueError` where records can be read only once, as an iterator's."""
    if iter(records) is records:
        raise ValueError("records are read twice: give a list, or an object whose __iter__ starts anew")
