"""The options of a run, as frozen models that refuse what they do not know.

Privacy options and speed options are different classes: everything under ``compute`` can change between two starts of a run
without changing any event, and `RunConfig.digest` leaves it out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer

from tacit.errors import UsageError

__all__ = [
    "AuditOptions",
    "Budget",
    "ComputeOptions",
    "CorpusOptions",
    "DpPhase",
    "EvaluationOptions",
    "GroupOptions",
    "MarkingOptions",
    "MembershipOptions",
    "ModelOptions",
    "PhaseOptions",
    "PlainPhase",
    "PrivacyOptions",
    "RunConfig",
    "ScreeningOptions",
    "SelectivePhase",
    "TupleUnit",
    "TurnsOptions",
    "VocabularyOptions",
]


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


Probability = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


def _resolved(path: str) -> Path:
    """The path with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""

    def value(match: re.Match[str]) -> str:
        name, default = match.group(1), match.group(3)
        found = os.environ.get(name, default)
        if found is None:
            raise UsageError(f"path {path!r}: the environment has no {name}; set it or write ${{{name}:-default}}")
        return found

    return Path(re.sub(r"\$\{(\w+)(:-([^}]*))?\}", value, path))


class Budget(_Options):
    """The joint budget of everything that is released."""

    epsilon: Positive
    delta: Share


class TupleUnit(_Options):
    """Units of this many words, cut inside a document (the setting of Hoory et al.)."""

    tuple: Count


class PrivacyOptions(_Options):
    """What is protected, and how well.

    Args:
        unit: record, document, user, or ``{tuple: 256}``.
        units: how many units there are, as a public statement: sampling probability and normaliser are computed from it and
            never from the data.
        relation: ``add-or-remove`` or ``replace``.
        budget: the joint epsilon and delta.
    """

    unit: Literal["record", "document", "user"] | TupleUnit
    units: Count
    relation: Literal["add-or-remove", "replace"] = "add-or-remove"
    budget: Budget

    @property
    def unit_name(self) -> str:
        """The unit in words."""
        return f"{self.unit.tuple}-word tuple" if isinstance(self.unit, TupleUnit) else self.unit


Place = Annotated[int, Field(ge=0, strict=True)] | str
"""Where something is in a turn: a place in a list, from 0, or a field of an object."""


class TurnsOptions(_Options):
    """How a list of turns becomes the text of a record, one turn a line (tacit.corpus.turns).

    Args:
        text: where a turn's text is.
        speaker: where its speaker is, who stands before the text as in ``USR: Hello.``; null: the text alone.
        names: words for speakers; others keep their own.
    """

    text: Place = 1
    speaker: Place | None = 0
    names: dict[str, str] = {"U": "USR", "S": "SYS"}


