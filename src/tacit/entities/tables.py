"""From the cells' counts to a table of F1 with intervals: CSV, JSON and Markdown.

Shapes: K folds, S seeds, D documents; the last axis of counts is (right, predicted, true).
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.entities.estimates import Estimate, bootstrap_estimate, fold_estimate
from tacit.entities.scores import add_counts, score_of
from tacit.files import write_json, write_text
from tacit.privacy.rounded import upper
from tacit.privacy.strict_json import write_number

__all__ = ["ModelFacts", "Row", "TypeRow", "table_rows", "type_rows", "write_tables"]

_FOLDS = "folds: corrected resampled t"
_DOCUMENTS = "test documents: bootstrap"

Result = Mapping[str, Any]


@dataclass(frozen=True)
class ModelFacts:
    """What a model's own training was: the unit of its certificate, or words where it has none. Then what its fine-tuning was."""

    pretraining: str
    epsilon: float | None
    delta: float | None
    tuning: str = "without DP"
    tuning_epsilon: float | None = None
    tuning_delta: float | None = None


@dataclass(frozen=True)
class Row:
    """One model on one task.

    Args:
        pretraining, epsilon, delta: what is certified of the model that fine-tuning began with.
        tuning, tuning_epsilon, tuning_delta: what holds for the documents of one fine-tuning, that of this model alone; it counts the
            pre-training where the people may be the same.
        f1, f1_low, f1_high: mean over folds (of the mean over seeds), and its 95 % interval.
        precision, recall: likewise.
        gain, gain_low, gain_high: over the first model, on the same folds, seeds and documents.
        seed_spread: standard deviation over seeds of the mean over folds; None of one seed.
        interval: what the interval covers.
    """

    task: str
    model: str
    pretraining: str
    epsilon: float | None
    delta: float | None
    tuning: str
    tuning_epsilon: float | None
    tuning_delta: float | None
    f1: float
    f1_low: float | None
    f1_high: float | None
    precision: float
    recall: float
    gain: float | None
    gain_low: float | None
    gain_high: float | None
    folds: int
    seeds: int
    seed_spread: float | None
    interval: str


@dataclass(frozen=True)
class TypeRow:
    """One model on one task and one type of entity, all folds and seeds together."""

    task: str
    model: str
    type: str
    precision: float
    recall: float
    f1: float
    entities: int


def table_rows(
    results: Sequence[Result], models: Sequence[str], reference: str, facts: Mapping[str, ModelFacts]
) -> list[Row]:
    """A row for each task and model, baselines among them.

    Args:
        results: all cells of all tasks.
        models: in the order of the table.
        reference: the model that gains are over.
    """
    rows: list[Row] = []
    for task in dict.fromkeys(result["task"] for result in results):
        own = [result for result in results if result["task"] == task]
        compared = _by_model(own)
        for model in models:
            rows.append(_row(task, model, compared[model], compared[reference], model == reference, facts))
    return rows


def _by_model(results: Sequence[Result]) -> dict[str, list[list[Result]]]:
    """Cells by model, fold and seed."""
    found: dict[str, dict[int, list[Result]]] = {}
    for result in sorted(results, key=lambda result: (result["fold"], result["seed"])):
        found.setdefault(result["model"], {}).setdefault(result["fold"], []).append(result)
    return {model: list(folds.values()) for model, folds in found.items()}


def _row(
    task: str,
    model: str,
    cells_KS: list[list[Result]],
    reference_KS: list[list[Result]],
    is_reference: bool,
    facts: Mapping[str, ModelFacts],
) -> Row:
    own = facts.get(model, ModelFacts("trivial baseline", None, None))
    f1_KS = _ratios(cells_KS, "f1")
    estimate, gain = _estimates(cells_KS, reference_KS)
    gain = None if is_reference else gain
    spread = float(f1_KS.mean(axis=0).std(ddof=1)) if f1_KS.shape[1] > 1 else None
    return Row(
        task=task,
        model=model,
        **asdict(own),
        f1=estimate.mean,
        f1_low=estimate.low,
        f1_high=estimate.high,
        precision=float(_ratios(cells_KS, "precision").mean()),
        recall=float(_ratios(cells_KS, "recall").mean()),
        gain=None if gain is None else gain.mean,
        gain_low=None if gain is None else gain.low,
        gain_high=None if gain is None else gain.high,
        folds=f1_KS.shape[0],
        seeds=f1_KS.shape[1],
        seed_spread=spread,
        interval=_FOLDS if f1_KS.shape[0] > 1 else _DOCUMENTS,
    )


def _ratios(cells_KS: list[list[Result]], name: str) -> np.ndarray:
    scores = [[asdict(score_of(add_counts(cell["counts"])))[name] for cell in seeds] for seeds in cells_KS]
    return np.array(scores)


