"""What the commands of `tacit accountant` read (options, and words turned into choices) and print."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tacit.cli.options import print_json, table
from tacit.errors import UsageError
from tacit.privacy.rounded import lower, upper

if TYPE_CHECKING:
    from tacit.privacy.confidentiality.account import Confidentiality
    from tacit.privacy.confidentiality.crt_paper import PaperRow
    from tacit.privacy.confidentiality.misses import Labels

__all__ = [
    "Delta",
    "MaxWords",
    "Multiplier",
    "NoiseKind",
    "RelationOption",
    "Sampling",
    "Stddev",
    "Steps",
    "Threshold",
    "check_histogram",
    "noise_named",
    "relation_named",
    "share_or_labels",
    "show",
    "show_confidentiality",
]

Relation = Literal["add-or-remove", "replace"]
RelationOption = Annotated[str, typer.Option("--relation", help="Neighbouring relation: add-or-remove or replace.")]
Sampling = Annotated[float, typer.Option(help="Probability with which a unit is in a step's batch.")]
Steps = Annotated[int, typer.Option(help="Number of training steps.")]
Delta = Annotated[float, typer.Option(help="Delta of the guarantee.")]
Multiplier = Annotated[float, typer.Option(help="Noise standard deviation over the clip norm.")]
Stddev = Annotated[float | None, typer.Option(help="Standard deviation of the noise on a word's count.")]
Threshold = Annotated[float | None, typer.Option(help="Smallest noisy count that is released.")]
MaxWords = Annotated[int, typer.Option(help="Distinct words that one unit contributes at most.")]
NoiseKind = Annotated[str, typer.Option("--noise", help="gaussian (real-valued) or discrete-gaussian (integers).")]


def relation_named(name: str) -> Relation:
    """The relation of ``--relation``; another word is a `UsageError`."""
    if name == "replace":
        return "replace"
    if name == "add-or-remove":
        return "add-or-remove"
    raise UsageError(f"--relation is {name!r}; it must be add-or-remove or replace")


def noise_named(name: str) -> Literal["gaussian", "discrete-gaussian"]:
    """The noise of ``--noise``; another word is a `UsageError`."""
    if name == "gaussian":
        return "gaussian"
    if name == "discrete-gaussian":
        return "discrete-gaussian"
    raise UsageError(f"--noise is {name!r}; it must be gaussian or discrete-gaussian")


def check_histogram(noise_stddev: float | None, max_words: int) -> None:
    """Raise `UsageError` for a histogram that cannot be."""
    if noise_stddev is not None and not (math.isfinite(noise_stddev) and noise_stddev > 0):
        raise UsageError(f"--noise-stddev is {noise_stddev}; it must be a finite number above 0")
    if max_words < 1:
        raise UsageError(f"--max-words is {max_words}; it must be at least 1")


def show(values: dict[str, Any], as_json: bool) -> None:
    """Print named numbers, one a line or as JSON"""
    if as_json:
        print_json(values)
        return
    for name, value in values.items():
        if isinstance(value, dict):  # all of it is computed here, and nothing given
            for inner, one in value.items():
                typer.echo(f"{name}, {inner}: ".replace("_", " ") + _printed(f"{name}.{inner}", one))
        elif value is not None:
            typer.echo(f"{name.replace('_', ' ')}: {_printed(name, value)}")


_GIVEN = ("delta", "sampling_probability", "noise_stddev", "threshold")
"""Printed as they are: what stands beside them is of these very numbers. All others are upper bounds, or noise, of which less would
not do."""


def _printed(name: str, value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    return repr(value) if name in _GIVEN and float(f"{value:.6g}") != value else upper(value, ".6g")


def share_or_labels(name: str, given: float | None, labelled: int | None, missed: int) -> float | Labels | None:
    """A share that was given, or the labels that bound it; both, or misses without labels, are a `UsageError`."""
    from tacit.privacy.confidentiality.misses import Labels

    if labelled is None:
        if missed:
            raise UsageError(f"{missed} labels missed, but of how many? (for {name})")
        return given
    if given is not None:
        raise UsageError(f"give --{name} or labels to bound it by, not both")
    return Labels(labelled, missed)


def show_confidentiality(found: Confidentiality, rows: tuple[PaperRow, ...]) -> None:
    """Print each statement with its steps and assumptions, then the rows from the paper's number."""
    from tacit.privacy.confidentiality.crt_paper import PAPER_FORMULAS

    for statement in (found.worst_case, found.bayesian):
        if statement is not None:
            confidence = "" if statement.confidence is None else f", confidence {lower(statement.confidence)}"
            typer.echo(f"{statement.kind}: epsilon {upper(statement.epsilon)} ({statement.status}{confidence})")
            typer.echo(f"  {statement.sentence}")
            for line in statement.steps:
                typer.echo(f"  - {line}")
            for line in statement.assumptions:
                typer.echo(f"  * assumed: {line}")
    typer.echo(found.apart)
    if rows:
        cells = [[row.change, upper(row.epsilon_missed, ".4f"), upper(row.epsilon, ".4f")] for row in rows]
        typer.echo("\n" + table(["from the paper's number to ours", "epsilon'", "epsilon"], cells))
        typer.echo("\n" + table(["", "the paper", "here"], [list(line) for line in PAPER_FORMULAS]))
