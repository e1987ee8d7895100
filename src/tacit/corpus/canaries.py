"""Canaries: short sequences of random word pieces that are planted in the private sequences to audit the release.

Patterns as in Hoory et al. 2021, section 5.2: H is a hint, S the secret, so HSH is hint, secret, hint. The pieces are drawn
from the run's key, independent of all text, so a model that did not see a canary ranks its secret uniformly. Canaries are
planted per sequence by a keyed random draw of that sequence's unit, so planting couples no two units.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tacit.randomness import KeyedRandomness
from tacit.storage.arrays import Array

__all__ = ["Canary", "Place", "draw_canaries", "insert_pieces", "places_of", "plant"]


@dataclass(frozen=True)
class Canary:
    """A planted sequence.

    Args:
        pattern: such as ``HSH``.
        pieces: token ids, one a letter of the pattern.
    """

    pattern: str
    pieces: tuple[int, ...]

    @property
    def secret_offset(self) -> int:
        """Place of the secret in ``pieces``."""
        return self.pattern.index("S")

    @property
    def secret(self) -> int:
        """Token id of the secret."""
        return self.pieces[self.secret_offset]


def draw_canaries(
    patterns: tuple[str, ...], each: int, ids: Sequence[int] | np.ndarray, streams: KeyedRandomness
) -> list[Canary]:
    """``each`` canaries of every pattern; pieces uniform over these ids, among which there are no special tokens."""
    canaries = []
    for pattern in patterns:
        for number in range(each):
            generator = streams.generator("canary", pattern, number)
            places = generator.integers(len(ids), size=len(pattern))
            canaries.append(Canary(pattern, tuple(int(ids[place]) for place in places)))
    return canaries


def insert_pieces(
    row_T: np.ndarray, length: int, pieces: tuple[int, ...], generator: np.random.Generator
) -> tuple[int, int]:
    """Put ``pieces`` at a random place of a row, in place; what overflows at the end is cut, its start and end tokens stay.

    Returns:
        (position of the first piece, new length). A row too short for the pieces is left as it is: position 0.
    """
    room = len(row_T) - 2
    if len(pieces) > room:
        return 0, length
    body = row_T[1 : length - 1].copy()
    last_start = min(len(body), room - len(pieces))
    start = int(generator.integers(0, last_start + 1))
    merged = np.concatenate([body[:start], np.asarray(pieces, dtype=row_T.dtype), body[start:]])[:room]
    end_mark = row_T[length - 1]
    row_T[1 : 1 + len(merged)] = merged
    row_T[1 + len(merged)] = end_mark
    return 1 + start, len(merged) + 2


def plant(
    ids_ST: Array,
    lengths_S: Array,
    starts_U1: Array,
    keys_U: Sequence[str],
    canaries: list[Canary],
    probability: float,
    streams: KeyedRandomness,
) -> tuple[np.ndarray, np.ndarray]:
    """Copies of ids and lengths in which each sequence got one random canary with this probability.

    Every draw, choice and place comes from a generator addressed by the unit's own key.
    """
    ids, lengths = np.array(ids_ST), np.array(lengths_S)
    for row, number, generator in _chosen(starts_U1, keys_U, len(canaries), probability, streams):
        _, lengths[row] = insert_pieces(ids[row], int(lengths[row]), canaries[number].pieces, generator)
    return ids, lengths


@dataclass(frozen=True)
class Place:
    """Where a canary was planted: private, as the rows are.

    Args:
        canary: its number.
        row: of the sequences.
        start: position of its first piece.
    """

    canary: int
    row: int
    start: int


def places_of(
    lengths_S: Array,
    width: int,
    starts_U1: Array,
    keys_U: Iterable[str],
    canaries: list[Canary],
    probability: float,
    streams: KeyedRandomness,
) -> Iterator[Place]:
    """Where `plant` has put canaries, drawn again as it drew them.

    Args:
        lengths_S: of the sequences with their canaries.
        width: of their rows.
    """
    for row, number, generator in _chosen(starts_U1, keys_U, len(canaries), probability, streams):
        pieces = len(canaries[number].pieces)
        if pieces <= width - 2:
            # With or without a cut at the end, the last place at which the canary could begin is where it would end the row.
            yield Place(number, row, 1 + int(generator.integers(0, int(lengths_S[row]) - 2 - pieces + 1)))


def _chosen(
    starts_U1: Array, keys_U: Iterable[str], canaries: int, probability: float, streams: KeyedRandomness
) -> Iterator[tuple[int, int, np.random.Generator]]:
    """Each sequence that gets a canary, the canary's number, and what draws its place."""
    for unit, key in enumerate(keys_U):
        generator = streams.generator("plant", key)
        for row in range(starts_U1[unit], starts_U1[unit + 1]):
            if generator.random() < probability:
                yield row, int(generator.integers(canaries)), generator
