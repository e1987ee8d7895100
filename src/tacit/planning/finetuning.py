"""Fine-tuning as one phase of the training loop: plan, noise and steps from the options. Needs no torch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tacit.config.tuning import DpTuning, TuningOptions
from tacit.errors import BudgetError
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.accountant import account_parts, joint_epsilon
from tacit.privacy.certificate import refuse_unstated
from tacit.privacy.events import EVERY_PART, Spend
from tacit.privacy.rounded import upper
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan, PlainPlan

__all__ = ["FINETUNING", "DpPrice", "dp_phase", "dp_price", "finetuning_spend", "plain_phase", "solve_noise"]

FINETUNING = "fine-tuning"
"""The phase's name, also in the ledger."""


def plain_phase(options: TuningOptions, rows: int) -> Phase:
    """Ordinary training on so many rows; its event is that of training on private text without noise."""
    # one where there are no rows: whether there are may hang on one document
    steps = options.steps or max(1, math.ceil((options.epochs or 1) * rows / options.batch_size))
    return Phase(FINETUNING, "private", PlainPlan(options.batch_size), steps, _optimizer(options))


def dp_phase(options: TuningOptions, dp: DpTuning, noise_multiplier: float) -> Phase:
    """DP-SGD; nothing here is made from the documents."""
    assert options.steps is not None  # check of the configuration
    plan = DpPlan(
        sampling_probability=dp.expected_batch / dp.units,
        clip_norm=dp.clip_norm,
        noise_multiplier=noise_multiplier,
        normaliser=float(dp.expected_batch),
        sequences_per_unit=dp.sequences_per_unit,
        clipping=dp.clipping,
    )
    return Phase(FINETUNING, "private", plan, options.steps, _optimizer(options))


def _optimizer(options: TuningOptions) -> AdamOptions:
    return AdamOptions(options.learning_rate, options.warmup, options.weight_decay)


def solve_noise(options: TuningOptions, dp: DpTuning, inherited: Iterable[Spend]) -> float:
    """The smallest noise with which the fine-tuning and what was spent before meet the budget; the given one where it is given.

    The fine-tuning may read any unit, so it composes with every part of the units that was read before (`EVERY_PART`).

    Raises:
        BudgetError: what was spent before leaves nothing.
    """
    if dp.noise_multiplier is not None:
        return dp.noise_multiplier
    assert options.steps is not None  # check of the configuration
    schedule = [(dp.expected_batch / dp.units, options.steps)]
    parts = account_parts(inherited, dp.relation) or [()]
    return max(
        calibrate.training_noise(dp.budget.epsilon, dp.budget.delta, schedule, dp.relation, part) for part in parts
    )


def finetuning_spend(phase: Phase) -> Spend:
    """What the whole phase costs."""
    assert phase.event is not None  # a phase on private text
    return Spend(phase.event, phase.steps, EVERY_PART)


@dataclass(frozen=True)
class DpPrice:
    """DP fine-tuning with its noise, and what it costs.

    Args:
        phase: what is run.
        inherited: what the pre-training spent on people who may be the same, by stage.
        epsilon: of all of it together, at the budget's delta.
    """

    phase: Phase
    inherited: Mapping[str, Spend]
    epsilon: float

    @property
    def noise_multiplier(self) -> float:
        """The noise multiplier of the phase."""
        assert isinstance(self.phase.plan, DpPlan)
        return self.phase.plan.noise_multiplier


def dp_price(options: TuningOptions, dp: DpTuning, before: Mapping[str, Spend]) -> DpPrice:
    """Solve the noise where it is not given, and price everything together.

    Args:
        before: what the pre-training spent on people who may be the same, by stage.

    Raises:
        BudgetError: what was spent before leaves nothing, or the given noise is too small.
    """
    phase = dp_phase(options, dp, solve_noise(options, dp, before.values()))
    spends = [*before.values(), finetuning_spend(phase)]
    total = joint_epsilon(spends, dp.budget.delta, dp.relation)
    refuse_unstated(spends, dp.budget.delta, dp.relation)
    if total > dp.budget.epsilon:
        raise BudgetError(
            f"fine-tuning as configured has epsilon {upper(total)} at delta {dp.budget.delta:g}; the budget is "
            f"{dp.budget.epsilon:g}: raise dp.noise_multiplier, lower steps, or leave the noise out to have it solved"
        )
    return DpPrice(phase, before, total)
