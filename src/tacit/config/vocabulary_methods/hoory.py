"""The method ``hoory``: the histogram with the threshold of the paper's formula, whose true delta is above the one it claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, final

from tacit.config.vocabulary_methods.method import VOCABULARY, VocabularyMethod, WordSource, budget_of
from tacit.errors import RefusedError, UsageError
from tacit.privacy.events import ThresholdedHistogram
from tacit.privacy.words import VocabularyEvent

if TYPE_CHECKING:
    from tacit.config.run import RunConfig
    from tacit.config.vocabulary import VocabularyOptions

__all__ = ["Hoory"]


@final
class Hoory(VocabularyMethod):
    """Hoory et al. 2021, section 3.2, as published; its true price is in the ledger, and in epsilon."""

    kinds = (ThresholdedHistogram,)
    law = "The histogram's delta follows its exact law, not the formula of the paper (docs/guarantees.md)."
    heuristic = "heuristic:hoory"

    def refusal(self) -> RefusedError:
        return RefusedError(
            "vocabulary-formula",
            "vocabulary.method: hoory uses the paper's threshold, whose true delta is far above the one it claims; "
            "use method: weighted, or add heuristic:hoory to allow (reported with epsilon = infinity)",
        )

    def check_options(self, options: VocabularyOptions) -> None:
        super().check_options(options)
        if options.threshold is not None:
            raise UsageError("vocabulary.threshold: method hoory computes it by the paper's formula; leave it out")

    def event(self, config: RunConfig) -> ThresholdedHistogram:
        from tacit.privacy.accounting.histogram import hoory_claim  # with half a second of imports

        options = config.vocabulary
        target, delta, _ = budget_of(config)
        noise = options.noise_stddev or math.sqrt(options.max_words * 2 * math.log(1.25 / delta)) / target
        threshold = math.ceil(hoory_claim(noise, options.max_words, delta).threshold)
        return ThresholdedHistogram(noise, threshold, options.max_words)

    def notes(self, config: RunConfig, event: VocabularyEvent | None) -> Sequence[str]:
        from tacit.privacy.accounting.histogram import histogram_delta, hoory_claim

        if not isinstance(event, ThresholdedHistogram):
            return ()
        _, delta, _ = budget_of(config)
        claim = hoory_claim(event.noise_stddev, event.max_words, delta)
        return (
            f"vocabulary by the paper's formula: it claims delta {delta:.3g}; its true delta is at least "
            f"{histogram_delta(event, math.inf):.3g} (threshold {claim.threshold:.1f}, right is {claim.correct_threshold:.1f})",
        )

    def release(self, event: VocabularyEvent | None, source: WordSource) -> dict[str, int]:
        return source.release_under(VOCABULARY)
