"""Every mechanism of a run, frozen before data is read: solved for the budget, declared in the ledger, or read back from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tacit.config import RunConfig
from tacit.errors import BudgetError
from tacit.planning.evaluation import evaluation_event, has_evaluation_event
from tacit.planning.origins import take_over
from tacit.planning.phases import phases_with, planned_noise, solved_noise
from tacit.planning.stages import EVALUATION, HELD_OUT, PUBLIC_KEY, TRAINING, VOCABULARY, public_key_event
from tacit.planning.vocabulary import (
    vocabulary_event,
    vocabulary_from_plans,
    vocabulary_releases,
)
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.certificate import refuse_unstated
from tacit.privacy.events import EVERY_PART, Gaussian, Spend, expected
from tacit.privacy.ledger import Ledger
from tacit.privacy.provenance import Provenance
from tacit.privacy.rounded import upper
from tacit.privacy.words import VocabularyEvent
from tacit.training.phases import Phase

__all__ = ["Mechanisms", "mechanisms_from_ledger", "plan_in_ledger", "solve"]


@dataclass(frozen=True)
class Mechanisms:
    """Everything that will be executed, frozen: the pipeline reads nothing else. ``public_key``: nothing is hidden by the noise."""

    vocabulary: VocabularyEvent | None
    phases: tuple[Phase, ...]
    evaluation: Gaussian | None
    public_key: bool = False

    def stages(self) -> dict[str, Spend]:
        """The whole run as the ledger will hold it at the end, by stage."""
        releases = vocabulary_releases(self.vocabulary).items()
        stages = {name: Spend(event, 1, TRAINING) for name, event in releases}
        for phase in self.phases:
            if phase.event is not None:
                stages[phase.name] = Spend(phase.event, phase.payments, TRAINING)
        if self.evaluation is not None:
            stages[EVALUATION] = Spend(self.evaluation, 1, HELD_OUT)
        if stages and self.public_key:
            stages[PUBLIC_KEY] = Spend(public_key_event(), 1, EVERY_PART)
        return stages

    def spends(self) -> list[Spend]:
        """What all stages cost."""
        return list(self.stages().values())

    def spends_with_secret_key(self) -> list[Spend]:
        """What all stages would cost if the key were secret: of an experiment that anyone can repeat."""
        return [spend for name, spend in self.stages().items() if name != PUBLIC_KEY]

    def noisy_spends(self) -> list[Spend]:
        """What the stages that add noise cost: all that the budget bounds where the others have no guarantee."""
        return [spend for spend in self.spends() if spend.event.is_private]


def solve(config: RunConfig, before: Sequence[Spend] = ()) -> Mechanisms:
    """Choose the noise that the configuration leaves open so that the joint epsilon meets the budget.

    Args:
        before: what was spent on the same people already, by the releases that the run starts from (`tacit.planning.origins`).

    Raises:
        BudgetError: the given noise exceeds the budget, or no noise meets it.
    """
    privacy = config.privacy
    before = [spend for spend in before if spend.event.is_private]
    if before and (spent := joint_epsilon(before, privacy.budget.delta, privacy.relation)) > privacy.budget.epsilon:
        raise BudgetError(
            f"what this run starts from has spent epsilon {upper(spent)} at delta {privacy.budget.delta:g} on the same people "
            f"already, and the budget is {privacy.budget.epsilon:g}: raise it, start from a public model, or say same_people: false "
            "if nobody is in both texts"
        )
    vocabulary = vocabulary_event(config)
    phases = phases_with(config, solved_noise(config, vocabulary, before))
    training = Mechanisms(vocabulary, phases, None).spends()
    evaluation = evaluation_event(config, training, before)
    mechanisms = Mechanisms(vocabulary, phases, evaluation, config.seed is not None)
    total = joint_epsilon([*before, *mechanisms.noisy_spends()], privacy.budget.delta, privacy.relation)
    refuse_unstated([*before, *mechanisms.noisy_spends()], privacy.budget.delta, privacy.relation)
    if total > privacy.budget.epsilon and config.vocabulary.how.heuristic is None:
        raise BudgetError(
            f"the run as configured has epsilon {upper(total)} at delta {privacy.budget.delta:g}; the budget is "
            f"{privacy.budget.epsilon:g}. Nothing was spent: raise noise or threshold, lower steps, or leave the noise out "
            "to have it solved"
        )
    return mechanisms


def plan_in_ledger(mechanisms: Mechanisms, ledger: Ledger, start: Provenance) -> None:
    """Take over what was spent before, and declare every private stage; the ledger refuses what exceeds the budget."""
    take_over(ledger, start, start.inherited)
    for name, spend in mechanisms.stages().items():
        event = spend.event.with_rho(
            ledger.header.key_commitment
        )  # another run's function rho may put a unit in any band
        ledger.plan(name, event, spend.count, spend.partition)


def mechanisms_from_ledger(config: RunConfig, ledger: Ledger) -> Mechanisms | None:
    """What an earlier start of this run planned; None when it did not get that far."""
    plans = ledger.plans
    noise = planned_noise(config, plans)
    if noise is None:
        return None
    reads_private_text = config.vocabulary.how.reads_private_text(config)
    vocabulary = vocabulary_from_plans(config, plans) if reads_private_text else None
    evaluation = expected(plans[EVALUATION].event, Gaussian) if EVALUATION in plans else None
    if vocabulary is None and reads_private_text:
        return None
    mechanisms = Mechanisms(vocabulary, phases_with(config, noise), evaluation, config.seed is not None)
    wanted = {*mechanisms.stages(), *_stages_beside_phases(config)}
    return mechanisms if wanted <= plans.keys() else None


def _stages_beside_phases(config: RunConfig) -> set[str]:
    """Which of the vocabulary and the evaluation this run pays for."""
    paid = {VOCABULARY: config.vocabulary.how.reads_private_text(config), EVALUATION: has_evaluation_event(config)}
    return {name for name, has_event in paid.items() if has_event}
