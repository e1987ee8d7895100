"""`tacit plan`: what a configuration will spend, before anything is read."""

from __future__ import annotations

import typer

from tacit.cli.options import ConfigArgument, JsonOption, print_json, table

__all__ = ["command"]


def command(config: ConfigArgument, as_json: JsonOption = False) -> None:
    """Print mechanism, noise, steps and epsilon of every stage, from the configuration alone.

    Noise that the configuration leaves out is solved so that the joint epsilon meets the budget. No data is read.
    """
    from tacit.config import load_config
    from tacit.planning import make_plan

    plan = make_plan(load_config(config))
    if as_json:
        print_json(plan.to_dict())
        return
    rows = [
        [
            stage.name,
            stage.mechanism,
            ", ".join(f"{name} {value:g}" for name, value in stage.parameters.items() if not isinstance(value, str)),
            str(stage.steps),
            f"{stage.epsilon_alone:.3f}" if stage.event is not None else "-",
            f"{stage.epsilon_joint:.3f}",
            f"{stage.seconds:.0f} s",
        ]
        for stage in plan.stages
    ]
    typer.echo(table(["stage", "mechanism", "numbers", "steps", "epsilon alone", "joint so far", "about"], rows))
    typer.echo()
    typer.echo(f"unit: {plan.unit}; neighbours: one unit {plan.relation}; {plan.parameters:,} parameters")
    typer.echo(
        f"joint epsilon {plan.epsilon:.4f} at delta {plan.delta:g} (like a Gaussian mechanism with mu {plan.mu:.3f})"
    )
    seconds = sum(stage.seconds for stage in plan.stages)
    typer.echo(
        f"expected: about {seconds / 60:.0f} min on two laptop cores, {plan.memory_bytes / 1e9:.1f} GB of memory"
    )
    for note in plan.notes:
        typer.echo(f"note: {note}")
