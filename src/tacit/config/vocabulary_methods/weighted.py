"""The method ``weighted``: words are chosen by weight, of which each unit has as much (docs/vocabulary.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from tacit.config.vocabulary_methods.method import VocabularyMethod, WordSource, budget_of, refuse_options
from tacit.config.vocabulary_methods.rounds import (
    check_counts,
    check_solved,
    release_in_rounds,
    rounds_in,
    usual_share,
)
from tacit.privacy.events import Event, WeightedHistogram
from tacit.privacy.words import VocabularyEvent, WordEvents

if TYPE_CHECKING:
    from tacit.config.run import RunConfig
    from tacit.config.vocabulary import VocabularyOptions

__all__ = ["WEIGHTED_LAW", "Weighted"]

WEIGHTED_LAW = "The choice of words has a proved upper bound of its law, also where rounds depend on each other (docs/vocabulary.md)."


@final
class Weighted(VocabularyMethod):
    """One choice of words, and counts of what was chosen."""

    kinds = (WeightedHistogram,)
    law = WEIGHTED_LAW

    def check_options(self, options: VocabularyOptions) -> None:
        check_counts(options)
        refuse_options(options, {"rounds"}, "has one round; leave it out, or use method: sips")
        check_solved(options)

    def usual_counts_share(self, options: VocabularyOptions) -> float:
        return usual_share(True, options)

    def event(self, config: RunConfig) -> WordEvents:
        from tacit.privacy.accounting.calibrate_words import weighted_rounds  # with half a second of imports

        options = config.vocabulary
        target, delta, relation = budget_of(config)
        return weighted_rounds(target, delta, options.max_words, (1.0,), options.share_of_counts, relation)

    def event_in(self, config: RunConfig, planned: Mapping[str, Event]) -> WordEvents | None:
        return rounds_in(planned, 1, config.vocabulary.share_of_counts > 0, WeightedHistogram)

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        assert isinstance(event, WordEvents)
        return release_in_rounds(event, source)
