"""The options of `tacit finetune`: one model on one set of documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from tacit.config.base import MOST, Printable, WholeConfig, shown
from tacit.config.compute import ComputeOptions
from tacit.config.load import read_yaml, validated
from tacit.config.tuning import (
    AnnotatedSource,
    DpTuning,
    StartModel,
    TuningOptions,
    check_dp,
    check_labels,
    check_runner,
    check_tuning,
    check_user,
    refuse_without_labels,
)
from tacit.errors import RefusedError, UsageError

__all__ = [
    "FinetuneConfig",
    "check_finetune",
    "load_finetune",
    "names_documents",
]


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

    title: Printable = "entity extraction"
    run: Printable
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
        return shown(self.located(self.run))

    @property
    def key_seed(self) -> str | None:
        """The public text that the key is made from; None where it is drawn."""
        return None if self.seed is None else f"tacit finetune {self.seed}"


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
    check_runner(config.compute)
    check_tuning(config.training, "training")
    check_labels(config.labels, "labels")
    if config.test is not None and config.folds is not None:
        raise UsageError("folds are for documents without a test part; leave out folds, or test")
    if config.dp is not None:
        if config.seed is not None:
            raise RefusedError(
                "public-key", "seed with dp: the noise would be a function of a public number; leave seed out"
            )
        check_dp(config.dp, config.training)
        check_user(config.dp, config.documents.user_field, "documents")
        refuse_without_labels(config.labels, "labels")
    return config
