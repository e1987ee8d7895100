"""Token sequences of a stream, grouped by unit: what the loop, the canaries and the evaluation read.

Shapes: S sequences, T positions, U units.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from tacit.corpus.units import Unit
from tacit.randomness import KeyedRandomness
from tacit.storage.arrays import Array
from tacit.vocabulary.chats import ChatEncoder, CountedIds
from tacit.vocabulary.encode import TextIds
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
        counted_ST: the tokens that a causal model learns to say, none of them at position 0; None: all but the first of each row.
    """

    ids_ST: Array
    lengths_S: Array
    starts_U1: Array
    keys_U: Sequence[str]
    rho_U: np.ndarray | None = None
    counted_ST: Array | None = None

    @property
    def units(self) -> int:
        """Number of units (private for a private stream)."""
        return len(self.keys_U)

    @property
    def sequences(self) -> int:
        """Number of rows."""
        return len(self.lengths_S)

    def longest_of(self, unit_B: np.ndarray) -> np.ndarray:
        """Length of the longest row of each of these units (B,); 0 of one without rows."""
        starts_B, ends_B = self.starts_U1[unit_B], self.starts_U1[unit_B + 1]
        counts_B = ends_B - starts_B
        owner_S = np.repeat(np.arange(len(unit_B)), counts_B)
        # row by row: from where a unit's rows start, as many on as have come since its first
        row_S = np.arange(len(owner_S)) - np.repeat(np.cumsum(counts_B) - counts_B, counts_B) + starts_B[owner_S]
        longest_B = np.zeros(len(unit_B), dtype=np.int64)
        np.maximum.at(longest_B, owner_S, self.lengths_S[row_S])
        return longest_B

    def rows_of(self, unit: int) -> np.ndarray:
        """Row numbers of a unit."""
        return np.arange(self.starts_U1[unit], self.starts_U1[unit + 1])

    def choose_rows(self, unit: int, at_most: int, generator: np.random.Generator) -> np.ndarray:
        """The rows of a unit, at most this many, by a keyed random choice when it has more; row order is kept."""
        rows = self.rows_of(unit)
        if len(rows) <= at_most:
            return rows
        return np.sort(generator.choice(rows, at_most, replace=False))


def _windows(ids: Sequence[int], body: int) -> Iterator[Sequence[int]]:
    for start in range(0, len(ids), body):
        yield ids[start : start + body]


_Row = tuple[Sequence[int], Sequence[bool] | None]
"""Ids, and which of them count; None: all but the first."""


def tokenize_units(
    units: Sequence[Unit],
    tokenizer: Tokenizer,
    special: SpecialTokens,
    length: int,
    streams: KeyedRandomness,
    chats: ChatEncoder | None = None,
    is_chat_U: Sequence[bool] | None = None,
    ids_of: TextIds | None = None,
) -> SequenceStream:
    """Tokenise every text and cut it into rows of at most ``length`` positions; a row never spans two texts or units.

    Nothing is dropped: a long text becomes several rows of the same unit, which are sampled and clipped as one.

    Args:
        units: any.
        tokenizer: without padding and truncation.
        special: its special tokens.
        length: positions of a row.
        streams: for the units' keys.
        chats: for conversations, and prompts with responses: only a part of their tokens counts, and rows without one are left out.
        is_chat_U: whose texts may be such; None: all units'. Another's are plain text, whatever they look like.
        ids_of: of this tokenizer, for calls that follow one another: it remembers words.
    """
    ids_of = TextIds(tokenizer, special) if ids_of is None else ids_of
    texts = [(number, text) for number, unit in enumerate(units) for text in unit.texts]
    may_be_chat = [chats is not None and (is_chat_U is None or is_chat_U[number]) for number, _ in texts]
    parts: list[_Rows] = []
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        part = [text for _, text in texts[start : start + _TEXTS_AT_ONCE]]
        if chats is None:
            parts.append(_cut(ids_of(part), special, length))
        else:
            told = _told(part, may_be_chat[start : start + _TEXTS_AT_ONCE], chats)
            parts.append(_with_chats(part, told, ids_of, special, length))
    rows = _joined(parts, length, chats is not None)
    counts = np.zeros(len(units), dtype=np.int64)
    np.add.at(counts, np.fromiter((number for number, _ in texts), np.int64, len(texts)), rows.of_text_N)
    starts_U1 = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
    return SequenceStream(rows.ids_ST, rows.lengths_S, starts_U1, unit_keys(units, streams), counted_ST=rows.counted_ST)


