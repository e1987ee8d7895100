"""The configuration of a run: one YAML file, checked completely before anything is read or spent.

Privacy options and speed options are different classes: everything under ``compute`` can change between two starts of a run
without changing any event, and `RunConfig.digest` leaves it out.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import pydantic
import yaml
from pydantic import BaseModel, ConfigDict, Field

from tacit.errors import RefusedError, UsageError

__all__ = [
    "AuditOptions",
    "Budget",
    "ComputeOptions",
    "CorpusOptions",
    "DpPhase",
    "EvaluationOptions",
    "ModelOptions",
    "PhaseOptions",
    "PlainPhase",
    "PrivacyOptions",
    "RunConfig",
    "VocabularyOptions",
    "config_differences",
    "load_config",
    "parse_config",
]


class _Options(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True, allow_inf_nan=False)


Probability = Annotated[float, Field(gt=0, le=1)]
Share = Annotated[float, Field(gt=0, lt=1)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]


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


class CorpusOptions(_Options):
    """Where a corpus is and how its records are read (tacit.corpus.readers). ``${NAME:-default}`` in ``path`` is expanded."""

    path: str
    format: Literal["auto", "txt", "jsonl", "csv", "parquet", "conll"] = "auto"
    text_field: str = "text"
    id_field: str | None = None
    user_field: str | None = None
    max_record_bytes: Count = 1_000_000
    limit: Count | None = None

    @property
    def resolved_path(self) -> Path:
        """The path with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""

        def value(match: re.Match[str]) -> str:
            name, default = match.group(1), match.group(3)
            found = os.environ.get(name, default)
            if found is None:
                raise UsageError(
                    f"path {self.path!r}: the environment has no {name}; set it or write ${{{name}:-default}}"
                )
            return found

        return Path(re.sub(r"\$\{(\w+)(:-([^}]*))?\}", value, self.path))


