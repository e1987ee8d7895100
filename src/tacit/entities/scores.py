"""Entity-level precision, recall and F1: seqeval's strict mode with the scheme IOB2.

An entity counts as found when its type, its first and its last word are right (Tjong Kim Sang and De Meulder 2003; the measure of
i2b2-2010's exact match). Under IOB2 a predicted I- that no B- begins is no entity. Entities do not cross sentences.

seqeval says which entities a sequence of tags has; counts instead of ratios are kept, a document at a time, so that folds, seeds
and resampled documents can be added up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from seqeval.scheme import IOB2, Entities

__all__ = ["Score", "TypeCounts", "add_counts", "entity_counts", "score_of"]

TypeCounts = dict[str, tuple[int, int, int]]
"""By type of entity: how many are right, predicted, and true."""


@dataclass(frozen=True)
class Score:
    """Ratios of counts; 0 where there is nothing to divide by, as in seqeval with ``zero_division=0``."""

    precision: float
    recall: float
    f1: float


def entity_counts(true: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> TypeCounts:
    """Counts over the sentences of a document, by type."""
    truths, guesses = _entities(true), _entities(predicted)
    counts = {
        "right": Counter(kind for _, kind, _, _ in truths & guesses),
        "predicted": Counter(kind for _, kind, _, _ in guesses),
        "true": Counter(kind for _, kind, _, _ in truths),
    }
    kinds = sorted({*counts["predicted"], *counts["true"]})
    return {kind: (counts["right"][kind], counts["predicted"][kind], counts["true"][kind]) for kind in kinds}


def _entities(sentences: Sequence[Sequence[str]]) -> set[tuple[int, str, int, int]]:
    """(sentence, type, first word, word behind the last) of every entity."""
    found = Entities([list(tags) for tags in sentences], IOB2).entities
    return {(sentence, *entity.to_tuple()[1:]) for sentence, own in enumerate(found) for entity in own}


def add_counts(documents: Iterable[Mapping[str, Sequence[int]]]) -> TypeCounts:
    """The sum over documents."""
    totals: dict[str, list[int]] = {}
    for counts in documents:
        for kind, values in counts.items():
            total = totals.setdefault(kind, [0, 0, 0])
            totals[kind] = [one + other for one, other in zip(total, values, strict=True)]
    return {kind: (right, predicted, true) for kind, (right, predicted, true) in sorted(totals.items())}


def score_of(counts: Mapping[str, Sequence[int]], kind: str | None = None) -> Score:
    """Micro average over all types, or the score of one."""
    chosen = [values for name, values in counts.items() if kind in (None, name)]
    right, predicted, true = (sum(values[place] for values in chosen) for place in range(3))
    return Score(
        precision=right / predicted if predicted else 0.0,
        recall=right / true if true else 0.0,
        f1=2 * right / (predicted + true) if predicted + true else 0.0,
    )
