"""The options of `tacit compare`: models by tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from tacit.config.base import MOST, Count, Options, Printable, beside
from tacit.config.compute import ComputeOptions
from tacit.config.load import validated
from tacit.config.tuning import (
    AnnotatedSource,
    DpTuning,
    Layout,
    StartModel,
    TuningOptions,
    check_dp,
    check_labels,
    check_runner,
    check_tuning,
    check_user,
    refuse_without_labels,
)
from tacit.errors import UsageError

__all__ = [
    "BASELINE_NAMES",
    "ComparedModel",
    "ComparisonConfig",
    "TaskOptions",
    "load_comparison",
    "names_tasks",
]


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


BASELINE_NAMES = ("majority", "dictionary")
"""Of the trivial taggers of `tacit.entities.baselines`, which stand beside the models."""

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

    title: Printable = "entity extraction"
    run: Printable
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


def load_comparison(values: Any, source: str, folder: Path | None = None) -> ComparisonConfig:
    """Check the values of a configuration of `tacit compare`; ``folder`` as of `check_finetune`. Raises as `load_finetune`."""
    config = validated(ComparisonConfig, values, source, folder)
    check_runner(config.compute)
    check_tuning(config.training, "training")
    for name, task in config.tasks.items():
        given = (task.path is not None, task.train is not None, task.test is not None)
        if given not in ((True, False, False), (False, True, True)):
            raise UsageError(f"tasks.{name}: give path, which is cut in folds, or train and test together")
        if task.path is None and "folds" in task.model_fields_set:
            raise UsageError(f"tasks.{name}: folds are cut from path; with train and test there are none")
        check_labels(task.labels, f"tasks.{name}.labels")
    for name, model in config.models.items():
        _check_compared(config, name, model)
    _check_names(config)
    return config


def _check_names(config: ComparisonConfig) -> None:
    """Results lie in files that are called by task and model."""
    for section, names in (("tasks", config.tasks), ("models", config.models)):
        seen: dict[str, str] = {}
        for name in names:
            if "--" in name:
                raise UsageError(
                    f"{section}.{name}: -- stands between the names of a task and a model; take another name"
                )
            if (other := seen.setdefault(name.casefold(), name)) != name:  # one file on macOS and Windows
                raise UsageError(
                    f"{section}.{name}: it differs from {other} by capital letters alone; take another name"
                )
    taken = [name for name in config.models if config.baselines and name in BASELINE_NAMES]
    if taken:
        raise UsageError(f"models.{taken[0]}: so is a baseline called; take another name, or set baselines: false")


def _check_compared(config: ComparisonConfig, name: str, model: ComparedModel) -> None:
    """What a model has of its own is about DP."""
    if model.dp is None:
        if model.training is not None or not model.same_people:
            raise UsageError(f"models.{name}: training and same_people go with dp; without it all are trained alike")
        return
    if model.training is not None:
        check_tuning(model.training, f"models.{name}.training")
    check_dp(model.dp, config.training_of(name), f"models.{name}.")
    for task, options in config.tasks.items():
        check_user(model.dp, options.user_field, f"tasks.{task}")
        refuse_without_labels(options.labels, f"tasks.{task}.labels")
