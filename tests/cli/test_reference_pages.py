"""The pages below docs/reference are what the commands, the docstrings and the refusals say: fresh and whole."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from tests.test_reason_codes import codes_of_tacit

from tacit.cli.reference import all_commands
from tacit.cli.reference_pages import PAGES, refusals
from tacit.errors import TacitError

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


def written(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_fresh(name: str) -> None:
    assert PAGES[name]() == written(name), "run: python -m tacit.cli.reference_pages docs/reference"


def test_no_page_is_without_its_maker() -> None:
    assert {path.name for path in FOLDER.iterdir()} == set(PAGES)


@pytest.mark.parametrize("name", all_commands())
def test_every_command_has_its_part_with_every_option(name: str) -> None:
    part = written("commands.md").split(f"\n## {name}\n")[1].split("\n## ")[0]
    for one in all_commands()[name].params:
        if one.name != "help":
            shown = one.name.upper() if not one.opts[0].startswith("-") else ", ".join((*one.opts, *one.secondary_opts))
            assert f"| `{shown}` |" in part


@pytest.mark.slow
def test_every_reason_code_and_every_error_has_its_row() -> None:
    page = written("errors.md")
    assert {one.code for one in refusals()} == codes_of_tacit()
    for part in page.split("\n## Reason codes\n")[1].split("\n## What is said\n"):
        assert set(re.findall(r"^\| `([a-z0-9-]+)` \|", part, re.MULTILINE)) == codes_of_tacit()
    kinds = {
        kind.__name__: kind.exit_code for kind in [TacitError, *_below(TacitError)] if kind.__module__ == "tacit.errors"
    }
    assert {name: int(code) for code, name in re.findall(r"^\| (\d+) \| `(\w+)` \|", page, re.MULTILINE)} == kinds


def _below(kind: type[TacitError]) -> list[type[TacitError]]:
    return [found for inner in kind.__subclasses__() for found in [inner, *_below(inner)]]


@pytest.mark.parametrize("module", ["tacit", "tacit.engine", "tacit.randomness", "tacit.errors"])
def test_every_public_name_has_its_heading(module: str) -> None:
    part = written("api.md").split(f"\n## {module}\n")[1].split("\n## ")[0]
    names = {name for name in importlib.import_module(module).__all__ if not name.startswith("__")}
    assert set(re.findall(r"^### (\w+)$", part, re.MULTILINE)) == names
