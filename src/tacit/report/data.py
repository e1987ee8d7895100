"""Everything that a report may say, as one frozen model: what is not here cannot reach a reader.

The report is built from `ReportData` and from nothing else, so no private text can slip into it. Values that would be
claims beyond the guarantee are refused at construction: a finite epsilon for a heuristic run, a proved run without a
finite one, results of the control trained without DP in a copy that may be published.

Epsilons may be infinite; in JSON they are then the string "infinity", because bare ``Infinity`` is not JSON.
"""

from __future__ import annotations

import datetime
import math
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    StrictFloat,
    StrictInt,
    StringConstraints,
    model_validator,
)

__all__ = [
    "CONTROL",
    "CURATOR_TEXT",
    "INFINITY",
    "RELEASED",
    "UNIGRAM",
    "Assumption",
    "ConfidentialityLine",
    "CumulativePoint",
    "EpsilonPair",
    "Estimated",
    "ExposureRow",
    "Guarantee",
    "LedgerRow",
    "MembershipFacts",
    "MembershipRow",
    "ModelFacts",
    "PhaseRow",
    "ReleasedFile",
    "ReportData",
    "UtilityRow",
    "VocabularyFacts",
]

INFINITY = "infinity"
"""How an infinite epsilon is written in JSON and in words."""

RELEASED = "released model"
CONTROL = "control without DP"
UNIGRAM = "unigram"
CURATOR_TEXT = "private held-out text (exact, for the curator)"


def _read_infinity(value: object) -> object:
    return math.inf if value == INFINITY else value


def _write_infinity(value: float) -> float | str:
    return INFINITY if math.isinf(value) else value


def _check_iso_time(value: str) -> str:
    try:
        datetime.datetime.fromisoformat(value)
    except ValueError:
        # the standard library's message repeats the value
        raise ValueError("a time must be in ISO 8601") from None
    return value


# Control characters (and the two code points that XML forbids) have no place in a page, an SVG or a Markdown line.
_Printable = StringConstraints(pattern=r"^[^\x00-\x1f\x7f-\x9f\x{fffe}\x{ffff}]*$")
Note = Annotated[str, _Printable]
Text = Annotated[str, _Printable, StringConstraints(min_length=1)]
HexDigest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12,128}$")]
Epsilon = Annotated[
    float,
    Field(ge=0, allow_inf_nan=True),
    BeforeValidator(_read_infinity),
    PlainSerializer(_write_infinity, when_used="json"),
]
Delta = Annotated[float, Field(gt=0, lt=1)]
Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
Parameters = dict[Text, StrictInt | StrictFloat | Text]
Interval = tuple[float, float]


