"""The user's own patterns, on RE2: its time is linear in the text, so no pattern can hang a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import re2

from tacit.errors import DataError
from tacit.screening.normalise import is_plain, normalise
from tacit.screening.spans import Detector, Span

__all__ = ["PatternDetector", "UserPattern", "compiled"]

_PROBES = ("", "a1 b-C")
_MOST_MEMORY = 8 << 20  # bytes of one compiled pattern; RE2's own default


class UserPattern(NamedTuple):
    """A pattern in RE2's syntax, with the label and score of what it finds."""

    label: str
    pattern: str
    score: float


class PatternDetector(Detector):
    """Finds the user's patterns in the normalised text: digits are 0-9, dashes are ``-``, nothing is invisible.

    Raises:
        DataError: RE2 does not accept a pattern (look-around, back-reference, syntax, size), or it matches the empty text.
    """

    name = "pattern"

    def __init__(self, patterns: Sequence[UserPattern]) -> None:
        self._patterns = [
            (pattern, compiled(f"patterns, item {number} ({pattern.label})", pattern.pattern))
            for number, pattern in enumerate(patterns, start=1)
        ]

    def spans(self, text: str) -> list[Span]:
        """Spans in one text."""
        change = None if is_plain(text) else normalise(text)
        found: list[Span] = []
        for pattern, expression in self._patterns:
            for match in expression.finditer(text if change is None else change.text):
                start, end = match.span()
                if end > start:
                    start, end = (start, end) if change is None else change.original(start, end)
                    found.append(Span(start, end, pattern.label, pattern.score, self.name))
        return sorted(found)


def compiled(place: str, pattern: str) -> re2._Regexp:
    """A pattern that RE2 runs in linear time.

    Raises:
        DataError: RE2 does not accept it, or it matches the empty text; the line begins with the place.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MOST_MEMORY
    try:
        expression = re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        hint = "it has no look-around and no back-references"
        raise DataError(f"{place}: RE2 does not accept this pattern ({reason}); {hint}") from None
    if any(match.start() == match.end() for probe in _PROBES for match in expression.finditer(probe)):
        raise DataError(f"{place}: this pattern matches the empty text, so it would match everywhere")
    return expression
