"""Where a corpus is and how it is read: the sections ``private`` and ``public``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from tacit.config.base import MOST, Count, Options, name_in

if TYPE_CHECKING:
    from tacit.corpus.readers import Source

__all__ = ["CorpusOptions", "PublicCorpusOptions", "TurnsOptions"]

Place = Annotated[int, Field(ge=0, le=MOST, strict=True)] | str
"""Where something is in a turn: a place in a list, from 0, or a field of an object."""


class TurnsOptions(Options):
    """How a list of turns becomes the text of a record, one turn a line. A place is a number, from 0, where a turn is a list, or a
    field where it is an object.

    Args:
        text: the place of a turn's text.
        speaker: the place of its speaker, whose name is put before the text as in ``USR: Hello.``; null: the text alone.
        names: words for speakers; other speakers keep their own.
    """

    text: Place = 1
    speaker: Place | None = 0
    names: dict[str, str] = Field(default={"U": "USR", "S": "SYS"})


def _formats() -> list[str]:
    from tacit.corpus.readers import READERS  # imports pyarrow

    return ["auto", *READERS]


class CorpusOptions(Options):
    """Where a corpus is and how its records are read.

    Args:
        path: a file, a directory, or a pattern of files in one. ``${NAME}`` and ``${NAME:-default}`` are taken from the environment.
        format: how the files are read; ``auto`` goes by each file's ending.
        text_field: field with the text or, with ``turns``, with the list of turns.
        id_field: field with the document's id; not given: the id is file and line.
        user_field: field with the person's id; required for ``unit: user``.
        max_record_bytes: a longer record is refused.
        limit: read this many records and stop; see docs/sharp-edges.md before you use it on private text.
        turns: how a list of turns becomes text, one turn a line; ``{}`` takes every default; not given: the field holds the text.
    """

    path: str
    format: Annotated[str, name_in(_formats)] = "auto"
    text_field: str = "text"
    id_field: str | None = None
    user_field: str | None = None
    max_record_bytes: Count = 1_000_000
    limit: Count | None = None
    turns: TurnsOptions | None = None

    @property
    def resolved_path(self) -> Path:
        """The path with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        return self.located(self.path)

    @property
    def source(self) -> Source:
        """The same, as readers take it."""
        from tacit.corpus.readers import Source  # imports pyarrow
        from tacit.corpus.turns import Turns

        turns = self.turns
        return Source(
            path=self.resolved_path,
            format=self.format,
            text_field=self.text_field,
            id_field=self.id_field,
            user_field=self.user_field,
            max_record_bytes=self.max_record_bytes,
            limit=self.limit,
            turns=None if turns is None else Turns(turns.text, turns.speaker, turns.names),
        )


class PublicCorpusOptions(CorpusOptions):
    """A public corpus.

    Args:
        times: training reads its records as if each were there so many times, so that a small corpus near the private text is not
            lost in a large one, and so does the unigram of the evaluation. A vocabulary counts its words once, and no copy of a
            held-out record is trained on.
    """

    added_later: ClassVar = frozenset({"times"})

    times: Count = 1
