"""The names of a corpus's fields, for an error or for whoever writes a configuration: no value, and no number of records."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["MOST_NAMES", "header_names", "key_names", "listed", "shown_header"]

MOST_NAMES = 20
"""A list of more names is no help."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,39}")


def key_names(names: Iterable[str]) -> list[str]:
    """The keys of an object that look like names of fields.

    An object may have a value of the text as its key, such as a person's name with a blank, a number or a sentence: none of these is
    shown.

    >>> key_names(["text", "Ann Miller", "4711", "note_id"])
    ['text', 'note_id']
    """
    return [name for name in names if _NAME.fullmatch(name)]


def header_names(names: Iterable[str]) -> list[str]:
    """A header's names, or none of them where it may be no header: a file without one begins with a row of private text.

    Up to three words make a name of a column.

    >>> header_names(["note id", "text"]), header_names(["4711", "text"])
    (['note id', 'text'], [])
    """
    found = [name.strip() for name in names]
    looks = all(
        len(name) <= 40 and len(name.split()) <= 3 and key_names(name.split()) == name.split() for name in found
    )
    return found if looks and all(found) else []


def shown_header(names: Iterable[str]) -> list[str]:
    """A header's names, for an error, or none of them where one is no single word that looks like a name.

    It asks more than `header_names`, since whoever gives a wrong name may have a file without a header.

    >>> shown_header(["note_id", "text"]), shown_header(["Anna Miller", "cough"])
    (['note_id', 'text'], [])
    """
    found = [name.strip() for name in names]
    return found if key_names(found) == found else []


def listed(names: Iterable[str]) -> str:
    """Names in one line, at most `MOST_NAMES` of them.

    >>> listed(["text", "note_id"])
    'text, note_id'
    """
    found = list(names)
    more = len(found) - MOST_NAMES
    return ", ".join(found[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")
