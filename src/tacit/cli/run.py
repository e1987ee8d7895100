"""`tacit run` and its stages `vocabulary`, `train`, `evaluate`: each continues what an earlier start has done.

Under `torchrun -m tacit` the first process does the work of the command, and the others help it to train.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tacit.cli.options import ConfigArgument, say_error
from tacit.errors import TacitError

if TYPE_CHECKING:
    from tacit.config import RunConfig
    from tacit.engine.distributed import Ranks

__all__ = ["evaluate_command", "run_command", "train_command", "vocabulary_command"]


def _together(path: Path, work: Callable[[RunConfig, Ranks], None]) -> None:
    """``work`` in the first process; any others assist it until it has closed the run."""
    from tacit.config import load_config
    from tacit.engine.distributed import join
    from tacit.pipeline.training import assist

    config = load_config(path)
    with join(config.compute.device) as ranks:
        try:
            if ranks.first:
                work(config, ranks)
            else:
                assist(config, ranks)
        except TacitError as error:  # said before the others notice that this process has left, and say so
            say_error(error)
            raise typer.Exit(error.exit_code) from None


def run_command(config: ConfigArgument) -> None:
    """Go from text to report; run it again to continue after a stop.

    Leaves RUN/release (page one of its report says what limits it, if anything does), RUN/private (keep secret) and
    RUN/ledger.sqlite.
    """

    def work(options: RunConfig, ranks: Ranks) -> None:
        from tacit.pipeline.release import run
        from tacit.progress import TerminalReporter, one_line

        typer.echo(one_line(run(options, TerminalReporter(), ranks).statement))

    _together(config, work)


def vocabulary_command(config: ConfigArgument) -> None:
    """Only the DP vocabulary: tokenizer.json in RUN/private/vocabulary."""

    def work(options: RunConfig, ranks: Ranks) -> None:
        from tacit.pipeline.opening import open_run
        from tacit.pipeline.vocabulary import vocabulary
        from tacit.progress import TerminalReporter

        with open_run(options, TerminalReporter(), ranks) as state:
            vocabulary(state)

    _together(config, work)


def train_command(config: ConfigArgument) -> None:
    """Vocabulary and all training phases (and the audit's control, when asked for)."""

    def work(options: RunConfig, ranks: Ranks) -> None:
        from tacit.pipeline.opening import open_run
        from tacit.pipeline.training import train
        from tacit.progress import TerminalReporter

        with open_run(options, TerminalReporter(), ranks) as state:
            train(state)

    _together(config, work)


def evaluate_command(config: ConfigArgument) -> None:
    """Of a run: up to the held-out scores. Of a comparison (`models:` and `tasks:`): entity-level F1 of every model.

    A comparison fine-tunes each model on each fold of each task, and writes tables and a plot; run it again to continue.
    """
    from tacit.config.entities import names_tasks
    from tacit.config.load import read_yaml

    values = read_yaml(config)
    if names_tasks(values):
        _compare(values, config)
    else:
        _evaluate_run(config)


def _compare(values: object, path: Path) -> None:
    from tacit.config.entities import load_comparison
    from tacit.extraction.compare import compare
    from tacit.progress import TerminalReporter

    options = load_comparison(values, str(path))
    typer.echo(compare(options, TerminalReporter()))
    typer.echo(
        f"{options.run}: table.csv, types.csv, table.json, table.md, f1.png, f1.svg. The scores are exact: of private documents they "
        "are for the curator alone."
    )


def _evaluate_run(config: Path) -> None:
    """Vocabulary, training, and held-out evaluation; prints the released scores as a table."""

    def work(options: RunConfig, ranks: Ranks) -> None:
        from tacit.cli.options import table
        from tacit.pipeline.evaluation import evaluate
        from tacit.pipeline.opening import open_run
        from tacit.progress import TerminalReporter

        with open_run(options, TerminalReporter(), ranks) as state:
            found = evaluate(state)
        rows = [
            [corpus, model, f"{scores['accuracy']:.3f}" if "accuracy" in scores else "-", f"{scores['perplexity']:.1f}"]
            for corpus in ("public", "private")
            if corpus in found
            for model, scores in found[corpus].items()
        ]
        if rows:
            typer.echo(table(["held-out text", "model", "masked-token accuracy", "perplexity"], rows))
        if options.evaluation.held_out and "private" not in found:  # not whether there are any: that is private
            typer.echo(f"exact scores of private held-out text, for the curator: {options.run}/private/evaluation.json")

    _together(config, work)
