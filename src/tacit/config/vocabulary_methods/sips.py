"""The method ``sips``: words are chosen by weight in rounds; what a round releases leaves room for the rest in the next one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from tacit.config.vocabulary_methods.method import VocabularyMethod, WordSource, budget_of
from tacit.config.vocabulary_methods.rounds import (
    check_counts,
    check_solved,
    release_in_rounds,
    rounds_in,
    usual_share,
)
from tacit.config.vocabulary_methods.weighted import WEIGHTED_LAW
from tacit.privacy.events import Event, WeightedHistogram
from tacit.privacy.words import VocabularyEvent, WordEvents

if TYPE_CHECKING:
    from tacit.config.run import RunConfig
    from tacit.config.vocabulary import VocabularyOptions

__all__ = ["Sips"]


@final
class Sips(VocabularyMethod):
    """There are as many rounds as `vocabulary.rounds` has parts, and counts of what was chosen."""

    kinds = (WeightedHistogram,)
    law = WEIGHTED_LAW

    def check_options(self, options: VocabularyOptions) -> None:
        check_counts(options)
        check_solved(options)

    def usual_counts_share(self, options: VocabularyOptions) -> float:
        return usual_share(True, options)

    def event(self, config: RunConfig) -> WordEvents:
        from tacit.privacy.accounting.calibrate_words import weighted_rounds  # with half a second of imports

        options = config.vocabulary
        target, delta, relation = budget_of(config)
        return weighted_rounds(target, delta, options.max_words, options.rounds, options.share_of_counts, relation)

    def event_in(self, config: RunConfig, planned: Mapping[str, Event]) -> WordEvents | None:
        options = config.vocabulary
        return rounds_in(planned, len(options.rounds), options.share_of_counts > 0, WeightedHistogram)

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        assert isinstance(event, WordEvents)
        return release_in_rounds(event, source)
