"""`tacit plan`: what a configuration will spend, before anything is spent."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.confidentiality import show_lines
from tacit.cli.options import JsonOption, SetOption, print_json, say, say_lines, window_width
from tacit.errors import UsageError
from tacit.privacy.rounded import upper

if TYPE_CHECKING:
    from tacit.config import PrivacyOptions, RunConfig
    from tacit.entities.plan import ExtractionPlan, TuningPlan
    from tacit.planning import RunPlan
    from tacit.training.preflight import Preflight

__all__ = ["command"]

_NAME = 28
"""Columns of a model's name, which may be a path."""


ConfigOption = Annotated[
    Path | None,
    typer.Argument(metavar="CONFIG", help="YAML configuration; with --advise it may be left out."),
]
AdviseOption = Annotated[
    bool, typer.Option("--advise", help="Say what budgets mean for these units, what others state, and what to choose.")
]


ModelOption = Annotated[
    bool, typer.Option("--model", help="Load the given model and try a step: what is trained, and how it is clipped.")
]


def command(
    config: ConfigOption = None,
    as_json: JsonOption = False,
    advise: AdviseOption = False,
    with_model: ModelOption = False,
    settings: SetOption = None,
) -> None:
    """Print time, noise, steps and epsilon of every stage, and warnings, from the configuration alone.

    Noise that the configuration leaves out is solved so that the joint epsilon meets the budget. Of the data only this is looked at:
    are the files there, and has the first record the named fields. A configuration of `tacit finetune`, or of `tacit compare`, is
    priced too, from the certificates beside its models.
    """
    if advise:
        _advise(config, as_json, settings or ())
        return
    if config is None:
        raise UsageError("name a configuration: tacit plan CONFIG (or tacit plan --advise)")
    from tacit.config.compare import load_comparison, names_tasks
    from tacit.config.finetune import check_finetune, names_documents
    from tacit.config.load import read_yaml
    from tacit.progress import waiting

    values = read_yaml(config, settings or ())
    if names_tasks(values) or names_documents(values):
        from tacit.entities.plan import plan_comparison, plan_finetune

        if names_tasks(values):
            comparison = load_comparison(values, str(config), config.parent)
            with waiting("Solving the noise for the budget"):
                plan = plan_comparison(comparison)
        else:
            tuning = check_finetune(values, str(config), config.parent)
            with waiting("Solving the noise for the budget"):
                plan = plan_finetune(tuning)
        _show_extraction(plan, as_json)
    else:
        _plan_run(config, as_json, settings or (), with_model)


def _advise(config: Path | None, as_json: bool, settings: Sequence[str]) -> None:
    from tacit.config import load_config
    from tacit.planning.advice import advice, advice_text

    given = advice(None if config is None else load_config(config, settings))
    if as_json:
        print_json(given.to_dict())
    else:
        say_lines(advice_text(given, window_width()))


def _plan_run(config: Path, as_json: bool, settings: Sequence[str], with_model: bool) -> None:
    from tacit.audit.coins_plan import check_coin_names, coin_warnings
    from tacit.config import load_config
    from tacit.planning import plan_and_look
    from tacit.planning.confidentiality import check_confidentiality
    from tacit.progress import waiting

    options = load_config(config, settings)
    if options.audit is not None and options.audit.attacks:  # else nothing that is slow to import is needed
        from tacit.audit.attacks import check_attacks

        check_attacks(options)
    check_coin_names(options)
    with waiting("Solving the noise for the budget"):
        plan = plan_and_look(options)
        plan = dataclasses.replace(plan, warnings=(*plan.warnings, *coin_warnings(options, plan.mechanisms.spends())))
    found = _model_found(options) if with_model else None
    if as_json:
        print_json(plan.to_dict() | ({} if found is None else {"model": dataclasses.asdict(found)}))
    else:
        _show_run(plan, options.privacy)
        for line in [] if found is None else found.lines():
            say(line)
    check_confidentiality(options, plan.confidentiality)  # what is going to be refused is shown first


def _model_found(options: RunConfig) -> Preflight:
    from tacit.pipeline.opening import load_given

    found = load_given(options)
    if found is None:
        raise UsageError("--model: no model is given that is trained with noise; it is about model.folder")
    return found


def _show_run(plan: RunPlan, privacy: PrivacyOptions) -> None:
    from tacit.planning.text import plan_text

    unit = plan.unit if isinstance(privacy.unit, str) else f"{plan.unit}, {privacy.unit.description}"
    say_lines(plan_text(plan, window_width(), unit))
    if plan.confidentiality is not None:
        say_lines("\nwhat would be kept confidential:")
        show_lines(plan.confidentiality)


def _show_extraction(plan: ExtractionPlan, as_json: bool) -> None:
    if as_json:
        print_json(plan.to_dict())
        return
    from tacit.planning.duration import about
    from tacit.planning.text import columns, wrapped

    width = window_width()
    headers = ["model", "steps", "before", "alone", "joint", "about"]
    say_lines(columns(headers, [_row(model) for model in plan.models]))
    typer.echo()
    for model in plan.models:
        say_lines(wrapped(f"{model.model}: {_tuning(model)}", width, "  "))
    typer.echo()
    counted = f"each fine-tuned {plan.times} times, {plan.workers} at a time" if plan.times > 1 else "fine-tuned once"
    expected = "time depends on the documents" if plan.seconds is None else f"about {about(plan.seconds)}"
    say(
        wrapped(
            f"{counted}; expected: {expected} on two laptop cores, {plan.memory_bytes / 1e9:.1f}\xa0GB of memory", width
        )
    )
    for note in plan.notes:
        say_lines(wrapped(f"note: {note}", width, "  "))


def _tuning(model: TuningPlan) -> str:
    """How a model is fine-tuned."""
    if model.unit is None:
        return "fine-tuned without DP"
    return (
        f"DP-SGD of {model.unit}s: sampling_probability\xa0{model.sampling_probability:g}, clip_norm\xa0{model.clip_norm:g}, "
        f"noise_multiplier\xa0{model.noise_multiplier:g}"
    )


def _row(model: TuningPlan) -> list[str]:
    """Epsilon of its pre-training (before), of its fine-tuning, and of both together."""
    from tacit.planning.duration import about

    name = model.model if len(model.model) <= _NAME else "..." + model.model[3 - _NAME :]  # whole in the lines below
    return [
        name,
        "by epochs" if model.steps is None else str(model.steps),
        "unknown" if model.pretraining_epsilon is None else upper(model.pretraining_epsilon, ".3f"),
        upper(model.epsilon_alone, ".3f"),
        upper(model.epsilon, ".3f"),
        about(model.seconds),
    ]
