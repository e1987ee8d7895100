"""A training loop of one's own (`tacit.loops`): its plan, what it costs, and what its certificate says. Needs no torch."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from tacit.clipping import CLIPPINGS, LARGEST, LEAST
from tacit.config.base import values_digest
from tacit.errors import BudgetError, DataError, RefusedError, UsageError
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.certificate import NOT_EXACT, ON_GRID, refuse_unstated, states_tiny
from tacit.privacy.checks import require_delta, require_positive, require_whole
from tacit.privacy.events import EVERY_PART, Event, Relation, Spend, check_relation
from tacit.privacy.ledger import LedgerHeader
from tacit.privacy.provenance import PUBLIC, Given, Provenance
from tacit.privacy.rounded import upper
from tacit.training.plans import DpPlan

__all__ = ["ASSUMPTIONS", "STAGE", "START_OF_LOOP", "StepPlan", "loop_randomness", "loop_statement"]

STAGE = "training"
"""The one stage in the ledger of a loop of one's own."""

_REAL = ("expected_batch", "clip_norm", "delta", "epsilon", "noise_multiplier")
_MOST_STEPS = 10**9  # what a row of the ledger may hold

ASSUMPTIONS = (
    "The loop is its author's own: tacit paid for every step, drew its units, clipped, added the noise and divided, and saw nothing "
    "of the rest.",
    "A row that the loop computes for a unit, and the unit's loss, are functions of this unit alone, of public values and of random "
    "numbers of its own. (Once a run tacit looks whether the losses of two units reach the rows of another.)",
    "Where a row stands among the others of a micro-batch, or in memory, decides no bit of what is computed of it. (The usual "
    "operations of the first micro-batch were tried on made-up equal rows.)",
    "The loop reads for index i what belongs to unit i and to no other unit, and one privacy unit has one index.",
    "Every parameter that the loop trains belongs to the model that tacit was given, and no optimizer steps on another one.",
    "The weights at the start, the tokenizer, and all else that the loop was given or chosen by were made without the private text, "
    "and so was the choice of its options.",
    "Between steps the loop used the noisy gradients and public values alone: when it stopped, started again, skipped or changed its "
    "learning rate did not depend on private losses, norms or texts, and neither did a crash.",
    "The released files were made from the noisy gradients and from public things alone.",
    "The stated number of units is a public number.",
)
"""What a certificate of such a loop rests on and no program can check, in words for its reader."""

