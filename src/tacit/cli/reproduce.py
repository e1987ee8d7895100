"""`tacit reproduce PAPER`: a paper's experiments on our own code, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tacit.errors import UsageError

__all__ = ["command"]

Name = Annotated[str | None, typer.Argument(metavar="[PAPER]", help="Its name; without one the papers are listed.")]
Data = Annotated[
    Path | None,
    typer.Option("--data", help="Folder that holds the corpora, a folder each; the list of papers says which."),
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Folder for all that is made; runs/reproduce-PAPER if not given.")
]
ScaleName = Annotated[
    str,
    typer.Option(
        "--scale",
        help="laptop, night (goes on from it, with more models) or full (a GPU).",
    ),
]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Models trained at one time, a thread each.")]
Only = Annotated[str | None, typer.Option("--only", help="Only the models whose name holds this text.")]
Page = Annotated[Path | None, typer.Option("--page", help="Write the results into this page too, between its markers.")]


def command(
    paper: Name = None,
    data: Data = None,
    out: Out = None,
    scale: ScaleName = "laptop",
    workers: Workers = 2,
    only: Only = None,
    page: Page = None,
) -> None:
    """Repeat a paper's experiments on our own code: tables, figures, and its claims as our numbers judge them.

    Run it again to continue. Keys are public here, so that it can be repeated: none of these models has a guarantee.
    """
    from tacit.progress import TerminalReporter
    from tacit.reproduce.driver import reproduce
    from tacit.reproduce.papers import PAPERS
    from tacit.reproduce.place import Place, scale_named

    if paper is None:
        for name, one in PAPERS.items():
            typer.echo(f"{name}: {one.title} --data: {', '.join(f'{folder}/' for folder in one.corpora)}")
        return
    if paper not in PAPERS:
        raise UsageError(f"paper is {paper!r}; it must be one of {', '.join(PAPERS)}")
    chosen = PAPERS[paper]
    if data is None:
        raise UsageError(
            f"--data is missing: name the folder that holds {', '.join(f'{one}/' for one in chosen.corpora)}"
        )
    place = Place(data, out or Path(f"runs/reproduce-{paper}"))
    for line in reproduce(chosen, scale_named(chosen.scales, scale), place, workers, TerminalReporter(), only, page):
        typer.echo(line)
