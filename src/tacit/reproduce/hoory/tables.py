"""From the models' results to the tables behind table 2 and the figures: a CSV for each, and rows for the page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy import stats

from tacit.entities.baselines import BASELINES
from tacit.entities.estimates import Estimate, bootstrap_estimate, fold_estimate
from tacit.entities.scores import add_counts, score_of
from tacit.reproduce.hoory.scale import PRIVATE, DpTraining, Model, Scale
from tacit.reproduce.hoory.share import share_kept
from tacit.reproduce.writing import Row, number

__all__ = ["Results", "exposure_rows", "figure1_rows", "rate_rows", "table2_rows", "trick_rows", "vocabulary_rows"]

Results = Mapping[str, Mapping[str, Any]]
"""Of the models that are done, by name."""

_CellsOfRows = Mapping[str, list[Mapping[str, Any]]]
"""Results of fine-tunings, by row of table 2."""

REFERENCE, BERT, BERT_MEDICAL, BERT_M = "bert-dp-8", "bert", "bert-medical", "bert-m"


def table2_rows(models: Sequence[Model], results: Results, baselines: Results, scale: Scale) -> list[Row]:
    """F1 of each model on each task, its gain over BERT, and the share of BERT-M's gain that is kept.

    A model that was pre-trained once is paired with that pre-training of BERT and BERT-M, not with the mean of theirs. ``notes`` is
    what a model gains over the BERT that has read the same public text: BERT itself where that is the general one.
    """
    chosen = [model for model in models if "table2" in model.parts and model.name in results]
    rows: list[Row] = []
    for task in scale.tasks:
        for name in BASELINES if task in baselines else ():
            own = [cell for cell in baselines[task]["cells"] if cell["model"] == name]
            scores = {**_scores(own, None), "pretrainings": "", **_NO_NOTES}
            rows.append({"task": task, "model": name, "words": "trivial baseline", **_NO_PRICE, **scores, **_NO_SHARE})
        for name in dict.fromkeys(model.row for model in chosen):
            same = [model for model in chosen if model.row == name]
            cells = _cells_of_rows(chosen, results, task, {model.base.replicate for model in same})
            if name in cells:
                price = _price(results[same[0].name])
                rows.append({"task": task, "model": name, "words": same[0].words, **price, **_compared(same[0], cells)})
    return rows


def _compared(model: Model, cells: _CellsOfRows) -> Row:
    """A model's F1, beside the models that it is measured by."""
    name = model.row
    own, bert = cells[name], cells.get(BERT)
    without = cells.get(BERT if model.base.text == "general" else BERT_MEDICAL)
    notes = _NO_NOTES
    if without is not None and name not in (BERT, BERT_MEDICAL):
        notes = {key.replace("gain", "notes"): value for key, value in _scores(own, without).items() if "gain" in key}
    return {
        **_scores(own, bert if name != BERT else None),
        "pretrainings": _by_pretraining(own),
        **notes,
        **(_share(cells, name) if len(cells.keys() & {BERT, BERT_M}) == 2 else _NO_SHARE),
    }


def _cells_of_rows(chosen: Sequence[Model], results: Results, task: str, replicates: set[int]) -> _CellsOfRows:
    """By row of the table: those of these pre-trainings, each with seeds of its own."""
    cells: dict[str, list[Mapping[str, Any]]] = {}
    for model in chosen:
        own = _cells(results[model.name], task)
        if own and model.base.replicate in replicates:
            cells.setdefault(model.row, []).extend(own)
    return cells


def _by_pretraining(cells: Sequence[Mapping[str, Any]]) -> str:
    """Mean F1 of each pre-training: what the intervals, which are over folds or documents, do not cover."""
    names = dict.fromkeys(cell["model"] for cell in cells)
    return " ".join(f"{f1_folds([cell for cell in cells if cell['model'] == name]).mean():.3f}" for name in names)


_NO_PRICE: Row = {"epsilon_vocabulary": None, "epsilon_training": None, "epsilon": None}
_NO_NOTES: Row = {"notes": None, "notes_low": None, "notes_high": None}
_NO_SHARE: Row = {"share": None, "share_low": None, "share_high": None}


def _price(result: Mapping[str, Any]) -> Row:
    account = result["account"]
    return {
        "epsilon_vocabulary": number(account["vocabulary"]),
        "epsilon_training": number(account["training"]),
        "epsilon": number(account["joint"]),
    }


def _cells(result: Mapping[str, Any], task: str) -> list[Mapping[str, Any]]:
    return [cell for cell in result["cells"] if cell["task"] == task]


