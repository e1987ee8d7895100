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

from tacit.config import DpPhase, PhaseOptions, PlainPhase, RunConfig, SelectivePhase
from tacit.config.shape import shape_of
from tacit.errors import BudgetError
from tacit.privacy import calibrate
from tacit.privacy.accountant import epsilon, joint_epsilon, mu_at
from tacit.privacy.events import Event, Gaussian, NonPrivate, PoissonGaussian, Spend, ThresholdedHistogram
from tacit.privacy.histogram import histogram_delta, hoory_claim
from tacit.privacy.ledger import Ledger
from tacit.selective import run_account
from tacit.training.plans import AdamOptions, DpPlan, Phase, PlainPlan, Plan, SelectivePlan

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
    "plan_in_ledger",
    "solve",
    "vocabulary_size",
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

    vocabulary: ThresholdedHistogram | NonPrivate | None
    phases: tuple[Phase, ...]
    evaluation: Gaussian | None

    def stages(self) -> dict[str, Spend]:
        """The whole run as the ledger will hold it at the end, by stage."""
        stages = {} if self.vocabulary is None else {VOCABULARY: Spend(self.vocabulary, 1, TRAINING)}
        for phase in self.phases:
            if phase.event is not None:
                stages[phase.name] = Spend(phase.event, phase.steps, TRAINING)
        if self.evaluation is not None:
            stages[EVALUATION] = Spend(self.evaluation, 1, HELD_OUT)
        return stages

    def spends(self) -> list[Spend]:
        """What all stages cost."""
        return list(self.stages().values())

    def noisy_spends(self) -> list[Spend]:
        """What the stages that add noise cost: all that the budget bounds where the others have no guarantee."""
        return [spend for spend in self.spends() if not isinstance(spend.event, NonPrivate)]


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


def vocabulary_size(config: RunConfig) -> int:
    """Entries of the tokenizer: of a given one exactly, else at most.

    Raises:
        TacitError: the given tokenizer, or the model folder, is not suitable.
    """
    if config.vocabulary.method != "given":
        return config.vocabulary.size
    from tacit.given import given_tokenizer  # `tokenizers` comes with it, which other plans do not need

    return given_tokenizer(config).special.size


def _head_positions(config: RunConfig) -> int:
    """Positions of a sequence at which the head is evaluated."""
    length = config.model.length
    return length if config.model.is_causal else math.ceil(config.masking_probability * length)


def _sequence_flops(config: RunConfig) -> float:
    """Forward and backward of one sequence: six times parameters times positions."""
    shape, length = shape_of(config.model), config.model.length
    layer = 4 * shape.width**2 + 2 * shape.width * shape.intermediate
    attention = 2 * length * shape.width
    if shape.kind == "lstm":
        layer, attention = 8 * shape.width**2, 0
    head = (vocabulary_size(config) + shape.width) * shape.width
    return 6.0 * (length * shape.layers * (layer + attention) + _head_positions(config) * head)


def _memory_bytes(config: RunConfig, parameters: int) -> int:
    """Weights, gradients, two Adam moments, and the activations of one micro-batch (float32), plus the libraries."""
    shape, length = shape_of(config.model), config.model.length
    per_position = shape.layers * (16 * shape.width + 2 * shape.intermediate + (shape.heads or 0) * length)
    logits = 4 * _head_positions(config) * vocabulary_size(config)
    activations = config.compute.micro_batch * (length * per_position + logits)
    return 4 * (5 * parameters + activations) + 600_000_000


def _vocabulary_event(config: RunConfig) -> ThresholdedHistogram | NonPrivate | None:
    options, privacy = config.vocabulary, config.privacy
    if options.method == "given":
        return None
    if options.method == "public":
        return None if config.public else NonPrivate(f"vocabulary of {_own_words(config)} text")
    target = privacy.budget.epsilon * options.epsilon_share
    delta = privacy.budget.delta * options.delta_share
    if options.method == "hoory":
        noise = options.noise_stddev or math.sqrt(options.max_words * 2 * math.log(1.25 / delta)) / target
        threshold = math.ceil(hoory_claim(noise, options.max_words, delta).threshold)
        return ThresholdedHistogram(noise, threshold, options.max_words)
    if options.noise_stddev is not None and options.threshold is not None:
        return ThresholdedHistogram(options.noise_stddev, options.threshold, options.max_words)
    return calibrate.histogram(target, delta, options.max_words, privacy.relation)


