"""The options of entity extraction: `tacit finetune` on one set of documents, `tacit compare` on models by tasks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tacit.config.base import MOST, ClipNorm, Count, Noise, Options, Rate, Steps, WholeConfig, beside, name_in
from tacit.config.compute import ComputeOptions
from tacit.config.load import read_yaml, validated
from tacit.config.phases import ClippingName
from tacit.config.privacy import Budget
from tacit.errors import RefusedError, UsageError

__all__ = [
    "AnnotatedSource",
    "ComparedModel",
    "ComparisonConfig",
    "DpTuning",
    "FinetuneConfig",
    "StartModel",
    "TaskOptions",
    "TuningOptions",
    "check_finetune",
    "load_comparison",
    "load_finetune",
    "names_documents",
    "names_tasks",
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


class FinetuneConfig(WholeConfig):
    """`tacit finetune`: one model, fine-tuned on all documents of a source.

    Args:
        title: heading of the release's page.
        run: folder of what is made; that of no other run.
        model: the model to begin with.
        documents: annotated documents to train on.
        same_people: whether the documents may be of people whose text the model was pre-trained on. The spends of both then add up.
            ``false`` only if you know that nobody is in both.
        labels: the types of entities; with DP they must be given, since which types occur is private. Not given: those of the
            documents.
        test: documents to score the model on, for the curator alone: ``private/scores.json``.
        folds: where there is no ``test``: so many more models are fine-tuned in the same way, each without a part of the documents,
            and scored on that part. They are not kept, and their scores are for the curator alone; "undecided" where documents, or
            users, are fewer than folds.
        training: how it is trained.
        dp: fine-tuning with DP; not given: epsilon is infinite for the documents.
        seed: makes fine-tuning without DP repeatable in another folder; not given: a secret key of the folder's own.
        compute: options of speed alone, as in a run.
        relative_to: the folder that relative paths are relative to, itself relative to the file; not given: the file's own folder.
    """

    added_later = frozenset({"folds", "relative_to"})
    changeable = frozenset({"run", "title", "compute", "test", "folds", "relative_to"})

    title: str = "entity extraction"
    run: str
    model: StartModel
    documents: AnnotatedSource
    same_people: bool = True
    labels: tuple[str, ...] | None = None
    test: AnnotatedSource | None = None
    folds: Annotated[int, Field(ge=2, le=MOST)] | None = None
    training: TuningOptions
    dp: DpTuning | None = None
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = None
    compute: ComputeOptions = ComputeOptions()
    relative_to: str | None = None

    @property
    def resolved_run(self) -> Path:
        """The folder of what is made."""
        return self.located(self.run)

    @property
    def key_seed(self) -> str | None:
        """The public text that the key is made from; None where it is drawn."""
        return None if self.seed is None else f"tacit finetune {self.seed}"


class TaskOptions(Options):
    """Documents that models are compared on: ``path``, in folds, or ``train`` and ``test``.

    Args:
        path: documents that are cut in folds.
        train: the training documents of a fixed split.
        test: the test documents of a fixed split.
        format: as of ``documents``.
        id_field: likewise.
        user_field: likewise; the documents of one user are in one fold.
        folds: how many, with ``path``; every document is tested once.
        labels: the types of entities; where a model is tuned with DP they must be given, since which types occur is private. Not
            given: those of the training documents.
    """

    added_later = frozenset({"id_field", "user_field"})

    path: str | None = None
    train: str | None = None
    test: str | None = None
    format: Layout = "bio"
    id_field: str | None = None
    user_field: str | None = None
    folds: Annotated[int, Field(ge=2, le=MOST)] = 5
    labels: tuple[str, ...] | None = None

    def source(self, which: Literal["path", "train", "test"]) -> AnnotatedSource:
        """One of its sources."""
        path = {"path": self.path, "train": self.train, "test": self.test}[which]
        assert path is not None
        fields = {"id_field": self.id_field, "user_field": self.user_field}
        return AnnotatedSource.model_validate(
            {"path": path, "format": self.format, **fields}, context=beside(self._folder)
        )


class ComparedModel(StartModel):
    """A model of a comparison: where it begins, and how it is fine-tuned where that is not as all others are.

    Args:
        dp: fine-tuning with DP, for every task, fold and seed.
        same_people: as in `tacit finetune`; its epsilon then counts the pre-training too.
        training: with ``dp``, in place of the comparison's, since DP needs other steps and another rate.
    """

    dp: DpTuning | None = None
    same_people: bool = True
    training: TuningOptions | None = None


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._+-]*$", max_length=60)]


class ComparisonConfig(Options):
    """`tacit compare`: every model is fine-tuned and scored on every fold of every task.

    Args:
        title: heading of the results.
        run: folder of the results.
        models: by name, in the order of the table; gains are over the first one.
        tasks: the annotated documents, by name.
        training: how every model is fine-tuned.
        seeds: fine-tunings of each model on each fold.
        baselines: trivial taggers beside the models: each word's likeliest tag, a dictionary of the training entities.
        workers: models that are trained at one time, a thread each.
        compute: options of speed alone, as in a run.
        relative_to: the folder that relative paths are relative to, itself relative to the file; not given: the file's own folder.
    """

    added_later = frozenset({"relative_to"})

    title: str = "entity extraction"
    run: str
    models: Annotated[dict[Name, ComparedModel], Field(min_length=1)]
    tasks: Annotated[dict[Name, TaskOptions], Field(min_length=1)]
    training: TuningOptions
    seeds: Count = 1
    baselines: bool = True
    workers: Annotated[int, Field(ge=1, le=2)] = 1
    compute: ComputeOptions = ComputeOptions()
    relative_to: str | None = None

    @property
    def resolved_run(self) -> Path:
        """The folder of the results."""
        return self.located(self.run)

    def training_of(self, model: str) -> TuningOptions:
        """How this model is fine-tuned."""
        return self.models[model].training or self.training


def names_tasks(values: Any) -> bool:
    """Whether the values of a YAML file are those of a `ComparisonConfig`: no run has ``tasks``, and no comparison ``phases``."""
    return isinstance(values, dict) and "tasks" in values and "phases" not in values


def names_documents(values: Any) -> bool:
    """Whether the values of a YAML file are those of a `FinetuneConfig`: neither a run nor a comparison has ``documents``."""
    return isinstance(values, dict) and "documents" in values


def load_finetune(path: Path, settings: Sequence[str] = ()) -> FinetuneConfig:
    """Read and check a configuration of `tacit finetune`; ``settings`` as of `read_yaml`. Raises as `check_finetune`."""
    return check_finetune(read_yaml(path, settings), str(path), path.parent)


def check_finetune(values: Any, source: str, folder: Path | None = None) -> FinetuneConfig:
    """Check the values of a configuration of `tacit finetune`; ``folder``: of their file, to which relative paths are relative.

    Raises:
        UsageError: an unknown, missing or impossible option.
        RefusedError: a guarantee that cannot be proved, with its reason code.
    """
    config = validated(FinetuneConfig, values, source, folder)
    _check_compute(config.compute)
    _check_tuning(config.training, "training")
    _check_labels(config.labels, "labels")
    if config.test is not None and config.folds is not None:
        raise UsageError("folds are for documents without a test part; leave out folds, or test")
    if config.dp is not None:
        if config.seed is not None:
            raise RefusedError(
                "public-key", "seed with dp: the noise would be a function of a public number; leave seed out"
            )
        _check_dp(config.dp, config.training)
        _check_user(config.dp, config.documents.user_field, "documents")
        _refuse_without_labels(config.labels, "labels")
    return config


def _check_compute(compute: ComputeOptions) -> None:
    if compute.runner != "local":
        raise UsageError("compute.runner: labelled documents are read on this machine; leave it out")


def load_comparison(values: Any, source: str, folder: Path | None = None) -> ComparisonConfig:
    """Check the values of a configuration of `tacit compare`; ``folder`` as of `check_finetune`. Raises as `load_finetune`."""
    config = validated(ComparisonConfig, values, source, folder)
    _check_compute(config.compute)
    _check_tuning(config.training, "training")
    for name, task in config.tasks.items():
        given = (task.path is not None, task.train is not None, task.test is not None)
        if given not in ((True, False, False), (False, True, True)):
            raise UsageError(f"tasks.{name}: give path, which is cut in folds, or train and test together")
        if task.path is None and "folds" in task.model_fields_set:
            raise UsageError(f"tasks.{name}: folds are cut from path; with train and test there are none")
        _check_labels(task.labels, f"tasks.{name}.labels")
    for name, model in config.models.items():
        _check_compared(config, name, model)
    return config


def _check_compared(config: ComparisonConfig, name: str, model: ComparedModel) -> None:
    """What a model has of its own is about DP."""
    if model.dp is None:
        if model.training is not None or not model.same_people:
            raise UsageError(f"models.{name}: training and same_people go with dp; without it all are trained alike")
        return
    if model.training is not None:
        _check_tuning(model.training, f"models.{name}.training")
    _check_dp(model.dp, config.training_of(name), f"models.{name}.")
    for task, options in config.tasks.items():
        _check_user(model.dp, options.user_field, f"tasks.{task}")
        _refuse_without_labels(options.labels, f"tasks.{task}.labels")


def _check_tuning(options: TuningOptions, place: str) -> None:
    if (options.steps is None) == (options.epochs is None):
        raise UsageError(f"{place}: give steps or epochs, one of both")


def _check_labels(labels: tuple[str, ...] | None, place: str) -> None:
    if labels is not None and (not labels or any(not label.strip() for label in labels)):
        raise UsageError(f"{place}: name at least one type of entity, such as [problem, test, treatment]")
    if labels is not None and len(set(labels)) < len(labels):
        raise UsageError(f"{place}: a type of entity is named twice")


def _refuse_without_labels(labels: tuple[str, ...] | None, place: str) -> None:
    if labels is None:
        raise RefusedError(
            "labels-from-private-data",
            f"dp without labels: which types of entities occur in the documents is private; name them in the option {place}",
        )


def _check_user(dp: DpTuning, user_field: str | None, place: str) -> None:
    if dp.unit == "user" and user_field is None:
        raise UsageError(f"dp.unit is user, but {place}.user_field does not name the field with a person's id")


def _check_dp(dp: DpTuning, training: TuningOptions, place: str = "") -> None:
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
