"""Bases and models as ordinary runs: the configuration of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.config import RunConfig
from tacit.config.compare import ComparisonConfig
from tacit.reproduce.hoory.account import vocabulary_config
from tacit.reproduce.hoory.cells import (
    DELTA,
    SLOTS,
    UNITS,
    Base,
    DpTraining,
    Lexicon,
    Model,
    PlainTraining,
    Private,
    Trunk,
)
from tacit.reproduce.hoory.corpora import CorpusFiles
from tacit.reproduce.hoory.scale import Scale

__all__ = ["base_run", "lexicon_run", "model_run", "task_of", "trunk_run"]

_WARMUP = 0.1
_NO_CAP = 100_000  # pieces, more than any count carries here


def trunk_run(trunk: Trunk, scale: Scale, files: CorpusFiles, run: Path) -> RunConfig:
    """Training on the general public text from initial weights."""
    values = _common(trunk.name, run, "notes", files.private("notes"), [files.general], scale, 1.0)
    values |= {"vocabulary": {"method": "given", "path": str(files.tokenizer("general")), "public": True}}
    values |= {"model": dict(scale.shape)}
    return RunConfig.model_validate({**values, "phases": [_public("trunk", scale.trunk_steps, scale)]})


def base_run(base: Base, trunk: Path, scale: Scale, files: CorpusFiles, run: Path) -> RunConfig:
    """More public training, from the trunk's folder; the DP vocabulary is made here, at its share of the budget."""
    own = base.vocabulary == "own"  # of private text, counted without noise: nothing is proved of what starts from it
    if base.vocabulary == "dp":
        words = files.public_words("general" if base.text == "general" else "public")
        vocabulary: dict[str, Any] = {**vocabulary_config(scale), "public_words": [str(words)]}
    else:
        path = files.tokenizer(base.vocabulary, base.private)
        vocabulary = {"method": "given", "path": str(path), "public": not own}
    private = base.private or "notes"  # a run names a private corpus, also one that reads none
    public = {"general": files.general, "medical": files.medical}[base.text]
    values = _common(base.name, run, private, files.private(private), [public], scale, base.epsilon or 1.0)
    values |= {"vocabulary": vocabulary, "allow": ["heuristic:unknown-start"] if own else []}
    values |= {"model": {"folder": str(trunk), "new_vocabulary": True, "length": scale.shape["length"]}}
    return RunConfig.model_validate({**values, "phases": [_public("base", scale.base_steps, scale)]})


def lexicon_run(lexicon: Lexicon, scale: Scale, files: CorpusFiles, run: Path) -> RunConfig:
    """A run of which nothing but the vocabulary is made, from private words alone and as large as their noisy counts carry."""
    private = lexicon.private
    values = _common(lexicon.name, run, private, files.private(private), [files.general], scale, lexicon.epsilon)
    values |= {"vocabulary": {**vocabulary_config(scale), "size": _NO_CAP, "min_count": 2}}
    values |= {"model": dict(scale.shape), "phases": [_public("unused", 1, scale)]}
    return RunConfig.model_validate(values)


def _public(name: str, steps: int, scale: Scale) -> dict[str, Any]:
    """A phase's rows and masks follow from its name: a base of the trunk's text gets others than the trunk."""
    return {
        "name": name,
        "plan": "plain",
        "stream": "public",
        "steps": steps,
        "batch_size": scale.public_batch,
        "learning_rate": scale.public_rate,
        "warmup": _WARMUP,
    }


def model_run(
    model: Model, noises: Sequence[float], base: Path, scale: Scale, files: CorpusFiles, run: Path
) -> RunConfig:
    """Training on private text, from the base's folder; the budget is out of the way, since the noise is given.

    Args:
        noises: of each DP phase.
        base: folder of the base's model with its tokenizer.
    """
    training = model.training
    assert training is not None
    stands_in = isinstance(training, DpTraining) and training.on == "stand-in"
    private = (files.stand_in if stands_in else files.private)(model.private)
    values = _common(model.name, run, model.private, private, [files.held_out_answers], scale, 1e6)
    values |= {"model": {"folder": str(base), "length": scale.shape["length"]}}
    values |= {"vocabulary": {"method": "given", "path": str(base)}}
    if isinstance(training, PlainTraining):
        values |= {"phases": [_plain(training)], "allow": ["heuristic:non-private"]}
    else:
        values |= {"phases": [_noisy(training, noise, number, len(noises)) for number, noise in enumerate(noises)]}
        values["masking_probability"] = training.masked
        values["model"]["trained"] = training.trained
        if training.adapter is not None:
            values["model"]["adapter"] = {"rank": training.adapter, "alpha": 2 * training.adapter}
    if model.canaries is not None:
        values["audit"] = {
            "patterns": scale.patterns,
            "canaries": scale.canaries_each,
            "probability": model.canaries,
            "attacks": {"planted-contexts": {}},
        }
    return RunConfig.model_validate(values)


def _common(
    title: str, run: Path, name: Private, private: Path, public: Sequence[Path], scale: Scale, epsilon: float
) -> dict[str, Any]:
    return {
        "title": title,
        "run": str(run),
        "privacy": {"unit": "document", "units": UNITS[name], "budget": {"epsilon": epsilon, "delta": DELTA}},
        "private": {"path": str(private), "id_field": "id"},
        "public": [{"path": str(path), "id_field": "id"} for path in public],
        "evaluation": {"held_out": 0.0},
        "compute": {"threads": 1, "workers": 1, "device": scale.device},
    }


def _plain(training: PlainTraining) -> dict[str, Any]:
    return {
        "name": "private",
        "plan": "plain",
        "stream": "private",
        "steps": training.steps,
        "batch_size": training.batch,
        "learning_rate": training.learning_rate,
        "warmup": _WARMUP,
    }


def _noisy(training: DpTraining, noise: float, number: int, phases: int) -> dict[str, Any]:
    return {
        "name": f"private-{number + 1}",
        "plan": "dp",
        "stream": "private",
        "steps": training.steps // phases,
        "expected_batch": training.expected_batch,
        "clip_norm": training.clip_norm,
        "sequences_per_unit": training.sequences,
        "maskings": training.maskings,
        "average": training.average,
        "keep": training.keep,
        "noise_bands": training.noise_bands,
        "noise_multiplier": noise,
        "learning_rate": training.learning_rate,
        "warmup": _WARMUP,
    }


def task_of(name: str, scale: Scale, data: Path, files: CorpusFiles, run: Path, model: Path) -> ComparisonConfig:
    """One task, for one model."""
    size = scale.tasks[name]
    task: dict[str, Any] = {"path": str(data / "mtsamples-ner" / "notes"), "folds": size.folds}
    if size.folds == 1:
        task = {part: str(files.task(name, part)) for part in ("train", "test")}
    if size.private == "dialogues":
        task |= {"format": "jsonl", "id_field": "id", "labels": SLOTS}
    values = {
        "run": str(run),
        "models": {"model": {"folder": str(model), "public": True}},
        "tasks": {name: task},
        "training": {"epochs": size.epochs, "batch_size": size.batch, "learning_rate": size.learning_rate},
        "seeds": scale.seeds,
        "compute": {"threads": 1, "device": scale.device},
    }
    return ComparisonConfig.model_validate(values)
