"""Which characters of a run's private text are private: data points with what a policy marks in them (selective DP)."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tacit.config import MarkingOptions
from tacit.corpus.units import Unit
from tacit.randomness import KeyedRandomness
from tacit.screening.missed import ForgetfulPolicy, Missed, Spotter
from tacit.screening.policy import load_policy, package_policy
from tacit.screening.spans import merged
from tacit.screening.split import DataPoint, data_points
from tacit.vocabulary.tokenizer import TokenizerOptions, words_of

__all__ = ["MarkedText", "cut", "in_whole_words", "mark", "marker_of", "marks_digest"]

_TEXTS_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class MarkedText:
    """A data point as a unit of one text, and its private characters.

    Args:
        unit: its id and its text.
        runs: (start, end) of each maximal run of private characters, in order.
    """

    unit: Unit
    runs: tuple[tuple[int, int], ...]

    @property
    def public_text(self) -> str:
        """The text with a blank in place of each private run."""
        (text,) = self.unit.texts
        pieces: list[str] = []
        done = 0
        for start, end in self.runs:
            pieces += [text[done:start], " "]
            done = end
        return "".join([*pieces, text[done:]])

    def __repr__(self) -> str:
        return "MarkedText(<private>)"


def marker_of(options: MarkingOptions, streams: KeyedRandomness) -> Spotter:
    """The policy that marks; ``streams`` are of the run's key.

    Raises:
        DataError: the policy's file is missing or malformed.
    """
    policy = package_policy("balanced") if options.policy_path is None else load_policy(options.policy_path)
    return ForgetfulPolicy(policy, Missed.of(options.missed, streams)) if options.missed else policy


def mark(units: Iterable[Unit], marker: Spotter, kind: DataPoint) -> list[MarkedText]:
    """Every data point of the units, marked. A data point's id is ``<unit id>/<ordinal>``.

    What is marked in a data point is a function of its own text: it is cut before it is marked, as in screening.
    """
    points = list(_points(units, kind))
    texts = list(dict.fromkeys(point.texts[0] for point in points))  # turns of dialogues repeat
    runs: dict[str, tuple[tuple[int, int], ...]] = {}
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        part = texts[start : start + _TEXTS_AT_ONCE]
        runs |= {
            text: in_whole_words(text, merged(found)) for text, found in zip(part, marker.spans_of(part), strict=True)
        }
    return [MarkedText(point, runs[point.texts[0]]) for point in points]


def in_whole_words(text: str, runs: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """The runs, each widened to the words that it begins and ends in, as the tokenizer sees them.

    How a word is cut into pieces depends on all of its characters, so a piece beside a private one would tell of it. The tokenizer
    drops control characters, which thus part no words.

    >>> in_whole_words("call abcde\x0112, now", [(11, 13)])
    ((5, 13),)
    """
    widened: list[tuple[int, int]] = []
    for start, end in runs:
        while start > 0 and not _parts_words(text[start - 1]) and not _parts_words(text[start]):
            start -= 1
        while end < len(text) and not _parts_words(text[end]) and not _parts_words(text[end - 1]):
            end += 1
        if widened and start <= widened[-1][1]:
            start, end = widened[-1][0], max(end, widened.pop()[1])
        widened.append((start, end))
    return tuple(widened)


@functools.lru_cache(maxsize=4096)
def _parts_words(character: str) -> bool:
    """Whether both of our tokenizers' pre-tokenizers end a word here. They are asked: their table of Unicode is not Python's."""
    cut = [words_of(f"a{character}b", TokenizerOptions(case)) for case in (True, False)]
    return all(len(words) > 1 and (words[0], words[-1]) == ("a", "b") for words in cut)


def marks_digest(marked: Iterable[MarkedText], streams: KeyedRandomness) -> str:
    """A keyed digest of all marks: a run that goes on with a changed policy is refused, for its account knows one set of marks."""
    digest = hashlib.blake2b(key=streams.derive("marks"), digest_size=32, person=b"tacit-marks")
    for one in marked:
        digest.update(json.dumps([one.unit.unit_id, one.runs]).encode() + b"\n")
    return digest.hexdigest()


def cut(units: Iterable[Unit], kind: DataPoint) -> list[Unit]:
    """The same units, each data point a text of its own."""
    return [
        Unit(unit.unit_id, tuple(piece for text in unit.texts for piece in data_points(text, kind))) for unit in units
    ]


def _points(units: Iterable[Unit], kind: DataPoint) -> Iterator[Unit]:
    for unit in cut(units, kind):
        for number, piece in enumerate(unit.texts):
            yield Unit(f"{unit.unit_id}/{number}", (piece,))
