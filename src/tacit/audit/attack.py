"""What an attack is, what it is given of a run, and how it answers: `tacit.audit.attacks.ATTACKS` has them all.

An attack is *prepared* once, from what `Given` offers. Then it measures one model after the other: the released one, and its positive
control, if there is one, which was trained on the same text without DP or without noise. What it measures is kept in the run folder
as plain values.
`Attack.answer` makes rows of them, which the report, the release and the gate read without knowing the attack.

The wall. A *public* attack reads public text, keyed secrets and the released model, and its rows of that model are in the release.
It is refused private text (`Given`). What is published is made from the released model's values alone, which are measured before the
control is loaded. All else is the curator's: every row of the control, and every row of an attack that reads private text. Nothing of
that can stop a run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer

from tacit.audit.samples import MembershipSamples
from tacit.config import RunConfig
from tacit.config.base import Options
from tacit.corpus.canaries import Canary
from tacit.corpus.coins import Coins
from tacit.corpus.secrets import SecretFormat
from tacit.corpus.units import Unit
from tacit.errors import TacitError, UsageError
from tacit.randomness import KeyedRandomness
from tacit.training.masking import Masking
from tacit.training.sequences import SequenceStream
from tacit.vocabulary.special import SpecialTokens

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from tacit.audit.exposure import Contexts

__all__ = [
    "CONTROL",
    "CONTROL_WITHOUT_NOISE",
    "RELEASED",
    "SHARE",
    "Answer",
    "Attack",
    "AttackRow",
    "Estimated",
    "Found",
    "Given",
    "Measure",
    "NoOptions",
    "UndecidedError",
    "joint_p_values",
    "shown",
]

RELEASED = "released model"
CONTROL = "control without DP"
CONTROL_WITHOUT_NOISE = "control without noise"
"""Positive controls: ordinary training, or the same steps with the noise left out."""
SHARE = "share"
"""The unit of rows whose numbers all lie between 0 and 1."""

Found = Mapping[str, Any]
"""By model what was measured, as plain values for JSON; or ``{"undecided": why}`` where nothing could be."""

Measure = Callable[[Any], Any]
"""Attacks one `PreTrainedModel`, or what its training noted (`Attack.of_training`); plain values for JSON."""


class UndecidedError(TacitError):
    """An attack cannot be made, and says nothing. The reason, which follows "undecided: ", holds no text of the corpus."""


class NoOptions(Options):
    """The options of an attack that has none of its own."""


@dataclass(frozen=True)
class Given:
    """What an attack is given of a run. What is large is loaded by a function, when it is called.

    Args:
        streams: keyed, of this attack alone.
        special: ids of the tokenizer's special tokens.
        keep: writes plain values to a file of this name in run/private.
        masking: how a masked model's rows are masked.
        public_rows: public held-out text as rows of token ids.
        canaries: those planted in a masked model's rows.
        secrets: of a causal model the template of the planted texts, and their secrets.
        coins: the audit's examples and coins.
        model_before: the model as it was before the first phase on private text.
        proven: the epsilon that coins test (`tacit.audit.coins_plan.claimed_epsilon`); infinite where nothing is proved.
        private_units: (training, held out) of the private corpus. A public attack is refused it (`UsageError`).
        planted_contexts: by number of a masked model's canary at most so many training rows that it stands in. A public attack is
            refused them.
        membership_samples: texts of the training part and as many others, which hold secrets. A public attack is refused them.
        shadow_model: of this number, trained on these texts from `model_before` without DP. A public attack is refused it.
    """

    config: RunConfig
    streams: KeyedRandomness = field(repr=False)
    tokenizer: Tokenizer = field(repr=False)
    special: SpecialTokens
    keep: Callable[[str, Any], None]
    masking: Callable[[], Masking]
    public_rows: Callable[[], SequenceStream]
    canaries: Callable[[], list[Canary]]
    secrets: Callable[[], tuple[SecretFormat, tuple[int, ...]]]
    coins: Callable[[], Coins]
    model_before: Callable[[], PreTrainedModel]
    proven: Callable[[], float]
    private_units: Callable[[], tuple[Sequence[Unit], Sequence[Unit]]]
    planted_contexts: Callable[[int], Mapping[int, Contexts]]
    membership_samples: Callable[[], MembershipSamples]
    shadow_model: Callable[[int, Sequence[str]], PreTrainedModel]


@dataclass(frozen=True)
class Estimated:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class AttackRow:
    """One number that an attack found in one model, beside what chance gives. Everything here may be printed: no text of the corpus.

    Args:
        model: `RELEASED`, or the control: `CONTROL` or `CONTROL_WITHOUT_NOISE`.
        name: what was measured, such as "HSH" or "accuracy on single texts".
        value: the number, in ``unit``; larger is more given away.
        null: what is expected of a model that learned nothing.
        without_null: why there is no null, where there is none.
        p_value: probability of at least this value in such a model.
        interval: 95 % of the value.
        ceiling: the value where everything is given away.
        baseline: the same reached without any model. Where it does not hold the null, the value says nothing about the model.
        test: rows of one model with the same one are judged as one test; ``name`` where it is left out.
        judged: whether the verdict looks at the row: at its p-value, or else at whether its interval is above its null.
        parameters: how it was measured, by name; columns of the tables.
        words: the row as a sentence, without its full stop; "" for none.
        assumes: what a lower bound on epsilon rests on beside the attack, as a sentence's end: such a one contradicts no proof.
        false_alarms: of a share of members that were found, the chance with which the same attacker takes others for members: a point
            below the proved curve of the report.

    A row of the released model in the unit "epsilon" is a lower bound on epsilon at the certified delta; the first one counts, and
    the report's first page has it, with its words, beside the proved upper bound. Its ceiling is the most that an attack could show.
    """

    model: str
    name: str
    value: float
    unit: str
    null: float | None = None
    without_null: str | None = None
    p_value: float | None = None
    interval: tuple[float, float] | None = None
    ceiling: float | None = None
    baseline: Estimated | None = None
    test: str = ""
    judged: bool = True
    parameters: Mapping[str, int | float | str] = field(default_factory=dict)
    words: str = ""
    assumes: str = ""
    false_alarms: float | None = None


@dataclass(frozen=True)
class Answer:
    """An attack's rows, with the sentences that introduce them and a note on how to read them."""

    rows: tuple[AttackRow, ...]
    introduction: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Attack:
    """A member of `ATTACKS`.

    Args:
        name: of its part of report.json and of its options; small letters, digits and hyphens.
        title: in the report, without a full stop.
        public: whether its rows of the released model are part of the release. It may then read no private text.
        prepare: what it loads for all models, and what measures one. `UndecidedError` where it cannot be made.
        answer: rows from what was measured, by model, of the models that the reader may see.
        refuted: of what was measured in the released model, why it contradicts the certificate, as a sentence without its full stop;
            None: it does not. None in its place: it never does.
        subject: what a model gives away, as in "the model gives ... away".
        counted: what one test is called, in the singular.
        asked: whether a configuration asks for it; None: where it is named in ``audit.attacks``.
        of_training: whether it is given, in place of each model, what the model's updates said of the coins' examples
            (`tacit.training.watching`); not of a public attack.
        options: of ``audit.attacks.NAME``, where that asks for it.
        check: of a configuration that asks for it there, whether it can be made; a `UsageError` where not.
        stage: its stage of a run, and its file in run/private; "": its name.
        terms: words of the report's glossary that it needs.
        remedy: what to change, in a new run, where it is undecided; `tacit audit` says it.
    """

    name: str
    title: str
    public: bool
    prepare: Callable[[Given], Measure]
    answer: Callable[[RunConfig, Mapping[str, Any]], Answer]
    subject: str
    counted: str = "test"
    asked: Callable[[RunConfig], bool] | None = None
    of_training: bool = False
    options: type[Options] = NoOptions
    check: Callable[[RunConfig], None] = lambda config: None
    refuted: Callable[[RunConfig, Any], str | None] | None = None
    stage: str = ""
    terms: tuple[tuple[str, str], ...] = ()
    remedy: str = ""

    def __post_init__(self) -> None:
        if self.public and self.of_training:
            raise UsageError(f"attack {self.name}: updates are not released, so what they say is the curator's alone")

    @property
    def stage_name(self) -> str:
        """The stage of a run that makes it."""
        return self.stage or self.name

    def is_asked(self, config: RunConfig) -> bool:
        """Whether a configuration asks for it."""
        if config.audit is None:
            return False
        return self.name in config.audit.attacks if self.asked is None else self.asked(config)


def shown(attack: Attack, found: Found, curator: bool) -> Found | None:
    """What a reader may see of the measurements: the curator all, others the released model of a public attack; None: nothing."""
    if curator:
        return found
    return {name: found[name] for name in (RELEASED, "undecided") if name in found} if attack.public else None


def joint_p_values(rows: Sequence[AttackRow]) -> dict[str, float]:
    """The p-value of each test of these rows, which are of one model.

    Where several rows are one test, the smallest p-value counts as many times as there are rows (Bonferroni): valid however
    they depend on each other.
    """
    own: dict[str, list[float]] = {}
    for row in rows:
        if row.judged and row.p_value is not None:
            own.setdefault(row.test or row.name, []).append(row.p_value)
    return {test: min(1.0, len(values) * min(values)) for test, values in own.items()}
