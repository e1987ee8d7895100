"""What fine-tuning for entities shares, of one model or of many: documents, the model to begin with, how it is trained, and DP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from tacit.config.base import MOST, ClipNorm, Count, Noise, Options, Rate, Steps, name_in
from tacit.config.compute import ComputeOptions
from tacit.config.phases import ClippingName
from tacit.config.privacy import Budget
from tacit.errors import RefusedError, UsageError

__all__ = [
    "AnnotatedSource",
    "DpTuning",
    "Layout",
    "StartModel",
    "TuningOptions",
    "check_dp",
    "check_labels",
    "check_runner",
    "check_tuning",
    "check_user",
    "refuse_without_labels",
]


def _layouts() -> list[str]:
    from tacit.corpus.annotations import ANNOTATION_FORMATS

    return list(ANNOTATION_FORMATS)


Layout = Annotated[str, name_in(_layouts)]


class AnnotatedSource(Options):
    """Documents with entities (tacit.corpus.annotations). ``${NAME:-default}`` in ``path`` is expanded.

    Args:
        path: a file or a folder.
        format: ``bio``, columns of tokens and tags, ``i2b2-2010``, concept files beside their texts, or ``jsonl``, objects with
            ``tokens`` and ``tags``; a key of `tacit.corpus.annotations.ANNOTATION_FORMATS`.
        id_field: of ``jsonl``: the field with a document's id; objects with one id are its sentences.
        user_field: of ``jsonl``: the field with the id of the person whose document it is, for ``unit: user``; an id of two persons
            is then two documents.
    """

    added_later = frozenset({"id_field", "user_field"})

    path: str
    format: Layout = "bio"
    id_field: str | None = None
    user_field: str | None = None

    @property
    def resolved_path(self) -> Path:
        """The path with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        return self.located(self.path)


class StartModel(Options):
    """The model that fine-tuning begins with.

    Args:
        folder: a BERT in a local Hugging Face folder, such as ``RUN/release/model``.
        public: the model was made from public text alone. Needed by DP fine-tuning where no certificate lies beside the folder.
        from_scratch: the folder's shape and tokenizer with new weights, as a control.
    """

    folder: str
    public: bool = False
    from_scratch: bool = False

    @property
    def resolved_folder(self) -> Path:
        """The folder with ``${NAME}`` and ``${NAME:-default}`` replaced from the environment."""
        return self.located(self.folder)


class TuningOptions(Options):
    """How a model is fine-tuned: AdamW with linear warm-up and decay, on rows of pieces.

    Args:
        steps: or ``epochs``, one of both; DP takes ``steps``, as a number of epochs would be made from the private number of rows.
        epochs: passes over the rows, without DP.
        batch_size: rows a step, without DP.
        learning_rate: AdamW's peak learning rate.
        warmup: share of the steps in which the rate rises.
        weight_decay: AdamW's weight decay.
        dropout: in training, whatever the folder says.
        length: positions of a row; the model's own, 512 at most, when not given.
        overlap: pieces that two windows of a long document share.
        context: a row shows ``document`` text beyond its sentence, or one ``sentence``.
    """

    steps: Steps | None = None
    epochs: Count | None = None
    batch_size: Count = 16
    learning_rate: Rate = 5e-4
    warmup: Annotated[float, Field(ge=0, lt=1)] = 0.1
    weight_decay: Annotated[float, Field(ge=0)] = 0.01
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.1
    length: Annotated[int, Field(ge=8, le=MOST)] | None = None
    overlap: Annotated[int, Field(ge=0, le=MOST)] = 16
    context: Literal["document", "sentence"] = "document"


class DpTuning(Options):
    """Fine-tuning with DP: Poisson sampling of units, each unit's gradient clipped, noise on the sum.

    Args:
        unit: ``user``, all documents of one, ``document``, one annotated document, or ``sentence``. It must be the unit of the
            pre-training where the people are the same; a document, or a user, is then one of the pre-training too.
        units: how many there are, as a public statement.
        relation: neighbours differ by one unit added or removed, or exchanged.
        budget: of everything together: the pre-training's releases too, where the people are the same.
        expected_batch: units in a step's batch on average.
        clip_norm: bound on the l2 norm of one unit's gradient.
        clipping: as in a run's DP phase.
        sequences_per_unit: rows of a unit that count in a step, at most.
        noise_multiplier: given instead of solved from the budget.
    """

    unit: Literal["user", "document", "sentence"]
    units: Count
    relation: Literal["add-or-remove", "replace"] = "add-or-remove"
    budget: Budget
    expected_batch: Count
    clip_norm: ClipNorm
    clipping: ClippingName = "flat"
    sequences_per_unit: Count = 1
    noise_multiplier: Noise | None = None


def check_runner(compute: ComputeOptions) -> None:
    if compute.runner != "local":
        raise UsageError("compute.runner: labelled documents are read on this machine; leave it out")


def check_tuning(options: TuningOptions, place: str) -> None:
    if (options.steps is None) == (options.epochs is None):
        raise UsageError(f"{place}: give steps or epochs, one of both")


def check_labels(labels: tuple[str, ...] | None, place: str) -> None:
    if labels is not None and (not labels or any(not label.strip() for label in labels)):
        raise UsageError(f"{place}: name at least one type of entity, such as [problem, test, treatment]")
    if labels is not None and len(set(labels)) < len(labels):
        raise UsageError(f"{place}: a type of entity is named twice")


def refuse_without_labels(labels: tuple[str, ...] | None, place: str) -> None:
    if labels is None:
        raise RefusedError(
            "labels-from-private-data",
            f"dp without labels: which types of entities occur in the documents is private; name them in the option {place}",
        )


def check_user(dp: DpTuning, user_field: str | None, place: str) -> None:
    if dp.unit == "user" and user_field is None:
        raise UsageError(f"dp.unit is user, but {place}.user_field does not name the field with a person's id")


def check_dp(dp: DpTuning, training: TuningOptions, place: str = "") -> None:
    """Refuse what makes the guarantee a function of the documents, or none; ``place`` stands before the options' names."""
    if training.steps is None:
        raise RefusedError(
            "steps-from-private-data",
            f"{place}training.epochs with dp makes the number of steps from the private number of rows; give training.steps",
        )
    if dp.unit == "sentence" and training.context != "sentence":
        raise RefusedError(
            "context-beyond-unit",
            f"{place}dp.unit is sentence but training.context is document: a row would show other units' words; set context: "
            "sentence",
        )
    if dp.budget.delta >= 1 / dp.units:
        raise RefusedError(
            "delta-too-large",
            f"{place}dp.budget.delta is {dp.budget.delta:g} but must be below 1/dp.units = {1 / dp.units:.3g}: "
            "a larger delta allows publishing a whole unit",
        )
    if dp.expected_batch > dp.units:
        raise UsageError(f"{place}dp.expected_batch {dp.expected_batch} exceeds dp.units {dp.units}")
