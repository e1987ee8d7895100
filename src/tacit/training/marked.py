"""Marked token rows: which token is private stands in its id, so that the loop needs no second array (selective DP).

A private token's id is its own plus the size of the vocabulary; the objectives of `tacit.training.selective` take it off.

Shapes: S sequences, B rows, T positions.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence

import numpy as np
from tokenizers import Encoding, Tokenizer

from tacit.corpus.units import Unit
from tacit.randomness import KeyedRandomness
from tacit.training.sequences import SequenceStream, unit_keys
from tacit.vocabulary.encode import encode_texts
from tacit.vocabulary.special import SpecialTokens

__all__ = ["split_marks", "tokenize_marked", "unmarked"]

_TEXTS_AT_ONCE = 2000

Runs = Sequence[tuple[int, int]]
"""(start, end) of the private characters of a text, in code points."""


def split_marks(ids: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The tokens' own ids, and which of them are private; ``size`` is that of the vocabulary."""
    private = ids >= size
    return np.where(private, ids - size, ids), private


def unmarked(stream: SequenceStream, size: int) -> SequenceStream:
    """The rows of a stream without marks."""
    return dataclasses.replace(stream, ids_ST=split_marks(np.asarray(stream.ids_ST), size)[0])


def tokenize_marked(
    units: Sequence[Unit],
    runs: Sequence[Runs],
    tokenizer: Tokenizer,
    special: SpecialTokens,
    length: int,
    streams: KeyedRandomness,
) -> SequenceStream:
    """One row of each unit: the first ``length - 2`` tokens of its text, the private ones marked.

    A token that overlaps a private run is private as a whole. Start and end token are public; what is cut off is not trained on.
    No added token is read: "<MASK>" with private letters has a "<" that is public, whatever the letters are.

    Args:
        units: of one text each.
        runs: the private characters of each unit's text.
        special: the tokenizer's special tokens.
        length: positions of a row.
        streams: for the units' keys, as `tokenize_units`.
    """
    ids_ST = np.full((len(units), length), special.pad, dtype=np.int32)
    lengths_S = np.empty(len(units), dtype=np.int32)
    texts = [text for unit in units for text in unit.texts]
    tokenizer = _of_words_alone(tokenizer)
    for start in range(0, len(units), _TEXTS_AT_ONCE):
        encodings = encode_texts(tokenizer, texts[start : start + _TEXTS_AT_ONCE], offsets=True)
        for row, encoding in enumerate(encodings, start):
            ids = _marked_ids(encoding, runs[row], length - 2, special)
            ids_ST[row, : len(ids) + 2] = [special.start, *ids, special.end]
            lengths_S[row] = len(ids) + 2
    return SequenceStream(ids_ST, lengths_S, np.arange(len(units) + 1), unit_keys(units, streams))


def _of_words_alone(tokenizer: Tokenizer) -> Tokenizer:
    """The tokenizer without tokens that are found in a text before it is cut into words, and without what moves their places."""
    values = json.loads(tokenizer.to_str())
    found = Tokenizer.from_str(json.dumps({**values, "added_tokens": [], "post_processor": None}))
    found.no_padding()
    found.no_truncation()
    return found


def _marked_ids(encoding: Encoding, runs: Runs, most: int, special: SpecialTokens) -> list[int]:
    ids = zip(encoding.ids, encoding.offsets, strict=True)
    pairs = [(own, offsets) for id, offsets in ids for own in special.text_ids([id])][:most]
    return [id + special.size if _overlaps(start, end, runs) else id for id, (start, end) in pairs]


def _overlaps(start: int, end: int, runs: Runs) -> bool:
    """A token of no characters counts as one of the character at its place."""
    return any(start < run_end and run_start < max(end, start + 1) for run_start, run_end in runs)
