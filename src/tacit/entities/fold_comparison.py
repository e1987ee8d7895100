"""A fine-tuning that scores itself by folds: a comparison of one model, tuned again in each fold without a part of the documents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tacit.config.compare import ComparedModel, ComparisonConfig, TaskOptions
from tacit.config.finetune import FinetuneConfig
from tacit.corpus.annotated import type_of
from tacit.training.plans import DpPlan, Plan

__all__ = ["fold_comparison"]


def fold_comparison(config: FinetuneConfig, plan: Plan, tags: Sequence[str], run: Path) -> ComparisonConfig:
    """Each fold is tuned as the release was: with its noise, and its types of entities.

    Args:
        plan: of the release's phase.
        tags: of its classifier.
        run: the folder of the comparison, in the private part.
    """
    assert config.folds is not None
    dp = config.dp
    if dp is not None and isinstance(plan, DpPlan):
        dp = dp.model_copy(update={"noise_multiplier": plan.noise_multiplier})
    model = ComparedModel(
        folder=str(config.model.resolved_folder.absolute()),
        public=config.model.public,
        from_scratch=config.model.from_scratch,
        dp=dp,
        same_people=config.same_people,
    )
    documents = config.documents
    types = dict.fromkeys(kind for tag in tags if (kind := type_of(tag)) is not None)
    task = TaskOptions(
        path=str(documents.resolved_path.absolute()),
        format=documents.format,
        id_field=documents.id_field,
        user_field=documents.user_field,
        folds=config.folds,
        labels=tuple(types),
    )
    return ComparisonConfig(
        run=str(run),
        models={"fine-tuned": model},
        tasks={"documents": task},
        training=config.training,
        baselines=False,
        compute=config.compute,
    )
