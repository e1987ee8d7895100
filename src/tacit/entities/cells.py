"""One model, fine-tuned on the training documents of one fold and scored on the rest: a cell of the comparison."""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tacit.config.compare import ComparisonConfig, TaskOptions
from tacit.config.tuning import AnnotatedSource, DpTuning, TuningOptions
from tacit.corpus.annotated import (
    AnnotatedDocument,
    AnnotatedUnit,
    alone,
    entity_types,
    refuse_shared_documents,
    refuse_unknown_types,
    tag_set,
    units_of,
)
from tacit.corpus.annotations import AnnotatedFields, read_annotated
from tacit.entities.baselines import BASELINES
from tacit.entities.folds import Split, k_folds
from tacit.entities.rows import RowCutter
from tacit.entities.scores import TypeCounts, entity_counts
from tacit.entities.start import Start, open_start
from tacit.entities.tagger import EntityObjective, RowLabels, load_tagger, predict_tags, row_labels
from tacit.planning.finetuning import DpPrice, plain_phase
from tacit.privacy.events import EVERY_PART
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.randomness import KeyedRandomness, load_or_create_key
from tacit.training.device import set_up_torch
from tacit.training.loop import run_phase

__all__ = [
    "Cell",
    "count_entities",
    "cutter_of",
    "documents_of",
    "make_key",
    "public_streams",
    "run_cell",
    "splits_of",
]


@dataclass(frozen=True)
class Cell:
    """Which one it is; ``model`` may be a baseline, which has one seed."""

    model: str
    task: str
    fold: int
    seed: int

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.task}--{self.model}--fold{self.fold}--seed{self.seed}"


def public_streams(*address: str | int) -> KeyedRandomness:
    """Draws that anyone can repeat: of folds, of new heads, and of fine-tunings without DP that are not for release."""
    return KeyedRandomness(hashlib.sha256(b"tacit entity extraction").digest()).child(*address)


def make_key(run: Path) -> KeyedRandomness:
    """Draws of DP fine-tuning, whose batches and noise nobody may know: from a key in the folder, made when there is none."""
    return KeyedRandomness(load_or_create_key(run / "key"))


def documents_of(source: AnnotatedSource) -> list[AnnotatedDocument]:
    """The documents of a source. Raises as `read_annotated`."""
    return read_annotated(source.resolved_path, source.format, AnnotatedFields(source.id_field, source.user_field))


def splits_of(task: TaskOptions) -> list[Split]:
    """The splits of a task, checked.

    Raises:
        DataError: a malformed file, a document in two folds, or a type of entity that is not in ``labels``; without labels, one
            in test that is not in training.
    """
    if task.path is not None:
        splits = k_folds(documents_of(task.source("path")), task.folds, public_streams("folds"))
    else:
        parts = [task.source("train"), task.source("test")]
        training, test = (tuple(documents_of(part)) for part in parts)
        splits = [Split(training, test)]
    for split in splits:
        refuse_shared_documents(split.training, split.test)
        if task.labels is not None:
            refuse_unknown_types([*split.training, *split.test], task.labels, "the option labels")
        else:
            refuse_unknown_types(split.test, entity_types(split.training), "the training documents of its split")
    return splits


def cutter_of(start: Start, training: TuningOptions, tags: tuple[str, ...]) -> RowCutter:
    """How documents become rows of a model."""
    tokenizer = start.tokenizer.tokenizer
    tokenizer.encode_special_tokens = True  # a "[MASK]" that stands in a text is text
    by_sentence = training.context == "sentence"
    return RowCutter(tokenizer, start.tokenizer.special, start.length, training.overlap, tags, by_sentence)


def count_entities(labels_of: RowLabels, cutter: RowCutter, documents: Sequence[AnnotatedDocument]) -> list[TypeCounts]:
    """Right, predicted and true entities of each document."""
    predicted = predict_tags(labels_of, cutter, documents)
    return [
        entity_counts([sentence.tags for sentence in document.sentences], tags)
        for document, tags in zip(documents, predicted, strict=True)
    ]


