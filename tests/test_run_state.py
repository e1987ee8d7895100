"""What the stages share: reading an attribute of it has no effect, and it stays small."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch
from hostile.cases import CASES
from safetensors.torch import save_file
from tests.writes import written_meanwhile

from tacit.config import parse_config
from tacit.errors import UsageError
from tacit.files import atomic_folder, private_folder, write_atomically, write_json, write_private_json
from tacit.models.kinds import save_model
from tacit.pipeline.opening import open_run
from tacit.pipeline.stages import run
from tacit.pipeline.state import RunState
from tacit.privacy.certificate import file_digests
from tacit.privacy.ledger import Ledger
from tacit.scoring.scoring import score_corpus
from tacit.screening.corpus import screen_corpus
from tacit.training.loop import run_phase
from tacit.training.sequences import tokenize_units

_EFFECTS: tuple[Callable[..., Any], ...] = (
    *(Ledger.bind, Ledger.charge, Ledger.plan),
    *(screen_corpus, score_corpus, run_phase, tokenize_units),
    *(atomic_folder, private_folder, save_model, write_atomically, write_json, write_private_json),
)
"""Pay, bind, screen, score, train, tokenise a corpus, write."""


def _code(function: Callable[..., Any]) -> CodeType:
    while hasattr(function, "__wrapped__"):  # a decorator's own code is that of every function that it decorates
        function = function.__wrapped__  # type: ignore[attr-defined]
    return function.__code__


@contextmanager
def called() -> Iterator[set[CodeType]]:
    """The code of all Python functions that are called meanwhile."""
    found: set[CodeType] = set()

    def see(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            found.add(frame.f_code)

    sys.setprofile(see)
    try:
        yield found
    finally:
        sys.setprofile(None)


def attributes_of(kind: type) -> list[str]:
    """Fields and properties, also those that are kept."""
    properties = {
        name
        for one in kind.__mro__
        for name, value in vars(one).items()
        if isinstance(value, property | functools.cached_property)
    }
    return sorted({field.name for field in dataclasses.fields(kind)} | properties)


def effects_of(state: RunState) -> dict[str, list[str]]:
    """Of every attribute of a run's state that has one: the functions with effects that reading it reaches, and the files that it
    writes, by whatever way.
    """
    forbidden = {_code(function): function.__qualname__ for function in _EFFECTS}
    found: dict[str, list[str]] = {}
    before = file_digests(state.folder.root)
    for name in attributes_of(type(state)):
        with (
            called() as codes,
            written_meanwhile() as writes,
            contextlib.suppress(UsageError),
        ):  # a causal model has no masking
            getattr(state, name)
        after = file_digests(state.folder.root)
        changed = {path for path, _ in {*before.items()} ^ {*after.items()}}
        reached = [forbidden[code] for code in codes & forbidden.keys()]
        if effects := sorted({*reached, *(write.path.name for write in writes), *changed}):
            found[name] = effects
        before = after
    return found


class _Wrong(RunState):
    """Known wrong, as it was once: properties that bind the ledger, and write."""

    @property
    def bound(self) -> str:
        self.ledger.bind("a name", "a digest")
        return "a digest"

    @functools.cached_property
    def written(self) -> Path:
        write_json(self.folder.private / "wrong.json", {})
        return self.folder.private / "wrong.json"

    @property
    def renamed(self) -> Path:
        return self.folder.config.rename(self.folder.root / "renamed.json")

    @property
    def kept_outside(self) -> int:
        with (self.folder.root.parent / "cache.json").open("a") as file:
            return file.write("{}")

    @property
    def saved(self) -> str:
        save_file({"weight": torch.zeros(1)}, self.folder.private / "saved.safetensors")  # in native code
        return "weight"


_WRONG = {
    "bound": ["Ledger.bind"],
    "kept_outside": ["cache.json"],
    "renamed": ["renamed.json"],
    "saved": ["private/saved.safetensors"],
    "written": ["write_json", "private/wrong.json"],
}


def _values(kind: str, folder: Path) -> dict[str, Any]:
    """Of a finished run, so that every attribute has a value."""
    CASES[kind].write(folder)
    found = {**CASES[kind].values(folder), "run": str(folder / "run")}
    run(parse_config(found))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["BERT, histogram", "CRT, two rounds", "adaptive, strata"])
def test_reading_an_attribute_has_no_effect(kind: str, tmp_path: Path) -> None:
    assert {"tokenizer", "masking", "objective", "ledger"} <= set(attributes_of(RunState))
    with open_run(parse_config(_values(kind, tmp_path))) as state:
        assert effects_of(state) == {}
        wrong = _Wrong(**{field.name: getattr(state, field.name) for field in dataclasses.fields(state)})
        found = effects_of(wrong)
        assert found.keys() == _WRONG.keys()
        assert all(set(_WRONG[name]) <= set(effects) for name, effects in found.items()), found


def test_the_state_is_small() -> None:
    assert len(dataclasses.fields(RunState)) <= 8
