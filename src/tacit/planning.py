"""The plan of a run, from the configuration alone: every mechanism with its noise, and what it will cost.

Nothing here reads data or imports torch. `make_plan` solves the noise that is not given so that the joint epsilon meets the
budget; the pipeline executes exactly these frozen events.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.config import DpPhase, ModelOptions, PhaseOptions, PlainPhase, RunConfig
from tacit.errors import BudgetError
from tacit.privacy import calibrate
from tacit.privacy.accountant import epsilon, joint_epsilon, mu_at
from tacit.privacy.events import Event, Gaussian, PoissonGaussian, Spend, ThresholdedHistogram
from tacit.privacy.histogram import histogram_delta, hoory_claim
from tacit.privacy.ledger import Ledger
from tacit.training.plans import AdamOptions, DpPlan, Phase, PlainPlan

__all__ = [
    "EVALUATION",
    "HELD_OUT",
    "TRAINING",
    "VOCABULARY",
    "Mechanisms",
    "RunPlan",
    "Stage",
    "make_plan",
    "mechanisms_from_ledger",
    "parameter_count",
    "plan_in_ledger",
    "solve",
]

TRAINING = "training units"
HELD_OUT = "held-out units"
"""The two disjoint parts of the private units; a unit's side depends on its own id alone."""

VOCABULARY = "vocabulary"
EVALUATION = "evaluation"
"""Names of the private stages beside the DP phases, here and in the ledger."""

_FLOPS_PER_SECOND = 6e10
"""What two laptop cores reach on these small models (measured by `tacit demo`); only for the expected time."""


@dataclass(frozen=True)
class Stage:
    """One stage as `tacit plan` shows it.

    Args:
        name: the stage; for private ones also its name in the ledger.
        mechanism: in plain words.
        parameters: the mechanism's public numbers.
        steps: how often the mechanism runs.
        event: None for a stage that reads public records only.
        partition: the part of the private units that it reads; empty for public stages.
        epsilon_alone: at the budget's delta.
        epsilon_joint: of this and all earlier stages.
        seconds: expected, rough.
    """

    name: str
    mechanism: str
    parameters: dict[str, float | int | str]
    steps: int
    event: Event | None
    partition: str
    epsilon_alone: float
    epsilon_joint: float
    seconds: float


@dataclass(frozen=True)
class Mechanisms:
    """Everything that will be executed, frozen: the pipeline reads nothing else."""

    vocabulary: ThresholdedHistogram
    phases: tuple[Phase, ...]
    evaluation: Gaussian | None

    def spends(self) -> list[Spend]:
        """The whole run as the ledger will hold it at the end."""
        spends = [Spend(self.vocabulary, 1, TRAINING)]
        for phase in self.phases:
            if isinstance(phase.plan, DpPlan):
                spends.append(Spend(phase.plan.event, phase.steps, TRAINING))
        if self.evaluation is not None:
            spends.append(Spend(self.evaluation, 1, HELD_OUT))
        return spends


