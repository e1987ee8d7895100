"""Choosing words and counting them as releases of their own: what the methods share that do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tacit.config.vocabulary_methods.method import VOCABULARY_COUNTS, WordSource, vocabulary_round
from tacit.errors import UsageError
from tacit.privacy.events import Event, ThresholdedHistogram, WeightedHistogram, WordCounts
from tacit.privacy.words import WordEvents

if TYPE_CHECKING:
    from tacit.config.vocabulary import VocabularyOptions

__all__ = ["check_counts", "check_solved", "release_in_rounds", "rounds_in", "usual_share"]


def usual_share(chooses_by_weight: bool, options: VocabularyOptions) -> float:
    """The part of the squared budget for counts where none is given: weights are no counts, and public words have none."""
    return 0.15 if chooses_by_weight or options.knows_words else 0.0


def check_counts(options: VocabularyOptions) -> None:
    """Public words need counts of their own."""
    if options.counts_share == 0 and options.knows_words:
        raise UsageError(
            "vocabulary.counts_share: public words have no weights that could stand for their counts; take a share above 0"
        )


def check_solved(options: VocabularyOptions) -> None:
    """The noise of several releases is solved together."""
    if options.noise_stddev is not None or options.threshold is not None:
        raise UsageError(
            "vocabulary: noise_stddev and threshold cannot be given with method weighted (the default) or sips, public_words, "
            "public_corpora or counts_share: they are solved; leave them out, or write method: histogram alone"
        )


def rounds_in(
    planned: Mapping[str, Event],
    number: int,
    counts: bool,
    kind: type[ThresholdedHistogram] | type[WeightedHistogram],
) -> WordEvents | None:
    """The releases as a ledger has them (`VocabularyMethod.event_in`).

    Args:
        number: of the rounds.
        counts: whether counts follow.
        kind: of the rounds' events.
    """
    found = [planned.get(vocabulary_round(place)) for place in range(number)]
    rounds = tuple(one for one in found if isinstance(one, kind))
    of_chosen = planned.get(VOCABULARY_COUNTS) if counts else None
    if len(rounds) < number or isinstance(of_chosen, WordCounts) != counts:
        return None
    return WordEvents(rounds, of_chosen if isinstance(of_chosen, WordCounts) else None)


def release_in_rounds(event: WordEvents, source: WordSource) -> dict[str, int]:
    """Public words and those that the rounds choose, each with a count of at least 1 estimated from what was released."""
    public = source.public_words()
    known, rounds = set(public), dict[str, Mapping[str, int]]()
    for number in range(len(event.rounds)):
        stage = vocabulary_round(number)
        rounds[stage] = source.release_under(stage, known)
        known |= rounds[stage].keys()
    counts = None if event.counts is None else source.release_under(VOCABULARY_COUNTS, known)
    return source.estimated(public, rounds, counts)
