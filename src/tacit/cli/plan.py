"""`tacit plan`: what a configuration will spend, before anything is read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from tacit.cli.confidentiality import show_lines
from tacit.cli.options import ConfigArgument, JsonOption, SetOption, print_json, table
from tacit.privacy.rounded import upper

if TYPE_CHECKING:
    from tacit.config import PrivacyOptions
    from tacit.entities.plan import ExtractionPlan, TuningPlan
    from tacit.planning import RunPlan

__all__ = ["command"]


def command(config: ConfigArgument, as_json: JsonOption = False, settings: SetOption = None) -> None:
    """Print mechanism, noise, steps and epsilon of every stage, from the configuration alone.

    Noise that the configuration leaves out is solved so that the joint epsilon meets the budget. No data is read. A configuration of
    `tacit finetune`, or of `tacit compare`, is priced too, from the certificates beside its models.
    """
    from tacit.config.entities import check_finetune, load_comparison, names_documents, names_tasks
    from tacit.config.load import read_yaml

    values = read_yaml(config, settings or ())
    if names_tasks(values) or names_documents(values):
        from tacit.entities.plan import plan_comparison, plan_finetune

        if names_tasks(values):
            _show_extraction(plan_comparison(load_comparison(values, str(config), config.parent)), as_json)
        else:
            _show_extraction(plan_finetune(check_finetune(values, str(config), config.parent)), as_json)
    else:
        _plan_run(config, as_json, settings or ())


def _plan_run(config: Path, as_json: bool, settings: Sequence[str]) -> None:
    from tacit.config import load_config
    from tacit.planning import make_plan
    from tacit.planning.confidentiality import check_confidentiality

    options = load_config(config, settings)
    if options.audit is not None and options.audit.attacks:  # else nothing that is slow to import is needed
        from tacit.audit.attacks import check_attacks

        check_attacks(options)
    plan = make_plan(options)
    if as_json:
        print_json(plan.to_dict())
    else:
        _show_run(plan, options.privacy)
    check_confidentiality(options, plan.confidentiality)  # what is going to be refused is shown first


def _show_run(plan: RunPlan, privacy: PrivacyOptions) -> None:
    rows = [
        [
            stage.name,
            stage.mechanism,
            ", ".join(f"{name} {value:g}" for name, value in stage.parameters.items() if not isinstance(value, str)),
            str(stage.steps),
            upper(stage.epsilon_alone, ".3f") if stage.event is not None else "-",
            upper(stage.epsilon_joint, ".3f"),
            f"{stage.seconds:.0f} s",
        ]
        for stage in plan.stages
    ]
    typer.echo(table(["stage", "mechanism", "numbers", "steps", "epsilon alone", "joint so far", "about"], rows))
    typer.echo()
    unit = plan.unit if isinstance(privacy.unit, str) else f"{plan.unit}, {privacy.unit.description}"
    typer.echo(f"unit: {unit}; neighbours: one unit {plan.relation}; {plan.parameters:,} parameters")
    typer.echo(
        f"joint epsilon {upper(plan.epsilon, '.4f')} at delta {plan.delta:g} (like a Gaussian mechanism with mu {plan.mu:.3f})"
    )
    seconds = sum(stage.seconds for stage in plan.stages)
    typer.echo(
        f"expected: about {seconds / 60:.0f} min on two laptop cores, {plan.memory_bytes / 1e9:.1f} GB of memory"
    )
    for note in plan.notes:
        typer.echo(f"note: {note}")
    if plan.confidentiality is not None:
        typer.echo("\nwhat would be kept confidential:")
        show_lines(plan.confidentiality)


def _show_extraction(plan: ExtractionPlan, as_json: bool) -> None:
    if as_json:
        print_json(plan.to_dict())
        return
    headers = ["model", "pre-training", "fine-tuning", "steps", "epsilon alone", "joint", "about"]
    typer.echo(table(headers, [_row(model) for model in plan.models]))
    typer.echo()
    counted = f"each fine-tuned {plan.times} times, {plan.workers} at a time" if plan.times > 1 else "fine-tuned once"
    expected = "time depends on the documents" if plan.seconds is None else f"about {plan.seconds / 60:.0f} min"
    typer.echo(f"{counted}; expected: {expected} on two laptop cores, {plan.memory_bytes / 1e9:.1f} GB of memory")
    for note in plan.notes:
        typer.echo(f"note: {note}")


def _row(model: TuningPlan) -> list[str]:
    tuning = "without DP"
    if model.unit is not None:
        tuning = (
            f"DP-SGD of {model.unit}s: sampling_probability {model.sampling_probability:g}, clip_norm {model.clip_norm:g}, "
            f"noise_multiplier {model.noise_multiplier:g}"
        )
    before = (
        "no certificate" if model.pretraining_epsilon is None else f"epsilon {upper(model.pretraining_epsilon, '.3f')}"
    )
    return [
        model.model,
        before,
        tuning,
        "by epochs" if model.steps is None else str(model.steps),
        upper(model.epsilon_alone, ".3f"),
        upper(model.epsilon, ".3f"),
        "-" if model.seconds is None else f"{model.seconds:.0f} s",
    ]