class VocabularyOptions(_Options):
    """The DP vocabulary (Hoory et al. 3.2 under the exact law).

    Args:
        method: ``histogram`` (exact law, integer noise) or ``hoory`` (the paper's formula; needs ``allow: [heuristic:hoory]``).
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

    method: Literal["histogram", "hoory"] = "histogram"
    max_words: Count = 128
    size: Annotated[int, Field(ge=300, le=200_000)] = 8192
    epsilon_share: Share = 0.3
    delta_share: Share = 0.1
    noise_stddev: Positive | None = None
    threshold: float | None = None
    lowercase: bool = True
    min_count: Count = 1


class ModelOptions(_Options):
    """The shape of the BERT model. Dropout is 0 by default: under DP the noise regularises more than enough."""

    kind: Literal["bert"] = "bert"
    layers: Count = 2
    width: Count = 128
    heads: Count = 2
    intermediate: Count | None = None
    length: Annotated[int, Field(ge=8)] = 64
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0

    @property
    def intermediate_width(self) -> int:
        """Width of the feed-forward layer; four times the width unless given."""
        return self.intermediate or 4 * self.width


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
    """Ordinary training on the public stream."""

    plan: Literal["plain"]
    stream: Literal["public"]
    batch_size: Count


class DpPhase(PhaseOptions):
    """DP training on the private stream.

    Args:
        expected_batch: units in a step's batch on average; the sampling probability is this over ``privacy.units``, and it
            is the public constant that the noisy sum is divided by.
        clip_norm: C, bound on the l2 norm of one unit's gradient.
        clipping: how a unit's gradient is scaled under that bound: flat (Abadi et al. 2016), automatic (Bu et al. 2022) or
            per-layer.
        sequences_per_unit: a unit shows at most this many sequences a step (a fresh keyed choice).
        noise_multiplier: given instead of solved from the budget.
    """

    plan: Literal["dp"]
    stream: Literal["private"]
    expected_batch: Count
    clip_norm: Positive
    clipping: Literal["flat", "automatic", "per-layer"] = "flat"
    sequences_per_unit: Count = 1
    noise_multiplier: Positive | None = None


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


class AuditOptions(_Options):
    """Planted canaries (Hoory et al. 5.2; Carlini et al. 2019).

    Args:
        patterns: H is a hint piece, S the secret piece.
        canaries: how many of each pattern.
        probability: a private sequence gets one canary with this probability.
        contexts: public sequences in which a secret's rank is measured.
        control: train the same corpus without DP too, as the positive control; its results stay private.
        control_steps: steps of the control; the DP phases' steps when not given.
        control_batch: sequences a step of the control.
        control_learning_rate: high enough that a model without DP does memorise: a control at its null tests nothing.
        max_exposure_p_value: fail (exit code 5) when any pattern's p-value is below this; 0: never.
    """

    patterns: tuple[Annotated[str, Field(pattern=r"^H*SH*$")], ...] = ("HS", "HSH", "HHSHH")
    canaries: Count = 10
    probability: Probability = 0.1
    contexts: Count = 8
    control: bool = False
    control_steps: Count | None = None
    control_batch: Count = 64
    control_learning_rate: Positive = 6e-3
    max_exposure_p_value: Annotated[float, Field(ge=0, lt=1)] = 0.0


class ComputeOptions(_Options):
    """Speed only: changing any of these changes no event and no guarantee.

    Args:
        micro_batch: sequences in memory at once.
        threads: torch threads; all cores when not given.
        checkpoint_seconds: seconds between checkpoints.
        device: cpu or cuda. The noise on a GPU is Philox, which is not cryptographic; the ledger and the certificate say so,
            and a run cannot change it after its start.
    """

    micro_batch: Count = 64
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Count | None = None
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0


class RunConfig(_Options):
    """A whole run. See docs/tour.md for every option along the data's way."""

    title: str = "tacit run"
    run: str
    privacy: PrivacyOptions
    private: CorpusOptions
    public: Annotated[tuple[CorpusOptions, ...], Field(min_length=1)]
    vocabulary: VocabularyOptions = VocabularyOptions()
    model: ModelOptions = ModelOptions()
    masking_probability: Annotated[float, Field(gt=0, lt=1)] = 0.15
    phases: Annotated[tuple[Annotated[PlainPhase | DpPhase, Field(discriminator="plan")], ...], Field(min_length=1)]
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
        return self.vocabulary.method == "hoory"

    @property
    def dp_phases(self) -> list[DpPhase]:
        """The phases that train on the private stream."""
        return [phase for phase in self.phases if isinstance(phase, DpPhase)]


HEURISTICS = ("heuristic:hoory",)
"""What ``allow`` may name; each is reported with epsilon = infinity."""


_OTHER_STAGES = ("vocabulary", "evaluation")
"""Stages of the ledger beside the phases. A name with ``control-`` would share a checkpoint with the control without DP."""


def _check_meaning(config: RunConfig) -> None:
    """Refuse what parses but has no guarantee or no sense; each with its reason code (docs/guarantees.md)."""
    privacy = config.privacy
    if privacy.budget.delta >= 1 / privacy.units:
        raise RefusedError(
            "delta-too-large",
            f"privacy.budget.delta is {privacy.budget.delta:g} but must be below 1/privacy.units = {1 / privacy.units:.3g}: "
            "a larger delta allows publishing a whole unit",
        )
    for name in config.allow:
        if name not in HEURISTICS:
            raise UsageError(f"allow: unknown entry {name!r}; known: {', '.join(HEURISTICS)}")
    if config.vocabulary.method == "hoory" and "heuristic:hoory" not in config.allow:
        raise RefusedError(
            "vocabulary-formula",
            "vocabulary.method: hoory uses the paper's threshold, whose true delta is far above the one it claims; "
            "use method: histogram, or add heuristic:hoory to allow (reported with epsilon = infinity)",
        )
    given = (config.vocabulary.noise_stddev is not None, config.vocabulary.threshold is not None)
    if config.vocabulary.method == "hoory" and given[1]:
        raise UsageError("vocabulary.threshold: method hoory computes it by the paper's formula; leave it out")
    if config.vocabulary.method == "histogram" and given[0] != given[1]:
        raise UsageError("vocabulary: give noise_stddev and threshold together, or neither")
    if config.model.width % config.model.heads:
        raise UsageError(f"model.width {config.model.width} is not a multiple of model.heads {config.model.heads}")
    for pattern in config.audit.patterns if config.audit else ():
        if len(pattern) > config.model.length - 2:
            raise UsageError(f"audit.patterns: {pattern} does not fit in model.length {config.model.length}")
    names = [phase.name for phase in config.phases]
    for name in names:
        if name in _OTHER_STAGES or name.startswith("control-"):
            raise UsageError(f"phases: the name {name!r} is used by the run itself; choose another")
    if len(set(names)) < len(names):
        raise UsageError(f"phases: two phases share a name ({', '.join(names)})")
    for phase in config.dp_phases:
        if phase.expected_batch > privacy.units:
            raise UsageError(
                f"phases: {phase.name}: expected_batch {phase.expected_batch} exceeds privacy.units {privacy.units}"
            )
    if privacy.unit == "user" and config.private.user_field is None:
        raise UsageError(
            "privacy.unit is user but private.user_field is not set: name the field that holds the user's id"
        )


