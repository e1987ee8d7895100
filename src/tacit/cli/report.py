"""`tacit report`: build the report of a finished run again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.cli.options import RunArgument, say
from tacit.errors import UsageError

__all__ = ["command"]


def command(
    run: RunArgument,
    registry: Annotated[
        Path | None,
        typer.Option(help="Instead write a draft for OpenDP's registry of deployments (YAML) into this new file."),
    ] = None,
) -> None:
    """Write report.html, report.json and the model card in RUN/release, and the curator's copy in RUN/private/report."""
    from tacit.runs.folder import RunFolder

    if registry is not None:
        _write_draft(RunFolder(run).release, registry)
        return
    from tacit.pipeline.pages import report_run

    say(report_run(RunFolder(run)))


def _write_draft(release: Path, path: Path) -> None:
    from tacit.report.build import read_report
    from tacit.report.registry import OPEN, registry_text

    data = read_report(release)
    if data is None:
        raise UsageError(f"{release}: no report there; `tacit run CONFIG` finishes a run")
    text = registry_text(data)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise UsageError(f"{path}: a file is there already; name another one") from None
    say(f"{path}: a draft; fill in what says {OPEN}")
