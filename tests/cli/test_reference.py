"""docs/options.md is what the configuration's models say: fresh, whole, and with words for every option."""

from __future__ import annotations

import importlib
import pkgutil
import re
from pathlib import Path
from typing import Annotated, Literal

import pytest
from pydantic import Field

from tacit import config as configuration
from tacit.cli.reference import Section, all_commands, option_words, page, section_page, sections
from tacit.config import AuditOptions, DpPhase, PublicCorpusOptions, VocabularyOptions
from tacit.config.base import Options

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "options.md").read_text(encoding="utf-8")


def option_models() -> set[type[Options]]:
    """Every model of `tacit.config`, whatever its module."""
    names = [found.name for found in pkgutil.walk_packages(configuration.__path__, f"{configuration.__name__}.")]
    return {
        kind
        for name in names
        for kind in vars(importlib.import_module(name)).values()
        if isinstance(kind, type) and issubclass(kind, Options) and kind.__module__ == name and kind is not Options
    }


MODELS = sorted((model for model in option_models() if model.model_fields), key=lambda model: model.__name__)
OPTIONS = sorted({(model.__name__, name) for model in MODELS for name in model.model_fields})


def wordless(model: type[Options]) -> set[str]:
    """Options that the docstrings say nothing of, and words for options that there are not."""
    words = {name for name, text in option_words(model).items() if text}
    return words ^ set(model.model_fields)


def test_the_page_is_fresh() -> None:
    assert page() == PAGE, "run: python -m tacit.cli.reference docs/options.md"


def test_the_list_of_options_is_whole() -> None:
    assert len(OPTIONS) > 60
    assert {
        ("Budget", "delta"),
        ("TupleUnit", "tuple"),
        ("ComputeOptions", "micro_batch"),
        ("TaskOptions", "folds"),
    } <= set(OPTIONS)


def test_every_model_of_the_configuration_is_a_section() -> None:
    assert {section.model for section in sections()} == set(MODELS)
    anchors = [section.anchor for section in sections()]
    assert len(set(anchors)) == len(anchors)


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_option_has_words_and_a_row_of_its_section(model: type[Options]) -> None:
    assert wordless(model) == set()
    shown = {section.model: section for section in sections()}
    section = shown[model]
    rows = set(re.findall(r"^\| `(\w+)` \|", PAGE.split(f"\n## {section.title}\n")[1].split("\n## ")[0], re.MULTILINE))
    above = next((shown[kind] for kind in model.__mro__[1:] if kind in shown), None)
    assert rows | set(above.names if above is not None else ()) == set(model.model_fields)


class Silent(Options):
    """A section that forgets an option.

    Args:
        told: a bounded number, which goes on
            in a second line.
    """

    told: Annotated[float, Field(ge=0, lt=1)] = 1e-6
    forgotten: Literal["yes", "no"] | None = None


class Stale(Options):
    """A section that has words for what is gone.

    Args:
        told: a number.
        gone: was an option.

    Raises:
        nothing: as it happens.
    """

    told: int


def test_an_option_without_words_and_words_without_an_option_are_found() -> None:
    assert wordless(Silent) == {"forgotten"}
    assert wordless(Stale) == {"gone"}
    assert option_words(Silent) == {"told": "a bounded number, which goes on in a second line."}


def test_values_bounds_and_defaults_are_those_of_the_field() -> None:
    section = Section("tacit run", "silent", Silent, None, ("told", "forgotten"))
    told, forgotten = section_page(section, [section]).splitlines()[-2:]
    assert told == (
        "| `told` | number, at least 0, below 1 | `1.0e-06` | a bounded number, which goes on in a second line. |"
    )
    assert forgotten == "| `forgotten` | `yes`, `no` | none |  |"


@pytest.mark.parametrize(
    ("model", "row"),
    [
        (VocabularyOptions, "| `size` | whole number, at least 300, at most 200000 | `8192` |"),
        (VocabularyOptions, "| `rounds` | list, each: number, above 0, below 1; at least 1; at most 16 |"),
        (AuditOptions, "| `patterns` | list, each: text of the form `^H*SH*$` | `[HS, HSH, HHSHH]` |"),
        (DpPhase, "| `noise_multiplier` | number, above 0 | none |"),
        (PublicCorpusOptions, "| `times` | whole number, at least 1 | `1` |"),
    ],
)
def test_rows_read_as_the_models_check(model: type[Options], row: str) -> None:
    section = next(one for one in sections() if one.model is model)
    assert row in section_page(section, sections())


def test_every_link_within_the_page_has_its_heading() -> None:
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in PAGE.splitlines()
        if line.startswith("#")
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", PAGE)) <= headings


@pytest.mark.parametrize("name", all_commands())
def test_every_option_of_a_command_is_on_the_page(name: str) -> None:
    rows = PAGE.split(f"\n### `{name}`\n")[1].split("\n### ")[0]
    for parameter in all_commands()[name].params:
        for option in parameter.opts:
            if parameter.name != "help" and option.startswith("--"):
                assert f"| `{option}` |" in rows