class CorpusOptions(_Options):
    """Where a corpus is and how its records are read (tacit.corpus.readers). ``${NAME:-default}`` in ``path`` is expanded.

    ``turns``: the field ``text_field`` holds a dialogue's turns, and this is how they are read.
    """

    path: str
    format: Literal["auto", "txt", "jsonl", "json", "csv", "parquet", "conll"] = "auto"
    text_field: str = "text"
    id_field: str | None = None
    user_field: str | None = None
    max_record_bytes: Count = 1_000_000
    limit: Count | None = None
    turns: TurnsOptions | None = None

    @property
    def resolved_path(self) -> Path:
        """The path with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        return _resolved(self.path)


class GroupOptions(_Options):
    """What the confidentiality statement covers as one: all secrets of a document, or of a user, together.

    Args:
        by: ``document``, or ``user``: data points with the same id (``private.id_field``, ``private.user_field``) are a group.
        most: data points of a group; a corpus with a larger group is refused.
    """

    by: Literal["document", "user"]
    most: Count


class ScreeningOptions(_Options):
    """How the private corpus is screened before training: redacted, deduplicated, split in two streams (Zhao et al. 2022).

    The private stream is trained on with noise, the public one without. What is then guaranteed is confidentiality, and no
    longer differential privacy of the corpus (docs/confidentiality.md).

    Args:
        data_point: ``record``, or ``line``: every line of a record is a data point of its own, such as a turn of a dialogue.
        balanced: a policy file as pi, which is masked; the package's own when not given.
        conservative: a policy file as pi_c, which decides what is trained on with noise; the package's own when not given.
        missed: as an experiment the balanced policy misses this share of the secrets that it finds, by a keyed hash of each; the
            conservative one misses none of them. ``gamma`` must be at least as large.
        deduplicate: ``none``; ``exact``: data points that are equal once redacted are masked as a whole, all but the first; or
            ``unmasked``: that, among the private ones in which redaction masked nothing.
        normalisation: what counts as equal (docs/deduplication.md).
        gamma: upper bound on the share of secrets that the balanced policy misses, as measured (`tacit screen --measure`).
        delta2: likewise of the conservative policy.
        group: what the statement covers as one; None: one secret in one data point.
    """

    data_point: Literal["record", "line"] = "record"
    balanced: str | None = None
    conservative: str | None = None
    missed: Annotated[float, Field(ge=0, lt=1)] = 0.0
    deduplicate: Literal["none", "exact", "unmasked"] = "none"
    normalisation: Literal["none", "whitespace", "casefold"] = "none"
    gamma: Annotated[float, Field(ge=0, le=1)] | None = None
    delta2: Annotated[float, Field(ge=0, le=1)] | None = None
    group: GroupOptions | None = None


class MarkingOptions(_Options):
    """Which tokens of the raw private text are private, for selective DP (Shi et al. 2021; docs/selective-dp.md).

    Args:
        data_point: ``record``, or ``line``: every line of a record is a unit of its own, such as a turn of a dialogue.
        balanced: the policy file that marks them; the package's own when not given.
        missed: as an experiment the policy misses this share of the secrets that it finds, by a keyed hash of each.
    """

    data_point: Literal["record", "line"] = "record"
    balanced: str | None = None
    missed: Annotated[float, Field(ge=0, lt=1)] = 0.0


class VocabularyOptions(_Options):
    """The vocabulary of the tokenizer (Hoory et al. 3.2 under the exact law).

    Args:
        method: ``histogram`` (exact law, integer noise), ``hoory`` (the paper's formula; needs ``allow: [heuristic:hoory]``),
            ``public`` (from the public corpora alone, which costs nothing; with ``screening`` and none, from the screened text),
            or ``given`` (a tokenizer that was not made from the private text, which costs nothing either).
        path: of a given tokenizer: a folder with ``tokenizer.json``, or that file. It decides all that follows here.
        max_words: N, distinct words a unit contributes; a keyed random choice beyond.
        size: pieces of the tokenizer, special tokens and alphabet included.
        epsilon_share: the vocabulary alone gets this share of the budget's epsilon when its noise is solved. Gaussian
            mechanisms add up in squares, so 0.3 costs the training only a few percent more noise.
        delta_share: likewise of delta.
        noise_stddev: given instead of solved (then ``threshold`` too).
        threshold: given instead of solved.
        lowercase: normalise to lower case and strip accents.
        min_count: WordPiece merges pairs that occur at least this often in the noisy counts.
    """

    method: Literal["histogram", "hoory", "public", "given"] = "histogram"
    path: str | None = None
    max_words: Count = 128
    size: Annotated[int, Field(ge=300, le=200_000)] = 8192
    epsilon_share: Share = 0.3
    delta_share: Share = 0.1
    noise_stddev: Positive | None = None
    threshold: float | None = None
    lowercase: bool = True
    min_count: Count = 1

    @property
    def resolved_path(self) -> Path:
        """Of a given tokenizer: the path with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        assert self.path is not None
        return _resolved(self.path)

    @property
    def beside_given(self) -> set[str]:
        """Options that were set although a given tokenizer decides what they say."""
        return set() if self.method != "given" else self.model_fields_set - {"method", "path"}

    @model_serializer(mode="wrap")
    def _what_counts(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without ``path`` where there is none, so that runs which were begun before it existed keep their digest."""
        values = handler(self)
        kept = {"method", "path"} if self.method == "given" else values.keys() - {"path"}
        return {name: value for name, value in values.items() if name in kept}


_SHAPE = frozenset({"layers", "width", "heads", "intermediate"})


class ModelOptions(_Options):
    """The shape of the model. Dropout is 0 by default: under DP the noise regularises more than enough.

    Args:
        kind: ``bert`` (masked tokens), ``gpt2`` or ``lstm`` (next tokens; Zhao et al. train one layer of width 200).
        folder: a local Hugging Face folder of that kind to start from, public like a public corpus. It decides the shape, and
            the vocabulary is then ``given``: the folder's own tokenizer, unless another one is named.
        heads: attention heads; the LSTM has none.
        intermediate: width of the feed-forward layers.
        length: positions of a row.
        dropout: in training, whatever the folder says.
    """

    kind: Literal["bert", "gpt2", "lstm"] = "bert"
    folder: str | None = None
    layers: Count = 2
    width: Count = 128
    heads: Count = 2
    intermediate: Count | None = None
    length: Annotated[int, Field(ge=8)] = 64
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def resolved_folder(self) -> Path:
        """Where there is a folder: it with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        assert self.folder is not None
        return _resolved(self.folder)

    @property
    def beside_folder(self) -> set[str]:
        """Options that were set although the folder decides what they say."""
        return set() if self.folder is None else self.model_fields_set & _SHAPE

    @model_serializer(mode="wrap")
    def _what_counts(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Without ``folder`` where there is none, so that runs which were begun before it existed keep their digest."""
        values = handler(self)
        left_out = {"folder"} if self.folder is None else _SHAPE
        return {name: value for name, value in values.items() if name not in left_out}

    @property
    def intermediate_width(self) -> int:
        """Width of the feed-forward layer; four times the width unless given."""
        return self.intermediate or 4 * self.width

    @property
    def is_causal(self) -> bool:
        """Whether it predicts next tokens."""
        return self.kind != "bert"


class PhaseOptions(_Options):
    """What every training phase has: its name, steps and AdamW's options (linear warm-up, then linear decay)."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    steps: Count
    learning_rate: Positive
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    adam_betas: tuple[Probability, Probability] = (0.9, 0.98)
    adam_epsilon: Positive = 1e-6


class PlainPhase(PhaseOptions):
    """Ordinary training.

    Args:
        stream: ``public``, the public corpora; ``screened``, the part of the private corpus that screening lets through; and
            two baselines without any guarantee (``allow: [heuristic:non-private]``): ``private``, what is private, and
            ``redacted``, everything, as screening has redacted it.
        batch_size: sequences a step.
    """

    plan: Literal["plain"]
    stream: Literal["public", "screened", "private", "redacted"]
    batch_size: Count


class DpPhase(PhaseOptions):
    """DP training on the private stream.

    Args:
        stream: ``private``; or ``marked``: the private tokens alone of a marked corpus (selective DP), with a given noise.
        expected_batch: units in a step's batch on average; the sampling probability is this over ``privacy.units``, and it
            is the public constant that the noisy sum is divided by.
        clip_norm: C, bound on the l2 norm of one unit's gradient.
        clipping: how a unit's gradient is scaled under that bound: flat (Abadi et al. 2016), automatic (Bu et al. 2022) or
            per-layer.
        sequences_per_unit: a unit shows at most this many sequences a step (a fresh keyed choice).
        noise_multiplier: given instead of solved from the budget.
    """

    plan: Literal["dp"]
    stream: Literal["private", "marked"]
    expected_batch: Count
    clip_norm: Positive
    clipping: Literal["flat", "automatic", "per-layer"] = "flat"
    sequences_per_unit: Count = 1
    noise_multiplier: Positive | None = None


class SelectivePhase(PhaseOptions):
    """Ordinary training on the public tokens of a marked corpus (selective DP; Shi et al. 2021), for an LSTM.

    The state that goes from a private token to a public one is clipped, and gets noise.

    Args:
        batch_size: rows a step, one of each record; the divisor of the step, also where slots are empty.
        segments: runs of private tokens whose state is released, at most, in a row; what stands behind the last does not count.
        state_clip: bound on the l2 norm of the state, the hidden and the cell state of all layers together.
        state_noise_multiplier: standard deviation of the noise on each of its numbers, over ``state_clip``.
    """

    plan: Literal["selective"]
    stream: Literal["marked"]
    batch_size: Count
    segments: Count
    state_clip: Positive
    state_noise_multiplier: Positive


class EvaluationOptions(_Options):
    """Held-out evaluation.

    Args:
        held_out: share of the private units kept from training; a unit's side depends on its own id alone. 0: no private
            evaluation.
        public_sequences: sequences of held-out public text.
        sequences_per_unit: sequences of a held-out unit that count.
    """

    held_out: Annotated[float, Field(ge=0, lt=1)] = 0.1
    public_sequences: Count = 256
    sequences_per_unit: Count = 4


class MembershipOptions(_Options):
    """Membership inference on texts of the run's own corpus that hold a secret; a causal model's (docs/attacks.md).

    What it finds is a function of private text beside the model: it stays in run/private.

    Args:
        pairs: members, and as many true non-members from the held-out part; fewer where fewer texts qualify.
        group_size: texts of a group in the attack on groups.
    """

    pairs: Count = 500
    group_size: Annotated[int, Field(ge=2)] = 20

    @property
    def least_pairs(self) -> int:
        """Four groups: with fewer, the halves of the attack on groups and of its blind baseline would hold one each."""
        return 4 * self.group_size


class AuditOptions(_Options):
    """Planted canaries (Hoory et al. 5.2; Carlini et al. 2019). A causal model gets texts, "My ID is: 281265".

    Args:
        patterns: of a masked model; H is a hint piece, S the secret piece.
        canaries: how many of each pattern, or how many texts.
        copies: how often each text of a causal model is planted, as a record of its own.
        digits: of the secret of such a text; every number of so many digits is a candidate.
        probability: a private sequence gets one canary with this probability.
        contexts: public sequences in which a secret's rank is measured.
        control: train the same corpus without DP too, as the positive control; its results stay private.
        control_steps: steps of the control; the DP phases' steps when not given.
        control_batch: sequences a step of the control.
        control_learning_rate: high enough that a model without DP does memorise: a control at its null tests nothing.
        membership: membership inference too; None: not.
        max_exposure_p_value: fail (exit code 5) when any pattern's p-value is below this; 0: never. Of a causal model, twice the
            smaller one of the p-values of mean and highest exposure.
    """

    patterns: tuple[Annotated[str, Field(pattern=r"^H*SH*$")], ...] = ("HS", "HSH", "HHSHH")
    canaries: Count = 10
    copies: Count = 20
    digits: Annotated[int, Field(ge=1, le=7)] = 6
    probability: Probability = 0.1
    contexts: Count = 8
    control: bool = False
    control_steps: Count | None = None
    control_batch: Count = 64
    control_learning_rate: Positive = 6e-3
    membership: MembershipOptions | None = None
    max_exposure_p_value: Annotated[float, Field(ge=0, lt=1)] = 0.0


class ComputeOptions(_Options):
    """Speed only: changing any of these changes no event and no guarantee.

    Args:
        micro_batch: sequences in memory at once.
        threads: torch threads; all cores when not given.
        workers: processes that screen a corpus.
        checkpoint_seconds: seconds between checkpoints.
        device: cpu or cuda. The noise on a GPU is Philox, which is not cryptographic; the ledger and the certificate say so,
            and a run cannot change it after its start.
    """

    micro_batch: Count = 64
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Count | None = None
    workers: Count = 2
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0


class RunConfig(_Options):
    """A whole run. See docs/tour.md for every option along the data's way.

    ``rounds``: the phases are run this many times in order, as in alternating training; each goes on with its own optimizer.
    """

    title: str = "tacit run"
    run: str
    privacy: PrivacyOptions
    private: CorpusOptions
    public: tuple[CorpusOptions, ...] = ()
    screening: ScreeningOptions | None = None
    marking: MarkingOptions | None = None
    vocabulary: VocabularyOptions = VocabularyOptions()
    model: ModelOptions = ModelOptions()
    masking_probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    rounds: Count = 1
    phases: Annotated[
        tuple[Annotated[PlainPhase | DpPhase | SelectivePhase, Field(discriminator="plan")], ...], Field(min_length=1)
    ]
    evaluation: EvaluationOptions = EvaluationOptions()
    audit: AuditOptions | None = None
    compute: ComputeOptions = ComputeOptions()
    allow: tuple[str, ...] = ()

    def digest(self) -> str:
        """SHA-256 of everything that can change a result or a guarantee: not the run folder, the title or ``compute``."""
        return hashlib.sha256(json.dumps(self.comparable(), sort_keys=True).encode()).hexdigest()

    def comparable(self) -> dict[str, Any]:
        """The options that must not change between two starts of a run, as plain values."""
        return self.model_dump(mode="json", exclude={"run", "title", "compute"})

    @property
    def uses_heuristic(self) -> bool:
        """Whether a stage without a proof runs, so that epsilon is infinite; ``allow`` alone does not make it so."""
        marked = any(phase.stream == "marked" for phase in self.phases)
        return self.vocabulary.method == "hoory" or bool(self.unclipped_phases) or marked

    @property
    def is_unbounded(self) -> bool:
        """Whether epsilon is infinite for the corpus as a whole: a heuristic, or screened text, which gets no noise."""
        return self.uses_heuristic or self.screening is not None

    @property
    def dp_phases(self) -> list[DpPhase]:
        """The phases that train on the private or the marked stream with noise."""
        return [phase for phase in self.phases if isinstance(phase, DpPhase)]

    @property
    def unclipped_phases(self) -> list[PlainPhase]:
        """The phases that train on private text without noise, as baselines; what screening lets through is not private."""
        return [
            phase for phase in self.phases if isinstance(phase, PlainPhase) and phase.stream in ("private", "redacted")
        ]

    @property
    def selective_phases(self) -> list[SelectivePhase]:
        """The phases that train on public tokens of the marked stream."""
        return [phase for phase in self.phases if isinstance(phase, SelectivePhase)]

    def phase_name(self, phase: PhaseOptions, round: int) -> str:
        """The phase's name in a round, from 0: its own where there is one round only."""
        return phase.name if self.rounds == 1 else f"{phase.name}-{round + 1}"
