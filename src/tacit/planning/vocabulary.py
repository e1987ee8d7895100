"""The vocabulary in the plan: its event, what it is called, how many entries it has."""

from __future__ import annotations

from collections.abc import Mapping

from tacit.config import RunConfig
from tacit.errors import UsageError
from tacit.planning.stages import TRAINING, VOCABULARY, VOCABULARY_COUNTS, Stage, vocabulary_round
from tacit.privacy.events import Event
from tacit.privacy.ledger import StagePlan
from tacit.privacy.words import VocabularyEvent

__all__ = [
    "vocabulary_event",
    "vocabulary_from_plans",
    "vocabulary_notes",
    "vocabulary_releases",
    "vocabulary_size",
    "vocabulary_stages",
]


def vocabulary_size(config: RunConfig) -> int:
    """Entries of the tokenizer: of a given one exactly, else at most.

    Raises:
        TacitError: the given tokenizer, or the model folder, is not suitable.
    """
    given = config.vocabulary.how.brings_tokenizer
    if not given and config.model.folder is None:
        return config.vocabulary.size
    from tacit.planning.given import (  # `tokenizers` comes with it, which other plans do not need
        check_folder,
        given_tokenizer,
    )

    if not given:
        check_folder(config)
        return config.vocabulary.size
    return given_tokenizer(config).special.size


def vocabulary_event(config: RunConfig) -> VocabularyEvent | None:
    """What the vocabulary costs, its noise solved for its share of the budget; None where it reads no private text.

    Raises:
        BudgetError: no noise meets the share.
    """
    how = config.vocabulary.how
    event = how.event(config)
    if (event is not None) != how.reads_private_text(config):
        raise UsageError(
            f"vocabulary.method: {config.vocabulary.method} says of itself that it reads private text or not, and what it spends "
            "does not fit; mend the method"
        )
    return event


def vocabulary_releases(event: VocabularyEvent | None) -> dict[str, Event]:
    """What is released for the vocabulary, in order, by its name in the ledger."""
    return {} if event is None else event.releases(vocabulary_round, VOCABULARY_COUNTS)


def vocabulary_from_plans(config: RunConfig, plans: Mapping[str, StagePlan]) -> VocabularyEvent | None:
    """The event of `vocabulary_event`, from what the ledger has planned; None where it does not have all of it."""
    return config.vocabulary.how.event_in(config, {name: plan.event for name, plan in plans.items()})


def vocabulary_stages(config: RunConfig, event: VocabularyEvent | None) -> list[Stage]:
    """The vocabulary as `tacit plan` shows it.

    Raises:
        TacitError: see `vocabulary_size`.
    """
    how = config.vocabulary.how
    if how.brings_tokenizer:
        return [Stage(VOCABULARY, how.shown(config), {"entries": vocabulary_size(config)}, 1, None, "", seconds=1.0)]
    seconds = config.privacy.units * 0.003
    if event is None:
        return [Stage(VOCABULARY, how.shown(config), {}, 1, None, "", seconds=seconds)]
    return [
        Stage(name, one.title, one.planned_numbers(), 1, one, TRAINING, seconds=seconds)
        if one.is_private
        else Stage(name, how.shown(config), {}, 1, one, TRAINING, seconds=seconds)
        for name, one in vocabulary_releases(event).items()
    ]


def vocabulary_notes(config: RunConfig, event: VocabularyEvent | None) -> list[str]:
    """What a reader of the plan should know of the method."""
    return list(config.vocabulary.how.notes(config, event))
