"""`tacit reproduce PAPER`: a paper's experiments on our own code, resumable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(
    name="reproduce",
    no_args_is_help=True,
    help="Repeat a paper's experiments on our own code: tables, figures, and its claims as our numbers judge them.",
)


@app.command("crt")
def crt_command(
    data: Annotated[Path, typer.Option("--data", help="Folder that holds customersim/ and multiwoz/.")],
    out: Annotated[Path, typer.Option("--out", help="Folder for everything that is made.")] = Path(
        "runs/reproduce-crt"
    ),
    scale: Annotated[str, typer.Option("--scale", help="laptop or full.")] = "laptop",
    workers: Annotated[int, typer.Option("--workers", min=1, help="Models trained at one time, a thread each.")] = 2,
    only: Annotated[str | None, typer.Option("--only", help="Only the models whose name holds this text.")] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write the results into this page too, between its markers.")
    ] = None,
) -> None:
    """Zhao et al. 2022, figures 2 to 6: confidentially redacted training against its baselines, attacked.

    Run it again to continue. Keys are public here, so that it can be repeated: none of these models has a guarantee.
    """
    from tacit.progress import TerminalReporter
    from tacit.reproduce.crt.experiment import reproduce_crt
    from tacit.reproduce.crt.scale import scale_named

    for line in reproduce_crt(data, out, scale_named(scale), workers, TerminalReporter(), only, page):
        typer.echo(line)


@app.command("hoory")
def hoory_command(
    data: Annotated[
        Path,
        typer.Option(
            "--data", help="Folder that holds mtsamples/, mtsamples-ner/, bio-ner/, medquad/, eltec-eng/, wikitext-2/."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", help="Folder for everything that is made.")] = Path(
        "runs/reproduce-hoory"
    ),
    scale: Annotated[str, typer.Option("--scale", help="laptop or full.")] = "laptop",
    workers: Annotated[int, typer.Option("--workers", min=1, help="Models trained at one time, a thread each.")] = 2,
    only: Annotated[str | None, typer.Option("--only", help="Only the models whose name holds this text.")] = None,
    page: Annotated[
        Path | None, typer.Option("--page", help="Write the results into this page too, between its markers.")
    ] = None,
) -> None:
    """Hoory et al. 2021, table 2 and figures 1 and 2: a clinical BERT with DP against BERT and BERT-M, and what each trick gives.

    Run it again to continue. Keys are public here, so that it can be repeated: none of these models has a guarantee.
    """
    from tacit.progress import TerminalReporter
    from tacit.reproduce.hoory.experiment import reproduce_hoory
    from tacit.reproduce.hoory.scale import scale_named

    for line in reproduce_hoory(data, out, scale_named(scale), workers, TerminalReporter(), only, page):
        typer.echo(line)
