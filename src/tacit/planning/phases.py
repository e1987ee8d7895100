"""The training phases in the plan: their noise, and how each of them runs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from tacit.config import DpPhase, PhaseOptions, PlainPhase, RunConfig, SelectivePhase, stratum_number
from tacit.config.base import named
from tacit.config.shape import shape_of
from tacit.planning.adaptive import PhaseNoise, adaptive_noise, bands_from, has_given_bands, sampling_probability
from tacit.planning.cost import seconds_of
from tacit.planning.evaluation import reserved_for_evaluation
from tacit.planning.stages import TRAINING, Stage
from tacit.planning.vocabulary import vocabulary_releases, vocabulary_size
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.accountant import account_parts
from tacit.privacy.events import Event, PoissonGaussian, Spend
from tacit.privacy.ledger import StagePlan
from tacit.privacy.words import VocabularyEvent
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import CorrelatedPlan, DpPlan, LiteralPlan, PlainPlan, Plan, SelectivePlan

__all__ = [
    "dp_plan",
    "has_given_noise",
    "phase_stage",
    "phases_with",
    "plain_plan",
    "planned_noise",
    "selective_plan",
    "solved_noise",
]


def solved_noise(
    config: RunConfig, vocabulary: VocabularyEvent | None, before: Sequence[Spend] = ()
) -> dict[str, PhaseNoise]:
    """The noise of the DP phases, by name; what is not given is solved jointly (one multiplier for all unsolved phases).

    Args:
        before: what was spent on the same people already.

    Raises:
        BudgetError: no noise meets the budget.
    """
    privacy = config.privacy
    fixed = [Spend(event, 1, TRAINING) for event in vocabulary_releases(vocabulary).values() if event.is_private]
    if config.vocabulary.how.heuristic is not None:
        fixed = []
    if config.adaptive is not None:
        return adaptive_noise(config, config.adaptive, [*before, *fixed, *reserved_for_evaluation(config)])
    schedule = []
    for phase in config.dp_phases:
        if phase.stream == "marked":
            continue  # its noise is given, and no budget bounds it
        # with correlated noise a cycle of steps costs as much as one step
        probability = phase.noise_bands * phase.expected_batch / privacy.units
        paid = config.rounds * math.ceil(phase.steps / phase.noise_bands)
        if phase.noise_multiplier is None:
            schedule.append((probability, paid))
        else:
            fixed.append(Spend(PoissonGaussian(probability, phase.noise_multiplier), paid, TRAINING))
    solved = 0.0
    if schedule:
        fixed += reserved_for_evaluation(config)
        solved = max(
            calibrate.training_noise(
                privacy.budget.epsilon, privacy.budget.delta, schedule, privacy.relation, [*part, *fixed]
            )
            for part in account_parts(before, privacy.relation) or [()]
        )
    return {phase.name: PhaseNoise(phase.noise_multiplier or solved) for phase in config.dp_phases}


def planned_noise(config: RunConfig, plans: Mapping[str, StagePlan]) -> dict[str, PhaseNoise] | None:
    """The noise of `solved_noise`, from what the ledger has planned; None where it does not have all of it."""
    given = _given_noise(config)
    solved = [phase for phase in config.dp_phases if phase.name not in given]
    first = {phase.name: plans.get(config.phase_name(phase, 0)) for phase in solved}
    found = {name: noise for name, plan in first.items() if plan and (noise := _noise_of(plan.event)) is not None}
    return found | given if found.keys() == first.keys() else None


def _noise_of(event: Event) -> PhaseNoise | None:
    noise = event.step_noise_multiplier
    return None if noise is None else PhaseNoise(noise, event.bands)


def _given_noise(config: RunConfig) -> dict[str, PhaseNoise]:
    """The noise of the phases on marked text and of the literal form: never solved, and the ledger's event has no number of it."""
    given = (phase for phase in config.dp_phases if phase.stream == "marked" or config.is_literal)
    return {phase.name: PhaseNoise(phase.noise_multiplier) for phase in given if phase.noise_multiplier is not None}