def _field_names(location: tuple[Any, ...]) -> list[str]:
    """The valid option names at the place where an unknown one was found."""
    model: Any = RunConfig
    for part in location[:-1]:
        if isinstance(part, int) or part in ("plain", "dp"):
            model = {"plain": PlainPhase, "dp": DpPhase}.get(part, model) if isinstance(part, str) else model
            continue
        field = getattr(model, "model_fields", {}).get(part)
        if field is None:
            continue
        model = _model_in(field.annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found is not None:
            return found
    return None


def _explain(error: dict[str, Any], source: str) -> str:
    inner = ("plain", "dp", "TupleUnit")
    location = ".".join(
        str(part) for part in error["loc"] if part not in inner and not str(part).startswith("literal[")
    )
    if error["type"] == "extra_forbidden":
        near = difflib.get_close_matches(str(error["loc"][-1]), _field_names(error["loc"]), n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"valid here: {', '.join(_field_names(error['loc']))}"
        return f"{source}: unknown option {location!r}; {hint}"
    if error["type"] == "missing":
        return f"{source}: option {location!r} is missing"
    return f"{source}: option {location!r}: {error['msg'][0].lower()}{error['msg'][1:]}"


def parse_config(values: Any, source: str = "configuration") -> RunConfig:
    """Check plain values (as parsed from YAML) and return the configuration.

    Raises:
        UsageError: an unknown, missing or impossible option; the line names the nearest valid name.
        RefusedError: a guarantee that cannot be proved, with its reason code.
    """
    if not isinstance(values, dict):
        raise UsageError(f"{source}: a configuration is a mapping of options; see `recipes/`")
    try:
        config = RunConfig.model_validate(values)
    except pydantic.ValidationError as error:
        # A misspelt required option is both unknown and missing: the unknown name is what helps.
        errors = sorted(error.errors(include_input=False), key=lambda found: found["type"] != "extra_forbidden")
        raise UsageError(_explain(dict(errors[0]), source)) from None
    _check_meaning(config)
    return config


def load_config(path: Path) -> RunConfig:
    """Read and check a YAML configuration. Raises like `parse_config`."""
    if not path.is_file():
        raise UsageError(f"{path}: no such configuration file")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else "?"
        raise UsageError(f"{path}:{line}: not valid YAML: {error.problem}") from None
    except yaml.YAMLError:
        raise UsageError(f"{path}: not valid YAML") from None
    return parse_config(values, str(path))


def config_differences(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[str]:
    """Options that differ, as ``name: old -> new`` lines; list members are named by their place."""
    lines: list[str] = []
    for key in sorted(set(old) | set(new)):
        before, after = _by_place(old.get(key)), _by_place(new.get(key))
        if isinstance(before, dict) and isinstance(after, dict):
            lines += config_differences(before, after, f"{prefix}{key}.")
        elif before != after:
            lines.append(f"{prefix}{key}: {before} -> {after}")
    return lines


def _by_place(value: Any) -> Any:
    """A list of mappings as a mapping from places, so that only what differs in a member is shown."""
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        return {str(place): item for place, item in enumerate(value)}
    return value
