"""Which characters of a run's private text are private: data points with what a policy marks in them (selective DP)."""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tacit.config import MarkingOptions
from tacit.corpus.units import Unit
from tacit.randomness import KeyedRandomness
from tacit.screening.missed import ForgetfulPolicy, Missed, Spotter
from tacit.screening.policy import Policy, load_policy, package_policy
from tacit.screening.spans import merged
from tacit.screening.split import DataPoint, data_points
from tacit.screening.tokens import TokenPolicy
from tacit.storage.arrays import ArrayWriter, DiskArray, open_arrays, write_shapes
from tacit.vocabulary.tokenizer import TokenizerOptions, words_of

__all__ = [
    "MarkedText",
    "MarkedTexts",
    "cut",
    "in_whole_words",
    "mark",
    "marker_of",
    "marks_digest",
    "open_marks",
    "policy_of",
    "write_marks",
]

_TEXTS_AT_ONCE = 2000
_CHARACTERS_AT_ONCE = 1 << 20


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
    def texts(self) -> tuple[str, ...]:
        """The one text."""
        return self.unit.texts

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


def policy_of(options: MarkingOptions) -> Policy | TokenPolicy:
    """The policy that marks, before it is made to miss anything.

    Raises:
        DataError: the policy's file is missing or malformed.
    """
    return package_policy("balanced") if options.policy_path is None else load_policy(options.policy_path)


def marker_of(options: MarkingOptions, streams: KeyedRandomness) -> Spotter:
    """What marks; ``streams`` are of the run's key. Raises as `policy_of`."""
    policy = policy_of(options)
    return ForgetfulPolicy(policy, Missed.of(options.missed, streams)) if options.missed else policy


def mark(units: Iterable[Unit], marker: Spotter, kind: DataPoint) -> Iterator[MarkedText]:
    """Every data point of the units, marked, a few in memory at once. A data point's id is ``<unit id>/<ordinal>``.

    What is marked in a data point is a function of its own text: it is cut before it is marked, as in screening.
    """
    for points in _some_at_once(_points(units, kind)):
        texts = list(dict.fromkeys(point.texts[0] for point in points))  # turns of dialogues repeat
        found = zip(texts, marker.spans_of(texts), strict=True)
        runs = {text: in_whole_words(text, merged(spans)) for text, spans in found}
        yield from (MarkedText(point, runs[point.texts[0]]) for point in points)


def _some_at_once(points: Iterable[Unit]) -> Iterator[list[Unit]]:
    part: list[Unit] = []
    characters = 0
    for point in points:
        if len(part) == _TEXTS_AT_ONCE or characters >= _CHARACTERS_AT_ONCE:
            yield part
            part, characters = [], 0
        part.append(point)
        characters += len(point.texts[0])
    if part:
        yield part


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


class MarkedTexts:
    """The marked data points of units, which are cut again each time that they are read; their marks lie on disk.

    Args:
        units: whose data points were marked.
        kind: what a data point is.
        store: the name of the folder in which the marks lie.
        runs_R2: the private runs of all data points, one behind the other.
        ends_P: where the runs of each data point end among these.
        digest: `marks_digest`.
    """

    def __init__(
        self, units: Iterable[Unit], kind: DataPoint, store: str, runs_R2: DiskArray, ends_P: DiskArray, digest: str
    ) -> None:
        self._units = units
        self._kind: DataPoint = kind
        self._runs_R2 = runs_R2
        self._ends_P = ends_P
        self.store = store
        self.digest = digest

    def __len__(self) -> int:
        return len(self._ends_P)

    def __iter__(self) -> Iterator[MarkedText]:
        start = 0
        runs = iter(self._runs_R2)
        for point, end in zip(_points(self._units, self._kind), self._ends_P, strict=True):
            own = tuple((int(one[0]), int(one[1])) for one in itertools.islice(runs, int(end) - start))
            yield MarkedText(point, own)
            start = int(end)

    def __repr__(self) -> str:
        return f"MarkedTexts(<private>, data points={len(self)})"


def write_marks(folder: Path, marked: Iterable[MarkedText], streams: KeyedRandomness) -> None:
    """Write the marks of data points in order, and their digest.

    Args:
        folder: empty, and its owner's alone.
        streams: for the digest.
    """
    runs_R2, ends_P = ArrayWriter(folder, "runs_R2", np.int64, (2,)), ArrayWriter(folder, "ends_P", np.int64)

    def written() -> Iterator[MarkedText]:
        for one in marked:
            runs_R2.add(np.array(one.runs, dtype=np.int64).reshape(-1, 2))
            ends_P.add([runs_R2.rows])
            yield one

    digest = marks_digest(written(), streams)
    write_shapes(folder, [runs_R2, ends_P], {"digest": digest})


def open_marks(folder: Path, units: Iterable[Unit], kind: DataPoint) -> MarkedTexts:
    """The marks that lie in a folder, of the data points of these units.

    Raises:
        DataError: a file is missing or damaged.
    """
    arrays, about = open_arrays(folder)
    return MarkedTexts(units, kind, folder.name, arrays["runs_R2"], arrays["ends_P"], about["digest"])


def marks_digest(marked: Iterable[MarkedText], streams: KeyedRandomness) -> str:
    """A keyed digest of all marks: a run that goes on with a changed policy is refused, for its account knows one set of marks."""
    digest = hashlib.blake2b(key=streams.derive("marks"), digest_size=32, person=b"tacit-marks")
    for one in marked:
        digest.update(json.dumps([one.unit.unit_id, one.runs]).encode() + b"\n")
    return digest.hexdigest()


def cut(units: Iterable[Unit], kind: DataPoint) -> list[Unit]:
    """Make each data point of the units a text of its own."""
    return [
        Unit(unit.unit_id, tuple(piece for text in unit.texts for piece in data_points(text, kind))) for unit in units
    ]


def _points(units: Iterable[Unit], kind: DataPoint) -> Iterator[Unit]:
    for unit in units:
        pieces = (piece for text in unit.texts for piece in data_points(text, kind))
        yield from (Unit(f"{unit.unit_id}/{number}", (piece,)) for number, piece in enumerate(pieces))
