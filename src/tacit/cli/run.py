"""`tacit run`: from text to report, or up to one of its stages; it continues what an earlier start has done.

Under `torchrun -m tacit` rank 0 does the work of the command, and the others help it to train.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.options import ConfigArgument, SetOption
from tacit.errors import UsageError
from tacit.files import quoted
from tacit.pipeline.order import stage_names

if TYPE_CHECKING:
    from tacit.config import RunConfig
    from tacit.engine.distributed import Ranks

__all__ = ["RENAMED", "command", "renamed"]

RENAMED = {
    "vocabulary": "`tacit run CONFIG --until vocabulary`",
    "train": "`tacit run CONFIG --until control`",
    "evaluate": "`tacit run CONFIG --until evaluation`, and of models on tasks `tacit compare CONFIG`",
}
"""Commands of 0.2 and before, and what they are called now."""

UntilOption = Annotated[
    str | None,
    typer.Option(metavar="STAGE", help=f"Stop when this stage is done: {', '.join(stage_names())}."),
]


def command(config: ConfigArgument, until: UntilOption = None, settings: SetOption = None) -> None:
    """Go from text to report; run it again to continue after a stop.

    Leaves RUN/release (page one of its report says what limits it, if anything does), RUN/private (keep secret) and
    RUN/ledger.sqlite.
    """
    if until is not None and until not in stage_names():
        _check_stage(until)

    def work(options: RunConfig, ranks: Ranks) -> None:
        from tacit.pipeline.stages import run, run_until
        from tacit.progress import TerminalReporter, one_line

        if until is None or until == stage_names()[-1]:
            typer.echo(one_line(run(options, TerminalReporter(), ranks).statement))
            return
        run_until(options, until, TerminalReporter(), ranks)
        if until == "evaluation":
            _show_scores(options)
        typer.echo(f"Stopped after {until}, as asked; `tacit run {quoted(config)}` goes on.")

    _run_on_ranks(config, work, settings or ())


def _check_stage(until: str) -> None:
    """Attacks that others have added are stages too."""
    from tacit.pipeline.stages import stages
    from tacit.runs.stages import names_of

    names = names_of(stages())
    if until not in names:
        raise UsageError(f"--until {until}: there is no such stage; the stages are {', '.join(names)}")


def renamed(name: str) -> Callable[[list[str] | None], None]:
    """A command that says what it is called now."""

    def command(arguments: Annotated[list[str] | None, typer.Argument(hidden=True)] = None) -> None:
        raise UsageError(f"`tacit {name}` is now {RENAMED[name]}")

    command.__doc__ = f"Now {RENAMED[name]}."
    return command


def _run_on_ranks(path: Path, work: Callable[[RunConfig, Ranks], None], settings: Sequence[str]) -> None:
    """``work`` on rank 0; any other ranks assist it until it has closed the run."""
    from tacit.config import load_config
    from tacit.engine.distributed import join
    from tacit.pipeline.training import assist

    config = load_config(path, settings)
    with join(config.compute.device) as ranks:
        if ranks.first:
            work(config, ranks)
        else:
            assist(config, ranks)


def _show_scores(config: RunConfig) -> None:
    """The scores that may be released, as a table."""
    from tacit.cli.options import table
    from tacit.files import read_result
    from tacit.runs.folder import RunFolder

    found = read_result(RunFolder(config.resolved_run).private / "evaluation.json")
    rows = [
        [corpus, model, f"{scores['accuracy']:.3f}" if "accuracy" in scores else "-", f"{scores['perplexity']:.1f}"]
        for corpus in ("public", "private")
        if corpus in found
        for model, scores in found[corpus].items()
    ]
    if rows:
        typer.echo(table(["held-out text", "model", "masked-token accuracy", "perplexity"], rows))
    if config.evaluation.held_out and "private" not in found:  # not whether there are any: that is private
        typer.echo(
            f"exact scores of private held-out text, for the curator: {config.resolved_run}/private/evaluation.json"
        )
