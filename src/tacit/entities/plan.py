"""What fine-tuning will cost, before any document is read: noise of every model with DP, epsilon, time, memory. Needs no torch.

The model folders and their certificates are read: what a pre-training spent is in them.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from tacit.config import ComputeOptions
from tacit.config.compare import ComparedModel, ComparisonConfig
from tacit.config.finetune import FinetuneConfig
from tacit.config.shape import tagger_shape
from tacit.config.tuning import DpTuning, StartModel, TuningOptions
from tacit.entities.start import open_start
from tacit.errors import DataError
from tacit.planning.cost import row_flops, seconds_of, training_bytes
from tacit.planning.finetuning import DpPrice, dp_price, finetuning_spend
from tacit.planning.finetuning_origin import certified_epsilon, inherited, pretraining_of, provenance_of_model
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.provenance import Ancestor
from tacit.privacy.rounded import upper

__all__ = ["ExtractionPlan", "TuningPlan", "model_prices", "plan_comparison", "plan_finetune"]


@dataclass(frozen=True)
class TuningPlan:
    """One model, and one fine-tuning of it.

    Args:
        model: its name in a comparison, else its folder.
        pretraining_epsilon: as its certificate says; None where it has none.
        unit, relation, sampling_probability, clip_norm, noise_multiplier, delta: of DP fine-tuning; None without it.
        steps: None where they are counted in epochs of the documents, which are not read.
        epsilon_alone: of the fine-tuning alone, at ``delta``; infinite without DP.
        epsilon: with what the pre-training spent, where the people may be the same.
        counts_pretraining: whether that is so.
        parameters: of the model without its new layer.
        memory_bytes, seconds: of one fine-tuning, rough; rows count as full ones. None where ``steps`` is.
    """

    model: str
    pretraining_epsilon: float | None
    unit: str | None
    relation: str | None
    sampling_probability: float | None
    clip_norm: float | None
    noise_multiplier: float | None
    delta: float | None
    steps: int | None
    epsilon_alone: float
    epsilon: float
    counts_pretraining: bool
    parameters: int
    memory_bytes: int
    seconds: float | None


@dataclass(frozen=True)
class ExtractionPlan:
    """All models.

    Args:
        times: how often each model is fine-tuned: tasks, folds and seeds.
        workers: at one time.
    """

    models: tuple[TuningPlan, ...]
    times: int
    workers: int
    notes: tuple[str, ...]

    @property
    def seconds(self) -> float | None:
        """The seconds of all fine-tunings together; None where they depend on the documents."""
        each = [model.seconds for model in self.models]
        known = [seconds for seconds in each if seconds is not None]
        return sum(known) * self.times if len(known) == len(each) else None

    @property
    def memory_bytes(self) -> int:
        """The most bytes of memory that are used at one time."""
        return self.workers * max(model.memory_bytes for model in self.models)

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready, but for infinite numbers."""
        return {**dataclasses.asdict(self), "seconds": self.seconds, "memory_bytes": self.memory_bytes}


def plan_finetune(config: FinetuneConfig) -> ExtractionPlan:
    """What `tacit finetune` will do.

    Raises:
        DataError: the model cannot be read, or its certificate is damaged.
        RefusedError: a guarantee that cannot be proved.
        BudgetError: the budget cannot be met.
    """
    pretraining, price = _priced(config.model, config.dp, config.same_people, config.training, "")
    one = _tuning_plan(
        config.model.folder, config.model, config.dp, config.training, config.compute, pretraining, price
    )
    notes = [_note(one, config.same_people)]
    if config.folds is not None:
        notes.append(
            f"{config.folds} more models are tuned for scores by folds, which are for the curator alone, and removed"
        )
    return ExtractionPlan((one,), 1 + (config.folds or 0), 1, tuple(notes))


