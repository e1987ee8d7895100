"""Folds by document: no document, no two documents with the same text, and no user's documents stand on both sides of a split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.corpus.annotated import AnnotatedDocument
from tacit.errors import DataError
from tacit.randomness import KeyedRandomness

__all__ = ["Split", "TooFewGroupsError", "k_folds"]


class TooFewGroupsError(DataError):
    """Documents that must stay together leave fewer groups than folds; one document can decide that."""


@dataclass(frozen=True)
class Split:
    """One split of a task's documents."""

    training: tuple[AnnotatedDocument, ...]
    test: tuple[AnnotatedDocument, ...]


def k_folds(documents: Sequence[AnnotatedDocument], folds: int, streams: KeyedRandomness) -> list[Split]:
    """Every document is tested once. Documents with equal text are one group, as are a user's, and the folds have about as many
    documents each.

    Raises:
        TooFewGroupsError: there are fewer groups than folds.
    """
    groups = _groups(documents)
    if len(groups) < folds:
        raise TooFewGroupsError(
            f"{documents[0].path}: {len(groups)} different documents, or users, are too few for {folds} folds"
        )
    ordered = sorted(groups.items(), key=lambda group: streams.derive("fold", group[0].hex()))
    fold_of = [0] * len(documents)
    sizes = [0] * folds
    for _, members in sorted(ordered, key=lambda group: -len(group[1])):  # the largest groups first; the sort is stable
        fold = sizes.index(min(sizes))
        sizes[fold] += len(members)
        for number in members:
            fold_of[number] = fold
    return [_split(documents, fold_of, fold) for fold in range(folds)]


def _groups(documents: Sequence[AnnotatedDocument]) -> dict[bytes, list[int]]:
    """Numbers of the documents that stay together, by the text of the first of them."""
    first_of: dict[bytes | str, int] = {}  # of a text, or of a user: whose group it is in
    parent = list(range(len(documents)))

    def root(number: int) -> int:
        while parent[number] != number:
            number = parent[number]
        return number

    for number, document in enumerate(documents):
        for mark in (document.content(), *([] if document.user_id is None else [document.user_id])):
            one, other = sorted((root(first_of.setdefault(mark, number)), root(number)))
            parent[other] = one
    groups: dict[bytes, list[int]] = {}
    for number in range(len(documents)):
        groups.setdefault(documents[root(number)].content(), []).append(number)
    return groups


def _split(documents: Sequence[AnnotatedDocument], fold_of: Sequence[int], fold: int) -> Split:
    numbered = list(zip(documents, fold_of, strict=True))
    return Split(
        training=tuple(document for document, own in numbered if own != fold),
        test=tuple(document for document, own in numbered if own == fold),
    )
