"""A run small enough for tests: the real pipeline on a few synthetic patients, about a dozen seconds."""

from __future__ import annotations

import functools
import json
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import yaml

from tacit.corpus.synthetic import SyntheticPrivate, SyntheticPublic, write_private, write_public

from .draws import who_asks
from .started import called, command

SENTINEL = "zqsentinelword"
AT_EACH_MICRO_BATCH = {"micro_batch": 16, "threads": 1, "workers": 1, "checkpoint_seconds": 0.0}
"""``compute`` of a run that is killed: there is a checkpoint of every place in a step."""


def write_corpora(folder: Path, patients: int = 150, records: int = 600) -> None:
    """Private notes (each patient's first note also holds a sentinel of its own) and public text."""
    for name, content in _corpora(patients, records).items():
        (folder / name).write_bytes(content)


@functools.cache  # hundreds of tests ask for the same
def _corpora(patients: int, records: int) -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as place:
        notes, public = (Path(place) / name for name in ("notes.jsonl", "public.jsonl"))
        write_private(notes, SyntheticPrivate(patients=patients, notes_per_patient=(1, 2)))
        lines = [json.loads(line) for line in notes.read_text().splitlines()]
        for number, note in enumerate(lines):
            note["text"] += f" {SENTINEL}{number} Sentinel-Case-{number}"
        notes.write_text("".join(json.dumps(note) + "\n" for note in lines))
        write_public(public, SyntheticPublic(records=records))
        return {path.name: path.read_bytes() for path in (notes, public)}


def small_values(folder: Path, **sections: Any) -> dict[str, Any]:
    """Configuration values; keyword arguments replace whole sections."""
    values: dict[str, Any] = {
        "title": "small test run",
        "run": str(folder / "run"),
        "privacy": {"unit": "user", "units": 150, "budget": {"epsilon": 9.0, "delta": 1e-4}},
        "private": {"path": str(folder / "notes.jsonl"), "id_field": "note_id", "user_field": "patient_id"},
        "public": [{"path": str(folder / "public.jsonl"), "id_field": "id"}],
        "vocabulary": {"method": "histogram", "max_words": 16, "size": 500, "noise_stddev": 6.0, "threshold": 40},
        "model": {"layers": 1, "width": 32, "heads": 2, "length": 24},
        "phases": [
            {
                "name": "public",
                "plan": "plain",
                "stream": "public",
                "steps": 6,
                "batch_size": 16,
                "learning_rate": 1e-3,
            },
            {
                "name": "private",
                "plan": "dp",
                "stream": "private",
                "steps": 12,
                "expected_batch": 20,
                "clip_norm": 0.5,
                "sequences_per_unit": 2,
                "learning_rate": 1e-3,
                "noise_multiplier": 1.0,
            },
        ],
        "evaluation": {"held_out": 0.2, "public_sequences": 32},
        "audit": {"canaries": 3, "probability": 0.2, "contexts": 2, "control": True, "control_steps": 4},
        "compute": {"micro_batch": 16, "threads": 1, "workers": 1},
    }
    return {**values, **sections}


def write_config(path: Path, values: dict[str, Any]) -> Path:
    """The values as a YAML file."""
    path.write_text(yaml.safe_dump(values))
    return path


def tacit(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own; a key that it draws is that of who asks (`tests.draws`)."""
    return called(command, [str(argument) for argument in arguments], who_asks(), cwd=cwd)