def plan_comparison(config: ComparisonConfig) -> ExtractionPlan:
    """What `tacit compare` will do. Raises as `plan_finetune`."""
    found, notes = [], []
    for name, model in config.models.items():
        training = config.training_of(name)
        pretraining, price = _compared_price(config, name, model)
        found.append(_tuning_plan(name, model, model.dp, training, config.compute, pretraining, price))
        notes.append(f"{name}: {_note(found[-1], model.same_people)}")
    splits = sum(1 if task.path is None else task.folds for task in config.tasks.values())
    notes.append("the scores of a comparison are exact, for the curator alone: no epsilon holds for its tables")
    return ExtractionPlan(tuple(found), splits * config.seeds, config.workers, tuple(notes))


def model_prices(config: ComparisonConfig) -> dict[str, DpPrice]:
    """The noise of every model that is tuned with DP, and its epsilon together with what its pre-training spent.

    Raises:
        DataError: the certificate of a model is damaged.
        RefusedError, BudgetError: as `provenance_of_model` and `dp_price`.
    """
    prices = {name: _compared_price(config, name, model)[1] for name, model in config.models.items() if model.dp}
    return {name: price for name, price in prices.items() if price is not None}


def _compared_price(
    config: ComparisonConfig, name: str, model: ComparedModel
) -> tuple[Ancestor | None, DpPrice | None]:
    return _priced(model, model.dp, model.same_people, config.training_of(name), f"models.{name}.")


def _priced(
    model: StartModel, dp: DpTuning | None, same_people: bool, training: TuningOptions, place: str
) -> tuple[Ancestor | None, DpPrice | None]:
    """The certificate of the model (with new weights too: the tokenizer is a release of its own), and the price of DP."""
    if dp is None:
        return pretraining_of(model), None
    start = provenance_of_model(model, dp, same_people, place=place)
    return pretraining_of(model), dp_price(training, dp, inherited(dp, start))


def _tuning_plan(
    name: str,
    model: StartModel,
    dp: DpTuning | None,
    training: TuningOptions,
    compute: ComputeOptions,
    pretraining: Ancestor | None,
    price: DpPrice | None,
) -> TuningPlan:
    start = open_start(model, training)
    shape = tagger_shape(start.folder)
    if shape.vocabulary is None:
        raise DataError(f"{start.folder}: config.json does not say how many token ids the model has")
    assert shape.kind.tagger is not None  # tagger_shape
    parameters = shape.kind.tagger.parameters(shape, shape.vocabulary)
    rows = training.batch_size if dp is None else 1.2 * dp.expected_batch * dp.sequences_per_unit
    seconds = None if training.steps is None else seconds_of(training.steps * rows * row_flops(shape, start.length, 0))
    alone = math.inf
    if dp is not None and price is not None:
        alone = epsilon([finetuning_spend(price.phase)], dp.budget.delta, dp.relation)
    return TuningPlan(
        model=name,
        pretraining_epsilon=None if pretraining is None else certified_epsilon(pretraining),
        unit=None if dp is None else dp.unit,
        relation=None if dp is None else dp.relation,
        sampling_probability=None if dp is None else dp.expected_batch / dp.units,
        clip_norm=None if dp is None else dp.clip_norm,
        noise_multiplier=None if price is None else price.noise_multiplier,
        delta=None if dp is None else dp.budget.delta,
        steps=training.steps,
        epsilon_alone=alone,
        epsilon=math.inf if price is None else price.epsilon,
        counts_pretraining=price is not None and bool(price.inherited),
        parameters=parameters,
        memory_bytes=training_bytes(shape, start.length, compute, parameters, 0),
        seconds=seconds,
    )


def _note(plan: TuningPlan, same_people: bool) -> str:
    """Whom epsilon is about."""
    if plan.unit is None:
        return "without DP, so epsilon is infinite for the documents"
    if plan.counts_pretraining:
        return f"epsilon {upper(plan.epsilon)} is for fine-tuning and pre-training together, which may hold texts of the same people"
    if plan.pretraining_epsilon is None:
        return f"epsilon {upper(plan.epsilon)} is for the fine-tuning; the model is public, as the user declares"
    if same_people:  # else what it spent would count
        return (
            f"epsilon {upper(plan.epsilon)} is for the fine-tuning; the model's certificate says that it spent nothing"
        )
    return (
        f"epsilon {upper(plan.epsilon)} is for the fine-tuning alone, as the user declares that nobody is in both texts"
    )
