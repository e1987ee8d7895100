"""Redaction: what a policy marks becomes one token (Zhao et al. 2022, figure 1 and appendix A.6)."""

from __future__ import annotations

from collections.abc import Iterable

from tacit.screening.spans import Span, merged

__all__ = ["MASK", "redact"]

MASK = "<MASK>"


def redact(text: str, spans: Iterable[Span]) -> str:
    """The text with a single ``<MASK>`` for every maximal run of masked characters.

    There is one token, whatever was found: two tokens would tell which step masked a text (appendix A.6, item 4).

    Raises:
        ValueError: a span lies outside the text or is empty.

    >>> redact("Call 555 0100 now", [Span(5, 8, "phone", 1, "x"), Span(8, 13, "phone", 1, "x")])
    'Call <MASK> now'
    """
    spans = list(spans)
    if any(not 0 <= span.start < span.end <= len(text) for span in spans):
        raise ValueError("a span lies outside the text, or is empty")
    pieces: list[str] = []
    done = 0
    for start, end in merged(spans):
        pieces += [text[done:start], MASK]
        done = end
    return "".join([*pieces, text[done:]])