_ANSWERED_FOR = "all that a training loop of its author's own was given, and did between its private steps,"
START_OF_LOOP = Provenance(given=(Given(_ANSWERED_FOR, None, PUBLIC),))
"""Public by the word of the loop's author; a run that starts from its release has this among its own assumptions."""


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """DP-SGD for a training loop of one's own: all numbers that sampler, clip, noise and account must agree on.

        plan = tacit.StepPlan(units=12_000, expected_batch=256, clip_norm=1.0, steps=2_000, epsilon=3.0, delta=1e-6)
        plan.dp.noise_multiplier     # solved, before anything is spent
        plan.total_epsilon           # of all steps, at most the stated one

    None of them may be derived from private values.

    Args:
        units: how many units there are, as a public statement: a round number, not the private count.
        expected_batch: units in a step on average; the sampling probability is this over ``units``, and the noisy sum is divided
            by it.
        clip_norm: C, bound on the l2 norm of one unit's gradient, from 1e-6 to 1e12.
        steps: of the whole training, however often it is stopped and started; all of them are certified.
        delta: of the guarantee; below 1 / ``units``.
        epsilon: the budget; the noise is solved for it, or checked against it where it is given. None: what the given noise costs.
        noise_multiplier: standard deviation of the noise on the sum over ``clip_norm``; None: solved.
        unit: what one unit is, in a word for the certificate, such as ``record``, ``document`` or ``user``.
        relation: neighbours differ by one unit added or removed (``add-or-remove``), or exchanged (``replace``).
        sequences_per_unit: rows of the batch that belong to one unit, always so many.
        clipping: ``flat``, ``automatic`` or ``per-layer``: how a unit's gradient is scaled under the bound.

    Raises:
        UsageError: a number is out of range, or neither ``epsilon`` nor ``noise_multiplier`` is given.
        RefusedError: ``delta-too-large``; ``noise-too-small``.
    """

    units: int
    expected_batch: float
    clip_norm: float
    steps: int
    delta: float
    epsilon: float | None = None
    noise_multiplier: float | None = None
    unit: str = "record"
    relation: Relation = "add-or-remove"
    sequences_per_unit: int = 1
    clipping: str = "flat"

    def __post_init__(self) -> None:
        for name in ("units", "steps", "sequences_per_unit"):
            require_whole(name, _number(name, getattr(self, name)), at_least=1)
        if self.steps > _MOST_STEPS:
            raise UsageError(f"steps is {self.steps}; it must be at most {_MOST_STEPS}")
        require_positive("expected_batch", _number("expected_batch", self.expected_batch))
        if self.expected_batch > self.units:
            raise UsageError(f"expected_batch is {self.expected_batch:g}; it must be at most units, {self.units}")
        if not LEAST <= _number("clip_norm", self.clip_norm) <= LARGEST:
            raise UsageError(f"clip_norm must be from {LEAST:g} to {LARGEST:g}, not {self.clip_norm}")
        require_delta(_number("delta", self.delta))
        if self.delta >= 1 / self.units:
            raise RefusedError(
                "delta-too-large",
                f"delta is {self.delta:g} but must be below 1/units = {1 / self.units:.3g}: a larger delta allows publishing a whole "
                "unit",
            )
        if self.epsilon is None and self.noise_multiplier is None:
            raise UsageError("give epsilon, for which the noise is solved, or noise_multiplier, or both")
        if self.epsilon is not None:
            require_positive("epsilon", _number("epsilon", self.epsilon))
        if self.noise_multiplier is not None:
            require_positive("noise_multiplier", _number("noise_multiplier", self.noise_multiplier))
            assert self._dp(self.noise_multiplier).event.is_private  # making the event refuses noise that is none
        check_relation(self.relation)
        if self.clipping not in CLIPPINGS:
            raise UsageError(f"clipping is {self.clipping!r}; it must be one of {', '.join(CLIPPINGS)}")
        if not (isinstance(self.unit, str) and self.unit.strip() and self.unit.isprintable()):
            raise UsageError("unit must be a word or some, such as record, document or user")

    @functools.cached_property
    def dp(self) -> DpPlan:
        """The plan of a step, with its noise: sampler, clip, noise, normaliser and event are read from it and from nothing else."""
        if self.noise_multiplier is not None:
            return self._dp(self.noise_multiplier)
        assert self.epsilon is not None  # checked at the beginning
        schedule = [(self.expected_batch / self.units, self.steps)]
        return self._dp(calibrate.training_noise(self.epsilon, self.delta, schedule, self.relation))

    def with_noise_of(self, event: Event) -> DpPlan:
        """The plan `dp`, with the noise that a ledger has where it was solved: what is paid is not solved again.

        Raises:
            UsageError: the event has no noise of a step.
        """
        if self.noise_multiplier is not None:
            return self.dp
        noise = event.step_noise_multiplier
        if noise is None:
            raise UsageError("the ledger's event is not that of a private step")
        return self._dp(noise)

    @property
    def event(self) -> Event:
        """What one step costs."""
        return self.dp.event

    def epsilon_of(self, steps: int) -> float:
        """What so many steps cost, at ``delta``."""
        return joint_epsilon([Spend(self.event, steps, EVERY_PART)] if steps else [], self.delta, self.relation)

    @property
    def total_epsilon(self) -> float:
        """What all steps cost, at ``delta``."""
        return self.epsilon_of(self.steps)

    def check_budget(self) -> None:
        """Raises:
        BudgetError: the given noise costs more than the given epsilon.
        UsageError: delta is so small that a certificate could not state all its pairs.
        """
        if states_tiny(self.delta):  # else nothing has to be solved for it
            refuse_unstated([Spend(self.event, self.steps, EVERY_PART)], self.delta, self.relation)
        if self.epsilon is None or self.noise_multiplier is None:  # what is solved meets it
            return
        if self.total_epsilon > self.epsilon:
            raise BudgetError(
                f"{self.steps} steps with noise_multiplier {self.dp.noise_multiplier:g} have epsilon {upper(self.total_epsilon)} at "
                f"delta {self.delta:g}; the budget is {self.epsilon:g}: raise the noise, lower steps, or leave the noise out to have "
                "it solved"
            )

    def header(self, key_commitment: str) -> LedgerHeader:
        """The first row of the ledger."""
        return LedgerHeader(
            unit=self.unit,
            relation=self.relation,
            units=self.units,
            epsilon=float(upper(self.total_epsilon, ".6g")) if self.epsilon is None else float(self.epsilon),
            delta=self.delta,
            config_digest=self.digest(),
            key_commitment=key_commitment,
        )

    def values(self) -> dict[str, Any]:
        """The options, JSON-ready; 256 and 256.0 are one plan."""
        given = dataclasses.asdict(self)
        return given | {name: float(given[name]) for name in _REAL if given[name] is not None}

    def digest(self) -> str:
        """SHA-256 of the options."""
        return values_digest(self.values())

    @classmethod
    def from_values(cls, values: Any, where: str) -> Self:
        """The inverse of `values`.

        Args:
            where: names the file in the error.

        Raises:
            DataError: these are no options of a plan.
        """
        names = {field.name for field in dataclasses.fields(cls)}
        if not isinstance(values, Mapping) or set(values) != names:
            raise DataError(f"{where}: not the plan of a loop, or damaged; bring it back")
        try:
            return cls(**values)
        except (UsageError, TypeError) as error:
            raise DataError(f"{where}: damaged ({error}); bring it back") from None

    def _dp(self, noise_multiplier: float) -> DpPlan:
        return DpPlan(
            sampling_probability=self.expected_batch / self.units,
            clip_norm=float(self.clip_norm),
            noise_multiplier=float(noise_multiplier),
            normaliser=float(self.expected_batch),
            sequences_per_unit=self.sequences_per_unit,
            clipping=self.clipping,
        )


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UsageError(f"{name} is {value!r}; it must be a finite number")
    return value


def loop_randomness(training: str) -> str:
    """What a loop of one's own draws from, in words.

    Args:
        training: the source of the training noise, as the ledger binds it.
    """
    return (
        f"Training noise: {training}, {ON_GRID}; sampling: ChaCha20. Both are keyed by 256 bits "
        f"from the operating system, drawn anew at every start of the loop and never written down. {NOT_EXACT}"
    )


def loop_statement(plan: StepPlan, epsilon: float) -> dict[str, Any]:
    """The certificate's block ``own_loop``, JSON-ready: the guarantee in words, and what it rests on.

    Args:
        epsilon: as certified.
    """
    neighbours = {
        "add-or-remove": f"one {plan.unit} with all that the loop reads for it is added to or removed from the private text",
        "replace": f"all that the loop reads for one {plan.unit} is exchanged for something else",
    }
    return {
        "statement": (
            f"When {neighbours[plan.relation]}, the probability of anything that can be seen of the released files changes by at "
            f"most a factor of e^{upper(epsilon, '.2f')}, give or take {upper(plan.delta)}, if the assumptions hold."
        ),
        "assumptions": list(ASSUMPTIONS),
    }
