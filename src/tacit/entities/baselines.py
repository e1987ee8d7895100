"""Trivial taggers, which a model has to beat: the likeliest tag of each word, and a dictionary of the training entities."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from tacit.corpus.annotated import OUTSIDE, AnnotatedDocument, Sentence, type_of

__all__ = ["BASELINES", "dictionary", "majority"]

Tagger = Callable[[Sequence[str]], list[str]]
"""From a sentence's tokens to its tags."""


def majority(training: Sequence[AnnotatedDocument]) -> Tagger:
    """Each word's most frequent tag in the training documents, whatever its case; ``O`` for a word that is not there."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for document in training:
        for token, tag in zip(document.tokens, document.tags, strict=True):
            counts[token.lower()][tag] += 1
    best = {token: _most_common(own) for token, own in counts.items()}
    return lambda tokens: [best.get(token.lower(), OUTSIDE) for token in tokens]


def dictionary(training: Sequence[AnnotatedDocument]) -> Tagger:
    """The longest phrases, from the left, that were an entity in at least half of their places in the training documents."""
    kinds: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    sentences = [sentence for document in training for sentence in document.sentences]
    for sentence in sentences:
        for first, last, kind in _spans(sentence):
            kinds[_lowered(sentence.tokens)[first:last]][kind] += 1
    longest = max(map(len, kinds), default=0)
    occurs: Counter[tuple[str, ...]] = Counter()
    for sentence in sentences:
        occurs.update(phrase for phrase in _phrases(sentence.tokens, longest) if phrase in kinds)
    known = {phrase: _most_common(own) for phrase, own in kinds.items() if 2 * own.total() >= occurs[phrase]}

    def tags_of(tokens: Sequence[str]) -> list[str]:
        tags, place, words = [OUTSIDE] * len(tokens), 0, _lowered(tokens)
        while place < len(tokens):
            fits = range(min(len(tokens), place + longest), place, -1)
            last = next((last for last in fits if words[place:last] in known), None)
            if last is not None:
                kind = known[words[place:last]]
                tags[place:last] = [f"B-{kind}", *[f"I-{kind}"] * (last - place - 1)]
            place = place + 1 if last is None else last
        return tags

    return tags_of


def _lowered(tokens: Sequence[str]) -> tuple[str, ...]:
    return tuple(token.lower() for token in tokens)


def _phrases(tokens: Sequence[str], longest: int) -> list[tuple[str, ...]]:
    words = _lowered(tokens)
    places = range(len(words))
    return [words[first:last] for first in places for last in _ends(first, longest, len(words))]


def _ends(first: int, longest: int, length: int) -> range:
    """The ends of phrases that begin here."""
    return range(first + 1, min(length, first + longest) + 1)


def _spans(sentence: Sentence) -> list[tuple[int, int, str]]:
    """(first word, word behind the last, type) of the sentence's entities."""
    spans: list[tuple[int, int, str]] = []
    for place, tag in enumerate(sentence.tags):
        kind = type_of(tag)
        if tag.startswith("B-") and kind is not None:
            spans.append((place, place + 1, kind))
        elif tag != OUTSIDE:
            first, _, kind = spans.pop()
            spans.append((first, place + 1, kind))
    return spans


def _most_common(counts: Counter[str]) -> str:
    """The most frequent one; of equally frequent ones the first in the alphabet, whatever the order of the documents."""
    return min(counts, key=lambda name: (-counts[name], name))


BASELINES: dict[str, Callable[[Sequence[AnnotatedDocument]], Tagger]] = {"majority": majority, "dictionary": dictionary}
