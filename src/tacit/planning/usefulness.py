"""What is legal and of no use: warnings of a plan, from public numbers alone. They refuse nothing and bound nothing.

The bound on what training can learn. In T steps of DP-SGD (Abadi et al. 2016, algorithm 1) with expected batch B, the clipped
gradients move the d weights by at most T C (in units of the learning rate; all units pulling one way at every step), and the noise
moves them by about s C sqrt(T d) / B, with s the noise multiplier. So signal to noise is at most

    sqrt(T) B / (s sqrt(d))                                                            (1)

Anil et al. 2021 (Large-Scale Differentially Private BERT, section 4) watch the same ratio of one step. With q = B / n and
mu >= q sqrt(T) / s (the central limit of subsampled Gaussians, Bu et al. 2020, is above it) no batch and no number of steps
brings (1) above

    mu n / sqrt(d)                                                                     (2)

Only the part of the noise in directions that matter hurts, so a model can be useful near 1; well below 1 it is a matter of luck.
"""

from __future__ import annotations

import math

from tacit.config import DpPhase, RunConfig
from tacit.planning.duration import control_steps
from tacit.planning.vocabulary import vocabulary_releases
from tacit.privacy.accounting.accountant import mu_at
from tacit.privacy.words import VocabularyEvent
from tacit.training.phases import Phase
from tacit.training.plans import DpPlan

__all__ = ["plan_warnings", "recommended_vocabulary", "signal_to_noise", "signal_to_noise_at_most", "units_needed"]

_SHARE_OF_UNITS = 0.05
"""Words of more than one unit in twenty are a few hundred of a language's commonest (docs/vocabulary.md: 175 at 14 %)."""

_SHOWINGS = 20
"""How often a control sees each unit before it learns canaries by heart (`AuditOptions.enough_control_steps`: 23 in the demo)."""


def signal_to_noise(steps: int, expected_batch: float, noise_multiplier: float, parameters: int) -> float:
    """Equation (1): at most so many times the noise's size is what DP-SGD learns in all its steps.

    >>> round(signal_to_noise(steps=500, expected_batch=1000, noise_multiplier=1.629, parameters=1_478_784), 1)
    11.3
    """
    return math.sqrt(steps) * expected_batch / (noise_multiplier * math.sqrt(parameters))


def signal_to_noise_at_most(units: float, mu: float, parameters: int) -> float:
    """Equation (2): the same of the best batch and number of steps, for so many units; mu as in `mu_at`."""
    return mu * units / math.sqrt(parameters)


def units_needed(epsilon: float, delta: float, parameters: int) -> int:
    """Units from which on equation (2) is at least 1."""
    return math.ceil(math.sqrt(parameters) / mu_at(epsilon, delta))


def plan_warnings(
    config: RunConfig, vocabulary: VocabularyEvent | None, phases: tuple[Phase, ...], parameters: int
) -> tuple[str, ...]:
    """What a reader of the plan should change, one sentence or two each; empty where nothing stands out.

    Args:
        parameters: that are trained.
    """
    return (
        *_of_threshold(config, vocabulary),
        *_of_training(config, phases, parameters),
        *_of_control(config),
    )


def recommended_vocabulary(config: RunConfig) -> tuple[str, ...]:
    """Where method and public words were left out: that the words of the public corpora do more than any method."""
    options = config.vocabulary
    left_out = not options.model_fields_set & {"method", "public_corpora"}
    if not left_out or options.knows_words or not config.public:
        return ()
    return (
        "vocabulary.public_corpora is left out: with true, the words of the public corpora are in the vocabulary and cost nothing, "
        "which covers most of the text's words (docs/vocabulary.md)",
    )


