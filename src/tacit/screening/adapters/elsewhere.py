"""Whether the files of a model name files elsewhere: a library would load those, and neither their origin nor they are looked at."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["names_elsewhere", "texts_in"]


def names_elsewhere(values: Any, folder: Path) -> bool:
    """Whether some text in nested values is the path of a file or folder on this machine that is not below ``folder``.

    A text without a separator is a name, of a label or a language: it is not looked at, though a folder may be called so.
    """
    inside = folder.resolve()
    return any(_is_elsewhere(text, inside) for text in texts_in(values) if "/" in text or "\\" in text)


def _is_elsewhere(text: str, inside: Path) -> bool:
    if not text.strip("/\\"):  # a token of separators alone
        return False
    try:
        places = [path.resolve() for path in (Path(text), inside / text) if path.exists()]
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return False
    return any(not place.is_relative_to(inside) for place in places)


def texts_in(values: Any) -> Iterator[str]:
    """All texts in nested lists and dictionaries, as values."""
    left = [values]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, (list, tuple)):
            left += value
