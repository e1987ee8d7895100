"""The attacks on a trained model: the section ``audit``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from tacit.config.base import MOST, Count, Options, Probability, Rate, Steps
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["AuditOptions", "CoinOptions", "MembershipOptions", "check_coins", "check_control", "check_membership"]


_SHOWINGS = 25
_MOST_STEPS = 4000
_OF_TRAINING_WITHOUT_DP = frozenset({"control_steps", "control_batch", "control_learning_rate"})


class MembershipOptions(Options):
    """Membership inference on texts of the run's own corpus that hold a secret; a causal model's (docs/attacks.md).

    What it finds is a function of private text beside the model: it stays in run/private.

    Args:
        pairs: members, and as many true non-members from the held-out part; fewer where fewer texts qualify.
        group_size: texts of a group in the attack on groups.
        shadow_models: so many models (an even number) are trained on random halves of the attacked texts, without DP, and the same is
            tried once more with losses less those under models that never saw the text (Carlini et al. 2022); 0: not.
    """

    added_later: ClassVar[frozenset[str]] = frozenset({"shadow_models"})

    pairs: Count = 500
    group_size: Annotated[int, Field(ge=2, le=MOST)] = 20
    shadow_models: Annotated[int, Field(ge=0, le=256)] = 0

    @property
    def least_pairs(self) -> int:
        """Four groups: with fewer, the halves of the attack on groups and of its blind baseline would hold one each."""
        return 4 * self.group_size


class CoinOptions(Options):
    """A lower bound on epsilon: examples, each trained on or not as a keyed coin says, are told apart by the model.

    An example is a unit of its own: count half of them in ``privacy.units``, and with ``relation: replace``, where a coin chooses
    between two examples, all. What is judged is in the ledger before the training: one score and one bound. The others are shown
    beside it, as exploratory (docs/audit-bounds.md).

    Args:
        examples: how many coins. What a perfect attack can show grows with them (`tacit plan` says it): epsilon 5.5 with 1,000.
        pieces: of an example.
        kind: what it is made of: ``random-pieces`` of the vocabulary; ``random-words``, of letters; ``public-text``, which is
            trained on publicly too; ``new-piece``, random pieces with one that no public text has; or ``secret``, random pieces
            after a prompt.
        score: what makes an example look trained on: its ``loss``; ``calibrated``, less its loss before the private phases; ``zlib``,
            over its compressed length; ``min-k``, of its least likely fifth; or ``min-k++``, of that in standard deviations.
        bound: what makes a lower bound of scores and coins: ``one-run``, which assumes nothing; ``clopper-pearson``,
            ``one-run-f-dp`` or ``gaussian-dp``, which can contradict nothing by themselves.
        confidence: of the bound.
    """

    examples: Annotated[int, Field(ge=10, le=2**20)] = 1000
    pieces: Annotated[int, Field(ge=2, le=MOST)] = 8
    kind: str = "random-pieces"
    score: str = "loss"
    bound: str = "one-run"
    confidence: Annotated[float, Field(ge=0.5, lt=1)] = 0.95


class AuditOptions(Options):
    """Planted canaries (Hoory et al. 5.2; Carlini et al. 2019). A causal model gets texts, "My ID is: 281265".

    Args:
        patterns: of a masked model; H is a hint piece, S the secret piece.
        canaries: how many of each pattern, or how many texts.
        copies: how often each text of a causal model is planted, as a record of its own.
        digits: of the secret of such a text; every number of so many digits is a candidate.
        probability: a private sequence gets one canary with this probability.
        contexts: public sequences in which a secret's rank is measured.
        control: train the same corpus once more, as the positive control: ``true`` (or ``without-dp``) by ordinary training,
            or ``without-noise``, the same sampling, clipping and steps with the noise left out. Its results stay private.
        control_steps: steps of the control without DP in each DP phase; when not given the phase's own, and at least as many as show
            each stated unit about 25 times over all phases, but no more than 4,000 for that (`enough_control_steps`).
        control_batch: sequences a step of the control without DP.
        control_learning_rate: high enough that a model without DP does memorise: a control at its null tests nothing.
        membership: membership inference on texts of the corpus that hold a secret, of a causal model; ``{}`` takes the defaults;
            needs ``held_out`` above 0; for the curator alone. Not given: none.
        coins: a lower bound on epsilon by examples that a coin puts into the text; ``{}`` takes the defaults. Not given: none.
        white_box: while the phases train, note what every noisy update says of each example of ``coins``, and bound epsilon from
            below by that too: the attack of somebody who sees the whole training, whom the certificate covers, for the curator
            alone. Each step is made once more, in float64.
        attacks: other attacks by name, each with its own options: ``planted-contexts: {contexts: 8}``, the exposure of a masked
            model's canaries in training rows that hold them, for the curator alone; and what you register
            (docs/adding.md#an-attack).
        max_exposure_p_value: fail (exit code 5) when any pattern's p-value is below this; 0: never. Of a causal model, twice the
            smaller one of the p-values of mean and highest exposure. So with every attack whose rows are part of the release, but
            for ``coins``, which fail (exit code 6) when they contradict the proven epsilon.
    """

    added_later: ClassVar[frozenset[str]] = frozenset({"attacks", "coins", "white_box"})

    patterns: tuple[Annotated[str, Field(pattern=r"^H*SH*$")], ...] = ("HS", "HSH", "HHSHH")
    canaries: Count = 10
    copies: Count = 20
    digits: Annotated[int, Field(ge=1, le=7)] = 6
    probability: Probability = 0.1
    contexts: Count = 8
    control: bool | Literal["without-noise"] = False
    control_steps: Steps | None = None
    control_batch: Count = 64
    control_learning_rate: Rate = 6e-3
    membership: MembershipOptions | None = None
    coins: CoinOptions | None = None
    white_box: bool = False
    attacks: dict[str, dict[str, Any]] = {}  # noqa: RUF012 - a frozen model copies it
    max_exposure_p_value: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @field_validator("control", mode="before")
    @classmethod
    def _without_dp_is_true(cls, given: Any) -> Any:
        return True if given == "without-dp" else given

    @property
    def without_effect(self) -> frozenset[str]:
        """A control without noise has its steps, batches and rates from the phases."""
        return _OF_TRAINING_WITHOUT_DP if self.control == "without-noise" else frozenset()

    @model_validator(mode="after")
    def _control_as_planned(self) -> Self:
        for name in sorted(_OF_TRAINING_WITHOUT_DP & self.model_fields_set):
            if self.control == "without-noise":
                raise ValueError(
                    f"a control without noise trains as the phases do; leave {name} out, or set control: true"
                )
        return self

    def enough_control_steps(self, units: int, phases: int) -> int:
        """Steps a DP phase in which a model without DP learns planted canaries by heart; from public numbers alone.

        In the demo (1,100 units, batches of 64) the 60 steps of the DP phase leave the control at its null, and 400, which show each
        unit 23 times, expose it (docs/attacks.md).
        """
        return math.ceil(min(_MOST_STEPS, _SHOWINGS * units / self.control_batch) / phases)


def check_control(config: RunConfig) -> None:
    """Refuse a control without noise with marked text: there is noise on states too, in phases that are no DP phases."""
    if config.audit is not None and config.audit.control == "without-noise" and config.marking is not None:
        raise UsageError(
            "audit.control: without-noise leaves out the noise of DP phases alone; with marking set it to true"
        )


def check_membership(config: RunConfig) -> None:
    """The attack has a model that it can ask, texts that were not trained on, and enough groups."""
    options = config.audit.membership if config.audit else None
    if options is None:
        return
    if not config.model.is_causal:
        raise UsageError("audit.membership attacks causal models: set model.kind to lstm or gpt2, or leave it out")
    if config.evaluation.held_out == 0:
        raise UsageError(
            "audit.membership takes its non-members from the held-out part: set evaluation.held_out above 0, or leave it out"
        )
    if options.shadow_models % 2:
        raise UsageError(
            f"audit.membership.shadow_models is {options.shadow_models}: each half of the texts has a model of its own, so take an "
            "even number"
        )
    if options.pairs < options.least_pairs:
        raise UsageError(
            f"audit.membership: {options.pairs} pairs are fewer than four groups of {options.group_size}; raise pairs to "
            f"{options.least_pairs}, or lower group_size"
        )


def check_coins(config: RunConfig) -> None:
    """The examples go where training reads units with noise, and fit into a row."""
    options = config.audit.coins if config.audit else None
    if config.audit is not None and config.audit.white_box:
        _check_white_box(config)
    if options is None:
        return
    streams = {phase.stream for phase in config.phases}
    if config.adaptive is not None or config.marking is not None or "private" not in streams:
        raise UsageError(
            "audit.coins puts units into the private stream as a whole, which `marking`, `adaptive` and runs on public text alone do "
            "not have: leave it out"
        )
    if options.pieces + 2 > config.model.length:
        raise UsageError(
            f"audit.coins.pieces is {options.pieces}, which does not fit into model.length {config.model.length} with a start and an "
            "end token; lower it"
        )
    if options.examples > config.privacy.units:
        raise UsageError(
            f"audit.coins.examples is {options.examples:,}, more than the {config.privacy.units:,} privacy.units: the text would be "
            "mostly made up; lower it"
        )


def _check_white_box(config: RunConfig) -> None:
    """There are examples, and every update that they may be in has noise."""
    if config.audit is None or config.audit.coins is None:
        raise UsageError("audit.white_box looks for the examples of audit.coins: add `coins: {}`, or leave it out")
    noisy = {phase.name for phase in config.dp_phases}
    if any(phase.stream == "private" and phase.name not in noisy for phase in config.phases):
        raise UsageError(
            "audit.white_box looks at noisy updates, and a phase trains on the private stream without noise"
        )
