"""What the attacks found: exposure of canaries, and for the curator membership inference."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from tacit.report.schema.values import Facts, Probability, Text

__all__ = ["Estimated", "ExposureRow", "MembershipFacts", "MembershipRow"]


class ExposureRow(Facts):
    """How well planted secrets (canaries) can be read out of a model.

    Of a masked model exposure is log2(candidates) - log2(mean rank of the true secrets), of a causal one the mean of
    log2(candidates) - log2(rank) over them, and then their maximum is here too, with its own null.

    Args:
        pattern: the canary's shape, such as "HSH": hint words (H) around the secret word (S).
        model: which model was attacked.
        canaries: how many canaries were planted.
        insertion_probability: the probability with which a unit received a canary.
        exposure_bits: the exposure.
        null_bits: the exposure expected of a model that never saw them.
        p_value: the probability of at least this exposure in such a model.
        ceiling_bits: log2(candidates), the exposure of perfect recall.
        rank_mean: the mean rank itself.
        max_bits, null_max_bits, max_p_value: the exposure of the most exposed canary, and what chance makes of that.
    """

    pattern: Text
    model: Literal["released model", "control without DP"]
    canaries: Annotated[int, Field(ge=1)]
    insertion_probability: Probability
    exposure_bits: float
    null_bits: float
    p_value: Probability
    ceiling_bits: Annotated[float, Field(gt=0)]
    rank_mean: Annotated[float, Field(ge=1)] | None = None
    max_bits: float | None = None
    null_max_bits: float | None = None
    max_p_value: Probability | None = None

    @property
    def joint_p_value(self) -> float:
        """Of mean and maximum as one test: twice the smaller one (Bonferroni), valid however the two depend on each other."""
        return self.p_value if self.max_p_value is None else min(1.0, 2 * min(self.p_value, self.max_p_value))

    @model_validator(mode="after")
    def _the_maximum_is_whole(self) -> Self:
        given = [value is not None for value in (self.max_bits, self.null_max_bits, self.max_p_value)]
        if any(given) != all(given):
            raise ValueError("a maximum needs its null and its p-value")
        return self


class Estimated(Facts):
    """A share or an AUC, and its 95 % interval."""

    value: Probability
    low: Probability
    high: Probability

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low - 1e-9 <= self.value <= self.high + 1e-9:
            raise ValueError("an interval must hold its value")
        return self


class MembershipRow(Facts):
    """How well members are told from non-members under one model, and without any model (the blind baseline).

    Args:
        model: which model was attacked.
        texts: in one guess: 1, or the size of a group.
        members: texts, or groups of them, and as many of non-members.
        accuracy: share of right guesses; 1/2 at chance.
        auc: probability that a member looks more like one than a non-member does; 1/2 at chance.
        tpr: share of members found where 1 % of the non-members are taken for members; None where these are too few.
        at_chance: whether the accuracy's interval holds 1/2.
        blind_accuracy, blind_auc, blind_at_chance: the same without a model. Where that is not at chance, the rest says nothing.
    """

    model: Literal["released model", "control without DP"]
    texts: Annotated[int, Field(ge=1)]
    members: Annotated[int, Field(ge=2)]
    accuracy: Estimated
    auc: Estimated
    tpr: Estimated | None = None
    at_chance: bool
    blind_accuracy: Estimated
    blind_auc: Estimated
    blind_at_chance: bool


class MembershipFacts(Facts):
    """Membership inference on the run's own texts: functions of private text outside the ledger, for the curator alone.

    Args:
        pairs_wanted: members that were asked for, and as many non-members.
        rows: of each model, single texts and groups; none where nothing could be measured.
        undecided: why not.
    """

    pairs_wanted: Annotated[int, Field(ge=1)]
    rows: tuple[MembershipRow, ...] = ()
    undecided: Text | None = None

    @model_validator(mode="after")
    def _either(self) -> Self:
        if bool(self.rows) == (self.undecided is not None):
            raise ValueError("the attack has rows, or a word on why it has none")
        return self
