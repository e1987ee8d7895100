"""The conservative half: sentences of which not every word is known to be safe.

A secret that no pattern and no list knows still stands in a sentence, and most such sentences hold a word that is not
plain English: a number, a capital in the middle, a rare word. What is public must prove itself: a sentence is known to be
safe when all of its words are among the most frequent ordinary words, in lower case but for the first one and "I", with
ordinary punctuation. The whole sentence is marked otherwise: the data point goes to the private stream as a whole anyway.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

import numpy as np

from tacit.screening.letters import letters_of
from tacit.screening.lexicon import CONTRACTED, common_words, listed_names
from tacit.screening.normalise import is_plain
from tacit.screening.spans import Detector, Span

__all__ = ["UnsafeSentences"]

_PLAIN_GAP = re.compile(r"[ \n.,;:!?'\"()-]*")
_FREQUENT = 500  # a word less frequent than this is not safe if it is somewhere a name: grace, rose
_SENTENCE_END = re.compile(r"[.!?][\"')]*\s|\n")
_SENTENCE = re.compile(r"[^.]+")
_SAFE_SENTENCE = re.compile(r" ?(?:T:S?|[ST])?[s :]*")  # "SYS: Hello ...", "Hello ..."
_TYPOGRAPHY = str.maketrans("’‘“”–—…\u00a0", "''\"\"--. ")  # one code point each, so offsets stay
_BETWEEN = "\0"  # between texts that are read together; plain text holds none
_ONE_WORD = 3  # letters: it, and the gaps around it
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
        """Spans in each text; letters are those of all texts together, which is what makes short turns fast."""
        texts = [text if text.isascii() else text.translate(_TYPOGRAPHY) for text in texts]
        plain = [True] * len(texts) if is_plain("\n".join(texts)) else [is_plain(text) for text in texts]
        read = self._read([text for text, is_read in zip(texts, plain, strict=True) if is_read])
        return [
            [self._span(start, end) for start, end in next(read)] if is_read else [self._span(0, len(text))]
            for text, is_read in zip(texts, plain, strict=True)
        ]

    def _read(self, texts: Sequence[str]) -> Iterator[Iterator[tuple[int, int]]]:
        """What to mark in each text; between them stands a mark that none of them holds, in a gap of its own or of both."""
        letters, places = letters_of(_BETWEEN.join(["", *texts, ""]), self._letters)
        starts = list(accumulate((len(text) + 1 for text in texts), initial=1))
        gaps = (np.searchsorted(places, starts) - 1).tolist()
        places = places.tolist()
        for text, start, (first, last) in zip(texts, starts, pairwise(gaps), strict=False):
            if first == last:
                yield _runs(text, self._letters[text], places[first : first + 2], start)
                continue
            ends = self._letters[text[: places[first + 1] - start]], self._letters[text[places[last] - start :]]
            yield _runs(text, ends[0] + letters[first + 1 : last] + ends[1], places[first : last + 2], start)

    def _span(self, start: int, end: int) -> Span:
        return Span(start, end, "unknown", 0.1, self.name)


def _runs(text: str, letters: str, places: list[int], start: int) -> Iterator[tuple[int, int]]:
    """Maximal runs of unsafe sentences, without the blanks around them; ``places`` of the letters count from ``start``."""
    begin: int | None = None
    before: int | None = None  # where a sentence of one word began: "No. 5" is no two sentences
    for sentence in _SENTENCE.finditer(letters):
        found = sentence[0]
        is_word = len(found) <= _ONE_WORD and len(found.strip().replace(" ", "")) == 1
        if _SAFE_SENTENCE.fullmatch(found) is None:
            if begin is None:
                begin = before if before is not None else sentence.start() - 1
        elif begin is not None and not is_word and found.strip():
            yield _trimmed(text, places[max(begin, 0)] - start, places[sentence.start()] - start)
            begin = None
        before = sentence.start() - 1 if is_word else None
    if begin is not None:
        yield _trimmed(text, places[max(begin, 0)] - start, len(text))


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    start = max(start, 0)  # the first gap begins in the text before
    end = start + len(text[start:end].rstrip())
    return end - len(text[start:end].lstrip(" \n.!?")), end
