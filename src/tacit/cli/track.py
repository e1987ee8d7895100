"""`tacit track`: how far a run is, in TensorBoard, MLflow or Weights & Biases."""

from __future__ import annotations

from typing import Annotated

import typer

from tacit.cli.options import RunArgument

__all__ = ["command"]


def command(
    run: RunArgument,
    tracker: Annotated[
        str, typer.Option("--with", metavar="TRACKER", help="tensorboard, mlflow or wandb.")
    ] = "tensorboard",
    into: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="A folder for tensorboard (RUN/private/tensorboard), a tracking URI for mlflow, a project for wandb.",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option(help="Go on until the run has ended; with tensorboard alone.")] = False,
) -> None:
    """Show how far a run is in a tracker: shares of steps, and epsilon spent, from RUN/private/events.jsonl and nothing else."""
    from tacit.pipeline.trackers import track

    typer.echo(f"{track(run, tracker, into, follow)} lines sent to {tracker}: shares of steps, and epsilon")
