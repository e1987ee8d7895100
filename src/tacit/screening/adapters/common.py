"""What the adapters share: the errors of a missing library, and of a text that no library can read."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.errors import DataError, UsageError

__all__ = ["check_texts", "missing"]


def missing(kind: str, package: str, extra: str) -> UsageError:
    """The error of a library that is not installed."""
    return UsageError(f"detector {kind}: the package {package} is not installed; run: pip install 'tacit[{extra}]'")


def check_texts(texts: Sequence[str], kind: str) -> None:
    """Refuse what the library behind a detector would refuse in words that quote the text.

    Args:
        texts: the texts to read.
        kind: the detector.

    Raises:
        DataError: a text holds half a surrogate pair. Which one is not said: numbers of private texts are private.
    """
    if not all(map(_is_unicode, texts)):
        raise DataError(f"detector {kind}: a text holds half a surrogate pair; repair it")


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
