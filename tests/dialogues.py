"""Small runs on synthetic dialogues, each with secrets of its own: their text, their configuration, and what is read of them."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tacit.privacy.ledger import Ledger

from .small import tacit, write_config

Run = tuple[Path, subprocess.CompletedProcess[str]]
"""A folder with a corpus and the folder ``run``, and the process that made that."""

PLAIN = (
    "Hello, how can I help you today?",
    "Thank you for your help.",
    "Is there anything else that I can do for you?",
)


def dialogue(number: int) -> str:
    """Some lines that say nothing, and some with a name, a number and a mail address of this dialogue alone."""
    return "\n".join(
        [
            PLAIN[number % 3],
            f"My name is Zqvornak{number} Wolkenstein.",
            f"The number is 415-555-{1000 + number}, and the mail zq{number}@example.org.",
            PLAIN[(number + 1) % 3],
        ]
    )


def write_dialogues(folder: Path, dialogues: int = 150) -> None:
    """The corpus of `dialogue_values`."""
    lines = [json.dumps({"id": f"d{number}", "text": dialogue(number)}) for number in range(dialogues)]
    (folder / "dialogues.jsonl").write_text("\n".join(lines) + "\n")


def dialogue_values(folder: Path, units: int, **sections: Any) -> dict[str, Any]:
    """A small LSTM, two rounds; keyword arguments add or replace whole sections."""
    return {
        "run": str(folder / "run"),
        "privacy": {
            "unit": "record",
            "units": units,
            "relation": "replace",
            "budget": {"epsilon": 8.0, "delta": 1e-4},
        },
        "private": {"path": str(folder / "dialogues.jsonl"), "id_field": "id"},
        "vocabulary": {"method": "public", "size": 400},
        "model": {"kind": "lstm", "layers": 1, "width": 16, "length": 24},
        "rounds": 2,
        "evaluation": {"held_out": 0.2},
        "compute": {"micro_batch": 16, "threads": 1, "workers": 1},
        **sections,
    }


def run_dialogues(folder: Path, values: dict[str, Any]) -> Run:
    """A finished run on a corpus of its own."""
    write_dialogues(folder)
    done = tacit("run", write_config(folder / "config.yaml", values))
    assert done.returncode == 0, done.stderr
    return folder, done


def stages_in_ledger(folder: Path) -> dict[str, tuple[str, int]]:
    """By stage, the kind of its event and how often it was paid for."""
    with Ledger.open(folder / "run" / "ledger.sqlite", readonly=True) as ledger:
        return {stage: (type(plan.event).__name__, ledger.spent(stage)) for stage, plan in ledger.plans.items()}


def shown(finished: Run) -> list[str]:
    """All that a reader of the release, the ledger, the configuration and the terminal sees."""
    run, done = finished[0] / "run", finished[1]
    released = [path for path in (run / "release").rglob("*") if path.is_file()]
    files = (*released, run / "config.json", run / "ledger.sqlite")
    return [done.stdout, done.stderr, *(path.read_bytes().decode("latin-1") for path in files)]


def run_second_round_again(finished: Run, folder: Path, values: dict[str, Any]) -> Path:
    """Take away what the second round of a finished run left, in a copy, and go on; the copy's run folder."""
    run = folder / "run"
    shutil.copytree(finished[0] / "run", run)
    shutil.rmtree(run / "release")
    for path in (run / "private" / "checkpoints").glob("*-2.pt"):
        path.unlink()
    done = tacit("run", write_config(folder / "config.yaml", {**values, "run": str(run)}))
    assert done.returncode == 0, done.stderr
    return run