def has_given_noise(config: RunConfig, phase: DpPhase, spend: Spend) -> bool:
    """Whether a phase's event has the noise, thresholds and weights that the configuration gives; what it leaves open is solved."""
    if config.adaptive is not None:
        return has_given_bands(config.adaptive, phase, spend)
    return phase.noise_multiplier is None or spend.event.step_noise_multiplier in (None, phase.noise_multiplier)


def phases_with(config: RunConfig, noise: Mapping[str, PhaseNoise]) -> tuple[Phase, ...]:
    """All phases of all rounds, with the noise of the DP phases by name."""
    phases: list[Phase] = []
    stratum: str | None = (
        None  # the last phase on a stratum: the next one goes on with its optimizer, whatever stratum it is on
    )
    for number in range(config.rounds):
        for phase in config.phases:
            plan: Plan = named(phase.made_by)(phase, config, noise.get(phase.name))
            name, previous = config.phase_name(phase, number), config.phase_name(phase, number - 1) if number else None
            if stratum_number(phase.stream) is not None:
                previous, stratum = stratum, name
            phases.append(
                Phase(name, phase.stream, plan, phase.steps, _optimizer(phase), number, config.rounds, previous)
            )
    return tuple(phases)


def _optimizer(phase: PhaseOptions) -> AdamOptions:
    ending = (phase.average, phase.keep) if isinstance(phase, DpPhase) else (None, None)
    return AdamOptions(
        phase.learning_rate, phase.warmup, phase.weight_decay, phase.adam_betas, phase.adam_epsilon, *ending
    )


def plain_plan(phase: PlainPhase, config: RunConfig, noise: PhaseNoise | None) -> PlainPlan:
    """Ordinary training."""
    return PlainPlan(phase.batch_size)


def selective_plan(phase: SelectivePhase, config: RunConfig, noise: PhaseNoise | None) -> SelectivePlan:
    """Training on public tokens; its noise, on states, is given."""
    return SelectivePlan(
        batch_size=phase.batch_size,
        slots=config.privacy.units,
        segments=phase.segments,
        state_clip=phase.state_clip,
        state_noise_multiplier=phase.state_noise_multiplier,
    )


def dp_plan(phase: DpPhase, config: RunConfig, noise: PhaseNoise | None) -> DpPlan:
    """DP-SGD, with the noise that was solved or given."""
    assert noise is not None  # `solved_noise` and `planned_noise` have all DP phases
    plan = DpPlan(
        sampling_probability=phase.noise_bands * sampling_probability(config, phase),
        clip_norm=phase.clip_norm,
        noise_multiplier=noise.multiplier,
        normaliser=float(phase.expected_batch),
        sequences_per_unit=phase.sequences_per_unit,
        maskings=phase.maskings,
        clipping=phase.clipping,
        bands=noise.bands,
        bands_from=bands_from(config),
    )
    names = {field.name for field in dataclasses.fields(plan)} - {
        "bands",
        "bands_from",
    }  # the others' units all count alike
    numbers: dict[str, Any] = {name: getattr(plan, name) for name in names}
    if phase.noise_bands > 1:
        return CorrelatedPlan(**numbers, noise_bands=phase.noise_bands)
    if config.is_literal:
        parameters = shape_of(config.model).parameters(vocabulary_size(config))
        return LiteralPlan(**numbers, parameters=parameters)
    return plan


def phase_stage(phase: Phase, sequence_flops: float) -> Stage:
    """A phase as `tacit plan` shows it."""
    plan, event = phase.plan, phase.event
    return Stage(
        phase.name,
        plan.mechanism(phase.stream),
        plan.numbers(),
        phase.steps,
        event,
        TRAINING if event is not None else "",
        seconds=seconds_of(phase.steps * plan.sequences_a_step * sequence_flops),
        payments=phase.payments,
    )
