"""`tacit report`: build the report of a finished run again."""

from __future__ import annotations

import typer

from tacit.cli.options import RunArgument

__all__ = ["command"]


def command(run: RunArgument) -> None:
    """Write report.html, report.json and the model card in RUN/release, and the curator's copy in RUN/private/report."""
    from tacit.folder import RunFolder
    from tacit.pipeline.release import report_run

    typer.echo(report_run(RunFolder(run)))
