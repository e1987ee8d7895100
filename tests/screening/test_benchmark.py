"""benchmarks/screening.py --streams: its shares on a corpus counted by hand. No timings."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tacit.corpus.source import Source
from tacit.corpus.turns import Turns

FILE = Path(__file__).parents[2] / "benchmarks" / "screening.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("screening_benchmark", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["screening_benchmark"] = module  # its dataclasses look themselves up
    spec.loader.exec_module(module)
    return module


def test_shares_by_hand(benchmark: ModuleType, tmp_path: Path) -> None:
    """Two of four turns are private; redacted, the second of them is a copy of the first, and the last turn of the second."""
    dialogues = [
        [["U", "Call 415-555-2671 now."], ["S", "Thank you."]],
        [["U", "Call 212-555-0187 now."], ["S", "Thank you."]],
    ]
    path = tmp_path / "dialogues.jsonl"
    path.write_text("".join(json.dumps({"turns": turns}) + "\n" for turns in dialogues))
    found = benchmark.shares("mine", Source(path, text_field="turns", turns=Turns()), workers=1)
    assert list(found) == [
        benchmark.Shares("mine", "record", "none", 2, 1.0, 0.0, 0.0),
        benchmark.Shares("mine", "record", "exact", 2, 1.0, 0.5, 0.5),
        benchmark.Shares("mine", "record", "unmasked", 2, 1.0, 0.0, 0.0),
        benchmark.Shares("mine", "line", "none", 4, 0.5, 0.0, 0.0),
        benchmark.Shares("mine", "line", "exact", 4, 0.75, 0.5, 0.5),
        benchmark.Shares("mine", "line", "unmasked", 4, 0.5, 0.0, 0.0),
    ]


def test_the_corpora_are_there(benchmark: ModuleType, data_dir: Path) -> None:
    for source in benchmark.dialogues(data_dir).values():
        assert list(source.path.parent.glob(source.path.name))
