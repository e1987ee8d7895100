"""Coins in a run: bound before the training, trained on as units, and guessed; an engine without noise is contradicted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.corpus.synthetic import SyntheticPublic, write_public

from .draws import who_asks
from .keys import begin_with_key
from .small import tacit, write_config
from .started import called, command

pytestmark = pytest.mark.slow

DOCUMENTS = 60


def write_texts(folder: Path) -> None:
    texts = [{"id": f"d{place}", "text": f"My order is {10**7 + 7919 * place}."} for place in range(DOCUMENTS)]
    (folder / "texts.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    write_public(folder / "public.jsonl", SyntheticPublic(records=300))


def values(folder: Path, run: str = "run", **sections: Any) -> dict[str, Any]:
    phase = {"name": "private", "plan": "dp", "stream": "private", "steps": 60, "expected_batch": 80, "clip_norm": 0.5}
    return {
        "run": str(folder / run),
        "privacy": {"unit": "document", "units": 160, "budget": {"epsilon": 1.0, "delta": 1e-4}},
        "private": {"path": str(folder / "texts.jsonl"), "id_field": "id"},
        "public": [{"path": str(folder / "public.jsonl"), "id_field": "id"}],
        "vocabulary": {"method": "public", "size": 400},
        "model": {"kind": "lstm", "layers": 1, "width": 48, "length": 16},
        "phases": [{**phase, "learning_rate": 1e-2}],
        "evaluation": {"held_out": 0.1, "public_sequences": 8},
        "audit": {"canaries": 2, "copies": 2, "digits": 2, "coins": {"examples": 160, "pieces": 8}},
        "compute": {"threads": 1, "checkpoint_seconds": 30.0},
        **sections,
    }


def without_noise(arguments: list[str], who: str) -> None:
    """`tacit ARGUMENTS...` of an engine that leaves the noise out: the known-wrong one."""
    import tacit.training.steps as steps

    steps.add_noise_ = lambda *given: None
    command(arguments, who)
