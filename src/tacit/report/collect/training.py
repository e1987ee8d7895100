"""What a report says of how the model was made: its vocabulary, its shape and its phases."""

from __future__ import annotations

from tacit.config import PhaseOptions, RunConfig
from tacit.config.adapter import AdapterOptions
from tacit.config.model import Trained
from tacit.config.shape import ModelShape
from tacit.planning.vocabulary import vocabulary_from_plans, vocabulary_releases
from tacit.privacy.ledger import Ledger
from tacit.report import schema

__all__ = ["model_facts", "phase_rows", "vocabulary_facts"]


_TRAINED: dict[Trained, str] = {
    "without-embeddings": "all parameters but the tables of embeddings",
    "biases-and-norms": "biases and norms alone",
}


def vocabulary_facts(config: RunConfig, ledger: Ledger, size: int, released_words: int) -> schema.VocabularyFacts:
    """The vocabulary: its method, and what was released for it."""
    events = vocabulary_releases(vocabulary_from_plans(config, ledger.plans)).values()
    choices = [choice for event in events if (choice := event.choice) is not None]
    vocabulary = choices[-1] if choices else None  # of several rounds the last one, which has most of the budget
    return schema.VocabularyFacts(
        method=config.vocabulary.how.described(config),
        size=size,
        released_words=released_words if vocabulary is not None else 0,
        parameters={} if vocabulary is None else vocabulary.numbers(),
    )


def model_facts(config: RunConfig, shape: ModelShape, vocabulary_size: int, trained: int) -> schema.ModelFacts:
    """The model's shape, with its parameters at so many token ids, and of an adapter how many were trained."""
    return schema.ModelFacts(
        kind=shape.kind.name,
        layers=shape.layers,
        width=shape.width,
        heads=shape.heads,
        parameters=shape.parameters(vocabulary_size),
        max_length=config.model.length,
        loading_class=shape.kind.loading_class,
        pipeline_tag=shape.kind.pipeline_tag,
        loading_module=shape.kind.loading_module,
        adapter=None if config.model.adapter is None else _adapter_facts(config.model.adapter, trained),
        trained=_TRAINED.get(config.model.trained),
    )


def _adapter_facts(adapter: AdapterOptions, trained: int) -> schema.AdapterFacts:
    targets = "all linear layers" if adapter.targets == "all-linear" else ", ".join(adapter.targets)
    return schema.AdapterFacts(
        kind=adapter.kind, rank=adapter.rank, targets=targets, parameters=trained, merged=adapter.merge
    )


def phase_rows(config: RunConfig, ledger: Ledger) -> tuple[schema.PhaseRow, ...]:
    """The phases of the configuration, with the noise that the ledger has."""
    rounds = f", in {config.rounds} rounds by turns" if config.rounds > 1 else ""
    rows = []
    for phase in config.phases:
        words = phase.words(config, _noise_multiplier(config, ledger, phase))
        rows.append(
            schema.PhaseRow(
                stream=phase.stream,
                plan=words.plan + rounds,
                steps=config.rounds * phase.steps,
                batch=words.batch,
                optimizer=f"AdamW, learning rate {phase.learning_rate:g}",
            )
        )
    return tuple(rows)


def _noise_multiplier(config: RunConfig, ledger: Ledger, phase: PhaseOptions) -> float | None:
    """The multiplier that the ledger has; None of a phase that is not there, or without a finite event, as on marked text."""
    plan = ledger.plans.get(config.phase_name(phase, 0))
    return None if plan is None else plan.event.step_noise_multiplier
