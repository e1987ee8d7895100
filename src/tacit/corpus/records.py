"""The one thing that readers produce: a text and whose it is."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Record"]


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
