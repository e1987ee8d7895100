"""Whether the files of a model name files elsewhere: a library would load those, and neither their origin nor they are looked at."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["named_elsewhere", "texts_in"]


def named_elsewhere(values: Any, folder: Path) -> str | None:
    """The first text in nested values that is the path of a file or folder on this machine which is not below ``folder``, if any.

    A text without a separator is a name, of a label or a language: it is not looked at, though a folder may be called so.
    """
    return next((text for text in texts_in(values) if _is_elsewhere(text, folder)), None)


def _is_elsewhere(text: str, folder: Path) -> bool:
    if not any(separator in text for separator in "/\\") or not text.strip("/\\"):  # a token may be a separator
        return False
    try:
        places = [path for path in (Path(text), folder / text) if path.exists()]
        return not all(_is_below(place, folder) for place in places)
    except (OSError, ValueError):  # too long for a path, or with a NUL
        return False


def _is_below(place: Path, folder: Path) -> bool:
    """Whether a place is below a folder by name or in truth: files of a library's cache are links, and are looked at through them."""
    by_name = Path(os.path.abspath(place)).is_relative_to(os.path.abspath(folder))
    return by_name or place.resolve().is_relative_to(folder.resolve())


def texts_in(values: Any, ending: str = "") -> Iterator[str]:
    """All texts in nested lists and dictionaries, as values; or of those, what stands below a name with this ending."""
    left = [(not ending, values)]
    while left:
        is_asked, value = left.pop()
        if isinstance(value, str):
            if is_asked:
                yield value
        elif isinstance(value, dict):
            left += [(is_asked or str(name).endswith(ending), one) for name, one in value.items()]
        elif isinstance(value, (list, tuple)):
            left += [(is_asked, one) for one in value]