def _notes(config: RunConfig, vocabulary: ThresholdedHistogram | NonPrivate | None) -> tuple[str, ...]:
    notes = []
    if config.screening is not None:
        notes.append(
            "screening: text that is judged safe is trained on without noise, so epsilon is infinite for the corpus as a whole; "
            "what holds is the confidentiality account (`tacit confidentiality`), for which the DP phases alone count"
        )
    if config.screening is not None and config.screening.missed:
        share = 100 * config.screening.missed
        notes.append(
            f"screening: the balanced policy is made to miss {share:g} % of the secrets that it finds, as an experiment"
        )
    account = run_account(config)
    if account is not None:
        notes.append(
            "selective DP (a baseline): public tokens are trained on without noise, so epsilon is infinite for the record, and the "
            "budget bounds nothing"
        )
        notes.append(account.sentence)
    if config.vocabulary.method != "hoory" or not isinstance(vocabulary, ThresholdedHistogram):
        return tuple(notes)
    delta = config.privacy.budget.delta * config.vocabulary.delta_share
    claim = hoory_claim(vocabulary.noise_stddev, vocabulary.max_words, delta)
    return (
        *notes,
        f"vocabulary by the paper's formula: it claims delta {delta:.3g}; its true delta is at least "
        f"{histogram_delta(vocabulary, math.inf):.3g} (threshold {claim.threshold:.1f}, right is {claim.correct_threshold:.1f})",
    )


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


def _phases(config: RunConfig, vocabulary: ThresholdedHistogram | NonPrivate | None) -> tuple[Phase, ...]:
    """The phases with their noise; what is not given is solved jointly (one multiplier for all unsolved phases)."""
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
            privacy.budget.epsilon, privacy.budget.delta, schedule, privacy.relation, fixed + _evaluation_share(config)
        )
    return _with_noise(config, {phase.name: phase.noise_multiplier or solved for phase in config.dp_phases})


def _with_noise(config: RunConfig, noise_multipliers: Mapping[str, float]) -> tuple[Phase, ...]:
    phases: list[Phase] = []
    for number in range(config.rounds):
        for phase in config.phases:
            plan = _plan(phase, config.privacy.units, noise_multipliers)
            name, previous = config.phase_name(phase, number), config.phase_name(phase, number - 1) if number else None
            phases.append(
                Phase(name, phase.stream, plan, phase.steps, _optimizer(phase), number, config.rounds, previous)
            )
    return tuple(phases)


def _evaluation_event(config: RunConfig) -> Gaussian | None:
    """Under add-or-remove the held-out units have the whole budget to themselves; under replacement a tenth of it.

    With screening or marking there is none: exact numbers stay with the curator.
    """
    if not _pays_for_evaluation(config):
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
    mechanisms = Mechanisms(vocabulary, _phases(config, vocabulary), _evaluation_event(config))
    privacy = config.privacy
    total = joint_epsilon(mechanisms.noisy_spends(), privacy.budget.delta, privacy.relation)
    if total > privacy.budget.epsilon and config.vocabulary.method != "hoory":
        raise BudgetError(
            f"the run as configured has epsilon {total:.4g} at delta {privacy.budget.delta:g}; the budget is "
            f"{privacy.budget.epsilon:g}. Nothing was spent: raise noise or threshold, lower steps, or leave the noise out "
            "to have it solved"
        )
    return mechanisms


def plan_in_ledger(mechanisms: Mechanisms, ledger: Ledger) -> None:
    """Declare every private stage before data is touched; the ledger refuses what exceeds the budget."""
    for name, spend in mechanisms.stages().items():
        ledger.plan(name, spend.event, spend.count, spend.partition)


def mechanisms_from_ledger(config: RunConfig, ledger: Ledger) -> Mechanisms | None:
    """What an earlier start of this run planned; None when it did not get that far."""
    plans = ledger.plans
    solved = [phase for phase in config.dp_phases if phase.stream != "marked"]
    first = {phase.name: plans.get(config.phase_name(phase, 0)) for phase in solved}
    multipliers = {
        name: plan.event.noise_multiplier
        for name, plan in first.items()
        if plan and isinstance(plan.event, PoissonGaussian)
    }
    if multipliers.keys() != first.keys():
        return None
    multipliers |= _given_noise(config)
    vocabulary, evaluation = (plans[name].event if name in plans else None for name in (VOCABULARY, EVALUATION))
    assert vocabulary is None or isinstance(vocabulary, ThresholdedHistogram | NonPrivate)
    assert evaluation is None or isinstance(evaluation, Gaussian)
    mechanisms = Mechanisms(vocabulary, _with_noise(config, multipliers), evaluation)
    wanted = {*mechanisms.stages(), *_stages_beside_phases(config)}
    return mechanisms if wanted <= plans.keys() else None


