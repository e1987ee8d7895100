"""The core detector: forms with validators, and names and addresses by word lists and context. No model, no network."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import numpy as np

from tacit.screening.lexicon import Lexicon
from tacit.screening.normalise import Normalised, is_plain, normalise
from tacit.screening.patterns import Found, formed
from tacit.screening.spans import Detector, Span
from tacit.screening.words import Words

__all__ = ["CoreDetector"]

_BETWEEN = "\0"  # between texts that are read together; normalisation drops it, so it is in none of them
_BRIDGE = re.compile(r"[ ,#/&():-]{0,3}|\. ?|[.,]? ?\n{1,2} {0,8}(?:, ?)?")
_BRIDGED_SCORE = 0.3


class CoreDetector(Detector):
    """Finds secrets by their form (cards, phones, ...) and names and addresses by word lists and context.

    Args:
        known: further words that are ordinary where this is used, such as a company's products.
    """

    name = "core"

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._words = Words(Lexicon(known))

    def spans(self, text: str) -> list[Span]:
        """Spans in one text."""
        return self.spans_of([text])[0]

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        """Spans in each text; texts are joined and read in one pass, which is what makes short turns fast.

        The spans of a text are a function of that text alone: it stands between two marks that no pattern reads across,
        wherever in the batch it is.
        """
        changes = [None] * len(texts) if is_plain("\n".join(texts)) else [_change(text) for text in texts]
        read = [text if change is None else change.text for text, change in zip(texts, changes, strict=True)]
        joined = _BETWEEN.join(["", *read, ""])  # marks also before the first text and after the last
        starts = list(accumulate((size + 1 for size in map(len, read)), initial=1))
        found = list(_bridged(joined, [*formed(joined), *self._words.found(joined)]))
        places = np.searchsorted(starts, [one[0] for one in found], "right") - 1
        spans: list[list[Span]] = [[] for _ in texts]
        for one, place in zip(found, places.tolist(), strict=True):
            spans[place].append(_span(one, starts[place], changes[place]))
        return [sorted(own) if len(own) > 1 else own for own in spans]


def _change(text: str) -> Normalised | None:
    return None if is_plain(text) else normalise(text)


def _span(found: Found, offset: int, change: Normalised | None) -> Span:
    """The span in its text's own code points."""
    start, end = found[0] - offset, found[1] - offset
    if change is not None:
        start, end = change.original(start, end)
    return Span(start, end, found[2], found[3], CoreDetector.name)


def _bridged(text: str, found: list[Found]) -> Iterator[Found]:
    """The spans, and what stands between two of them if that is nothing but a few marks: an address is written in parts."""
    end, score = -1, 0.0
    for item in sorted(found):
        if end >= 0 and item[0] > end and item[3] >= _BRIDGED_SCORE and _BRIDGE.fullmatch(text, end, item[0]):
            yield end, item[0], "between", min(score, item[3])
        if item[3] >= _BRIDGED_SCORE and item[1] > end:
            end, score = item[1], item[3]
        yield item
