"""`tacit confidentiality RUN`: what a run with screening says of a secret in its private text."""

from __future__ import annotations

import dataclasses
import textwrap
from typing import TYPE_CHECKING

import typer

from tacit.cli.options import JsonOption, RunArgument, print_json, window_width
from tacit.errors import UsageError
from tacit.privacy.rounded import upper

if TYPE_CHECKING:
    from tacit.privacy.confidentiality.lines import Line
    from tacit.privacy.confidentiality.statement import ConfidentialityStatement

__all__ = ["command", "show_lines"]


def command(run: RunArgument, as_json: JsonOption = False) -> None:
    """State what a run keeps confidential: the worst case first, then with the measured screening, then for a drawn secret.

    Kept apart from the DP epsilon. It is computed from the run's configuration and ledger; nothing private is read.
    """
    from tacit.planning.confidentiality import run_statement
    from tacit.privacy.ledger import Ledger
    from tacit.runs.folder import RunFolder

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
    show_lines(statement)


def show_lines(statement: ConfidentialityStatement) -> None:
    """All three lines; what is missing of them is infinite. Then how well the bounds on the misses are known."""
    from tacit.report.prose import share_sentence
    from tacit.report.schema import MissedShare

    for line in statement.lines:
        typer.echo("\n" + _line_text(line))
    if statement.screened is None:
        typer.echo(
            "\nscreened, bayesian: epsilon inf\n"
            + _wrapped("Nothing is guaranteed: what the policies miss was neither measured nor stated (gamma).", "  ")
        )
    for share in statement.shares:
        typer.echo("\n" + _wrapped(share_sentence(MissedShare(**dataclasses.asdict(share)))))


def _line_text(line: Line) -> str:
    """A line of the statement, with what it rests on and the paper's number."""
    head = f"{line.kind} ({line.definition}, {line.status}): epsilon {upper(line.epsilon)} at delta {upper(line.delta, '.3g')}"
    paper = f"The paper: {line.paper.epsilon:.4g}. {line.paper.difference}"
    return "\n".join([head, *(_wrapped(text, "  ") for text in (line.sentence, line.assumption, paper))])


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, window_width(), initial_indent=indent, subsequent_indent=indent)
