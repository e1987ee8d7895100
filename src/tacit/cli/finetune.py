"""`tacit finetune`: entity extraction on a released model, with or without DP."""

from __future__ import annotations

import typer

from tacit.cli.options import ConfigArgument, SetOption
from tacit.files import quoted

__all__ = ["command"]


def command(config: ConfigArgument, settings: SetOption = None) -> None:
    """Fine-tune a BERT to find entities in annotated documents; run it again to continue after a stop.

    Leaves RUN/release (model and certificate), RUN/private (keep secret) and RUN/ledger.sqlite.
    """
    from tacit.config.finetune import load_finetune
    from tacit.entities.finetune import finetune
    from tacit.progress import TerminalReporter

    done = finetune(load_finetune(config, settings or ()), TerminalReporter())
    typer.echo(done.statement)
    typer.echo(
        f"model and certificate: {done.folder}/release; `tacit verify {quoted(done.folder)}` recomputes the certificate"
    )
    if done.scores is not None:
        typer.echo(f"exact scores, for the curator: {done.scores}")
    else:
        typer.echo("no scores: name `test` documents, or set `folds: 5` and run it again")
