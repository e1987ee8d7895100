"""`tacit confidentiality RUN`: what a run with screening says of a secret in its private text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import typer

from tacit.cli.options import JsonOption, RunArgument, print_json
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.privacy.statement import Line

__all__ = ["command", "line_text"]

_WIDTH = 110


def command(run: RunArgument, as_json: JsonOption = False) -> None:
    """State what a run keeps confidential: the worst case first, then with the measured screening, then for a drawn secret.

    Kept apart from the DP epsilon. It is computed from the run's configuration and ledger; nothing private is read.
    """
    from tacit.confidential import run_statement
    from tacit.folder import RunFolder
    from tacit.privacy.ledger import Ledger

    folder = RunFolder(run)
    config = folder.load_config()
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        statement = run_statement(config, ledger)
    if statement is None:
        raise UsageError(
            f"{run}: this run has no confidentiality statement: it has no section `screening`, no step with noise was paid yet, "
            "or it trains on private text without noise; `tacit verify` and the report say what it guarantees"
        )
    if as_json:
        print_json(statement.to_dict())
        return
    typer.echo(_wrapped(statement.apart))
    for line in statement.lines:
        typer.echo("\n" + line_text(line))


def line_text(line: Line) -> str:
    """A line of the statement, with what it rests on and the paper's number."""
    head = f"{line.kind} ({line.definition}, {line.status}): epsilon {line.epsilon:.4g} at delta {line.delta:.3g}"
    paper = f"The paper: {line.paper.epsilon:.4g}. {line.paper.difference}"
    return "\n".join([head, *(_wrapped(text, "  ") for text in (line.sentence, line.assumption, paper))])


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