def run_cell(config: ComparisonConfig, cell: Cell, made_from: str, price: DpPrice | None = None) -> dict[str, Any]:
    """The cell's result, JSON-ready: counts of every test document, and nothing of its text.

    Args:
        made_from: a digest, kept with the result.
        price: of a model that is tuned with DP; `make_key` has made its key.
    """
    began = time.monotonic()
    split = splits_of(config.tasks[cell.task])[cell.fold]
    if cell.model in config.models:
        counts, steps = _model_counts(config, split, cell, price)
    else:
        counts, steps = _baseline_counts(cell.model, split), 0
    return {
        **vars(cell),
        "made_from": made_from,
        "counts": counts,
        "training_documents": len(split.training),
        "steps": steps,
        "seconds": round(time.monotonic() - began, 2),
    }


def _baseline_counts(name: str, split: Split) -> list[TypeCounts]:
    tags_of = BASELINES[name](split.training)
    return [
        entity_counts(
            [sentence.tags for sentence in document.sentences],
            [tags_of(sentence.tokens) for sentence in document.sentences],
        )
        for document in split.test
    ]


def _model_counts(
    config: ComparisonConfig, split: Split, cell: Cell, price: DpPrice | None
) -> tuple[list[TypeCounts], int]:
    compute = config.compute
    if config.workers > 1 and compute.threads is None:
        compute = compute.model_copy(update={"threads": 1})
    device = set_up_torch(compute)
    options, training = config.models[cell.model], config.training_of(cell.model)
    if (options.dp is None) != (price is None):
        raise ValueError("a model that is tuned with DP, and no other, has a price")
    start = open_start(options, training)
    public = public_streams("cell", cell.task, cell.fold, cell.seed)  # the same for every model
    tags = tag_set(config.tasks[cell.task].labels or entity_types(split.training))
    cutter = cutter_of(start, training, tags)
    streams = public if price is None else make_key(config.resolved_run).child(cell.name)
    stream = cutter.unit_rows(_units(split.training, options.dp), streams)
    phase = plain_phase(training, stream.sequences) if price is None else price.phase
    model = load_tagger(start.folder, tags, public.seed("head") >> 1, training.dropout, options.from_scratch)
    torch.nn.Module.to(model, device)  # transformers' own `to` has no types
    with tempfile.TemporaryDirectory(
        dir=config.resolved_run, prefix=".cell-"
    ) as folder:  # its checkpoint holds what it learnt
        objective = EntityObjective(cutter.special.size)
        compute = compute.model_copy(update={"checkpoint_seconds": 1e9})
        with _ledger(options.dp, price, Path(folder), streams) as ledger:
            run_phase(model, phase, stream, objective, ledger, streams, compute, Path(folder) / "cell.pt")
    return count_entities(row_labels(model), cutter, split.test), phase.steps


def _units(documents: Sequence[AnnotatedDocument], dp: DpTuning | None) -> list[AnnotatedUnit]:
    """What is drawn and clipped as one."""
    return alone(documents) if dp is None else units_of(documents, dp.unit)


@contextlib.contextmanager
def _ledger(
    dp: DpTuning | None, price: DpPrice | None, folder: Path, streams: KeyedRandomness
) -> Iterator[Ledger | None]:
    """What DP fine-tuning is paid from: the budget with what the pre-training spent. It ends with the cell, as its model does."""
    if dp is None or price is None:
        yield None
        return
    budget = dp.budget
    header = LedgerHeader(dp.unit, dp.relation, dp.units, budget.epsilon, budget.delta, "", streams.commitment())
    with Ledger.create(folder / "ledger.sqlite", header) as ledger:
        for stage, spend in price.inherited.items():
            ledger.inherit(stage, spend)
        assert price.phase.event is not None  # a phase on private text
        ledger.plan(price.phase.name, price.phase.event, price.phase.steps, EVERY_PART)
        yield ledger
