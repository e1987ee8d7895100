"""Folds by document: no document, and no two documents with the same text, stands on both sides of a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.corpus.annotated import AnnotatedDocument
from tacit.errors import DataError
from tacit.randomness import KeyedRandomness

__all__ = ["Split", "k_folds"]


@dataclass(frozen=True)
class Split:
    """One split of a task's documents."""

    training: tuple[AnnotatedDocument, ...]
    test: tuple[AnnotatedDocument, ...]


def k_folds(documents: Sequence[AnnotatedDocument], folds: int, streams: KeyedRandomness) -> list[Split]:
    """Every document is tested once. Documents with equal text are one group, and the folds have about as many documents each.

    Raises:
        DataError: there are fewer groups than folds.
    """
    groups: dict[bytes, list[int]] = {}
    for number, document in enumerate(documents):
        groups.setdefault(document.content(), []).append(number)
    if len(groups) < folds:
        raise DataError(f"{documents[0].path}: {len(groups)} different documents are too few for {folds} folds")
    ordered = sorted(groups.items(), key=lambda group: streams.derive("fold", group[0].hex()))
    fold_of = [0] * len(documents)
    sizes = [0] * folds
    for _, members in sorted(ordered, key=lambda group: -len(group[1])):  # the largest groups first; the sort is stable
        fold = sizes.index(min(sizes))
        sizes[fold] += len(members)
        for number in members:
            fold_of[number] = fold
    return [_split(documents, fold_of, fold) for fold in range(folds)]


def _split(documents: Sequence[AnnotatedDocument], fold_of: Sequence[int], fold: int) -> Split:
    numbered = list(zip(documents, fold_of, strict=True))
    return Split(
        training=tuple(document for document, own in numbered if own != fold),
        test=tuple(document for document, own in numbered if own == fold),
    )
