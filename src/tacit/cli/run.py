"""`tacit run` and its stages `vocabulary`, `train`, `evaluate`: each continues what an earlier start has done."""

from __future__ import annotations

import typer

from tacit.cli.options import ConfigArgument

__all__ = ["evaluate_command", "run_command", "train_command", "vocabulary_command"]


def run_command(config: ConfigArgument) -> None:
    """Go from text to report; run it again to continue after a stop.

    Leaves RUN/release (safe to publish), RUN/private (keep secret) and RUN/ledger.sqlite.
    """
    import tacit

    typer.echo(tacit.run(config).statement)


def vocabulary_command(config: ConfigArgument) -> None:
    """Only the DP vocabulary: tokenizer.json in RUN/private/vocabulary."""
    from tacit import pipeline
    from tacit.config import load_config
    from tacit.progress import TerminalReporter

    with pipeline.open_run(load_config(config), TerminalReporter()) as state:
        pipeline.vocabulary(state)


def train_command(config: ConfigArgument) -> None:
    """Vocabulary and all training phases (and the audit's control, when asked for)."""
    from tacit import pipeline
    from tacit.config import load_config
    from tacit.progress import TerminalReporter

    with pipeline.open_run(load_config(config), TerminalReporter()) as state:
        pipeline.train(state)


def evaluate_command(config: ConfigArgument) -> None:
    """Vocabulary, training, and held-out evaluation; prints the released scores as a table."""
    from tacit import pipeline
    from tacit.cli.options import table
    from tacit.config import load_config
    from tacit.progress import TerminalReporter

    with pipeline.open_run(load_config(config), TerminalReporter()) as state:
        found = pipeline.evaluate(state)
    rows = [
        [corpus, model, f"{scores['accuracy']:.3f}", f"{scores['perplexity']:.1f}"]
        for corpus in ("public", "private")
        if corpus in found
        for model, scores in found[corpus].items()
    ]
    typer.echo(table(["held-out text", "model", "masked-token accuracy", "perplexity"], rows))