@dataclass(frozen=True)
class _Rows:
    """Rows of N texts.

    Args:
        of_text_N: how many are of each text.
        ids_ST, lengths_S, counted_ST: as in `SequenceStream`.
    """

    of_text_N: np.ndarray
    ids_ST: np.ndarray
    lengths_S: np.ndarray
    counted_ST: np.ndarray | None = None


def _cut(ids_N: Sequence[Sequence[int]], special: SpecialTokens, length: int) -> _Rows:
    """Rows of texts without conversations, each but the last one of a text as long as may be."""
    body = length - 2
    sizes_N = np.fromiter(map(len, ids_N), np.int64, len(ids_N))
    of_text_N = -(-sizes_N // body)
    text_S = np.repeat(np.arange(len(ids_N)), of_text_N)
    row_S = np.arange(len(text_S)) - np.repeat(np.cumsum(of_text_N) - of_text_N, of_text_N)
    own_S = np.minimum(body, sizes_N[text_S] - row_S * body)
    ids_ST = np.full((len(text_S), length), special.pad, dtype=np.int32)
    # a view: what is written there, row by row, stands in the order of the texts' ids
    ids_ST[:, 1:-1][np.arange(body) < own_S[:, None]] = np.fromiter(
        itertools.chain.from_iterable(ids_N), np.int32, int(sizes_N.sum())
    )
    ids_ST[:, 0] = special.start
    ids_ST[np.arange(len(own_S)), own_S + 1] = special.end
    return _Rows(of_text_N, ids_ST, (own_S + 2).astype(np.int32))


def _with_chats(
    texts: Sequence[str],
    told: Sequence[CountedIds | None],
    ids_of: TextIds,
    special: SpecialTokens,
    length: int,
) -> _Rows:
    """Rows of texts of which some are conversations."""
    of_texts = _rows_of(texts, told, ids_of, special, length)
    rows = [row for own in of_texts for row in own]
    ids_ST = np.full((len(rows), length), special.pad, dtype=np.int32)
    lengths_S = np.empty(len(rows), dtype=np.int32)
    counted_ST = np.zeros((len(rows), length), dtype=bool)
    for row, (ids, counted) in enumerate(rows):
        ids_ST[row, : len(ids)] = ids
        lengths_S[row] = len(ids)
        counted_ST[row, 1 : len(ids)] = True if counted is None else counted[1:]
    of_text_N = np.fromiter(map(len, of_texts), np.int64, len(texts))
    return _Rows(of_text_N, ids_ST, lengths_S, counted_ST)


def _joined(parts: Sequence[_Rows], length: int, has_counted: bool) -> _Rows:
    """All rows of some texts after others."""
    nothing = _Rows(
        np.zeros(0, np.int64),
        np.zeros((0, length), np.int32),
        np.zeros(0, np.int32),
        np.zeros((0, length), bool) if has_counted else None,
    )
    every = [nothing, *parts]
    counted = [rows.counted_ST for rows in every if rows.counted_ST is not None]
    return _Rows(
        np.concatenate([rows.of_text_N for rows in every]),
        np.concatenate([rows.ids_ST for rows in every]),
        np.concatenate([rows.lengths_S for rows in every]),
        np.concatenate(counted) if counted else None,
    )


def _told(texts: Sequence[str], may_be_chat: Sequence[bool], chats: ChatEncoder | None) -> list[CountedIds | None]:
    """The tokens of conversations, and of prompts with their responses; None: plain text."""
    if chats is None:
        return [None] * len(texts)
    found = iter(chats.encode([text for text, may_be in zip(texts, may_be_chat, strict=True) if may_be]))
    return [next(found) if may_be else None for may_be in may_be_chat]


def _rows_of(
    texts: Sequence[str],
    told: Sequence[CountedIds | None],
    ids_of: TextIds,
    special: SpecialTokens,
    length: int,
) -> list[list[_Row]]:
    """The rows of each text: of what was told of it, or of the text itself."""
    plain = iter(ids_of([text for text, one in zip(texts, told, strict=True) if one is None]))
    return [
        [([special.start, *window, special.end], None) for window in _windows(next(plain), length - 2)]
        if one is None
        else list(one.windows(length))
        for one in told
    ]


def unit_keys(units: Sequence[Unit], streams: KeyedRandomness) -> tuple[str, ...]:
    """A keyed number of each unit's id, in hexadecimal."""
    keyed = streams.derive("unit-key")
    ids = (unit.unit_id.encode("utf-8", "surrogatepass") for unit in units)  # a file's name may be no UTF-8
    return tuple(hashlib.blake2b(one, key=keyed, digest_size=16).hexdigest() for one in ids)
