"""Arguments and small helpers that several commands share."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.progress import one_line

__all__ = [
    "ConfigArgument",
    "JsonOption",
    "RunArgument",
    "SetOption",
    "print_json",
    "say",
    "say_error",
    "say_lines",
    "table",
    "window_width",
]

ConfigArgument = Annotated[
    Path, typer.Argument(metavar="CONFIG", help="YAML configuration; see recipes/, docs/tour.md and docs/options.md.")
]
RunArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="Run folder, as named by `run:` in the configuration.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change an option for this call, such as privacy.budget.epsilon=3; repeatable.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON on standard output.")]


def say(line: object) -> None:
    """One line on standard output; nothing in it acts on the terminal: names of files, runs and units may come from anybody."""
    typer.echo(one_line(str(line)))


def say_lines(text: str) -> None:
    """Lines on standard output, each as `say` has it."""
    for line in text.split("\n"):
        say(line)


def say_error(error: object) -> None:
    """The one line on standard error by which a command ends; nothing in it acts on the terminal."""
    typer.echo(one_line(f"tacit: {error}"), err=True)


def print_json(values: Any) -> None:
    """JSON on standard output; infinite numbers are the string "infinity"."""
    typer.echo(json.dumps(_plain(values), indent=1, allow_nan=False))


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return "infinity"
    return value


def window_width() -> int:
    """Columns of the terminal, or what COLUMNS says; at least 40, and not so many that lines are hard to read."""
    return min(max(shutil.get_terminal_size((80, 24)).columns, 40), 110)


def table(headers: list[str], rows: list[list[str]]) -> str:
    """A plain text table: the first column to the left, numbers as they are. What would act on a terminal is spelled out."""
    headers, rows = [one_line(cell) for cell in headers], [[one_line(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in [headers, *rows]) for column in range(len(headers))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [headers, *rows]
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join(lines)