@dataclass(frozen=True)
class RunPlan:
    """The mechanisms with their price."""

    mechanisms: Mechanisms
    stages: tuple[Stage, ...]
    unit: str
    relation: str
    epsilon: float
    delta: float
    mu: float
    parameters: int
    memory_bytes: int
    notes: tuple[str, ...]
    config_digest: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready; infinite numbers become the string "infinity"."""
        return _jsonable(dataclasses.asdict(self))


def _jsonable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_jsonable(item) for item in value]
    return "infinity" if isinstance(value, float) and math.isinf(value) else value


def parameter_count(model: ModelOptions, vocabulary_size: int) -> int:
    """Trainable parameters of BertForMaskedLM with tied embeddings (a test compares with the built model)."""
    width, inner = model.width, model.intermediate_width
    embeddings = (vocabulary_size + model.length + 2) * width + 2 * width
    layer = 4 * (width * width + width) + 2 * width + 2 * width * inner + inner + width + 2 * width
    head = width * width + width + 2 * width + vocabulary_size
    return embeddings + model.layers * layer + head


def _sequence_flops(config: RunConfig) -> float:
    """Forward and backward of one sequence: six times parameters times positions, the head at masked positions only."""
    model, size = config.model, config.vocabulary.size
    layer = 4 * model.width**2 + 2 * model.width * model.intermediate_width
    attention = 2 * model.length * model.width
    masked = math.ceil(config.masking_probability * model.length)
    return 6.0 * (model.length * model.layers * (layer + attention) + masked * (size + model.width) * model.width)


def _memory_bytes(config: RunConfig, parameters: int) -> int:
    """Weights, gradients, two Adam moments, and the activations of one micro-batch (float32), plus the libraries."""
    model, rows = config.model, config.compute.micro_batch
    per_position = model.layers * (16 * model.width + 2 * model.intermediate_width + model.heads * model.length)
    masked = math.ceil(config.masking_probability * model.length)
    activations = rows * (model.length * per_position + 4 * masked * config.vocabulary.size)
    return 4 * (5 * parameters + activations) + 600_000_000


def _vocabulary_event(config: RunConfig) -> ThresholdedHistogram:
    options, privacy = config.vocabulary, config.privacy
    target = privacy.budget.epsilon * options.epsilon_share
    delta = privacy.budget.delta * options.delta_share
    if options.method == "hoory":
        noise = options.noise_stddev or math.sqrt(options.max_words * 2 * math.log(1.25 / delta)) / target
        threshold = math.ceil(hoory_claim(noise, options.max_words, delta).threshold)
        return ThresholdedHistogram(noise, threshold, options.max_words)
    if options.noise_stddev is not None and options.threshold is not None:
        return ThresholdedHistogram(options.noise_stddev, options.threshold, options.max_words)
    return calibrate.histogram(target, delta, options.max_words, privacy.relation)


def _notes(config: RunConfig, vocabulary: ThresholdedHistogram) -> tuple[str, ...]:
    if config.vocabulary.method != "hoory":
        return ()
    delta = config.privacy.budget.delta * config.vocabulary.delta_share
    claim = hoory_claim(vocabulary.noise_stddev, vocabulary.max_words, delta)
    return (
        f"vocabulary by the paper's formula: it claims delta {delta:.3g}; its true delta is at least "
        f"{histogram_delta(vocabulary, math.inf):.3g} (threshold {claim.threshold:.1f}, right is {claim.correct_threshold:.1f})",
    )


def _optimizer(phase: PhaseOptions) -> AdamOptions:
    return AdamOptions(phase.learning_rate, phase.warmup, phase.weight_decay, phase.adam_betas, phase.adam_epsilon)


def _dp_plan(phase: DpPhase, units: int, noise_multiplier: float) -> DpPlan:
    return DpPlan(
        sampling_probability=phase.expected_batch / units,
        clip_norm=phase.clip_norm,
        noise_multiplier=noise_multiplier,
        normaliser=float(phase.expected_batch),
        sequences_per_unit=phase.sequences_per_unit,
        clipping=phase.clipping,
    )


def _phases(config: RunConfig, vocabulary: Spend) -> tuple[Phase, ...]:
    """The phases with their noise; what is not given is solved jointly (one multiplier for all unsolved phases)."""
    privacy = config.privacy
    fixed = [] if config.uses_heuristic else [vocabulary]
    schedule = []
    for phase in config.dp_phases:
        probability = phase.expected_batch / privacy.units
        if phase.noise_multiplier is None:
            schedule.append((probability, phase.steps))
        else:
            plan = _dp_plan(phase, privacy.units, phase.noise_multiplier)
            fixed.append(Spend(plan.event, phase.steps, TRAINING))
    solved = 0.0
    if schedule:
        solved = calibrate.training_noise(
            privacy.budget.epsilon, privacy.budget.delta, schedule, privacy.relation, fixed + _evaluation_share(config)
        )
    return _with_noise(config, {phase.name: phase.noise_multiplier or solved for phase in config.dp_phases})


def _with_noise(config: RunConfig, noise_multipliers: Mapping[str, float]) -> tuple[Phase, ...]:
    phases: list[Phase] = []
    for phase in config.phases:
        if isinstance(phase, PlainPhase):
            plan = PlainPlan(phase.batch_size)
        else:
            plan = _dp_plan(phase, config.privacy.units, noise_multipliers[phase.name])
        phases.append(Phase(phase.name, phase.stream, plan, phase.steps, _optimizer(phase)))
    return tuple(phases)


def _evaluation_event(config: RunConfig) -> Gaussian | None:
    """Under add-or-remove the held-out units have the whole budget to themselves; under replacement a tenth of it."""
    if config.evaluation.held_out == 0:
        return None
    privacy = config.privacy
    share = 1.0 if privacy.relation == "add-or-remove" else 0.1
    return Gaussian(
        calibrate.gaussian_noise(privacy.budget.epsilon * share, privacy.budget.delta * share, privacy.relation)
    )


def _evaluation_share(config: RunConfig) -> list[Spend]:
    event = _evaluation_event(config)
    return [Spend(event, 1, HELD_OUT)] if event is not None and config.privacy.relation == "replace" else []


def solve(config: RunConfig) -> Mechanisms:
    """Choose the noise that the configuration leaves open so that the joint epsilon meets the budget.

    Raises:
        BudgetError: the given noise exceeds the budget, or no noise meets it.
    """
    vocabulary = _vocabulary_event(config)
    mechanisms = Mechanisms(vocabulary, _phases(config, Spend(vocabulary, 1, TRAINING)), _evaluation_event(config))
    privacy = config.privacy
    total = joint_epsilon(mechanisms.spends(), privacy.budget.delta, privacy.relation)
    if total > privacy.budget.epsilon and not config.uses_heuristic:
        raise BudgetError(
            f"the run as configured has epsilon {total:.4g} at delta {privacy.budget.delta:g}; the budget is "
            f"{privacy.budget.epsilon:g}. Nothing was spent: raise noise or threshold, lower steps, or leave the noise out "
            "to have it solved"
        )
    return mechanisms


def plan_in_ledger(mechanisms: Mechanisms, ledger: Ledger) -> None:
    """Declare every private stage before data is touched; the ledger refuses what exceeds the budget."""
    ledger.plan(VOCABULARY, mechanisms.vocabulary, 1, TRAINING)
    for phase in mechanisms.phases:
        if isinstance(phase.plan, DpPlan):
            ledger.plan(phase.name, phase.plan.event, phase.steps, TRAINING)
    if mechanisms.evaluation is not None:
        ledger.plan(EVALUATION, mechanisms.evaluation, 1, HELD_OUT)


def mechanisms_from_ledger(config: RunConfig, ledger: Ledger) -> Mechanisms | None:
    """What an earlier start of this run planned; None when it did not get that far."""
    plans = ledger.plans
    wanted = {VOCABULARY, *(phase.name for phase in config.dp_phases)}
    if config.evaluation.held_out > 0:
        wanted.add(EVALUATION)
    if not wanted <= set(plans):
        return None
    vocabulary = plans[VOCABULARY].event
    evaluation = plans[EVALUATION].event if EVALUATION in wanted else None
    multipliers = {}
    for phase in config.dp_phases:
        event = plans[phase.name].event
        assert isinstance(event, PoissonGaussian)
        multipliers[phase.name] = event.noise_multiplier
    assert isinstance(vocabulary, ThresholdedHistogram)
    assert evaluation is None or isinstance(evaluation, Gaussian)
    return Mechanisms(vocabulary, _with_noise(config, multipliers), evaluation)


def make_plan(config: RunConfig) -> RunPlan:
    """Solve what is not given and price everything.

    Raises:
        BudgetError: the given noise exceeds the budget, or no noise meets it.
    """
    privacy = config.privacy
    mechanisms = solve(config)
    stages = _stages(config, mechanisms)
    total = stages[-1].epsilon_joint
    parameters = parameter_count(config.model, config.vocabulary.size)
    return RunPlan(
        mechanisms=mechanisms,
        stages=stages,
        unit=privacy.unit_name,
        relation=privacy.relation,
        epsilon=total,
        delta=privacy.budget.delta,
        mu=mu_at(total, privacy.budget.delta),
        parameters=parameters,
        memory_bytes=_memory_bytes(config, parameters),
        notes=_notes(config, mechanisms.vocabulary),
        config_digest=config.digest(),
    )


def _stages(config: RunConfig, mechanisms: Mechanisms) -> tuple[Stage, ...]:
    vocabulary, phases, evaluation = mechanisms.vocabulary, mechanisms.phases, mechanisms.evaluation
    flops = _sequence_flops(config)
    rows: list[tuple[str, str, dict[str, float | int | str], int, Event | None, str, float]] = [
        (
            VOCABULARY,
            "thresholded histogram of words, integer Gaussian noise",
            {
                "noise_stddev": vocabulary.noise_stddev,
                "threshold": vocabulary.threshold,
                "max_words": vocabulary.max_words,
            },
            1,
            vocabulary,
            TRAINING,
            config.privacy.units * 0.003,
        )
    ]
    for phase in phases:
        if isinstance(phase.plan, PlainPlan):
            seconds = phase.steps * phase.plan.batch_size * flops / _FLOPS_PER_SECOND
            numbers: dict[str, float | int | str] = {"batch_size": phase.plan.batch_size}
            rows.append((phase.name, "ordinary training on public text", numbers, phase.steps, None, "", seconds))
            continue
        plan = phase.plan
        sequences = plan.normaliser * plan.sequences_per_unit
        numbers = {
            "sampling_probability": plan.sampling_probability,
            "clip_norm": plan.clip_norm,
            "noise_multiplier": plan.noise_multiplier,
            "normaliser": plan.normaliser,
        }
        seconds = 1.2 * phase.steps * sequences * flops / _FLOPS_PER_SECOND
        mechanism = "DP-SGD: Poisson sampling, clipping, Gaussian noise"
        rows.append((phase.name, mechanism, numbers, phase.steps, plan.event, TRAINING, seconds))
    if evaluation is not None:
        numbers = {"noise_multiplier": evaluation.noise_multiplier}
        mechanism = "Gaussian noise on bounded sums over held-out units"
        rows.append((EVALUATION, mechanism, numbers, 1, evaluation, HELD_OUT, 10.0))
    return tuple(_priced(config, rows))


def _priced(config: RunConfig, rows: list[Any]) -> list[Stage]:
    delta, relation = config.privacy.budget.delta, config.privacy.relation
    stages: list[Stage] = []
    so_far: list[Spend] = []
    joint = 0.0
    for name, mechanism, parameters, steps, event, partition, seconds in rows:
        alone = 0.0
        if event is not None:
            spend = Spend(event, steps, partition)
            so_far.append(spend)
            alone = epsilon([spend], delta, relation)
            joint = joint_epsilon(so_far, delta, relation)
        stages.append(Stage(name, mechanism, parameters, steps, event, partition, alone, joint, seconds))
    return stages