class _Facts(BaseModel):
    """Frozen; unknown fields are refused; an error never repeats the value that it refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


class EpsilonPair(_Facts):
    """One point of the privacy curve: (epsilon, delta)-DP holds for the whole release."""

    delta: Delta
    epsilon: Epsilon


class Assumption(_Facts):
    """Something that the guarantee rests on, and how well it is known."""

    text: Text
    label: Literal["proved", "measured", "heuristic", "assumed"]


class Guarantee(_Facts):
    """What is promised, for whom, and what is not.

    Args:
        unit: whom or what the guarantee is for, as a noun in the singular: user, document, record, 256-word tuple.
        unit_description: the unit in plain words, such as "one patient: all notes with the same patient number".
        relation: neighbouring corpora differ by one unit added or removed, or by one unit exchanged.
        epsilons: three or more proved points of the curve with distinct deltas; the first is the certified pair. The
            verdict uses the point that limits an attacker most: that of epsilon 0, when it is among them.
        mu: the Gaussian mechanism with the same epsilon at ``mu_delta``: a summary, not part of the guarantee.
        mu_delta: the delta at which ``mu`` was matched.
        status: ``heuristic`` means that nothing is proved; every epsilon, and mu, must then be infinite.
        covered_outputs: what the guarantee is about, one file or value each.
        assumptions: what the proof rests on.
        not_covered: what a reader might take to be covered, and is not; never empty.
        randomness: where the random numbers come from, in one sentence.
    """

    unit: Text
    unit_description: Text
    relation: Literal["add-or-remove", "replace"]
    epsilons: Annotated[tuple[EpsilonPair, ...], Field(min_length=3)]
    mu: Epsilon
    mu_delta: Delta
    status: Literal["proved", "heuristic"]
    covered_outputs: Annotated[tuple[Text, ...], Field(min_length=1)]
    assumptions: tuple[Assumption, ...]
    not_covered: Annotated[tuple[Text, ...], Field(min_length=1)]
    randomness: Text

    @property
    def certified(self) -> EpsilonPair:
        """The pair that the certificate states."""
        return self.epsilons[0]

    @property
    def is_proved(self) -> bool:
        """Whether there is a guarantee at all."""
        return self.status == "proved"

    @model_validator(mode="after")
    def _status_agrees_with_epsilon(self) -> Self:
        if len({pair.delta for pair in self.epsilons}) < len(self.epsilons):
            raise ValueError("the epsilons must be at distinct deltas")
        if self.is_proved and math.isinf(self.certified.epsilon):
            raise ValueError("a proved guarantee needs a finite certified epsilon; report it as heuristic")
        if not self.is_proved and not all(
            math.isinf(value) for value in (self.mu, *(p.epsilon for p in self.epsilons))
        ):
            raise ValueError("a heuristic run has no guarantee: every epsilon and mu must be infinite")
        return self


class LedgerRow(_Facts):
    """One entry of the ledger.

    Args:
        sequence: the entry's number; rises from row to row.
        stage: which stage of the run made the release.
        mechanism: the mechanism in plain words.
        parameters: what the accountant was told, by name.
        count: how often it ran.
        epsilon_alone: its epsilon at the certified delta if it were the only release.
        partition: which private units it read.
        digest: the first 12 hex digits of the entry's digest.
    """

    sequence: Count
    stage: Text
    mechanism: Text
    parameters: Parameters
    count: Annotated[int, Field(ge=1)]
    epsilon_alone: Epsilon
    partition: Literal["training units", "held-out units"]
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]


class CumulativePoint(_Facts):
    """The joint epsilon of everything released up to and including a stage, at the certified delta."""

    label: Text
    epsilon: Epsilon


class ExposureRow(_Facts):
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


class Estimated(_Facts):
    """A share or an AUC, and its 95 % interval."""

    value: Probability
    low: Probability
    high: Probability

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low - 1e-9 <= self.value <= self.high + 1e-9:
            raise ValueError("an interval must hold its value")
        return self


class MembershipRow(_Facts):
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


class MembershipFacts(_Facts):
    """Membership inference on the run's own texts: functions of private text outside the ledger, for the curator alone.

    Args:
        pairs_wanted: members that were asked for, and as many non-members.
        rows: of each model, single texts and groups.
    """

    pairs_wanted: Annotated[int, Field(ge=1)]
    rows: Annotated[tuple[MembershipRow, ...], Field(min_length=1)]


class UtilityRow(_Facts):
    """How well one model predicts one text.

    Accuracies lie in [0, 1] (a noisy one is clamped before it gets here), perplexities above 0. An interval is a 95 %
    confidence interval, (low, high).
    """

    corpus: Literal[
        "public held-out text",
        "private held-out units (noisy, in the ledger)",
        "private held-out text (exact, for the curator)",
    ]
    model: Literal["after public phase", "released model", "unigram", "uniform"]
    masked_token_accuracy: Probability | None = None
    masked_token_accuracy_interval95: Interval | None = None
    perplexity: Annotated[float, Field(gt=0)] | None = None
    perplexity_interval95: Interval | None = None
    perplexity_per_word: Annotated[float, Field(gt=0)] | None = None
    bits_per_byte: Annotated[float, Field(ge=0)] | None = None
    note: Note = ""


class ConfidentialityLine(_Facts):
    """One line of a confidentiality statement (tacit.privacy.statement.Line), in words and with its numbers.

    Args:
        kind: worst-case, screened or bayesian.
        definition: which definition of Zhao et al. 2022 it is about.
        status: how well it is known.
        sentence: what holds.
        assumption: what that rests on.
        paper: the paper's own number.
        difference: why it is another one.
    """

    kind: Literal["worst-case", "screened", "bayesian"]
    definition: Text
    status: Literal["proved", "measured", "heuristic"]
    epsilon: Epsilon
    delta: Delta
    sentence: Text
    assumption: Text
    paper: Epsilon
    difference: Text


class VocabularyFacts(_Facts):
    """The tokenizer: how its words were chosen, and how many came from the private text through the DP release."""

    method: Text
    size: Count
    released_words: Count
    parameters: Parameters


class ModelFacts(_Facts):
    """The released model's shape; ``heads`` is None for a model without attention."""

    kind: Text
    layers: Count
    width: Count
    heads: Count | None
    parameters: Count
    max_length: Count


