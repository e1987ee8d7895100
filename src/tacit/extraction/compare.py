"""`tacit evaluate` with models and tasks: every model on every fold of every task with every seed, then tables and a plot.

The folder is the curator's (mode 0700): F1 on private documents is a function of them that no ledger holds.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.config.entities import ComparisonConfig, StartModel
from tacit.errors import UsageError
from tacit.extraction.cells import Cell, run_cell, splits_of
from tacit.extraction.figure import draw_figure
from tacit.extraction.start import open_start, read_pretraining
from tacit.extraction.tables import ModelFacts, table_rows, type_rows, write_tables
from tacit.files import private_folder, read_json
from tacit.grid import Task, run_grid
from tacit.progress import Reporter
from tacit.tasks.entities.baselines import BASELINES
from tacit.tasks.entities.folds import Split

__all__ = ["compare"]

Splits = Mapping[str, Sequence[Split]]


def compare(config: ComparisonConfig, reporter: Reporter) -> str:
    """Do the cells that are left, write the tables and the plot, and give the table as text.

    All documents and models are read and checked before anything is written.

    Raises:
        DataError: documents that do not parse, or a model that cannot be read.
        UsageError: the folder holds results that were made in another way.
    """
    splits = {name: splits_of(task) for name, task in config.tasks.items()}
    facts = {name: _facts(model) for name, model in config.models.items()}
    digests = _digests(config, splits)
    cells = cells_of(config, splits)
    root, folder = Path(config.run), Path(config.run) / "cells"
    for cell in cells:
        _check_stored(folder / f"{cell.name}.json", digests[cell.task, cell.model])
    private_folder(root)
    work = [
        Task(cell.name, functools.partial(run_cell, config, cell, digests[cell.task, cell.model])) for cell in cells
    ]
    run_grid(work, folder, config.workers, reporter, "Fine-tuning and scoring")
    results = [read_json(folder / f"{cell.name}.json") for cell in cells]
    order = [*(BASELINES if config.baselines else ()), *config.models]
    rows = table_rows(results, order, next(iter(config.models)), facts)
    text = write_tables(rows, type_rows(results, order), root)
    draw_figure(rows, root)
    return text


def cells_of(config: ComparisonConfig, splits: Splits) -> list[Cell]:
    """Fold by fold, so that a stopped comparison has all models on the folds that it has."""
    cells: list[Cell] = []
    for task, own in splits.items():
        for fold in range(len(own)):
            cells += [Cell(name, task, fold, 0) for name in BASELINES if config.baselines]
            cells += [Cell(name, task, fold, seed) for seed in range(config.seeds) for name in config.models]
    return cells


def _facts(options: StartModel) -> ModelFacts:
    """What is known of the privacy of a model's own training."""
    if options.from_scratch:
        return ModelFacts("no pre-training", None, None)
    found = read_pretraining(options.resolved_folder)
    if found is not None:
        return ModelFacts(found.unit, found.epsilon, found.delta)
    return ModelFacts("public text" if options.public else "not stated", None, None)


def _digests(config: ComparisonConfig, splits: Splits) -> dict[tuple[str, str], str]:
    """What a cell's result is made from, by task and model. Of documents it holds a digest, in a folder that is private."""
    models = {
        name: _digest([open_start(model, config.training).digest, model.from_scratch])
        for name, model in config.models.items()
    }
    names = {*BASELINES, *models}
    training = config.training.model_dump(mode="json")
    return {
        (task, name): _digest([_task_digest(own), models.get(name, name), training if name in models else None])
        for task, own in splits.items()
        for name in names
    }


def _task_digest(splits: Sequence[Split]) -> str:
    return _digest(
        [
            [[document.content().hex(), document.tags] for document in part]
            for split in splits
            for part in (split.training, split.test)
        ]
    )


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _check_stored(path: Path, made_from: str) -> None:
    if path.exists() and read_json(path)["made_from"] != made_from:
        raise UsageError(
            f"{path}: this result was made with another model, other documents or other options under `training`; use another "
            "`run:` folder, or remove it"
        )
