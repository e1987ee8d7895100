"""The names of a run's private stages, and a stage as `tacit plan` shows it, with its price."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable
from dataclasses import dataclass

from tacit.config import RunConfig
from tacit.config.vocabulary_methods.method import VOCABULARY, VOCABULARY_COUNTS, vocabulary_round
from tacit.privacy.accounting.accountant import epsilon, joint_epsilon
from tacit.privacy.events import Event, NonPrivate, Spend
from tacit.privacy.provenance import PUBLIC_KEY_REASON

__all__ = [
    "EVALUATION",
    "HELD_OUT",
    "PUBLIC_KEY",
    "TRAINING",
    "VOCABULARY",
    "VOCABULARY_COUNTS",
    "Stage",
    "priced",
    "public_key_event",
    "vocabulary_round",
]

TRAINING = "training units"
HELD_OUT = "held-out units"
"""The two disjoint parts of the private units; a unit's side depends on its own id alone."""

EVALUATION = "evaluation"
PUBLIC_KEY = "public key"
"""Names of private stages beside the DP phases and the vocabulary's, here and in the ledger."""


def public_key_event() -> NonPrivate:
    """What it costs to run with a key that everyone can make: all that it hides."""
    return NonPrivate(PUBLIC_KEY_REASON)


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
        epsilon_alone: at the budget's delta; no number before the stage is `priced`.
        epsilon_joint: of this and all earlier stages; likewise.
        seconds: expected, rough; None: unknown.
        payments: how often the event is paid for; None: at every step.
    """

    name: str
    mechanism: str
    parameters: dict[str, float | int | str]
    steps: int
    event: Event | None
    partition: str
    epsilon_alone: float = math.nan
    epsilon_joint: float = math.nan
    seconds: float | None = math.nan
    payments: int | None = None

    @property
    def on_device(self) -> bool:
        """Whether it is the model's work, which a GPU does as fast as that GPU is."""
        return self.steps > 1 or self.name == EVALUATION


def priced(config: RunConfig, stages: Iterable[Stage]) -> tuple[Stage, ...]:
    """The stages with what each costs alone, and together with all before it."""
    delta, relation = config.privacy.budget.delta, config.privacy.relation
    found: list[Stage] = []
    so_far: list[Spend] = []
    joint = 0.0
    for stage in stages:
        alone = 0.0
        if stage.event is not None:
            spend = Spend(stage.event, stage.steps if stage.payments is None else stage.payments, stage.partition)
            so_far.append(spend)
            alone = epsilon([spend], delta, relation)
            joint = joint_epsilon(so_far, delta, relation)
        found.append(dataclasses.replace(stage, epsilon_alone=alone, epsilon_joint=joint))
    return tuple(found)
