"""From a token classifier's probabilities to spans, by the two thresholds of Zhao et al. 2022, appendix A.4.

A token is marked when any tag has probability ``least_tag_score`` or more (pi, 0.3), and with ``least_plain_score`` (pi_c, 0.9)
also when a tag is likelier than plain text or plain text has less than that. So pi_c marks whatever pi marks. A word is
marked as a whole when any of its tokens is: half a name gives away the other half. The blanks between two marked words are
marked with them, and so are combining and invisible characters after a word, which tokenizers drop.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tacit.screening.spans import Span

__all__ = ["UNCERTAIN", "Thresholds", "Token", "token_spans"]

UNCERTAIN = "uncertain"  # the label of what is marked only because it is not surely plain
_DROPPED = {"Mn", "Mc", "Me", "Cf"}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a token is marked; see the options of the same names."""

    least_tag_score: float
    least_plain_score: float | None


@dataclass(slots=True)
class Token:
    """A token of a text, with what the model says of it.

    Args:
        start, end: its place in the text, in code points.
        word: the number that the tokenizer gave its word.
        tag, tag_score: the likeliest tag's type, and its probability.
        plain_score: the probability of plain text.
    """

    start: int
    end: int
    word: int | None
    tag: str
    tag_score: float
    plain_score: float

    def join(self, other: Token) -> None:
        """What two windows say of one token, or a model says of two tokens of one word: the more suspicious of both."""
        self.end = max(self.end, other.end)
        self.plain_score = min(self.plain_score, other.plain_score)
        if other.tag_score > self.tag_score:
            self.tag, self.tag_score = other.tag, other.tag_score


def token_spans(text: str, tokens: Iterable[Token], thresholds: Thresholds, detector: str) -> list[Span]:
    """Spans of what is marked: sorted, disjoint; runs of words with one label are one span.

    Args:
        text: the text.
        tokens: its tokens from all windows, in any order, without special ones; tokens may come twice. They are changed.
        thresholds: when a token is marked.
        detector: the name in the spans.

    A span's score is the highest probability of a tag in it; of one that is only `UNCERTAIN`, the highest probability that
    it is not plain. With ``least_plain_score``, characters that the tokenizer dropped are uncertain with score 1.
    """
    spans: list[Span] = []
    place, is_adjacent = 0, False
    for word in _words(text, tokens):
        if thresholds.least_plain_score is not None and text[place : word.start].strip():
            _append(spans, Span(*_trimmed(text, place, word.start), UNCERTAIN, 1.0, detector), is_adjacent)
            is_adjacent = True
        if mark := _mark(word, thresholds):
            _append(spans, Span(word.start, word.end, *mark, detector), is_adjacent)
        place, is_adjacent = word.end, mark is not None
    if thresholds.least_plain_score is not None and text[place:].strip():
        _append(spans, Span(*_trimmed(text, place, len(text)), UNCERTAIN, 1.0, detector), is_adjacent)
    return spans


def _mark(word: Token, thresholds: Thresholds) -> tuple[str, float] | None:
    """Label and score, or None for a word that is left alone."""
    if word.tag_score >= thresholds.least_tag_score:
        return word.tag, word.tag_score
    least = thresholds.least_plain_score
    if least is not None and (word.plain_score < least or word.tag_score >= word.plain_score):
        return UNCERTAIN, 1 - word.plain_score
    return None


def _append(spans: list[Span], span: Span, is_adjacent: bool) -> None:
    """Add a span; to the one before it, if nothing but blanks lies between them, belongs what lies between."""
    if not is_adjacent:
        spans.append(span)
        return
    before = spans.pop()
    if before.label == span.label:
        spans.append(before._replace(end=span.end, score=max(before.score, span.score)))
    else:
        spans += [before._replace(end=span.start), span]


def _words(text: str, tokens: Iterable[Token]) -> Iterator[Token]:
    """The text's words in order, each with its tokens' most suspicious scores, and with what was dropped after it."""
    words: list[Token] = []
    for token in sorted(_trimmed_tokens(text, tokens), key=lambda token: (token.start, token.end)):
        if words and _is_same_word(text, words[-1], token):
            words[-1].join(token)
        else:
            words.append(token)
    starts = [word.start for word in words] + [len(text)]
    for number, word in enumerate(words, start=1):
        while word.end < starts[number] and unicodedata.category(text[word.end]) in _DROPPED:
            word.end += 1
        yield word


def _is_same_word(text: str, word: Token, token: Token) -> bool:
    """Tokens over the same characters, or with no blank between them and of one word by the tokenizer's count or a mark's place."""
    if token.start < word.end:
        return True
    is_one = token.word == word.word or unicodedata.category(text[token.start]) in _DROPPED
    return is_one and not any(map(str.isspace, text[word.end : token.start]))


def _trimmed_tokens(text: str, tokens: Iterable[Token]) -> Iterator[Token]:
    """Tokens without the blanks at their ends (some tokenizers count the blank before a word to it); blank ones are left out."""
    for token in tokens:
        token.start, token.end = _trimmed(text, token.start, token.end)
        if token.start < token.end:
            yield token


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end
