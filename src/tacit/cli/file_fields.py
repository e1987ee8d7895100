"""What `tacit init` sees of somebody's file: its format, the names of its fields, and whether the field for the text holds one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tacit.errors import DataError, TacitError, UsageError
from tacit.files import quoted

if TYPE_CHECKING:
    from tacit.corpus.places import Place
    from tacit.corpus.source import Source

__all__ = ["format_of", "names_of", "refuse_other_values", "told_names"]


def names_of(path: Place) -> list[str] | None:
    """The names of the fields; None: the format has none."""
    from tacit.corpus.readers import field_names
    from tacit.corpus.source import Source

    return field_names(Source(path))


def format_of(path: Place) -> str:
    """The format of the first file, such as ``csv``."""
    from tacit.corpus.source import Source, files_and_formats

    return files_and_formats(Source(path))[0][1]


def told_names(file: Place, names: list[str]) -> str:
    """The names of the fields; of a CSV file, whose first row may be one of private text, only where each is a word like a name."""
    from tacit.corpus.columns import listed, shown_header

    if format_of(file) != "csv" or shown_header(names):
        return listed(names)
    return f"{len(names)} columns, and its first row must hold their names"


def refuse_other_values(file: Place, text: str | None, messages: str | None) -> None:
    """The field named for the text must hold one, as the first record shows: `tacit plan` would refuse the configuration.

    Raises:
        UsageError: it holds a conversation.
        DataError: it holds anything else, or no record can be read.
    """
    from tacit.corpus.source import Source

    if messages is not None:
        _read_one(Source(file, messages_field=messages))
        return
    assert text is not None
    try:
        _read_one(Source(file, text_field=text))
    except DataError as error:
        if not _is_conversation(file, text):
            raise error from None
        raise UsageError(
            f"--text {text}: in {file} this field holds conversations, lists of messages; name it by --messages {quoted(text)}"
        ) from None


def _is_conversation(file: Place, field: str) -> bool:
    from tacit.corpus.source import Source

    try:
        _read_one(Source(file, messages_field=field))
    except TacitError:
        return False
    return True


def _read_one(source: Source) -> None:
    """The first record, of which nothing is kept; its errors name a place and no text."""
    from tacit.corpus.readers import read_records

    next(read_records(source))
