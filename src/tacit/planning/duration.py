"""How long a run takes, stage by stage, also where no mechanism runs. All rough, for two laptop cores; of a GPU nothing is known.

The constants are of the demo and of `recipes/clinical-bert.yaml` on two laptop cores; they decide no number of a guarantee.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.attack_stages import ATTACK_STAGES, NoisyTraining
from tacit.config import AuditOptions, RunConfig
from tacit.planning.cost import seconds_of
from tacit.planning.evaluation import has_evaluation_event
from tacit.planning.stages import EVALUATION, Stage
from tacit.training.phases import Phase

__all__ = ["Work", "about", "control_steps", "evaluation_seconds", "is_for_a_gpu", "timed", "work_after", "work_before"]

LAPTOP_SECONDS = 6 * 3600.0
"""What takes longer on two laptop cores is for a machine with a GPU, of whose speed nothing is known here."""

_SOLVING = 15.0
_RELEASE, _REPORT = 4.0, 2.0
_FORWARD = 1 / 3
"""Of the operations of a forward and a backward pass."""


@dataclass(frozen=True)
class Work:
    """A part of a run that spends nothing of the budget, or whose price is another line of the plan.

    Args:
        name: as `tacit run` calls the stage; ``planning`` is what comes before the first.
        seconds: expected, rough; None: unknown.
        steps: of training; 0 where there are none.
    """

    name: str
    seconds: float | None
    steps: int = 0


def work_before(config: RunConfig) -> list[Work]:
    """What a run does before its first mechanism."""
    solved = any(phase.noise_multiplier is None for phase in config.dp_phases) or (
        config.vocabulary.noise_stddev is None and config.vocabulary.how.reads_private_text(config)
    )
    before = [Work("planning", _SOLVING if solved else 1.0)]
    if config.screening is not None:
        before.append(Work("screening", config.privacy.units * 0.002 + 5))
    return before


def work_after(config: RunConfig, phases: Sequence[Phase], sequence_flops: float) -> list[Work]:
    """What a run does after its training, in order.

    Args:
        phases: of all rounds.
        sequence_flops: `tacit.planning.cost.sequence_flops`.
    """
    scored = _FORWARD * sequence_flops
    audit, found = config.audit, list[Work]()
    if config.adaptive is not None:
        found.append(Work("scoring", 5 + seconds_of(config.privacy.units * scored)))
    if audit is not None and audit.control:
        found.append(_control(config, audit, phases, sequence_flops))
    if not has_evaluation_event(config):  # else it is a mechanism of the plan
        found.append(Work(EVALUATION, evaluation_seconds(config, sequence_flops)))
    if audit is not None:
        training = _noisy_training(config, phases)
        for name, row in ATTACK_STAGES.items():
            cost = row.cost(config, training)
            if cost is not None:
                flops = cost.scored * scored + cost.trained * sequence_flops
                found.append(Work(name, cost.seconds + seconds_of(flops)))
        found += [Work(name, None) for name in audit.attacks if name not in ATTACK_STAGES]
    return [*found, Work("release", _RELEASE), Work("report", _REPORT)]


def _noisy_training(config: RunConfig, phases: Sequence[Phase]) -> NoisyTraining:
    """What costs of attacks hang on."""
    noisy = [phase for phase in phases if phase.plan.is_dp]
    sequences = sum(phase.steps * phase.plan.sequences_a_step for phase in noisy)
    return NoisyTraining(sum(phase.steps for phase in noisy), sequences, control_steps(config))


def evaluation_seconds(config: RunConfig, sequence_flops: float) -> float:
    """Expected time of the evaluation, on public and on private text."""
    evaluation = config.evaluation
    rows = evaluation.public_sequences * bool(config.public)
    rows += int(config.privacy.units * evaluation.held_out) * evaluation.sequences_per_unit
    return 2 + seconds_of(_MODELS * rows * _FORWARD * sequence_flops)


_MODELS = 3
"""That evaluation asks: the released one, the one after its public phase, and about as much for the words' frequencies."""


def _control(config: RunConfig, audit: AuditOptions, phases: Sequence[Phase], sequence_flops: float) -> Work:
    """The control's training, which without noise costs what the phases cost."""
    steps = control_steps(config)
    sequences = steps * float(audit.control_batch)
    if audit.control == "without-noise":
        sequences = sum(phase.steps * phase.plan.sequences_a_step for phase in phases if phase.plan.is_dp)
    return Work("control", seconds_of(sequences * sequence_flops), steps)


def control_steps(config: RunConfig) -> int:
    """Steps of the control in place of all DP phases (`AuditOptions.control_steps`); 0 without a control."""
    audit, noisy = config.audit, config.dp_phases
    if audit is None or not audit.control:
        return 0
    if audit.control == "without-noise":
        return config.rounds * sum(phase.steps for phase in noisy)
    enough = audit.enough_control_steps(config.privacy.units, max(1, config.rounds * len(noisy)))
    return config.rounds * sum(audit.control_steps or max(phase.steps, enough) for phase in noisy)


def is_for_a_gpu(config: RunConfig, seconds: float) -> bool:
    """Whether a time on two laptop cores says nothing of this run."""
    return config.compute.device == "cuda" or seconds > LAPTOP_SECONDS


def timed(
    stages: Sequence[Stage], work: Sequence[Work], config: RunConfig
) -> tuple[tuple[Stage, ...], tuple[Work, ...]]:
    """Both with unknown times where the run is for a GPU; planning and reading take what they take on any machine."""
    total = sum(stage.seconds or 0 for stage in stages) + sum(one.seconds or 0 for one in work)
    if not is_for_a_gpu(config, total):
        return tuple(stages), tuple(work)
    on_device = {"scoring", "control", EVALUATION, *ATTACK_STAGES}
    return (
        tuple(dataclasses.replace(stage, seconds=None) if stage.on_device else stage for stage in stages),
        tuple(dataclasses.replace(one, seconds=None) if one.name in on_device else one for one in work),
    )


def about(seconds: float | None) -> str:
    """A rough time in the largest unit that has two of it.

    >>> [about(one) for one in (0.2, 89, 95, 7300, 400_000, None)]
    ['1 s', '89 s', '2 min', '2.0 h', '4.6 days', 'unknown']
    """
    if seconds is None or math.isnan(seconds):
        return "unknown"
    if seconds < 90:
        return f"{max(1, math.ceil(seconds))} s"
    if seconds < 90 * 60:
        return f"{math.ceil(seconds / 60)} min"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} days"