def f1_folds(cells: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """F1 by fold and seed (K, S)."""
    folds = sorted({cell["fold"] for cell in cells})
    return np.array(
        [[score_of(add_counts(cell["counts"])).f1 for cell in cells if cell["fold"] == fold] for fold in folds]
    )


def _documents(cells: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Counts of each seed's test documents (S, D, 3), of a fixed split."""
    return np.array([[np.sum([[0, 0, 0], *own.values()], axis=0) for own in cell["counts"]] for cell in cells])


def _scores(cells: Sequence[Mapping[str, Any]], reference: Sequence[Mapping[str, Any]] | None) -> Row:
    """F1, precision, recall and the gain over other cells of the same folds, with 95 % intervals."""
    if len({cell["fold"] for cell in cells}) > 1:
        f1_KS = f1_folds(cells)
        own = fold_estimate(f1_KS)
        gain = None if reference is None else fold_estimate(_paired(f1_KS, f1_folds(reference)))
    else:
        own = bootstrap_estimate(_documents(cells))
        gain = None if reference is None else bootstrap_estimate(_documents(cells), _documents(reference))
    scores = [score_of(add_counts(cell["counts"])) for cell in cells]
    return {
        **_named("f1", own),
        "precision": float(np.mean([score.precision for score in scores])),
        "recall": float(np.mean([score.recall for score in scores])),
        **_named("gain", gain),
    }


def _paired(own_KS: np.ndarray, reference_KS: np.ndarray) -> np.ndarray:
    return own_KS.mean(axis=1, keepdims=True) - reference_KS.mean(axis=1, keepdims=True)


def _named(name: str, estimate: Estimate | None) -> Row:
    if estimate is None:
        return {name: None, f"{name}_low": None, f"{name}_high": None}
    return {name: estimate.mean, f"{name}_low": estimate.low, f"{name}_high": estimate.high}


def _share(cells: _CellsOfRows, model: str) -> Row:
    """Of every model but the two that it is measured by; of a fixed split without an interval."""
    if model in (BERT, BERT_M):
        return _NO_SHARE
    found = share_kept(*(f1_folds(cells[name]) for name in (model, BERT, BERT_M)))
    return _NO_SHARE if math.isnan(found.mean) else _named("share", found)


def figure1_rows(models: Sequence[Model], results: Results) -> list[Row]:
    """Epsilon and F1 against noise, steps and batch; the reference is in all three."""
    rows: list[Row] = []
    for model in models:
        if "figure1" not in model.parts or model.name not in results or not isinstance(model.training, DpTraining):
            continue
        result, training = results[model.name], model.training
        varied = ("noise", "steps", "batch") if model.name == REFERENCE else (model.name.split("-")[1],)
        for name in varied:
            (noise,) = result["account"]["noise_multipliers"]
            value = {"noise": noise, "steps": training.steps, "batch": training.expected_batch}[name]
            row: Row = {"varied": name, "value": value, "model": model.name}
            row |= {**_price(result), **_scores(_cells(result, "mtsamples"), None), "loss_nats": result["loss"]["nats"]}
            rows.append({key: value for key, value in row.items() if not key.startswith("gain")})
    return sorted(rows, key=lambda row: (("noise", "steps", "batch").index(row["varied"]), row["value"]))


def trick_rows(models: Sequence[Model], results: Results) -> list[Row]:
    """Each change of the DP training alone: masked loss of the left-out notes, and its difference to the reference, note by note.

    F1 stands where it was measured: where the pieces are others, losses do not compare.
    """
    if REFERENCE not in results:
        return []
    reference = results[REFERENCE]
    rows: list[Row] = []
    for model in models:
        if "tricks" not in model.parts or model.name not in results:
            continue
        result = results[model.name]
        row: Row = {"model": model.name, "words": model.words, "epsilon": number(result["account"]["joint"])}
        same_pieces = model.base == PRIVATE
        compared = same_pieces and model.name != REFERENCE
        row |= {"loss_nats": result["loss"]["nats"] if same_pieces else None}
        row |= _named("change", _loss_change(result, reference) if compared else None)
        cells, other = _cells(result, "mtsamples"), _cells(reference, "mtsamples")
        f1 = _scores(cells, None if model.name == REFERENCE else other) if cells else _NO_SCORES
        rows.append(row | f1 | {"training_seconds": result["training_seconds"]})
    return rows


_NO_SCORES: Row = dict.fromkeys(("f1", "f1_low", "f1_high", "precision", "recall", "gain", "gain_low", "gain_high"))


def _loss_change(result: Mapping[str, Any], reference: Mapping[str, Any]) -> Estimate:
    """Mean difference of the notes' losses with its 95 % t interval over the notes."""
    change_U = np.array(result["loss"]["of_texts"]) - np.array(reference["loss"]["of_texts"])
    margin = float(stats.t.ppf(0.975, len(change_U) - 1) * change_U.std(ddof=1) / math.sqrt(len(change_U)))
    mean = float(change_U.mean())
    return Estimate(mean, mean - margin, mean + margin)


def exposure_rows(models: Sequence[Model], results: Results, scale: Scale) -> list[Row]:
    """Figure 2: exposure of each pattern against how often a canary occurs in the notes."""
    each = scale.canaries_each * len(scale.patterns)
    rows: list[Row] = []
    for model in models:
        if model.name not in results or model.canaries is None:
            continue
        result = results[model.name]
        for one in result["exposure"]:
            rows.append(
                {
                    "model": model.name,
                    "dp": isinstance(model.training, DpTraining),
                    "epsilon": number(result["account"]["joint"]),
                    "probability": model.canaries,
                    "occurrences": model.canaries * result["sequences"] / each,
                    "pattern": one["pattern"],
                    **{name: one[name] for name in ("canaries", "bits", "null_bits", "ceiling_bits", "p_value")},
                }
            )
    return rows


def rate_rows(models: Sequence[Model], results: Results) -> list[Row]:
    """Learning rates by the masked loss of public text."""
    return [
        {
            "learning_rate": model.training.learning_rate,
            "loss_nats": results[model.name]["loss"]["nats"],
            "accuracy": results[model.name]["loss"]["accuracy"],
            "epsilon_if_private": number(results[model.name]["account"]["joint"]),
        }
        for model in models
        if "rate" in model.parts and model.name in results and isinstance(model.training, DpTraining)
    ]


def vocabulary_rows(results: Results) -> list[Row]:
    """A row a base: its pieces, and how the notes that were left out are cut into them."""
    bases = [result for result in results.values() if "base" in result]
    names = ("pieces", "own_words", "pieces_a_word", "public_rows")
    return [{**base["base"], **{name: base[name] for name in names}} for base in bases]
