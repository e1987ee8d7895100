"""Token sequences of a stream, grouped by unit: what the loop, the canaries and the evaluation read.

Shapes: S sequences, T positions, U units.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from tacit.corpus.units import Unit
from tacit.randomness import KeyedRandomness
from tacit.vocabulary.encode import encode_texts
from tacit.vocabulary.special import SpecialTokens

__all__ = ["SequenceStream", "tokenize_units", "unit_keys"]

_TEXTS_AT_ONCE = 2000


@dataclass(frozen=True)
class SequenceStream:
    """Fixed-length token rows of all units.

    Args:
        ids_ST: token ids: a start token, the text, an end token (``[CLS] ... [SEP]``) and padding.
        lengths_S: real positions of each row.
        starts_U1: unit u owns rows starts[u] .. starts[u + 1] - 1; there may be none.
        keys_U: a keyed number of each unit's id: the address of its random choices, whatever its place in the corpus.
        rho_U: each unit's privacy probability, a public function of the unit alone (adaptive DP); None where there is none.
    """

    ids_ST: np.ndarray
    lengths_S: np.ndarray
    starts_U1: np.ndarray
    keys_U: tuple[str, ...]
    rho_U: np.ndarray | None = None

    @property
    def units(self) -> int:
        """Number of units (private for a private stream)."""
        return len(self.keys_U)

    @property
    def sequences(self) -> int:
        """Number of rows."""
        return len(self.lengths_S)

    def rows_of(self, unit: int) -> np.ndarray:
        """Row numbers of a unit."""
        return np.arange(self.starts_U1[unit], self.starts_U1[unit + 1])

    def choose_rows(self, unit: int, at_most: int, generator: np.random.Generator) -> np.ndarray:
        """At most this many rows of a unit, by a keyed random choice when it has more; row order is kept."""
        rows = self.rows_of(unit)
        if len(rows) <= at_most:
            return rows
        return np.sort(generator.choice(rows, at_most, replace=False))


def _windows(ids: Sequence[int], body: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), body):
        yield ids[start : start + body]


def tokenize_units(
    units: Sequence[Unit], tokenizer: Tokenizer, special: SpecialTokens, length: int, streams: KeyedRandomness
) -> SequenceStream:
    """Tokenise every text and cut it into rows of at most ``length`` positions; a row never spans two texts or units.

    Nothing is dropped: a long text becomes several rows of the same unit, which are sampled and clipped as one.
    """
    counts = np.zeros(len(units), dtype=np.int64)
    windows: list[Sequence[int]] = []
    texts = [(number, text) for number, unit in enumerate(units) for text in unit.texts]
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        part = texts[start : start + _TEXTS_AT_ONCE]
        encodings = encode_texts(tokenizer, [text for _, text in part])
        for (number, _), encoding in zip(part, encodings, strict=True):
            pieces = list(_windows(special.text_ids(encoding.ids), length - 2))
            windows += pieces
            counts[number] += len(pieces)
    ids_ST = np.full((len(windows), length), special.pad, dtype=np.int32)
    lengths_S = np.empty(len(windows), dtype=np.int32)
    for row, window in enumerate(windows):
        ids_ST[row, : len(window) + 2] = [special.start, *window, special.end]
        lengths_S[row] = len(window) + 2
    return SequenceStream(ids_ST, lengths_S, np.concatenate([[0], np.cumsum(counts)]), unit_keys(units, streams))


def unit_keys(units: Sequence[Unit], streams: KeyedRandomness) -> tuple[str, ...]:
    """A keyed number of each unit's id, in hexadecimal."""
    keyed = streams.derive("unit-key")
    return tuple(hashlib.blake2b(unit.unit_id.encode(), key=keyed, digest_size=16).hexdigest() for unit in units)
