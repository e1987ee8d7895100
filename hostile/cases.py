"""The kinds of runs, each as small as it gets: seconds a run. The corpora and options are those of the tests."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.adaptive_runs import adaptive_values
from tests.dialogues import dialogue_values, write_dialogues
from tests.entities.annotated import DP, LABELS, finetune_values, write_notes
from tests.folders import bert_folder, gpt2_folder
from tests.small import SENTINEL, small_values, write_corpora

__all__ = ["CASES", "NAME", "Case", "config_in", "given_model"]

NAME = "zqvornak"
"""The secret of every dialogue, which screening and marking find; notes have `SENTINEL`."""


@dataclass(frozen=True)
class Case:
    """A kind of run.

    Args:
        write: puts its corpora and models into a folder.
        values: its configuration, for corpora in that folder.
        command: that makes it.
        sentinels: words of its private text that nobody else may see.
        os_noise: how many of its vocabulary's releases have noise from the operating system, which is no function of the key.
    """

    write: Callable[[Path], None]
    values: Callable[[Path], dict[str, Any]]
    command: str = "run"
    sentinels: tuple[str, ...] = (SENTINEL,)
    os_noise: int = 0


def config_in(folder: Path, values: dict[str, Any], run: Path, name: str = "config.yaml") -> Path:
    """The values as YAML in a folder, for a run folder of their own."""
    path = folder / name
    path.write_text(yaml.safe_dump({**values, "run": str(run)}))
    return path


def given_model(folder: Path, **options: Any) -> dict[str, Any]:
    """The section ``model`` of a run that starts from a folder of an untrained model: public, as no text made it."""
    return {"folder": str(folder), "public": True, **options}


_DP = {"plan": "dp", "expected_batch": 20, "clip_norm": 0.5, "learning_rate": 1e-2}
_PLAIN = {"plan": "plain", "steps": 4, "batch_size": 8, "learning_rate": 1e-2}


def _write_small(folder: Path) -> None:
    write_corpora(folder, patients=120, records=300)
    (folder / "words.txt").write_text("pain\t500\nneverseen\t20\n")


def _small(folder: Path, **sections: Any) -> dict[str, Any]:
    values = small_values(folder, **sections)
    values["phases"][1] |= {"steps": 8}
    values["phases"][0] |= {"steps": 4}
    return values


def _sips(folder: Path) -> dict[str, Any]:
    options = {"method": "sips", "rounds": [0.3, 0.7], "size": 500, "max_words": 16, "epsilon_share": 0.6}
    return _small(folder, vocabulary={**options, "public_words": [str(folder / "words.txt")]}, audit=None)


def _write_gpt2(folder: Path) -> None:
    _write_small(folder)
    gpt2_folder(folder / "given")


def _gpt2(folder: Path) -> dict[str, Any]:
    audit = {"canaries": 2, "copies": 3, "digits": 3}
    values = _small(folder, model=given_model(folder / "given", length=24), audit=audit)
    del values["vocabulary"]
    return values


def _lstm(folder: Path) -> dict[str, Any]:
    model = {"kind": "lstm", "layers": 1, "width": 16, "length": 24}
    audit = {"canaries": 2, "copies": 3, "digits": 3, "control": True, "control_steps": 2}
    return _small(folder, model=model, vocabulary={"method": "public", "size": 400}, audit=audit)


def _coins(folder: Path) -> dict[str, Any]:
    """Examples with coins, which the training's updates are asked for too; replace-one."""
    audit = {"canaries": 2, "copies": 3, "digits": 3, "control": "without-noise"}
    audit |= {"coins": {"examples": 20, "pieces": 6}, "white_box": True}
    privacy = {"unit": "user", "units": 140, "relation": "replace", "budget": {"epsilon": 20.0, "delta": 1e-4}}
    return {**_lstm(folder), "privacy": privacy, "audit": audit}


def _crt(folder: Path) -> dict[str, Any]:
    return dialogue_values(
        folder,
        units=400,
        title="screened dialogues",
        screening={"data_point": "line", "gamma": 0.01, "delta2": 0.00005},
        phases=[
            {**_PLAIN, "name": "public", "stream": "screened"},
            {**_DP, "name": "private", "stream": "private", "steps": 3, "noise_multiplier": 0.9},
        ],
        audit={"canaries": 3, "copies": 4, "digits": 3, "control": True, "control_steps": 2},
    )


def _selective(folder: Path) -> dict[str, Any]:
    public = {**_PLAIN, "plan": "selective", "segments": 2, "state_clip": 0.1, "state_noise_multiplier": 12.0}
    return dialogue_values(
        folder,
        units=600,
        title="marked dialogues",
        marking={"data_point": "line"},
        phases=[
            {**public, "name": "public", "stream": "marked"},
            {**_DP, "name": "private", "stream": "marked", "steps": 3, "noise_multiplier": 0.9},
        ],
        audit={"canaries": 3, "copies": 4, "digits": 3, "control": True, "control_steps": 3},
        allow=["heuristic:selective-dp"],
    )


def _adaptive(form: str) -> Callable[[Path], dict[str, Any]]:
    def values(folder: Path) -> dict[str, Any]:
        own = adaptive_values(folder, form)
        own["phases"] = [{**phase, "steps": min(phase["steps"], 8)} for phase in own["phases"]]
        return own

    return values


def _write_annotated(folder: Path) -> None:
    bert_folder(folder / "bert")
    write_notes(folder / "notes")


def _finetune(folder: Path) -> dict[str, Any]:
    model = {"folder": str(folder / "bert"), "public": True}
    return finetune_values(folder, folder / "bert", model=model, dp=DP, labels=LABELS)


CASES: dict[str, Case] = {
    "BERT, histogram": Case(_write_small, _small, os_noise=1),
    "BERT, SIPS and public words": Case(_write_small, _sips, os_noise=3),
    "GPT-2 from a folder": Case(_write_gpt2, _gpt2),
    "LSTM": Case(_write_small, _lstm),
    "LSTM with coins": Case(_write_small, _coins),
    "CRT, two rounds": Case(write_dialogues, _crt, sentinels=(NAME, "@example.org")),
    "S-DP, two rounds": Case(write_dialogues, _selective, sentinels=(NAME, "@example.org")),
    "adaptive, strata": Case(_write_small, _adaptive("strata")),
    "adaptive, clip weights": Case(_write_small, _adaptive("clip-weights")),
    "adaptive, literal": Case(_write_small, _adaptive("literal")),
    "fine-tuning with DP": Case(_write_annotated, _finetune, command="finetune"),
}


def records_of(path: Path) -> list[dict[str, Any]]:
    """The objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text().splitlines()]