class PhaseRow(_Facts):
    """One training phase, in words."""

    stream: Text
    plan: Text
    steps: Count
    batch: Text
    optimizer: Text


class ReleasedFile(_Facts):
    """A file of the release and its SHA-256."""

    path: Text
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class ReportData(_Facts):
    """The facts of one run.

    Args:
        created: when, in ISO 8601; the report itself never reads a clock.
        config_digest, ledger_head: hexadecimal digests.
        cumulative: one point a stage; the last one is the certified epsilon.
        exposure: the audit; rows of the control without DP only in a curator's copy.
        membership: the attack on the texts themselves; only in a curator's copy.
        confidentiality: of a run with screening, its statement; it stands apart from epsilon, which is then infinite.
        license: a licence identifier for the model card. The owner of the text decides, hence the default.
        budget_epsilon: the budget that the run was given, if any: a line in the plot.
        curator_copy: the copy for the private folder; it may hold values outside the guarantee and says so in red.

    Raises:
        pydantic.ValidationError: (a ValueError) a field is unknown, malformed, or contradicts another.
    """

    title: Text
    tacit_version: Text
    created: Annotated[Text, AfterValidator(_check_iso_time)]
    run_name: Text
    config_digest: HexDigest
    ledger_head: HexDigest
    guarantee: Guarantee
    ledger: tuple[LedgerRow, ...]
    cumulative: tuple[CumulativePoint, ...]
    exposure: tuple[ExposureRow, ...]
    utility: tuple[UtilityRow, ...]
    vocabulary: VocabularyFacts
    model: ModelFacts
    phases: tuple[PhaseRow, ...]
    files: tuple[ReleasedFile, ...]
    confidentiality: tuple[ConfidentialityLine, ...] = ()
    membership: MembershipFacts | None = None
    license: Text = "unknown"
    budget_epsilon: Annotated[float, Field(gt=0)] | None = None
    curator_copy: bool = False

    @model_validator(mode="after")
    def _nothing_outside_the_guarantee(self) -> Self:
        if not self.curator_copy and any(row.corpus == CURATOR_TEXT for row in self.utility):
            raise ValueError(
                "exact scores of private text are outside the ledger; leave them out, or make a curator's copy"
            )
        if not self.curator_copy and self.membership is not None:
            raise ValueError(
                "results of membership inference are functions of the private text outside the ledger; leave them out, or make "
                "a curator's copy"
            )
        if not self.curator_copy and any(row.model == CONTROL for row in self.exposure):
            raise ValueError(
                "exposure rows of the control without DP are functions of the private text outside the ledger; "
                "leave them out, or make a curator's copy"
            )
        return self

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        numbers = [row.sequence for row in self.ledger]
        if numbers != sorted(set(numbers)):
            raise ValueError("ledger rows must be in order, each sequence number once")
        certified = self.guarantee.certified.epsilon
        if self.cumulative and not math.isclose(self.cumulative[-1].epsilon, certified, rel_tol=1e-3):
            raise ValueError("the last cumulative epsilon is not the certified one")
        return self
