"""What a report says of how the model was made: its vocabulary, its shape and its phases."""

from __future__ import annotations

from tacit.config import DpPhase, RunConfig, SelectivePhase
from tacit.config.shape import ModelShape
from tacit.planning.vocabulary import vocabulary_from_plans, vocabulary_releases
from tacit.privacy.ledger import Ledger
from tacit.report import schema

__all__ = ["model_facts", "phase_rows", "vocabulary_facts"]


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


def model_facts(config: RunConfig, shape: ModelShape, vocabulary_size: int) -> schema.ModelFacts:
    """The model's shape, with its parameters at so many token ids."""
    return schema.ModelFacts(
        kind=shape.kind.name,
        layers=shape.layers,
        width=shape.width,
        heads=shape.heads,
        parameters=shape.parameters(vocabulary_size),
        max_length=config.model.length,
        loading_class=shape.kind.loading_class,
        pipeline_tag=shape.kind.pipeline_tag,
    )


def phase_rows(config: RunConfig, ledger: Ledger) -> tuple[schema.PhaseRow, ...]:
    """The phases of the configuration, with the noise that the ledger has."""
    rows = []
    for phase in config.phases:
        if isinstance(phase, DpPhase):
            noise_multiplier = _noise_multiplier(config, ledger, phase)
            batch = (
                f"{phase.expected_batch} units expected (Poisson), at most {phase.sequences_per_unit} sequences each"
            )
            if phase.maskings > 1:
                batch += f" with {phase.maskings} maskings"
            plan = f"DP-SGD, {phase.clipping} clipping, clip norm {phase.clip_norm:g}, noise multiplier {noise_multiplier:g}"
            if config.adaptive is not None and config.adaptive.form != "strata":
                how = {
                    "clip-weights": "the clip norm times the weight of rho",
                    "literal": "the noise times the batch's mean rho",
                }
                plan += f", {how[config.adaptive.form]}"
            if phase.average is not None:
                plan += f", ends with the mean of its iterates (decay {phase.average:g})"
            if phase.keep is not None:
                plan += f", keeps {phase.keep:g} of the way from its start"
        elif isinstance(phase, SelectivePhase):
            batch = f"{phase.batch_size} records"
            plan = (
                f"ordinary training on public tokens; at most {phase.segments} states of a record released, norm at most "
                f"{phase.state_clip:g}, noise multiplier {phase.state_noise_multiplier:g}"
            )
        else:
            batch, plan = f"{phase.batch_size} sequences", "ordinary training"
        rounds = f", in {config.rounds} rounds by turns" if config.rounds > 1 else ""
        rows.append(
            schema.PhaseRow(
                stream=phase.stream,
                plan=plan + rounds,
                steps=config.rounds * phase.steps,
                batch=batch,
                optimizer=f"AdamW, learning rate {phase.learning_rate:g}",
            )
        )
    return tuple(rows)


def _noise_multiplier(config: RunConfig, ledger: Ledger, phase: DpPhase) -> float:
    """As the ledger has it; on marked text, where the ledger holds no finite event, as it was given."""
    found = ledger.plans[config.phase_name(phase, 0)].event.step_noise_multiplier
    found = phase.noise_multiplier if found is None else found
    assert found is not None
    return found
