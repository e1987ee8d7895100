"""JSON that comes from a file somebody may have altered: read so that what is odd is refused, and never a traceback."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tacit.errors import DataError

__all__ = ["parse_strict", "read_number", "read_strict", "what_is_wrong", "write_number"]

_LARGEST_INTEGER = 2**53
"""Up to here an integer is also a double, so that no arithmetic overflows later."""


def parse_strict(text: str) -> Any:
    """The values of a JSON text.

    Raises:
        ValueError: not JSON, nested too deep, a key twice, a number that is not finite or beyond 2^53 as an integer.
    """
    try:
        return json.loads(
            text,
            object_pairs_hook=_without_doubles,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_small,
        )
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_strict(path: Path, most_bytes: int) -> Any:
    """The values of a JSON file.

    Raises:
        DataError: it is missing, not a regular file, too large, not UTF-8 or not JSON, in one line.
    """
    if path.is_symlink() or not path.is_file():
        raise DataError(f"{path}: no such file, or not a regular one; bring it back as it was")
    if path.stat().st_size > most_bytes:
        raise DataError(f"{path}: larger than {most_bytes >> 20} MB, so damaged; bring it back as it was")
    try:
        return parse_strict(path.read_bytes().decode("utf-8"))
    except ValueError:  # UnicodeDecodeError is one
        raise DataError(f"{path}: not JSON, so damaged; bring it back as it was") from None


def what_is_wrong(error: ValidationError) -> str:
    """The first complaint as a place and a few words, without the value that was found there."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    return f"{ascii(place[:80])[1:-1]}: {first['msg']}".removeprefix(": ")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key is there twice")
    return values


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("a number is beyond all bounds")
    return number


def _small(text: str) -> int:
    if len(text) > 17 or abs(int(text)) > _LARGEST_INTEGER:
        raise ValueError("a number is beyond all bounds")
    return int(text)


def write_number(value: float) -> float | str:
    """JSON has no infinity: it becomes a word."""
    return "infinity" if math.isinf(value) else value


def read_number(value: float | str) -> float:
    """The inverse of `write_number`."""
    return math.inf if value == "infinity" else float(value)
