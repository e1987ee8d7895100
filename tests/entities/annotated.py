"""Annotated notes with a sentinel in each, a BERT with a certificate beside it, and configurations around them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tacit.config.finetune import FinetuneConfig, load_finetune
from tacit.files import write_json
from tacit.privacy.certificate import file_digests, make_certificate
from tacit.privacy.events import Event, Gaussian, PoissonGaussian, Relation
from tacit.privacy.ledger import Ledger, LedgerHeader

from ..folders import bert_folder
from ..small import write_config

SENTINEL = "zqsentinelword"
SPENT: dict[str, tuple[Event, int, str]] = {
    "private": (PoissonGaussian(0.1, 2.0), 20, "training units"),
    "evaluation": (Gaussian(3.0), 1, "held-out units"),
}


def write_notes(folder: Path, documents: int = 12, start: int = 0) -> Path:
    """Notes whose entities are certain words; no two are alike."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(start, start + documents):
        rows = [("the", "O"), ("pain", "B-problem"), (f"of{number}", "O"), ("fever", "B-problem"), ("test", "B-test")]
        second = [(f"{SENTINEL}{number}", "O"), ("bad", "B-problem"), ("pain", "I-problem"), ("again", "O")]
        text = "\n\n".join("\n".join(f"{token}\t{tag}" for token, tag in part) for part in (rows, second))
        (folder / f"note{number:02d}.bio").write_text(text + "\n")
    return folder


def write_users(path: Path, users: int = 3, documents: int = 4) -> Path:
    """JSON lines of notes with two sentences each, in turns of the users."""
    rows = [
        {
            "who": f"u{number % users}",
            "note": f"n{number}",
            "tokens": [f"{SENTINEL}{number}{end}", "pain"],
            "tags": ["O", "B-problem"],
        }
        for number in range(users * documents)
        for end in "ab"
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def release(
    folder: Path, unit: str = "document", relation: Relation = "add-or-remove", spent: Any = None, units: int = 300
) -> Path:
    """A BERT as a run releases it: ``folder/release/model`` with its certificate; the model folder."""
    model = folder / "release" / "model"
    bert_folder(model)
    header = LedgerHeader(unit, relation, units, float("inf"), 1e-4, "digest", "commitment")
    with Ledger.create(folder / "ledger.sqlite", header) as ledger:
        for stage, (event, count, partition) in (SPENT if spent is None else spent).items():
            ledger.plan(stage, event, count, partition)
            for step in range(count):
                ledger.charge(stage, step)
        digests = {f"model/{name}": digest for name, digest in file_digests(model).items()}
        write_json(folder / "release" / "certificate.json", make_certificate(ledger, digests, "none"))
    return model


def finetune_values(folder: Path, start: Path, **sections: Any) -> dict[str, Any]:
    """Configuration values of `tacit finetune`; keyword arguments replace whole sections."""
    values: dict[str, Any] = {
        "run": str(folder / "tuned"),
        "model": {"folder": str(start)},
        "documents": {"path": str(folder / "notes")},
        "training": {"steps": 4, "batch_size": 4, "length": 24, "overlap": 4, "dropout": 0.1},
        "compute": {"micro_batch": 8, "threads": 1},
    }
    return {key: value for key, value in {**values, **sections}.items() if value is not None}


BUDGET = 2.5
"""Epsilon: a small one, whose noise is solved in less time."""

DP = {
    "unit": "document",
    "units": 200,
    "budget": {"epsilon": BUDGET, "delta": 1e-4},
    "expected_batch": 20,
    "clip_norm": 0.5,
    "sequences_per_unit": 2,
}
LABELS = ["problem", "test"]


def files_with(folder: Path, word: str) -> list[str]:
    """Files below a folder that hold a word, in any case."""
    paths = (Path(root) / name for root, _, names in os.walk(folder) for name in names)
    return sorted(str(path) for path in paths if word.lower().encode() in path.read_bytes().lower())


def configured(folder: Path, start: Path, **sections: Any) -> FinetuneConfig:
    """A fine-tuning of the model in ``start``, from a file."""
    return load_finetune(write_config(folder / "finetune.yaml", finetune_values(folder, start, **sections)))
