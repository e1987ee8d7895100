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

Out = Annotated[Path, typer.Option("--out", help="Folder for everything that is made.")]
ScaleName = Annotated[str, typer.Option("--scale", help="laptop or full.")]
Workers = Annotated[int, typer.Option("--workers", min=1, help="Models trained at one time, a thread each.")]
Only = Annotated[str | None, typer.Option("--only", help="Only the models whose name holds this text.")]
Page = Annotated[Path | None, typer.Option("--page", help="Write the results into this page too, between its markers.")]


@app.command("crt")
def crt_command(
    data: Annotated[Path, typer.Option("--data", help="Folder that holds customersim/ and multiwoz/.")],
    out: Out = Path("runs/reproduce-crt"),
    scale: ScaleName = "laptop",
    workers: Workers = 2,
    only: Only = None,
    page: Page = None,
) -> None:
    """Zhao et al. 2022, figures 2 to 6: confidentially redacted training against its baselines, attacked.

    Run it again to continue. Keys are public here, so that it can be repeated: none of these models has a guarantee.
    """
    from tacit.progress import TerminalReporter
    from tacit.reproduce.crt.experiment import reproduce_crt
    from tacit.reproduce.crt.scale import SCALES
    from tacit.reproduce.place import scale_named

    for line in reproduce_crt(data, out, scale_named(SCALES, scale), workers, TerminalReporter(), only, page):
        typer.echo(line)


@app.command("adp")
def adp_command(
    data: Annotated[Path, typer.Option("--data", help="Folder that holds wikitext-2/, medquad/ and eltec-eng/.")],
    out: Out = Path("runs/reproduce-adp"),
    scale: ScaleName = "laptop",
    workers: Workers = 2,
    only: Only = None,
    page: Page = None,
) -> None:
    """Wu et al. 2022, table 1 and figure 1: adaptive DP as published and in its certified forms, beside DP-SGD and no DP.

    Run it again to continue. Keys are public here, so that it can be repeated: none of these models has a guarantee.
    """
    from tacit.progress import TerminalReporter
    from tacit.reproduce.adp.experiment import reproduce_adp
    from tacit.reproduce.adp.scale import SCALES
    from tacit.reproduce.place import scale_named

    for line in reproduce_adp(data, out, scale_named(SCALES, scale), workers, TerminalReporter(), only, page):
        typer.echo(line)


@app.command("hoory")
def hoory_command(
    data: Annotated[
        Path,
        typer.Option(
            "--data",
            help="Folder that holds mtsamples/, mtsamples-ner/, bio-ner/, medquad/, clinical-dialog/, eltec-eng/, wikitext-2/.",
        ),
    ],
    out: Out = Path("runs/reproduce-hoory"),
    scale: ScaleName = "laptop",
    workers: Workers = 2,
    only: Only = None,
    page: Page = None,
) -> None:
    """Hoory et al. 2021, table 2 and figures 1 and 2: a clinical BERT with DP against BERT and BERT-M, and what each trick gives.

    Run it again to continue. Keys are public here, so that it can be repeated: none of these models has a guarantee.
    """
    from tacit.progress import TerminalReporter
    from tacit.reproduce.hoory.experiment import reproduce_hoory
    from tacit.reproduce.hoory.scale import SCALES
    from tacit.reproduce.place import scale_named

    for line in reproduce_hoory(data, out, scale_named(SCALES, scale), workers, TerminalReporter(), only, page):
        typer.echo(line)
