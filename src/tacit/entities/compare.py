"""`tacit compare`: every model on every fold of every task with every seed, then tables and a plot.

The folder is the curator's (mode 0700): F1 on private documents is a function of them that no ledger holds.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tacit.config.compare import ComparedModel, ComparisonConfig, TaskOptions
from tacit.entities.baselines import BASELINES
from tacit.entities.cells import Cell, make_key, run_cell, splits_of
from tacit.entities.figure import draw_figure
from tacit.entities.folds import Split
from tacit.entities.plan import model_prices
from tacit.entities.start import open_start
from tacit.entities.tables import ModelFacts, table_rows, type_rows, write_tables
from tacit.errors import UsageError
from tacit.files import private_folder, read_json
from tacit.planning.finetuning import DpPrice
from tacit.planning.finetuning_origin import certified_epsilon, pretraining_of
from tacit.progress import Reporter
from tacit.work.jobs import Task, run_jobs

__all__ = ["PROGRESS", "compare"]

PROGRESS = "Fine-tuning and scoring"
"""Its stage, for the reporter."""

Splits = Mapping[str, Sequence[Split]]
Prices = Mapping[str, DpPrice]
"""Of the models that are tuned with DP, by name."""


def compare(config: ComparisonConfig, reporter: Reporter) -> str:
    """Do the cells that are left, write the tables and the plot, and give the table as text.

    All documents and models are read and checked before anything is written.

    Raises:
        DataError: documents that do not parse, or a model that cannot be read.
        UsageError: the folder holds results that were made in another way.
        RefusedError: a guarantee of a model with DP that cannot be proved.
        BudgetError: the budget of one cannot be met.
    """
    splits = {name: splits_of(task) for name, task in config.tasks.items()}
    prices = model_prices(config)
    facts = {name: _facts(model, prices.get(name)) for name, model in config.models.items()}
    digests = _digests(config, splits, prices)
    cells = cells_of(config, splits)
    root, folder = config.resolved_run, config.resolved_run / "cells"
    for cell in cells:
        _check_stored(folder / f"{cell.name}.json", digests[cell.task, cell.model])
    private_folder(root)
    if prices:
        make_key(root)  # before there are several processes
    work = [
        Task(
            cell.name,
            functools.partial(run_cell, config, cell, digests[cell.task, cell.model], prices.get(cell.model)),
        )
        for cell in cells
    ]
    run_jobs(work, folder, config.workers, reporter, PROGRESS)
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


def _facts(options: ComparedModel, price: DpPrice | None) -> ModelFacts:
    """What is known of the privacy of a model's own training, and of its fine-tuning."""
    facts = _pretraining_facts(options)
    if options.dp is None or price is None:
        return facts
    together = " with pre-training" if price.inherited else ""
    return dataclasses.replace(
        facts, tuning=options.dp.unit + together, tuning_epsilon=price.epsilon, tuning_delta=options.dp.budget.delta
    )


def _pretraining_facts(options: ComparedModel) -> ModelFacts:
    found = pretraining_of(options)
    if found is not None:  # a model from scratch has its tokenizer, which was released with the rest
        return ModelFacts(found.unit, certified_epsilon(found), found.delta)
    if options.from_scratch:
        return ModelFacts("no pre-training", None, None)
    return ModelFacts("public text" if options.public else "not stated", None, None)


def _digests(config: ComparisonConfig, splits: Splits, prices: Prices) -> dict[tuple[str, str], str]:
    """What a cell's result is made from, by task and model. Of documents it holds a digest, in a folder that is private."""
    models = {name: _model_digest(config, name, model, prices.get(name)) for name, model in config.models.items()}
    tasks = {name: _task_digest(own, config.tasks[name]) for name, own in splits.items()}
    found = {(task, name): _digest([tasks[task], name, None]) for task in tasks for name in BASELINES}
    for name, digest in models.items():
        training = config.training_of(name).model_dump(mode="json")
        found |= {(task, name): _digest([tasks[task], digest, training]) for task in tasks}
    return found


def _model_digest(config: ComparisonConfig, name: str, model: ComparedModel, price: DpPrice | None) -> str:
    parts: list[Any] = [open_start(model, config.training_of(name)).digest, model.from_scratch]
    if model.dp is not None and price is not None:
        parts += [model.dp.model_dump(mode="json"), price.noise_multiplier, sorted(price.inherited)]
    return _digest(parts)


def _task_digest(splits: Sequence[Split], task: TaskOptions) -> str:
    documents = [
        [
            [document.content().hex(), document.tags, *([] if document.user_id is None else [document.user_id])]
            for document in part
        ]
        for split in splits
        for part in (split.training, split.test)
    ]
    return _digest(documents if task.labels is None else [documents, task.labels])


def _digest(values: Any) -> str:
    return hashlib.sha256(json.dumps(values).encode()).hexdigest()


def _check_stored(path: Path, made_from: str) -> None:
    if path.exists() and read_json(path)["made_from"] != made_from:
        raise UsageError(
            f"{path}: this result was made with another model, other documents or other options under `training`; use another "
            "`run:` folder, or remove it"
        )
