"""Annotated documents as token rows that carry their labels, for the training loop and for prediction.

A row's entry is ``piece + (label + 1) * size`` where a word is judged and ``piece`` elsewhere, ``size`` being the number of token
ids, so rows of labels need no other stream (as tacit.training.marked does with its marks).

Shapes: S rows, T positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from tacit.corpus.annotated import AnnotatedDocument, AnnotatedUnit, Sentence, alone
from tacit.corpus.units import Unit
from tacit.entities.windows import cut_windows
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness
from tacit.training.sequences import SequenceStream, unit_keys
from tacit.vocabulary.encode import encode_texts
from tacit.vocabulary.special import SpecialTokens

__all__ = ["RowCutter", "split_labels"]

_MOST_ENTRIES = 2**31  # from 0, of an int32


def split_labels(coded_BT: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """(token ids, labels) of rows; -1 where nothing is judged."""
    return coded_BT % size, coded_BT // size - 1


@dataclass(frozen=True)
class RowCutter:
    """How documents become rows.

    Args:
        tokenizer: of the model.
        special: its special tokens.
        length: positions of a row.
        overlap: pieces that neighbouring windows of a document share.
        tags: of the classifier; a label is a place in it.
        by_sentence: a row shows words of one sentence only. The rows are those of their document all the same.
    """

    tokenizer: Tokenizer
    special: SpecialTokens
    length: int
    overlap: int
    tags: tuple[str, ...]
    by_sentence: bool = False

    def __post_init__(self) -> None:
        """Refuse labels that an entry cannot hold with its piece, whatever labels the documents have.

        Raises:
            UsageError: there are too many.
        """
        most = _MOST_ENTRIES // self.special.size - 1
        if len(self.tags) > most:
            raise UsageError(
                f"there are {len(self.tags)} labels, and with a tokenizer of {self.special.size} tokens there may be at most {most}; "
                "take fewer types of entities, or a model with a smaller vocabulary"
            )

    def rows(self, documents: Sequence[AnnotatedDocument], streams: KeyedRandomness) -> SequenceStream:
        """The rows of all documents, a unit each, in their order."""
        return self.unit_rows(alone(documents), streams)

    def unit_rows(self, units: Sequence[AnnotatedUnit], streams: KeyedRandomness) -> SequenceStream:
        """The rows of all units, in their order: no row holds words of two documents, so a unit of several has rows of each.

        Of a tag that the classifier does not know the label is 0.
        """
        label_of = {tag: label for label, tag in enumerate(self.tags)}
        pieces = self._pieces({token for unit in units for document in unit.documents for token in document.tokens})
        rows: list[np.ndarray] = []
        counts: list[int] = []
        for unit in units:
            before = len(rows)
            for part in (part for document in unit.documents for part in self._parts(document)):
                words = [pieces[token] for sentence in part for token in sentence.tokens]
                labels = [label_of.get(tag, 0) for sentence in part for tag in sentence.tags]
                rows += self._windows(words, labels)
            counts.append(len(rows) - before)
        ids_ST = np.full((len(rows), self.length), self.special.pad, dtype=np.int32)
        for number, row in enumerate(rows):
            ids_ST[number, : len(row)] = row
        lengths_S = np.array([len(row) for row in rows], dtype=np.int32)
        keys = unit_keys([Unit(unit.unit_id, ()) for unit in units], streams)
        return SequenceStream(ids_ST, lengths_S, np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]), keys)

    def _pieces(self, tokens: set[str]) -> dict[str, list[int]]:
        """Pieces of each word: at least one, so that every word is judged, and no more than a row holds."""
        ordered = sorted(tokens)
        encodings = encode_texts(self.tokenizer, ordered)
        nothing = self.special.pad if self.special.unknown is None else self.special.unknown
        return {
            token: list(self.special.text_ids(encoding.ids))[: self.length - 2] or [nothing]
            for token, encoding in zip(ordered, encodings, strict=True)
        }

    def _parts(self, document: AnnotatedDocument) -> list[tuple[Sentence, ...]]:
        """The sentences that may share a row."""
        return [(sentence,) for sentence in document.sentences] if self.by_sentence else [document.sentences]

    def _windows(self, words: list[list[int]], labels: list[int]) -> list[np.ndarray]:
        rows: list[np.ndarray] = []
        for window in cut_windows([len(pieces) for pieces in words], self.length - 2, self.overlap):
            row = [self.special.start]
            for word in range(window.first, window.last):
                first, *others = words[word]
                judged = window.judged_first <= word < window.judged_last
                row += [first + (labels[word] + 1) * self.special.size if judged else first, *others]
            rows.append(np.array([*row, self.special.end], dtype=np.int32))
        return rows
