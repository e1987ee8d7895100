"""Exact scores of a fine-tuned model, of documents that it has not seen: the curator's alone."""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

from tacit.entities.cells import count_entities
from tacit.entities.compare import PROGRESS, compare
from tacit.entities.fold_comparison import fold_comparison
from tacit.entities.folds import TooFewGroupsError
from tacit.entities.scores import TypeCounts, add_counts, score_of
from tacit.entities.tagger import row_labels
from tacit.entities.tuning import Tuning, trained_model
from tacit.files import read_json, write_json
from tacit.runs.folder import RunFolder

__all__ = ["are_scored", "score", "scores_file"]


def score(tuning: Tuning) -> None:
    """Write the scores of the test documents, or of all documents by folds."""
    if tuning.config.folds is None:
        _score_test(tuning)
    else:
        _score_folds(tuning)


def _score_test(tuning: Tuning) -> None:
    """Exact scores of the test documents: the curator's alone."""
    model = trained_model(tuning)
    _write_scores(tuning, add_counts(count_entities(row_labels(model), tuning.cutter, tuning.inputs.test)))


def _score_folds(tuning: Tuning) -> None:
    """Exact scores of all documents, each by a model that has not seen it: the curator's alone.

    It is `tacit compare` with this one model, in a folder of the private part, so it has a key of its own and goes on after a
    stop. It comes after the release and changes nothing of it: too few documents for it leave the scores undecided, with the exit
    code and the progress of any other fine-tuning.
    """
    run = tuning.folder.private.absolute() / "folds" / str(tuning.config.folds)
    config = fold_comparison(tuning.config, tuning.phase.plan, tuning.inputs.tags, run)
    try:
        compare(config, tuning.reporter)
    except TooFewGroupsError:
        folds = config.tasks["documents"].folds
        with tuning.reporter.stage(PROGRESS, folds) as bar:
            bar.advance_to(folds)
        reason = f"undecided: fewer different documents, or users, than {folds} folds"
        write_json(scores_file(tuning.folder), {"of": _scored(tuning), "undecided": reason})
        return
    cells = [read_json(path) for path in sorted((config.resolved_run / "cells").glob("*.json"))]
    _write_scores(tuning, add_counts(counts for cell in cells for counts in cell["counts"]), folds=len(cells))


def _scored(tuning: Tuning) -> str:
    """A digest of what scores are of besides the model: the configuration may ask for others after the release."""
    parts = [[one.document_id, one.user_id, one.tokens, one.tags] for one in tuning.inputs.test]
    return hashlib.sha256(repr([tuning.config.folds, parts]).encode("utf-8", "surrogatepass")).hexdigest()


def are_scored(tuning: Tuning) -> bool:
    """Whether the scores at hand are those that are asked for; of earlier versions, which did not say of what they are, they are."""
    try:
        scores = read_json(scores_file(tuning.folder))
    except (OSError, ValueError):
        return False
    return isinstance(scores, dict) and scores.get("of", _scored(tuning)) == _scored(tuning)


def _write_scores(tuning: Tuning, counts: TypeCounts, **more: int) -> None:
    types = {kind: dataclasses.asdict(score_of(counts, kind)) for kind in counts}
    whole = {"all": dataclasses.asdict(score_of(counts)), "types": types, "counts": counts}
    write_json(scores_file(tuning.folder), {"of": _scored(tuning), **whole, **more})


def scores_file(folder: RunFolder) -> Path:
    """Where the scores of a fine-tuning lie."""
    return folder.private / "scores.json"
