"""The training phases in the plan: their noise, and how each of them runs."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.config import DpPhase, PhaseOptions, PlainPhase, RunConfig, SelectivePhase
from tacit.planning.cost import seconds_of
from tacit.planning.evaluation import beside_training
from tacit.planning.stages import TRAINING, Stage
from tacit.planning.vocabulary import VocabularyEvent
from tacit.privacy import calibrate
from tacit.privacy.events import PoissonGaussian, Spend, ThresholdedHistogram
from tacit.privacy.ledger import StagePlan
from tacit.training.plans import AdamOptions, DpPlan, Phase, PlainPlan, Plan, SelectivePlan

__all__ = ["phase_stage", "phases_with", "planned_noise", "solved_noise"]


def solved_noise(config: RunConfig, vocabulary: VocabularyEvent | None) -> dict[str, float]:
    """Noise multipliers of the DP phases, by name; what is not given is solved jointly (one for all unsolved phases).

    Raises:
        BudgetError: no noise meets the budget.
    """
    privacy = config.privacy
    fixed = [Spend(vocabulary, 1, TRAINING)] if isinstance(vocabulary, ThresholdedHistogram) else []
    if config.vocabulary.method == "hoory":
        fixed = []
    schedule = []
    for phase in config.dp_phases:
        if phase.stream == "marked":
            continue  # its noise is given, and no budget bounds it
        probability = phase.expected_batch / privacy.units
        if phase.noise_multiplier is None:
            schedule.append((probability, config.rounds * phase.steps))
        else:
            plan = _dp_plan(phase, privacy.units, phase.noise_multiplier)
            fixed.append(Spend(plan.event, config.rounds * phase.steps, TRAINING))
    solved = 0.0
    if schedule:
        solved = calibrate.training_noise(
            privacy.budget.epsilon, privacy.budget.delta, schedule, privacy.relation, fixed + beside_training(config)
        )
    return {phase.name: phase.noise_multiplier or solved for phase in config.dp_phases}


def planned_noise(config: RunConfig, plans: Mapping[str, StagePlan]) -> dict[str, float] | None:
    """As `solved_noise`, from what the ledger has planned; None where it does not have all of it."""
    solved = [phase for phase in config.dp_phases if phase.stream != "marked"]
    first = {phase.name: plans.get(config.phase_name(phase, 0)) for phase in solved}
    multipliers = {
        name: plan.event.noise_multiplier
        for name, plan in first.items()
        if plan and isinstance(plan.event, PoissonGaussian)
    }
    return multipliers | _given_noise(config) if multipliers.keys() == first.keys() else None


def _given_noise(config: RunConfig) -> dict[str, float]:
    """The noise of the phases on marked text, which is never solved, and whose event in the ledger is no `PoissonGaussian`."""
    marked = (phase for phase in config.dp_phases if phase.stream == "marked")
    return {phase.name: phase.noise_multiplier for phase in marked if phase.noise_multiplier is not None}


def phases_with(config: RunConfig, noise_multipliers: Mapping[str, float]) -> tuple[Phase, ...]:
    """All phases of all rounds, with the noise of the DP phases by name."""
    phases: list[Phase] = []
    for number in range(config.rounds):
        for phase in config.phases:
            plan = _plan(phase, config.privacy.units, noise_multipliers)
            name, previous = config.phase_name(phase, number), config.phase_name(phase, number - 1) if number else None
            phases.append(
                Phase(name, phase.stream, plan, phase.steps, _optimizer(phase), number, config.rounds, previous)
            )
    return tuple(phases)


def _optimizer(phase: PhaseOptions) -> AdamOptions:
    return AdamOptions(phase.learning_rate, phase.warmup, phase.weight_decay, phase.adam_betas, phase.adam_epsilon)


def _plan(phase: PlainPhase | DpPhase | SelectivePhase, units: int, noise_multipliers: Mapping[str, float]) -> Plan:
    if isinstance(phase, PlainPhase):
        return PlainPlan(phase.batch_size)
    if isinstance(phase, SelectivePhase):
        return SelectivePlan(
            batch_size=phase.batch_size,
            slots=units,
            segments=phase.segments,
            state_clip=phase.state_clip,
            state_noise_multiplier=phase.state_noise_multiplier,
        )
    return _dp_plan(phase, units, noise_multipliers[phase.name])


def _dp_plan(phase: DpPhase, units: int, noise_multiplier: float) -> DpPlan:
    return DpPlan(
        sampling_probability=phase.expected_batch / units,
        clip_norm=phase.clip_norm,
        noise_multiplier=noise_multiplier,
        normaliser=float(phase.expected_batch),
        sequences_per_unit=phase.sequences_per_unit,
        clipping=phase.clipping,
    )


def phase_stage(phase: Phase, sequence_flops: float) -> Stage:
    """A phase as `tacit plan` shows it."""
    plan = phase.plan
    if isinstance(plan, DpPlan):
        return _dp_stage(phase, plan, sequence_flops)
    return _plain_stage(phase, plan, sequence_flops)


def _plain_stage(phase: Phase, plan: PlainPlan, sequence_flops: float) -> Stage:
    mechanism, partition = f"ordinary training on {phase.stream} text", TRAINING if phase.event else ""
    numbers: dict[str, float | int | str] = {"batch_size": plan.batch_size}
    if isinstance(plan, SelectivePlan):
        mechanism = "ordinary training on the public tokens of marked text, states released with Gaussian noise"
        numbers |= {
            "segments": plan.segments,
            "state_clip": plan.state_clip,
            "state_noise_multiplier": plan.state_noise_multiplier,
        }
    seconds = seconds_of(phase.steps * plan.batch_size * sequence_flops)
    return Stage(phase.name, mechanism, numbers, phase.steps, phase.event, partition, seconds=seconds)


def _dp_stage(phase: Phase, plan: DpPlan, sequence_flops: float) -> Stage:
    mechanism = "DP-SGD: Poisson sampling, clipping, Gaussian noise"
    if phase.stream == "marked":
        mechanism += ", on private tokens alone"
    numbers: dict[str, float | int | str] = {
        "sampling_probability": plan.sampling_probability,
        "clip_norm": plan.clip_norm,
        "noise_multiplier": plan.noise_multiplier,
        "normaliser": plan.normaliser,
    }
    seconds = seconds_of(1.2 * phase.steps * plan.normaliser * plan.sequences_per_unit * sequence_flops)
    return Stage(phase.name, mechanism, numbers, phase.steps, phase.event, TRAINING, seconds=seconds)
