"""`tacit compare`: entity-level F1 of many models on many tasks, with and without DP fine-tuning."""

from __future__ import annotations

import typer

from tacit.cli.options import ConfigArgument, SetOption

__all__ = ["command"]


def command(config: ConfigArgument, settings: SetOption = None) -> None:
    """Compare models on tasks (`models:` and `tasks:` in the configuration) by entity-level F1.

    Each model is fine-tuned on each fold of each task; leaves tables and a plot. Run it again to continue.
    """
    from tacit.config.compare import load_comparison
    from tacit.config.load import read_yaml
    from tacit.entities.compare import compare
    from tacit.progress import TerminalReporter

    options = load_comparison(read_yaml(config, settings or ()), str(config), config.parent)
    typer.echo(compare(options, TerminalReporter()))
    typer.echo(
        f"{options.resolved_run}: table.csv, types.csv, table.json, table.md, f1.png, f1.svg. The scores are exact: of private "
        "documents they are for the curator alone."
    )