def _estimates(cells_KS: list[list[Result]], reference_KS: list[list[Result]]) -> tuple[Estimate, Estimate]:
    """The estimates of a model's F1, and of its gain. A baseline has one seed, which stands for all of the reference's."""
    if len(cells_KS) > 1:
        f1_KS, reference = _ratios(cells_KS, "f1"), _ratios(reference_KS, "f1")
        paired = f1_KS.mean(axis=1, keepdims=True) - reference.mean(axis=1, keepdims=True)
        return fold_estimate(f1_KS), fold_estimate(paired)
    counts_SD3, reference_SD3 = _counts(cells_KS[0]), _counts(reference_KS[0])
    return bootstrap_estimate(counts_SD3), bootstrap_estimate(counts_SD3, reference_SD3)


def _counts(seeds: list[Result]) -> np.ndarray:
    """Over all types (S, D, 3)."""
    return np.array(
        [[np.sum([[0, 0, 0], *document.values()], axis=0) for document in cell["counts"]] for cell in seeds]
    )


def type_rows(results: Sequence[Result], models: Sequence[str]) -> list[TypeRow]:
    """A row for each task, model and type of entity."""
    rows: list[TypeRow] = []
    for task in dict.fromkeys(result["task"] for result in results):
        for model in models:
            own = [result for result in results if (result["task"], result["model"]) == (task, model)]
            counts = add_counts(document for result in own for document in result["counts"])
            seeds = len({result["seed"] for result in own})
            for kind, (_, _, true) in counts.items():
                score = score_of(counts, kind)
                rows.append(TypeRow(task, model, kind, score.precision, score.recall, score.f1, true // seeds))
    return rows


# files ---------------------------------------------------------------------------------------------------------------


def write_tables(rows: Sequence[Row], types: Sequence[TypeRow], folder: Path) -> str:
    """``table.csv``, ``types.csv``, ``table.json`` and ``table.md``; the last one's text."""
    values, of_types = [asdict(row) for row in rows], [asdict(row) for row in types]
    _write_csv(folder / "table.csv", values)
    _write_csv(folder / "types.csv", of_types)
    plain = [{name: write_number(v) if isinstance(v, float) else v for name, v in row.items()} for row in values]
    write_json(folder / "table.json", {"rows": plain, "types": of_types, "measure": _MEASURE})
    text = "\n\n".join([_MEASURE, _markdown(rows), _markdown_types(types)]) + "\n"
    write_text(folder / "table.md", text)
    return text


_MEASURE = (
    "Entity-level F1, micro average over types: seqeval in strict mode, scheme IOB2. Intervals are of 95 %; of folds the corrected "
    "resampled t interval (folds are not independent: their training parts overlap), of a fixed split the bootstrap over test "
    "documents. Gains are over the first model, on the same folds and seeds. An epsilon of a fine-tuning is that of one such "
    "model; these scores are exact, so no epsilon holds for this table."
)


def _markdown(rows: Sequence[Row]) -> str:
    lines = [
        "| task | model | pre-training: unit, epsilon | fine-tuning | F1 | 95 % | precision | recall | gain | 95 % | folds x seeds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        cells = (
            row.task,
            row.model,
            _privacy(row.pretraining, row.epsilon, row.delta),
            _privacy(row.tuning, row.tuning_epsilon, row.tuning_delta),
            f"{row.f1:.3f}",
            _interval(row.f1_low, row.f1_high, ".3f"),
            f"{row.precision:.3f}",
            f"{row.recall:.3f}",
            "-" if row.gain is None else f"{row.gain:+.3f}",
            _interval(row.gain_low, row.gain_high, "+.3f"),
            f"{row.folds} x {row.seeds}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _privacy(words: str, epsilon: float | None, delta: float | None) -> str:
    if epsilon is None:
        return words
    stated = "infinite" if math.isinf(epsilon) else f"{upper(epsilon, '.2f')} at {delta:g}"
    return f"{words}, {stated}"


def _interval(low: float | None, high: float | None, form: str) -> str:
    return "-" if low is None or high is None else f"{low:{form}} to {high:{form}}"


def _markdown_types(rows: Sequence[TypeRow]) -> str:
    lines = ["| task | model | type | F1 | precision | recall | entities |", "|---|---|---|---|---|---|---|"]
    for row in rows:
        numbers = f"{row.f1:.3f} | {row.precision:.3f} | {row.recall:.3f} | {row.entities}"
        lines.append(f"| {row.task} | {row.model} | {row.type} | {numbers} |")
    return "\n".join(lines)


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: f"{v:.6g}" if isinstance(v, float) else v for name, v in row.items()} for row in rows)
    write_text(path, buffer.getvalue())
