"""One data point on its way into a stream: cut, reserve the mask, redact, deduplicate, route (Zhao et al. 2022, algorithm 1).

The order is not the paper's: algorithm 1 deduplicates before it redacts, and then a secret that is caught still decides which
data points are copies (docs/confidentiality.md).

    cut          first, so that nothing later can move the end of a data point (appendix A.6, items 2 and 3)
    reserve      a literal <MASK> in the raw text is escaped: the token is ours alone
    redact       what pi marks becomes <MASK>
    deduplicate  a copy's text becomes <MASK> too (A.6, item 4); copies are looked for within a stream, never across, and with
                 `unmasked` only among private data points without a mask
    route        private if pi marked it, or pi_c marks its raw text, or <MASK> is in it (A.6, item 5); else public

Why within a stream: what is a copy in the public stream must not depend on the private one. Texts that are equal to the byte
are in the same stream anyway; with a ``normalisation`` "call Rose" may be private and "call rose" public, and a secret in the
first would decide whether the second is trained on without noise.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from tacit.screening.missed import Spotter
from tacit.screening.policy import in_turn
from tacit.screening.redact import MASK, redact
from tacit.screening.spans import Span, merged

__all__ = [
    "LITERAL_MASK",
    "STREAMS",
    "Copies",
    "DataPoint",
    "Deduplicate",
    "Judged",
    "Placed",
    "Point",
    "Screener",
    "Splitter",
    "Stream",
    "Tally",
    "compared_stream",
    "data_points",
    "deduplicated_streams",
    "reserve_mask",
    "restore_mask",
    "stream_of",
]

DataPoint = Literal["record", "line"]
Deduplicate = Literal["none", "exact", "unmasked"]
"""Which copies are masked: none; all but the first; of the private data points without a mask, all but the first."""
Stream = Literal["public", "private"]
STREAMS: tuple[Stream, ...] = ("public", "private")

_LINE_END = re.compile(r"\r\n|\n|\r")
LITERAL_MASK = re.compile(r"<(\\*)MASK>")
"""A mask, or an escaped one, that the text itself has."""
_ESCAPED = re.compile(r"<\\(\\*)MASK>")


# Before redaction -----------------------------------------------------------------------------------------------------


def data_points(text: str, kind: DataPoint) -> list[str]:
    """The data points of a record: its text as it is, or each of its lines; blank ones are none.

    A line is the user's word that no sentence goes beyond it, such as a turn of a dialogue; a record is never cut.

    >>> data_points("Hello.\\n\\nI am Bob.\\r\\n", "line")
    ['Hello.', 'I am Bob.']
    """
    pieces = _LINE_END.split(text) if kind == "line" else [text]
    return [piece for piece in pieces if piece.strip()]


def reserve_mask(text: str) -> str:
    """The text without a literal ``<MASK>``: each, and each escaped one, gets one more backslash, so nothing is lost.

    >>> reserve_mask(r"put <MASK> there, <\\MASK> here")
    'put <\\\\MASK> there, <\\\\\\\\MASK> here'
    """
    return LITERAL_MASK.sub(r"<\\\1MASK>", text)


def restore_mask(text: str) -> str:
    """What `reserve_mask` was given."""
    return _ESCAPED.sub(r"<\1MASK>", text)


# Redaction ------------------------------------------------------------------------------------------------------------


class Point(NamedTuple):
    """A redacted data point; ``marked``: pi or pi_c marks something in its raw text."""

    text: str
    marked: bool


@dataclass(frozen=True, slots=True)
class Judged:
    """What both policies say of a data point; all of it is private.

    Args:
        raw: its text, with the mask reserved.
        masked: what pi marks.
        unsafe: what pi_c marks; not asked where pi marks something, since the data point is private then.
    """

    raw: str
    masked: list[Span]
    unsafe: list[Span]

    @property
    def point(self) -> Point:
        """The data point, redacted."""
        return Point(redact(self.raw, self.masked) if self.masked else self.raw, bool(self.masked or self.unsafe))

    def __repr__(self) -> str:
        return "Judged(<private>)"


@dataclass
class Tally:
    """Running counts of redaction; private, every one of them.

    Args:
        data_points: all; ``unsafe``: those that pi_c alone marks.
        masks: maximal runs of masked characters, each of which became one ``<MASK>``.
        characters, masked_characters: code points before redaction.
        masked_spans: what pi found, by label; where its detections overlap, each counts.
    """

    data_points: int = 0
    unsafe: int = 0
    masks: int = 0
    characters: int = 0
    masked_characters: int = 0
    masked_spans: dict[str, int] = field(default_factory=dict)

    def add(self, judged: Judged) -> None:
        """Count a data point."""
        self.data_points += 1
        self.unsafe += bool(judged.unsafe)
        self.characters += len(judged.raw)
        for start, end in merged(judged.masked):
            self.masks += 1
            self.masked_characters += end - start
        self._count(Counter(span.label for span in judged.masked) if judged.masked else {})

    def update(self, other: Tally) -> None:
        """Add another tally."""
        self.data_points += other.data_points
        self.unsafe += other.unsafe
        self.masks += other.masks
        self.characters += other.characters
        self.masked_characters += other.masked_characters
        self._count(other.masked_spans)

    def _count(self, spans: Mapping[str, int]) -> None:
        for label, count in spans.items():
            self.masked_spans[label] = self.masked_spans.get(label, 0) + count


class Screener:
    """Cuts, reserves and redacts; what it says of a text is a function of that text alone.

    Args:
        balanced: pi, which is masked.
        conservative: pi_c, which looks at raw text.
        kind: what a data point is.
    """

    def __init__(self, balanced: Spotter, conservative: Spotter, kind: DataPoint) -> None:
        self._balanced = balanced
        self._conservative = conservative
        self._kind: DataPoint = kind

    def judge(self, texts: Iterable[str]) -> list[list[Judged]]:
        """The data points of each text."""
        cut = [[reserve_mask(piece) for piece in data_points(text, self._kind)] for text in texts]
        distinct = list(dict.fromkeys(piece for pieces in cut for piece in pieces))  # turns of dialogues repeat
        judged = dict(zip(distinct, self._judged(distinct), strict=True))
        return [[judged[piece] for piece in pieces] for pieces in cut]

    def screen(self, texts: Iterable[str]) -> tuple[list[list[Point]], Tally]:
        """The redacted data points of each text, and their counts."""
        tally = Tally()
        points: list[list[Point]] = []
        for judged in self.judge(texts):
            for one in judged:
                tally.add(one)
            points.append([one.point for one in judged])
        return points, tally

    def _judged(self, texts: list[str]) -> list[Judged]:
        masked, unsafe = in_turn(self._balanced, self._conservative, texts)
        return [Judged(*each) for each in zip(texts, masked, unsafe, strict=True)]


# After redaction ------------------------------------------------------------------------------------------------------


class Copies(Protocol):
    """Remembers texts: `mark` says whether an equal one was marked before (tacit.screening.deduplicate.KeepFirst)."""

    def mark(self, text: str) -> bool: ...


class Placed(NamedTuple):
    """A data point in its stream."""

    text: str
    stream: Stream
    duplicate: bool


def stream_of(point: Point) -> Stream:
    """Where a redacted data point belongs.

    >>> stream_of(Point("Good morning.", False)), stream_of(Point("Good morning.", True)), stream_of(Point(MASK, False))
    ('public', 'private', 'private')
    """
    return "private" if point.marked or MASK in point.text else "public"


class Splitter:
    """Deduplicates and routes data points, given in the order of the corpus.

    Args:
        copies: a memory for each stream that is deduplicated.
        which: ``none`` needs no memory, ``exact`` both, ``unmasked`` that of the private stream.
    """

    def __init__(self, copies: Mapping[Stream, Copies], which: Deduplicate) -> None:
        self._copies = copies
        self._which: Deduplicate = which

    def place(self, point: Point) -> Placed:
        """The data point in its stream, or in place of a copy ``<MASK>``, which is private."""
        compared = compared_stream(point, self._which)
        if compared is not None and self._copies[compared].mark(point.text):
            return Placed(MASK, "private", True)
        return Placed(point.text, stream_of(point), False)


def compared_stream(point: Point, which: Deduplicate) -> Stream | None:
    """The stream in which copies of a data point are looked for; None: in none."""
    stream = stream_of(point)
    if which == "unmasked":
        return stream if stream == "private" and MASK not in point.text else None
    return stream if which == "exact" else None


def deduplicated_streams(which: Deduplicate) -> tuple[Stream, ...]:
    """The streams in which copies are looked for."""
    return {"none": (), "exact": STREAMS, "unmasked": ("private",)}[which]
