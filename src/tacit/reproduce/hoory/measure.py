"""Train a trunk, a base, a model from its base, and measure it: entity F1, masked loss on notes that were left out, exposure."""

from __future__ import annotations

import dataclasses
import shutil
import time
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer
from transformers import PreTrainedModel

from tacit.audit.exposure_attack import EXPOSURE
from tacit.audit.planted_contexts_attack import PLANTED_CONTEXTS
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.corpus.units import Unit
from tacit.entities.baselines import BASELINES
from tacit.entities.cells import Cell, run_cell, splits_of
from tacit.entities.folds import Split
from tacit.evaluation.masked_lm import score_units
from tacit.files import private_folder, read_json, write_json
from tacit.models.adapters import merged_model
from tacit.models.kinds import load_model, save_model
from tacit.pipeline.attacks import measure as attacked
from tacit.pipeline.opening import open_run
from tacit.pipeline.release import leave_model
from tacit.pipeline.rows import private_rows, public_rows
from tacit.pipeline.stages import walk
from tacit.pipeline.state import RunState
from tacit.randomness import KeyedRandomness
from tacit.reproduce.hoory.account import account_of, lexicon_epsilon
from tacit.reproduce.hoory.cells import Base, DpTraining, Lexicon, Model, Private, Trunk
from tacit.reproduce.hoory.corpora import CorpusFiles
from tacit.reproduce.hoory.runs import base_run, lexicon_run, model_run, task_of, trunk_run
from tacit.reproduce.hoory.scale import Scale
from tacit.reproduce.place import Place, with_public_key
from tacit.reproduce.writing import finite
from tacit.runs.folder import RunFolder
from tacit.training.masking import Masking
from tacit.training.sequences import tokenize_units
from tacit.vocabulary.given import read_given
from tacit.vocabulary.tokenizer import save_tokenizer

__all__ = ["left_by", "measure", "model_folder", "seed_of", "train_base", "train_trunk"]

_MASKED = 0.15
_ROWS_OF_A_NOTE = 8
_STREAMS = KeyedRandomness(bytes(32))  # of the masks of a measurement: the same for all models


def seed_of(replicate: int) -> str:
    """What the public key of a trunk and of all that goes on from it is made from."""
    again = "" if replicate == 1 else f" {replicate}"
    return f"tacit reproduce hoory{again}"


def left_by(begun_with: Trunk | Base) -> str:
    """Where the model of a trunk or base lies, below ``place.out``."""
    return f"bases/{begun_with.name}"


def model_folder(place: Place, begun_with: Trunk | Base) -> Path:
    """Where the model of a trunk or base lies."""
    return place.out / left_by(begun_with)


def measure(cell: Trunk | Base | Lexicon | Model | str, scale: Scale, place: Place) -> dict[str, Any]:
    """The results of a job; what it trains goes on where it was stopped.

    Args:
        cell: a name is that of a task, whose trivial taggers are measured.
    """
    begun = time.monotonic()
    match cell:
        case Trunk():
            found = train_trunk(cell, scale, place)
        case Base():
            found = train_base(cell, scale, place)
        case Lexicon():
            found = _lexicon(cell, scale, place)
        case Model():
            found = _model(cell, scale, place)
        case _:
            found = _baselines(cell, scale, place)
    return finite(found | {"seconds": time.monotonic() - begun})


def train_trunk(trunk: Trunk, scale: Scale, place: Place) -> dict[str, Any]:
    """Leave the trunk's model with its tokenizer in a folder of its own."""
    files, run = CorpusFiles(place.corpora), RunFolder(place.runs / trunk.name)
    with open_run(with_public_key(trunk_run(trunk, scale, files, run.root), seed_of(trunk.replicate))) as state:
        walk(state, until="training")
        leave_model(state, model_folder(place, trunk))
    shutil.rmtree(run.root)
    return {"trunk": dataclasses.asdict(trunk)}


def train_base(base: Base, scale: Scale, place: Place) -> dict[str, Any]:
    """Leave the base's model with its tokenizer in a folder of its own."""
    files, run = CorpusFiles(place.corpora), RunFolder(place.runs / f"base-{base.name}")
    config = base_run(base, model_folder(place, base.trunk), scale, files, run.root)
    with open_run(with_public_key(config, seed_of(base.replicate))) as state:
        walk(state, until="training")
        leave_model(state, model_folder(place, base))
        chosen = state.vocabulary_folder / "chosen.json"
        own_words = len(read_json(chosen)) if chosen.exists() else None
        facts = {"pieces": state.special.size, "own_words": own_words, "public_rows": public_rows(state).sequences}
    shutil.rmtree(run.root)
    tokenizer = read_given(model_folder(place, base)).tokenizer
    about: tuple[Private, ...] = ("dialogues", "notes") if base.text == "general" else ("notes",)
    seen = {f"pieces_a_word_of_{private}": _pieces_a_word(tokenizer, files.left_out(private)) for private in about}
    return {"base": dataclasses.asdict(base), **facts, **seen}


def _lexicon(lexicon: Lexicon, scale: Scale, place: Place) -> dict[str, Any]:
    """How many words and pieces a vocabulary has, and how it cuts text that was left out."""
    files, run = CorpusFiles(place.corpora), RunFolder(place.runs / lexicon.name)
    with open_run(with_public_key(lexicon_run(lexicon, scale, files, run.root), seed_of(1))) as state:
        walk(state, until="vocabulary")
        facts = {
            "words": len(read_json(state.vocabulary_folder / "chosen.json")),
            "pieces": state.special.size,
            "pieces_a_word": _pieces_a_word(state.tokenizer, files.left_out(lexicon.private)),
        }
    shutil.rmtree(run.root)
    return {"lexicon": dataclasses.asdict(lexicon), "epsilon": lexicon_epsilon(lexicon, scale), **facts}


