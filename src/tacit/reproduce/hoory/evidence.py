"""What the claims are judged by: masked losses and F1 of models, their differences, and the share of a gain that is kept.

A row is trained several times, from the first public step on: what is drawn is these trainings (with their fine-tunings) and the test
documents, and an interval covers both (`tacit.reproduce.judging.over_seeds`). F1 is no mean over documents; it is made one by each
document's influence on it, of which their mean is F1 itself: d F1 / d w for a document's weight w, times their number, plus F1.

Shapes: S trainings, D test documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from scipy.optimize import root_scalar

from tacit.audit.inference import Estimate
from tacit.reproduce.hoory.cells import replicate_of, row_of
from tacit.reproduce.judging import above, paired

__all__ = ["Evidence", "Measure", "dictionary", "f1_of_documents", "share_kept"]

_BASELINE = "baselines-"


@dataclass(frozen=True)
class Measure:
    """What models are compared by, larger being better: F1 of a task, or where there is none the masked loss, its sign changed.

    Args:
        part: test documents: of services that the private or labelled text has, too, or of others.
    """

    task: str = ""
    part: Literal["seen", "unseen"] = "seen"


def dictionary(task: str, name: str = "dictionary") -> str:
    """The row of a trivial tagger."""
    return f"{_BASELINE}{task}/{name}"


@dataclass(frozen=True)
class Evidence:
    """The results that are there, at a level.

    Args:
        results: by job.
        level: of an interval, both tails; already divided by the number of claims.
    """

    results: Mapping[str, Mapping[str, Any]]
    level: float
    _known: dict[tuple[str, Measure, int], np.ndarray] = field(default_factory=dict, repr=False, compare=False)

    def of_row(self, row: str) -> dict[int, Mapping[str, Any]]:
        """A row's results, by replicate."""
        found = [(name, result) for name, result in self.results.items() if "model" in result and row_of(name) == row]
        return {replicate_of(name): result for name, result in found}

    def values(self, measure: Measure, *rows: str) -> list[np.ndarray]:
        """(S, D) of each row, of those replicates that all of them have; S is 0 where there are none.

        A trivial tagger has no random numbers, and is the same in all.
        """
        trained = [self.of_row(row) for row in rows if not row.startswith(_BASELINE)]
        shared = [number for number in trained[0] if all(number in own for own in trained)] if trained else [1]
        return [self._values(measure, row, shared) for row in rows]

    def _values(self, measure: Measure, row: str, replicates: Sequence[int]) -> np.ndarray:
        found: list[np.ndarray] = []
        for number in replicates:
            key = (row, measure, 1 if row.startswith(_BASELINE) else number)
            if key not in self._known:
                self._known[key] = self._documents(*key)
            found.append(self._known[key])
        return np.array(found)

    def _documents(self, row: str, measure: Measure, replicate: int) -> np.ndarray:
        """(D,) of one training, or tagger; D is 0 where there is none."""
        if row.startswith(_BASELINE):
            job, _, name = row.partition("/")
            cells = [cell for cell in self.results.get(job, _NOTHING)["cells"] if cell["model"] == name]
            return _f1(cells, measure.part) if cells else np.array([])
        own = self.of_row(row)[replicate]
        if not measure.task:
            return -np.array(own["loss"][measure.part]["of_texts"])
        return _f1([cell for cell in own["cells"] if cell["task"] == measure.task], measure.part)

    def mean(self, measure: Measure, row: str) -> Estimate | None:
        """The mean of one row."""
        (own_SD,) = self.values(measure, row)
        return paired(own_SD, self.level) if own_SD.size else None

    def gain(self, measure: Measure, own: str, other: str) -> Estimate | None:
        """How much better a row is than another one."""
        own_SD, other_SD = self.values(measure, own, other)
        return paired(own_SD - other_SD, self.level) if own_SD.size and other_SD.size else None

    def kept(self, measure: Measure, own: str, bert: str, best: str, share: float) -> Estimate | None:
        """How much more than this share of the gain of the best one a row keeps."""
        own_SD, bert_SD, best_SD = self.values(measure, own, bert, best)
        if not (own_SD.size and bert_SD.size and best_SD.size):
            return None
        return paired(own_SD - bert_SD - share * (best_SD - bert_SD), self.level)

    def share(self, measure: Measure, own: str, bert: str, best: str) -> Estimate | None:
        """The share of the best one's gain that a row keeps; None where that gain is not told from 0."""
        own_SD, bert_SD, best_SD = self.values(measure, own, bert, best)
        if not (own_SD.size and bert_SD.size and best_SD.size):
            return None
        return share_kept(own_SD - bert_SD, best_SD - bert_SD, self.level)


_NOTHING: Mapping[str, Any] = {"cells": []}


def share_kept(kept_SD: np.ndarray, gain_SD: np.ndarray, level: float) -> Estimate | None:
    """kept / gain with its interval, by Fieller's argument: the shares r at which kept - r gain is not told from 0.

    None where the gain itself is not told from 0: then no share is excluded.
    """
    if above(paired(gain_SD, level), 0.0) is not True:
        return None
    share = float(kept_SD.mean() / gain_SD.mean())

    def end(r: float, sign: int) -> float:
        found = paired(kept_SD - r * gain_SD, level)
        return found.high if sign > 0 else -found.low

    def bound(sign: int) -> float:
        if end(share, sign) <= 0:  # nothing varies
            return share
        distance = 0.1
        while (
            end(share + sign * distance, sign) > 0
        ):  # it ends: divided by r, this goes to a bound of the gain, told from 0
            distance *= 2
        return float(root_scalar(end, args=(sign,), bracket=(share, share + sign * distance)).root)

    return Estimate(share, bound(-1), bound(1))


def _f1(cells: Sequence[Mapping[str, Any]], part: str) -> np.ndarray:
    """The F1 of the documents of all folds (D,), the mean over fine-tunings."""
    seeds = sorted({cell["seed"] for cell in cells})
    counts = [np.concatenate([_counts(cell, part) for cell in cells if cell["seed"] == seed]) for seed in seeds]
    return np.mean([f1_of_documents(own) for own in counts], axis=0)


def _counts(cell: Mapping[str, Any], part: str) -> np.ndarray:
    """Right, predicted and true entities of each document (D, 3)."""
    chosen = cell["counts"][: cell["seen"]] if part == "seen" else cell["counts"][cell["seen"] :]
    sums = [[sum(values) for values in zip((0, 0, 0), *own.values(), strict=True)] for own in chosen]
    return np.array(sums, dtype=np.int64).reshape(-1, 3)


def f1_of_documents(counts_D3: np.ndarray) -> np.ndarray:
    """Each document's influence on F1 over all, plus F1 (D,): their mean is F1, and their variance over D is its own (delta method).

    F1 = 2 R / (P + T), of sums over the documents.
    """
    right_D, predicted_D, true_D = counts_D3.T.astype(np.float64)
    total = float((predicted_D + true_D).sum())
    if total == 0:
        return np.zeros(len(counts_D3))
    f1 = 2 * float(right_D.sum()) / total
    return f1 + (2 * right_D - f1 * (predicted_D + true_D)) * len(counts_D3) / total
