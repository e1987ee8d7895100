"""The method ``histogram``: one thresholded histogram under its exact law (Hoory et al. 2021, section 3.2), alone or with counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, final

from tacit.config.vocabulary_methods.method import VOCABULARY, VocabularyMethod, WordSource, budget_of, refuse_options
from tacit.config.vocabulary_methods.rounds import (
    check_counts,
    check_solved,
    release_in_rounds,
    rounds_in,
    usual_share,
)
from tacit.errors import UsageError
from tacit.privacy.events import Event, ThresholdedHistogram
from tacit.privacy.words import VocabularyEvent, WordEvents

if TYPE_CHECKING:
    from tacit.config.run import RunConfig
    from tacit.config.vocabulary import VocabularyOptions

__all__ = ["Histogram"]


@final
class Histogram(VocabularyMethod):
    """The noisy counts are the words' own; where some words are public, a second release counts all of them."""

    kinds = (ThresholdedHistogram,)
    law = "The histogram's delta follows its exact law, not the formula of the paper (docs/guarantees.md)."

    def check_options(self, options: VocabularyOptions) -> None:
        check_counts(options)
        refuse_options(options, {"rounds"}, "has one round; leave it out, or use method: sips")
        if options.share_of_counts > 0:
            check_solved(options)
        if (options.noise_stddev is None) != (options.threshold is None):
            raise UsageError("vocabulary: give noise_stddev and threshold together, or neither")

    def usual_counts_share(self, options: VocabularyOptions) -> float:
        return usual_share(False, options)

    def event(self, config: RunConfig) -> VocabularyEvent:
        from tacit.privacy.accounting.calibrate import histogram  # with half a second of imports
        from tacit.privacy.accounting.calibrate_words import histogram_and_counts

        options = config.vocabulary
        target, delta, relation = budget_of(config)
        if options.share_of_counts > 0:
            return histogram_and_counts(target, delta, options.max_words, options.share_of_counts, relation)
        return self.stated_event(config) or histogram(target, delta, options.max_words, relation)

    def event_in(self, config: RunConfig, planned: Mapping[str, Event]) -> VocabularyEvent | None:
        if config.vocabulary.share_of_counts > 0:
            return rounds_in(planned, 1, True, ThresholdedHistogram)
        return super().event_in(config, planned)

    def stated_event(self, config: RunConfig) -> ThresholdedHistogram | None:
        options = config.vocabulary
        if options.noise_stddev is None or options.threshold is None or options.share_of_counts > 0:
            return None
        return ThresholdedHistogram(options.noise_stddev, options.threshold, options.max_words)

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return release_in_rounds(event, source) if isinstance(event, WordEvents) else source.release_under(VOCABULARY)