def _save(state: RunState, folder: Path) -> None:
    """The trained model, an adapter merged into it."""
    model = state.trained_model(state.mechanisms.phases[-1].name)
    save_model(model if state.config.model.adapter is None else merged_model(model), folder)
    save_tokenizer(state.tokenizer, folder, state.config.model.length, state.special_names)


def _pieces_a_word(tokenizer: Tokenizer, texts: Path) -> float:
    """The pieces of a word, on average, as white space cuts words."""
    found = [text for unit in _units(texts) for text in unit.texts]
    words = sum(len(text.split()) for text in found)
    pieces = sum(len(encoding.ids) for encoding in tokenizer.encode_batch_fast(found, add_special_tokens=False))
    return pieces / max(1, words)


def _units(path: Path) -> list[Unit]:
    source = Source(path, "jsonl", id_field="id", max_record_bytes=1_000_000)
    return [Unit(record.document_id, (record.text,)) for record in read_records(source)]


def _model(model: Model, scale: Scale, place: Place) -> dict[str, Any]:
    """The results of a model; its run goes on where it was stopped, and is removed when it is measured."""
    account, files = account_of(model, scale), CorpusFiles(place.corpora)
    begun = time.monotonic()
    found: dict[str, Any] = {"model": model.name, "account": dataclasses.asdict(account)}
    begun_with = model_folder(place, model.base)
    folder, run = begun_with, RunFolder(place.runs / model.name)
    if model.training is not None:
        config = model_run(model, account.noise_multipliers, begun_with, scale, files, run.root)
        with open_run(with_public_key(config, seed_of(model.base.replicate))) as state:
            walk(state, until="training")
            if model.canaries is not None:
                found["exposure"] = attacked(state, EXPOSURE)["released model"]
                found["planted"] = attacked(state, PLANTED_CONTEXTS).get("released model", [])
                found["sequences"] = private_rows(state).sequences
            folder = run.private / "model"
            _save(state, folder)
    found["training_seconds"] = time.monotonic() - begun
    found["loss"] = {name: _masked_loss(folder, path) for name, path in _held_out(model, files).items()}
    private_folder(run.root)
    found["cells"] = [cell for task in model.tasks for cell in _fine_tuned(model, task, scale, place, folder, run.root)]
    shutil.rmtree(run.root)
    return found


def _held_out(model: Model, files: CorpusFiles) -> dict[str, Path]:
    """Text of the kind that it was trained on, and which it has not read."""
    if isinstance(model.training, DpTraining) and model.training.on == "stand-in":
        return {"seen": files.held_out_stand_in}
    if model.private == "dialogues":
        return {"seen": files.left_out("dialogues"), "unseen": files.unseen}
    return {"seen": files.left_out("notes")}


def _masked_loss(folder: Path, texts: Path) -> dict[str, Any]:
    """Mean over texts of the mean loss (nats) and accuracy at masked pieces, and each text's loss; comparable between models of one
    tokenizer alone, for which the masks are the same.
    """
    given = read_given(folder)
    tokenizer, special, bert = given.tokenizer, given.special, load_model(folder)
    assert special.mask is not None
    stream = tokenize_units(_units(texts), tokenizer, special, bert.config.max_position_embeddings, _STREAMS)
    masking = Masking(_MASKED, special.mask, special.ids, special.size)
    models: dict[str, PreTrainedModel | np.ndarray] = {"model": bert}
    scores = score_units(models, stream, _ROWS_OF_A_NOTE, masking, _STREAMS)["model"]
    each = [round(float(loss), 5) for loss in scores.loss_U]
    return {"nats": float(scores.loss_U.mean()), "accuracy": float(scores.accuracy_U.mean()), "of_texts": each}


def _fine_tuned(model: Model, task: str, scale: Scale, place: Place, folder: Path, run: Path) -> list[dict[str, Any]]:
    """Counts of every fold and seed, a replicate's seeds being its own; those of a stopped run are kept beside it."""
    config = task_of(task, scale, place.data, CorpusFiles(place.corpora), run, folder)
    found = []
    for fold, split in enumerate(splits_of(config.tasks[task])):
        for seed in range((model.replicate - 1) * config.seeds, model.replicate * config.seeds):
            path = run / f"{task}-{fold}-{seed}.json"
            if not path.exists():
                write_json(path, run_cell(config, Cell("model", task, fold, seed), ""))
            found.append({**read_json(path), "seen": _seen(split)})
    return found


def _seen(split: Split) -> int:
    """How many of the test documents are of seen services: the first so many; the rest are not."""
    return sum(not document.document_id.startswith("unseen") for document in split.test)


def _baselines(task: str, scale: Scale, place: Place) -> dict[str, Any]:
    """The trivial taggers on every fold."""
    run = place.runs / f"baselines-{task}"
    config = task_of(task, scale, place.data, CorpusFiles(place.corpora), run, Path("unused"))
    cells = [
        {**run_cell(config, Cell(name, task, fold, 0), ""), "seen": _seen(split)}
        for name in BASELINES
        for fold, split in enumerate(splits_of(config.tasks[task]))
    ]
    return {"task": task, "cells": cells}
