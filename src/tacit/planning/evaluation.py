"""The private evaluation in the plan: one Gaussian release of bounded sums over held-out units."""

from __future__ import annotations

from collections.abc import Sequence

from tacit.config import RunConfig
from tacit.planning.stages import EVALUATION, HELD_OUT, Stage
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.accountant import epsilon_of_rho
from tacit.privacy.events import Gaussian, Spend

__all__ = ["evaluation_event", "evaluation_stages", "has_evaluation_event", "reserved_for_evaluation"]


def has_evaluation_event(config: RunConfig) -> bool:
    """Whether there is one: with screening or marking exact numbers stay with the curator."""
    return config.evaluation.held_out > 0 and config.screening is None and config.marking is None


def evaluation_event(
    config: RunConfig, training: Sequence[Spend] = (), before: Sequence[Spend] = ()
) -> Gaussian | None:
    """Under add-or-remove the held-out units have the whole budget to themselves; under replacement a tenth of it.

    With adaptive DP held-out units may have any rho, so they have the epsilon of the most private band that is trained on.

    Args:
        training: what the training units pay, where it differs by rho.
        before: what was spent on the same people already, held out here or not.

    Raises:
        BudgetError: that leaves nothing.
    """
    if not has_evaluation_event(config):
        return None
    privacy = config.privacy
    if privacy.relation == "replace":
        return Gaussian(
            calibrate.gaussian_noise(config.least_epsilon * 0.1, privacy.budget.delta * 0.1, privacy.relation)
        )
    bands = epsilon_of_rho(training, privacy.budget.delta, privacy.relation)
    target = min([privacy.budget.epsilon, *(band.epsilon for band in bands if band.epsilon > 0)])
    delta, relation = privacy.budget.delta, privacy.relation
    if not before:
        return Gaussian(calibrate.gaussian_noise(target, delta, relation))

    def spends_at(noise: float) -> list[Spend]:
        return [*before, Spend(Gaussian(noise), 1, HELD_OUT)]

    return Gaussian(calibrate.scaled_noise(target, delta, spends_at, relation))


def reserved_for_evaluation(config: RunConfig) -> list[Spend]:
    """What the noise of the training must leave for the evaluation: under replacement a unit can change sides."""
    event = evaluation_event(config)
    return [Spend(event, 1, HELD_OUT)] if event is not None and config.privacy.relation == "replace" else []


def evaluation_stages(event: Gaussian | None) -> list[Stage]:
    """The evaluation as `tacit plan` shows it, where there is one."""
    if event is None:
        return []
    mechanism = "Gaussian noise on bounded sums over held-out units"
    return [
        Stage(EVALUATION, mechanism, {"noise_multiplier": event.noise_multiplier}, 1, event, HELD_OUT, seconds=10.0)
    ]
