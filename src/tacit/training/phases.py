"""Phases: training is a list of ``Phase(stream, plan, steps)``, and no loop knows which paper it runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tacit.privacy.events import Event
from tacit.training.plans import Plan

__all__ = ["AdamOptions", "Phase", "last_before_private"]


@dataclass(frozen=True)
class AdamOptions:
    """AdamW with linear warm-up and linear decay to zero; none of it depends on data.

    ``average``: the phase ends with the mean of its iterates (`tacit.training.averaging`) with this decay; None: with the last one.
    ``keep``: it ends with this part of the way from its start to there; None: all of it.
    """

    learning_rate: float
    warmup: float = 0.1
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-6
    average: float | None = None
    keep: float | None = None

    def learning_rate_at(self, step: int, steps: int) -> float:
        """The rate of step 0..steps-1."""
        rising = max(1, round(self.warmup * steps))
        if step < rising:
            return self.learning_rate * (step + 1) / rising
        return self.learning_rate * (steps - step) / max(1, steps - rising)


@dataclass(frozen=True)
class Phase:
    """``steps`` steps of a plan on one stream of records.

    Args:
        name: unique in the run; the ledger's stage name of a phase that reads private text.
        stream: ``public`` text, the ``screened`` part of the private text, the ``private`` rest (all of it, unscreened), or
            ``marked``: all of it, with its private tokens marked.
        plan: how one step uses the stream.
        steps: fixed beforehand, never derived from data.
        optimizer: AdamW's options.
        round: which of the run's rounds it belongs to, from 0.
        rounds: how many rounds there are; the learning rate's schedule runs over all of them.
        previous: the phase of the round before, whose optimizer it goes on with.
    """

    name: str
    stream: str
    plan: Plan
    steps: int
    optimizer: AdamOptions
    round: int = 0
    rounds: int = 1
    previous: str | None = None

    @property
    def event(self) -> Event | None:
        """What one step costs, or ``plan.steps_a_payment`` of them together; None on public text."""
        return self.plan.event_on(self.stream)

    @property
    def payments(self) -> int:
        """How often the event is paid for: once for each beginning of ``plan.steps_a_payment`` steps."""
        return math.ceil(self.steps / self.plan.steps_a_payment)

    def payment_of(self, step: int) -> int:
        """Which payment, from 0, a step belongs to; it is made before the first step of these."""
        return step // self.plan.steps_a_payment

    def learning_rate_at(self, step: int) -> float:
        """The rate of this phase's step."""
        return self.optimizer.learning_rate_at(self.round * self.steps + step, self.rounds * self.steps)


def last_before_private(phases: Sequence[Phase]) -> Phase | None:
    """The last phase whose model has read no private text; None where a run begins with private text, or never reads any."""
    before = list(itertools.takewhile(lambda phase: phase.stream == "public", phases))
    return before[-1] if before and len(before) < len(phases) else None
