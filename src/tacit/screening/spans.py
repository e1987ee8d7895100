"""A span of text that a detector found, the protocol of detectors, and what becomes of overlapping spans."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import NamedTuple

__all__ = ["UNREADABLE", "Detector", "Span", "merged", "unreadable"]

UNREADABLE = "unreadable"
"""The label of a text that a detector cannot read; every policy marks it."""


class Span(NamedTuple):
    """Characters ``start`` to ``end`` (exclusive) of a text, in code points, as Python slices it.

    Fields:
        start: the first code point.
        end: one past the last code point.
        label: what it seems to be, such as ``card`` or ``name``.
        score: how sure the detector is, in [0, 1]; a policy masks from a score on.
        detector: the detector's name.
    """

    start: int
    end: int
    label: str
    score: float
    detector: str


class Detector(ABC):
    """Text in, spans out. A detector reads one text at a time and keeps nothing of it.

    ``name`` goes into every span and into the report.
    """

    name: str

    @abstractmethod
    def spans(self, text: str) -> list[Span]:
        """Spans in one text, in code points of ``text`` as given; they may overlap."""

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        """Spans in each text: what `spans` gives for each. A detector may override it to be faster, not to differ."""
        return [self.spans(text) for text in texts]


def unreadable(text: str, detector: str) -> list[Span]:
    """What a detector says of a text that it cannot read: that it may all be private."""
    return [Span(0, len(text), UNREADABLE, 1.0, detector)]


def merged(spans: Iterable[Span]) -> list[tuple[int, int]]:
    """The union of the spans as sorted (start, end) runs; spans that overlap or touch become one run.

    >>> merged([Span(4, 8, "a", 1, "x"), Span(0, 2, "a", 1, "x"), Span(6, 9, "b", 1, "x"), Span(9, 10, "b", 1, "x")])
    [(0, 2), (4, 10)]
    """
    runs: list[tuple[int, int]] = []
    for start, end in sorted((span.start, span.end) for span in spans):
        if runs and start <= runs[-1][1]:
            runs[-1] = (runs[-1][0], max(end, runs[-1][1]))
        else:
            runs.append((start, end))
    return runs
