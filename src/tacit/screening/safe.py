"""The conservative half: sentences of which not every word is known to be safe.

A secret that no pattern and no list knows still stands in a sentence, and most such sentences hold a word that is not
plain English: a number, a capital in the middle, a rare word. What is public must prove itself: a sentence is known to be
safe when all of its words are among the most frequent ordinary words, in lower case but for the first one and "I", with
ordinary punctuation. The whole sentence is marked otherwise: the data point goes to the private stream as a whole anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from tacit.screening.lexicon import CONTRACTED, common_words, listed_names, split_words
from tacit.screening.normalise import is_plain
from tacit.screening.spans import Detector, Span

__all__ = ["UnsafeSentences"]

_PLAIN_GAP = re.compile(r"[ \n.,;:!?'\"()-]*")
_FREQUENT = 500  # a word less frequent than this is not safe if it is somewhere a name: grace, rose
_SENTENCE_END = re.compile(r"[.!?][\"')]*\s|\n")
_SENTENCE = re.compile(r"[^.]+")
_SAFE_SENTENCE = re.compile(r" ?(?:T:S?|[ST])?[s :]*")  # "SYS: Hello ...", "Hello ..."
_TYPOGRAPHY = str.maketrans("’‘“”–—…\u00a0", "''\"\"--. ")  # one code point each, so offsets stay
_MOST_REMEMBERED = 1_000_000
_LONGEST_REMEMBERED = 256  # characters


class _Letters(dict[str, str]):
    """s safe word, S the same with a capital, T in capitals, x else; gaps: . end of a sentence, : colon, space plain, x else."""

    def __init__(self, safe: frozenset[str]) -> None:
        super().__init__()
        self._safe = safe

    def __missing__(self, part: str) -> str:
        if len(part) > _LONGEST_REMEMBERED:
            return self._letter(part)
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        letter = self[part] = self._letter(part)
        return letter

    def _letter(self, part: str) -> str:
        if part[:1].isalnum():
            if part in self._safe or part == "I":
                return "s"
            if part.lower() not in self._safe:
                return "x"
            return "T" if part.isupper() else "S" if part[1:].islower() or len(part) == 1 else "x"
        if not _PLAIN_GAP.fullmatch(part):
            return "x"
        if _SENTENCE_END.search(part):
            return "."
        return ":" if part.strip() == ":" else " "


class UnsafeSentences(Detector):
    """Marks each sentence that is not known to be safe, with its punctuation; neighbours that are marked become one span.

    Args:
        safe_words: how many of the most frequent ordinary words count as safe; 0: none, so that every sentence that has a word
            other than "I" is marked.
        known: further words that are safe.
    """

    name = "not-known-safe"

    def __init__(self, safe_words: int, known: Iterable[str] = ()) -> None:
        rare = listed_names() - frozenset(common_words()[:_FREQUENT])
        safe = (frozenset(common_words()[:safe_words]) - rare) | frozenset(word.lower() for word in known)
        self._letters = _Letters(
            safe | CONTRACTED | {"s", "t", "d", "m", "ll", "re", "ve"} if safe_words else frozenset()
        )

    def spans(self, text: str) -> list[Span]:
        """Spans in one text; a text that is not plain ASCII but for quotes, dashes and the ellipsis is marked as a whole."""
        return self.spans_of([text])[0]

    def spans_of(self, texts: Sequence[str]) -> list[list[Span]]:
        """Spans in each text."""
        return [self._marked(text) for text in texts]

    def _marked(self, text: str) -> list[Span]:
        text = text.translate(_TYPOGRAPHY)
        if not is_plain(text):
            return [self._span(0, len(text))]
        parts = split_words(text)
        letters = "".join(map(self._letters.__getitem__, parts))
        places = [0, *accumulate(map(len, parts))]
        return [self._span(start, end) for start, end in _runs(text, letters, places)]

    def _span(self, start: int, end: int) -> Span:
        return Span(start, end, "unknown", 0.1, self.name)


def _runs(text: str, letters: str, places: list[int]) -> Iterator[tuple[int, int]]:
    """Maximal runs of unsafe sentences, without the blanks around them."""
    begin: int | None = None
    before: int | None = None  # where a sentence of one word began: "No. 5" is no two sentences
    for sentence in _SENTENCE.finditer(letters):
        start = places[max(sentence.start() - 1, 0)]
        words = len(sentence[0].strip().replace(" ", ""))
        if _SAFE_SENTENCE.fullmatch(sentence[0]) is None:
            begin = begin if begin is not None else before if before is not None else start
        elif begin is not None and words > 1:
            yield _trimmed(text, begin, places[sentence.start()])
            begin = None
        before = start if words == 1 else None
    if begin is not None:
        yield _trimmed(text, begin, len(text))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    end = start + len(text[start:end].rstrip())
    return end - len(text[start:end].lstrip(" \n.!?")), end