def _of_threshold(config: RunConfig, vocabulary: VocabularyEvent | None) -> list[str]:
    """A warning where only common words come out of the first choice of words: those of later rounds are in addition."""
    if config.vocabulary.knows_words:
        return []
    first = next(iter(vocabulary_releases(vocabulary).values()), None)
    least = None if first is None else first.least_units
    if least is None:
        return []
    of_which = (
        f" (of units with {config.vocabulary.max_words} words or more)"
        if config.vocabulary.method == "weighted"
        else ""
    )
    units = _training_units(config)
    share = least / units
    if share <= _SHARE_OF_UNITS:
        return []
    fewer = "" if config.vocabulary.max_words <= 32 else ", or lower vocabulary.max_words"
    return [
        f"vocabulary: a word must be in about {math.ceil(least)} of the {units:.0f} training {config.privacy.unit_name}s"
        f"{of_which}, {100 * min(share, 1):.0f} %, so only very common words come out. Words of public text cost nothing: set "
        f"vocabulary.public_corpora: true, with method: weighted{fewer}"
    ]


def _of_training(config: RunConfig, phases: tuple[Phase, ...], parameters: int) -> list[str]:
    if config.is_literal:
        return []
    noisy = {phase.name: phase for phase in config.dp_phases if phase.stream != "marked"}
    if not noisy:
        return []
    found = []
    for name, phase in noisy.items():
        plan = next(one.plan for one in phases if one.name == config.phase_name(phase, 0))
        if isinstance(plan, DpPlan):
            steps = config.rounds * phase.steps
            ratio = signal_to_noise(steps, plan.normaliser, plan.noise_in_mean(phase.steps), parameters)
            if ratio < 1:
                found.append(_of_noise(name, phase, plan, ratio, config.rounds))
    if not found:
        return []
    budget, units = config.privacy.budget, _training_units(config)
    factor = 2 if config.privacy.relation == "replace" else 1  # one unit leaves and one enters
    best = signal_to_noise_at_most(units / factor, mu_at(budget.epsilon, budget.delta), parameters)
    if best < 1:
        needed = factor * units_needed(budget.epsilon, budget.delta, parameters)
        found.append(
            f"privacy: {units:.0f} training units are too few for {parameters:,} parameters at epsilon {budget.epsilon:g}: for "
            f"no choice of batch and steps is what is learned above {best:.2f} of the noise. It takes about {needed:,} units, "
            "a smaller model, or a larger epsilon; compare with the model after its public phase"
        )
    return found


def _of_noise(name: str, phase: DpPhase, plan: DpPlan, ratio: float, rounds: int) -> str:
    per_coordinate = plan.noise_multiplier * plan.clip_norm / plan.normaliser
    return (
        f"{name}: noise of {per_coordinate:.2g} on each coordinate of a step's mean (noise_multiplier * clip_norm / "
        f"expected_batch) is much against clip_norm {plan.clip_norm:g}: what all {rounds * phase.steps} steps can learn is at most "
        f"{ratio:.2f} of the noise's size. Raise expected_batch, or take a smaller model"
    )


def _of_control(config: RunConfig) -> list[str]:
    """Nothing found by attacks means something only where they do find the canaries of a model without DP."""
    audit = config.audit
    if audit is None or not audit.control:
        return []
    if audit.control == "without-noise":
        return _of_control_without_noise(config)
    showings = control_steps(config) * audit.control_batch / config.privacy.units
    if not config.dp_phases or showings >= _SHOWINGS:
        return []
    return [
        f"audit: the control sees each unit about {showings:.1f} times, and with fewer than {_SHOWINGS} it is likely to find "
        "nothing, which leaves the audit undecided: raise audit.control_steps"
        + (
            ""
            if audit.control_steps
            else f" above what it is when left out, or audit.control_batch (now {audit.control_batch})"
        )
    ]


def _of_control_without_noise(config: RunConfig) -> list[str]:
    """It sees the units as often as the run does, with clipped gradients at the run's own rates."""
    showings = config.rounds * sum(phase.steps * phase.expected_batch for phase in config.dp_phases)
    times = showings / config.privacy.units
    if not config.dp_phases or times >= _SHOWINGS:
        return []
    return [
        f"audit: the control without noise sees each unit about {times:.1f} times, as the run does, and with fewer than {_SHOWINGS} "
        "it is likely to find nothing, which leaves the audit undecided: raise steps, or set audit.control to true, a control "
        "without DP, which trains longer"
    ]


def _training_units(config: RunConfig) -> float:
    return config.privacy.units * (1 - config.evaluation.held_out)
