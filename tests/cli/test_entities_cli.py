"""`tacit finetune`, and `tacit compare`: exit codes, one line, and what they print."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ..entities.annotated import DP, LABELS, SENTINEL, finetune_values, write_notes
from ..folders import bert_folder
from ..small import write_config
from .calling import Done, Tacit, assert_one_line


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_notes(tmp_path / "notes")
    bert_folder(tmp_path / "bert")
    return tmp_path


def test_finetune_and_verify(tacit: Tacit, folder: Path) -> None:
    config = write_config(folder / "tuned.yaml", finetune_values(folder, folder / "bert"))
    done = tacit("finetune", config)
    assert done.code == 0, done.err
    assert "epsilon is infinite" in done.out
    assert SENTINEL not in done.out + done.err
    verified = tacit("verify", folder / "tuned")
    assert verified.code == 0, verified.err
    assert "FAIL" not in verified.out
    (folder / "tuned" / "release" / "model" / "config.json").write_text("{}")
    assert tacit("verify", folder / "tuned").code == 4


def one_line(done: Done, code: int, *parts: str) -> None:
    assert_one_line(done, code, *parts)
    assert SENTINEL not in done.out + done.err


def comparison_of(folder: Path, task: dict[str, Any]) -> Path:
    values = {
        "run": str(folder / "compared"),
        "models": {"one": {"folder": str(folder / "bert")}},
        "tasks": {"notes": task},
        "training": {"epochs": 1},
    }
    return write_config(folder / "compared.yaml", values)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (f"{SENTINEL}\tO\n{SENTINEL}\tI-problem\n", "line 2: an I- tag"),
        (f"{SENTINEL}\tO\n{SENTINEL}\n", "line 2: the line has not the columns"),
        (f"{SENTINEL}\tO\n{SENTINEL}\tX-problem\n", "line 2: the tag is none of O, B-TYPE and I-TYPE"),
    ],
)
def test_bad_documents_are_one_line_and_exit_4(tacit: Tacit, folder: Path, text: str, problem: str) -> None:
    path = folder / "notes" / "note02.bio"
    path.write_text(text)
    config = write_config(folder / "tuned.yaml", finetune_values(folder, folder / "bert"))
    one_line(tacit("finetune", config), 4, f"{path}, {problem}")
    one_line(tacit("compare", comparison_of(folder, {"path": str(folder / "notes")})), 4, f"{path}, {problem}")
    assert not (folder / "tuned").exists()
    assert not (folder / "compared").exists()


def test_labels_and_documents_of_two_parts_are_one_line_and_exit_4(tacit: Tacit, folder: Path) -> None:
    """A type of entity in test that training does not have; a document in two folds, under its name or another one."""
    held_out = write_notes(folder / "held-out", 1, start=30)
    split = {"train": str(folder / "notes"), "test": str(held_out)}
    tuned = finetune_values(folder, folder / "bert", test={"path": str(held_out)})
    configs = {"finetune": write_config(folder / "tuned.yaml", tuned), "compare": comparison_of(folder, split)}
    (held_out / "note30.bio").write_text(f"{SENTINEL}\tB-{SENTINEL}\n")
    for command, config in configs.items():
        one_line(tacit(command, config), 4, f"{held_out / 'note30.bio'}, line 1: an entity of a type that is not in")
    (held_out / "note30.bio").write_text((folder / "notes" / "note03.bio").read_text())
    for command, config in configs.items():
        one_line(tacit(command, config), 4, "note30.bio, line 1: this document is in two folds")
    assert not (folder / "tuned").exists()
    assert not (folder / "compared").exists()


def test_wrong_configurations_are_one_line_and_exit_2(tacit: Tacit, folder: Path) -> None:
    values = finetune_values(folder, folder / "bert", dp=DP, labels=LABELS)
    one_line(tacit("finetune", write_config(folder / "a.yaml", values)), 2, "refused (start-unknown)")
    misspelt = {**finetune_values(folder, folder / "bert"), "lables": LABELS}
    one_line(tacit("finetune", write_config(folder / "b.yaml", misspelt)), 2, "did you mean 'labels'")
    one_line(tacit("compare", write_config(folder / "c.yaml", {"run": "x", "tasks": {}})), 2, "'models' is missing")
    one_line(tacit("finetune", folder / "missing.yaml"), 2, "no such configuration file")
    assert not (folder / "tuned").exists()