def _given_noise(config: RunConfig) -> dict[str, float]:
    """The noise of the phases on marked text, which is never solved, and whose event in the ledger is no `PoissonGaussian`."""
    marked = (phase for phase in config.dp_phases if phase.stream == "marked")
    return {phase.name: phase.noise_multiplier for phase in marked if phase.noise_multiplier is not None}


def _stages_beside_phases(config: RunConfig) -> set[str]:
    """Which of the vocabulary and the evaluation this run pays for."""
    method = config.vocabulary.method
    vocabulary = method != "given" and (method != "public" or not config.public)
    evaluation = _pays_for_evaluation(config)
    return {name for name, paid in ((VOCABULARY, vocabulary), (EVALUATION, evaluation)) if paid}


def _pays_for_evaluation(config: RunConfig) -> bool:
    return config.evaluation.held_out > 0 and config.screening is None and config.marking is None


def _own_words(config: RunConfig) -> str:
    """Which part of the private text the vocabulary comes from, where no public corpus is given."""
    return "screened" if config.marking is None else "unmarked"


def make_plan(config: RunConfig) -> RunPlan:
    """Solve what is not given and price everything.

    Raises:
        BudgetError: the given noise exceeds the budget, or no noise meets it.
        TacitError: the given tokenizer or model is not suitable.
    """
    privacy = config.privacy
    parameters = shape_of(config.model).parameters(
        vocabulary_size(config)
    )  # what is given is checked before it is priced
    mechanisms = solve(config)
    stages = _stages(config, mechanisms)
    total = stages[-1].epsilon_joint
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


_Row = tuple[str, str, dict[str, float | int | str], int, Event | None, str, float]
"""A stage without its prices: name, mechanism, parameters, steps, event, partition, seconds."""


def _stages(config: RunConfig, mechanisms: Mechanisms) -> tuple[Stage, ...]:
    rows = [_vocabulary_row(config, mechanisms.vocabulary)]
    flops = _sequence_flops(config)
    rows += [_phase_row(phase, flops) for phase in mechanisms.phases]
    evaluation = mechanisms.evaluation
    if evaluation is not None:
        numbers: dict[str, float | int | str] = {"noise_multiplier": evaluation.noise_multiplier}
        mechanism = "Gaussian noise on bounded sums over held-out units"
        rows.append((EVALUATION, mechanism, numbers, 1, evaluation, HELD_OUT, 10.0))
    return tuple(_priced(config, rows))


def _vocabulary_row(config: RunConfig, event: ThresholdedHistogram | NonPrivate | None) -> _Row:
    if config.vocabulary.method == "given":
        return VOCABULARY, "given tokenizer", {"entries": vocabulary_size(config)}, 1, None, "", 1.0
    seconds = config.privacy.units * 0.003
    if not isinstance(event, ThresholdedHistogram):
        text = "public" if event is None else _own_words(config)
        return VOCABULARY, f"words of {text} text", {}, 1, event, TRAINING if event else "", seconds
    numbers: dict[str, float | int | str] = {
        "noise_stddev": event.noise_stddev,
        "threshold": event.threshold,
        "max_words": event.max_words,
    }
    return VOCABULARY, "thresholded histogram of words, integer Gaussian noise", numbers, 1, event, TRAINING, seconds


def _phase_row(phase: Phase, flops: float) -> _Row:
    plan, event = phase.plan, phase.event
    numbers: dict[str, float | int | str]
    if isinstance(plan, PlainPlan):
        seconds = phase.steps * plan.batch_size * flops / _FLOPS_PER_SECOND
        mechanism, partition = f"ordinary training on {phase.stream} text", TRAINING if event else ""
        numbers = {"batch_size": plan.batch_size}
        if isinstance(plan, SelectivePlan):
            mechanism = "ordinary training on the public tokens of marked text, states released with Gaussian noise"
            numbers |= {
                "segments": plan.segments,
                "state_clip": plan.state_clip,
                "state_noise_multiplier": plan.state_noise_multiplier,
            }
        return phase.name, mechanism, numbers, phase.steps, event, partition, seconds
    numbers = {
        "sampling_probability": plan.sampling_probability,
        "clip_norm": plan.clip_norm,
        "noise_multiplier": plan.noise_multiplier,
        "normaliser": plan.normaliser,
    }
    seconds = 1.2 * phase.steps * plan.normaliser * plan.sequences_per_unit * flops / _FLOPS_PER_SECOND
    mechanism = "DP-SGD: Poisson sampling, clipping, Gaussian noise"
    if phase.stream == "marked":
        mechanism += ", on private tokens alone"
    return phase.name, mechanism, numbers, phase.steps, event, TRAINING, seconds


def _priced(config: RunConfig, rows: list[_Row]) -> list[Stage]:
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
