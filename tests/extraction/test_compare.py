"""`tacit evaluate` with models and tasks: every cell once, tables by hand, and nothing of the text in any of it."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tacit.config.entities import ComparisonConfig, load_comparison, names_tasks
from tacit.errors import DataError, UsageError
from tacit.extraction.compare import compare
from tacit.extraction.tables import ModelFacts, table_rows, type_rows
from tacit.progress import SilentReporter
from tacit.tasks.entities.estimates import fold_estimate

from ..folders import bert_folder
from .annotated import SENTINEL, files_with, release, write_notes

TRAINING = {"epochs": 1, "batch_size": 8, "length": 24, "overlap": 4}


def values(folder: Path, **sections: Any) -> dict[str, Any]:
    return {
        "run": str(folder / "compared"),
        "models": {
            "plain": {"folder": str(folder / "bert")},
            "new": {"folder": str(folder / "bert"), "from_scratch": True},
        },
        "tasks": {"notes": {"path": str(folder / "notes"), "folds": 2}},
        "training": TRAINING,
        "compute": {"micro_batch": 8, "threads": 1},
        **sections,
    }


def config(folder: Path, **sections: Any) -> ComparisonConfig:
    return load_comparison(values(folder, **sections), "comparison.yaml")


def test_all_cells_once_and_again_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    write_notes(tmp_path / "notes")
    write_notes(tmp_path / "test", 3, start=50)
    bert_folder(tmp_path / "bert")
    split = {"train": str(tmp_path / "notes"), "test": str(tmp_path / "test")}
    both = {**values(tmp_path)["tasks"], "split": split}
    text = compare(config(tmp_path, tasks=both), SilentReporter())
    folder = tmp_path / "compared"
    cells = sorted((folder / "cells").iterdir())
    assert len(cells) == (2 + 1) * 4  # folds and the split, two models and two baselines
    rows = list(csv.DictReader((folder / "table.csv").read_text().splitlines()))
    assert [(row["task"], row["model"]) for row in rows] == [
        (task, model) for task in ("notes", "split") for model in ("majority", "dictionary", "plain", "new")
    ]
    assert float(rows[1]["f1"]) == 1.0  # the same words are entities in every note
    assert [row["pretraining"] for row in rows[2:4]] == ["not stated", "no pre-training"]
    assert json.loads((folder / "table.json").read_text())["rows"][1]["f1"] == 1.0
    assert text == (folder / "table.md").read_text()
    assert "strict mode, scheme IOB2" in text
    assert (folder / "f1.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "f1.svg").exists()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert files_with(folder, SENTINEL) == []
    assert SENTINEL not in "".join(capfd.readouterr())
    made = {path: path.stat().st_mtime_ns for path in cells}
    models = {**values(tmp_path)["models"], "certified": {"folder": str(release(tmp_path / "pre"))}}
    text = compare(config(tmp_path, tasks=both, models=models), SilentReporter())
    assert {path: path.stat().st_mtime_ns for path in cells} == made
    assert len(list((folder / "cells").iterdir())) == 3 * 5
    assert "| certified | document, " in text
    assert not [path for path in folder.iterdir() if path.name.startswith(".cell")]
    with pytest.raises(UsageError, match="other options under `training`"):
        compare(config(tmp_path, training={**TRAINING, "epochs": 2}), SilentReporter())


def test_bad_documents_leave_nothing(tmp_path: Path) -> None:
    write_notes(tmp_path / "notes")
    bert_folder(tmp_path / "bert")
    (tmp_path / "notes" / "note05.bio").write_text(f"{SENTINEL}\tO\nx\tB-rare\n")
    with pytest.raises(DataError, match=r"note05\.bio, line 2: an entity of a type that is not in the training"):
        compare(config(tmp_path), SilentReporter())
    (tmp_path / "notes" / "note05.bio").write_text(f"{SENTINEL}\tI-test\n")
    with pytest.raises(DataError, match=r"note05\.bio, line 1: an I- tag"):
        compare(config(tmp_path), SilentReporter())
    assert not (tmp_path / "compared").exists()


@pytest.mark.parametrize(
    ("task", "problem"),
    [
        ({"path": "a", "train": "b"}, "give path"),
        ({"train": "b"}, "give path"),
        ({"train": "b", "test": "c", "folds": 3}, "folds are cut"),
        ({"path": "a", "folds": 1}, "folds"),
    ],
)
def test_a_task_without_sense(tmp_path: Path, task: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        config(tmp_path, tasks={"x": task})


def test_unknown_options_and_kinds_of_configurations(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'seeds'"):
        config(tmp_path, seed=3)
    with pytest.raises(UsageError, match="steps or epochs"):
        config(tmp_path, training={"batch_size": 4})
    assert names_tasks(values(tmp_path))
    assert not names_tasks({"phases": []})
    assert not names_tasks(None)


# tables by hand ------------------------------------------------------------------------------------------------------


def cell(model: str, fold: int, seed: int, right: int) -> dict[str, Any]:
    """Two documents with five entities each, of which so many are found in the first."""
    counts = [{"problem": [right, 5, 5]}, {"test": [0, 0, 5]}]
    return {"task": "t", "model": model, "fold": fold, "seed": seed, "counts": counts}


def test_means_and_gains_are_of_folds_with_seeds_averaged() -> None:
    found = {"a": [[1, 2], [3, 3], [2, 0]], "b": [[2, 2], [4, 4], [1, 5]]}
    results = [
        cell(model, fold, seed, right)
        for model, folds in found.items()
        for fold, seeds in enumerate(folds)
        for seed, right in enumerate(seeds)
    ] + [cell("dictionary", fold, 0, 5) for fold in range(3)]
    facts = {"a": ModelFacts("user", 3.0, 1e-5), "b": ModelFacts("not stated", None, None)}
    first, second, third = table_rows(results, ["dictionary", "a", "b"], "a", facts)
    f1_of_right = 2 / 15  # one more right entity, with 5 predicted and 10 true
    assert second.f1 == pytest.approx(f1_of_right * (1.5 + 3 + 1) / 3)
    assert third.gain == pytest.approx(f1_of_right * (0.5 + 1 + 2) / 3)
    expected = fold_estimate(f1_of_right * np.array([[0.5], [1.0], [2.0]]))
    assert (third.gain_low, third.gain_high) == (pytest.approx(expected.low), pytest.approx(expected.high))
    assert (second.gain, second.epsilon, second.pretraining) == (None, 3.0, "user")
    assert first.gain == pytest.approx(f1_of_right * (5 - 5.5 / 3))
    assert (first.seeds, first.seed_spread, third.seeds) == (1, None, 2)
    assert third.seed_spread is not None
    types = {(row.model, row.type): row for row in type_rows(results, ["dictionary", "a", "b"])}
    assert types["a", "problem"].recall == pytest.approx(11 / 30)
    assert types["a", "problem"].entities == types["dictionary", "problem"].entities == 15
    assert types["b", "test"].f1 == 0
