"""What the adapters share: the errors of a missing library, and of a text that no library can read."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.errors import DataError, UsageError

__all__ = ["check_texts", "missing"]


def missing(kind: str, package: str, extra: str) -> UsageError:
    """The error of a library that is not installed."""
    return UsageError(f"detector {kind}: the package {package} is not installed; run: pip install 'tacit[{extra}]'")


def check_texts(texts: Sequence[str], kind: str, longest: int | None = None) -> None:
    """Refuse what the library behind a detector would refuse in words that quote the text.

    Args:
        texts: the texts to read.
        kind: the detector.
        longest: the most code points that it takes.

    Raises:
        DataError: a text is longer, or holds half a surrogate pair; it says which one by its number.
    """
    for number, text in enumerate(texts, start=1):
        if longest is not None and len(text) > longest:
            raise DataError(f"detector {kind}: {_which(number, texts)} is longer than {longest} characters; split it")
        if not _is_unicode(text):
            raise DataError(f"detector {kind}: {_which(number, texts)} holds half a surrogate pair; repair it")


def _which(number: int, texts: Sequence[str]) -> str:
    return f"text {number} of {len(texts)}"


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
