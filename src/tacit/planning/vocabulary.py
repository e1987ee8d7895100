"""The vocabulary in the plan: its event, what it is called, how many entries it has."""

from __future__ import annotations

import math
from collections.abc import Mapping

from tacit.config import RunConfig
from tacit.planning.stages import TRAINING, VOCABULARY, VOCABULARY_COUNTS, Stage, vocabulary_round
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.calibrate_words import WordEvents, histogram_and_counts, weighted_rounds
from tacit.privacy.accounting.histogram import histogram_delta, hoory_claim
from tacit.privacy.events import Event, NonPrivate, ThresholdedHistogram, WeightedHistogram, WordCounts
from tacit.privacy.ledger import StagePlan

__all__ = [
    "VocabularyEvent",
    "has_vocabulary_event",
    "vocabulary_event",
    "vocabulary_from_plans",
    "vocabulary_notes",
    "vocabulary_releases",
    "vocabulary_size",
    "vocabulary_stages",
]

VocabularyEvent = ThresholdedHistogram | WordEvents | NonPrivate
"""One histogram, whose noisy counts are the words' own; rounds of choosing words, and counts of what was chosen; or no guarantee."""


def vocabulary_size(config: RunConfig) -> int:
    """Entries of the tokenizer: of a given one exactly, else at most.

    Raises:
        TacitError: the given tokenizer, or the model folder, is not suitable.
    """
    if config.vocabulary.method != "given" and config.model.folder is None:
        return config.vocabulary.size
    from tacit.planning.given import (  # `tokenizers` comes with it, which other plans do not need
        check_folder,
        given_tokenizer,
    )

    if config.vocabulary.method != "given":
        check_folder(config)
        return config.vocabulary.size
    return given_tokenizer(config).special.size


def has_vocabulary_event(config: RunConfig) -> bool:
    """Whether private text makes the vocabulary."""
    method = config.vocabulary.method
    return method != "given" and (method != "public" or not config.public)


def vocabulary_event(config: RunConfig) -> VocabularyEvent | None:
    """What the vocabulary costs, its noise solved for its share of the budget; None where it reads no private text.

    Raises:
        BudgetError: no noise meets the share.
    """
    if not has_vocabulary_event(config):
        return None
    options, privacy = config.vocabulary, config.privacy
    if options.method == "public":
        return NonPrivate(f"vocabulary of {_own_words(config)} text")
    target = config.least_epsilon * options.epsilon_share
    delta = privacy.budget.delta * options.delta_share
    if options.method in ("weighted", "sips"):
        rounds = options.rounds if options.method == "sips" else (1.0,)
        return weighted_rounds(target, delta, options.max_words, rounds, options.share_of_counts, privacy.relation)
    if options.in_rounds:
        return histogram_and_counts(target, delta, options.max_words, options.share_of_counts, privacy.relation)
    if options.method == "hoory":
        noise = options.noise_stddev or math.sqrt(options.max_words * 2 * math.log(1.25 / delta)) / target
        threshold = math.ceil(hoory_claim(noise, options.max_words, delta).threshold)
        return ThresholdedHistogram(noise, threshold, options.max_words)
    if options.noise_stddev is not None and options.threshold is not None:
        return ThresholdedHistogram(options.noise_stddev, options.threshold, options.max_words)
    return calibrate.histogram(target, delta, options.max_words, privacy.relation)


def vocabulary_releases(
    event: VocabularyEvent | None,
) -> dict[str, ThresholdedHistogram | WeightedHistogram | WordCounts | NonPrivate]:
    """What is released for the vocabulary, in order, by its name in the ledger."""
    if event is None:
        return {}
    if not isinstance(event, WordEvents):
        return {VOCABULARY: event}
    rounds = {vocabulary_round(number): one for number, one in enumerate(event.rounds)}
    return {**rounds, **({} if event.counts is None else {VOCABULARY_COUNTS: event.counts})}


def vocabulary_from_plans(config: RunConfig, plans: Mapping[str, StagePlan]) -> VocabularyEvent | None:
    """As `vocabulary_event`, from what the ledger has planned; None where it does not have all of it."""
    options = config.vocabulary
    names = [vocabulary_round(number) for number in range(len(options.rounds) if options.method == "sips" else 1)]
    found = [plans[name].event for name in names if name in plans]
    if len(found) < len(names):
        return None
    if not options.in_rounds or options.method not in ("histogram", "weighted", "sips"):
        assert isinstance(found[0], ThresholdedHistogram | NonPrivate)
        return found[0]
    if options.share_of_counts > 0 and VOCABULARY_COUNTS not in plans:
        return None
    counts = plans[VOCABULARY_COUNTS].event if options.share_of_counts > 0 else None
    assert counts is None or isinstance(counts, WordCounts)
    rounds = tuple(one for one in found if isinstance(one, ThresholdedHistogram | WeightedHistogram))
    return WordEvents(rounds, counts)


_MECHANISMS: dict[type, str] = {
    ThresholdedHistogram: "thresholded histogram of words, integer Gaussian noise",
    WeightedHistogram: "choice of words by weight, integer Gaussian noise, threshold",
    WordCounts: "counts of the chosen words, integer Gaussian noise",
}


def vocabulary_stages(config: RunConfig, event: VocabularyEvent | None) -> list[Stage]:
    """The vocabulary as `tacit plan` shows it.

    Raises:
        TacitError: see `vocabulary_size`.
    """
    if config.vocabulary.method == "given":
        return [Stage(VOCABULARY, "given tokenizer", {"entries": vocabulary_size(config)}, 1, None, "", seconds=1.0)]
    seconds = config.privacy.units * 0.003
    if event is None or isinstance(event, NonPrivate):
        text = "public" if event is None else _own_words(config)
        return [Stage(VOCABULARY, f"words of {text} text", {}, 1, event, TRAINING if event else "", seconds=seconds)]
    return [
        Stage(name, _MECHANISMS[type(one)], _numbers(one), 1, one, TRAINING, seconds=seconds)
        for name, one in vocabulary_releases(event).items()
    ]


def _numbers(event: Event) -> dict[str, float | int | str]:
    """The public numbers of a release; those of weighted words in units of the weight 1."""
    if isinstance(event, WeightedHistogram):
        noise, threshold = (round(steps / event.resolution, 4) for steps in (event.noise_stddev, event.threshold))
        return {"noise_stddev": noise, "threshold": threshold, "max_words": event.max_words}
    if isinstance(event, ThresholdedHistogram):
        return {"noise_stddev": event.noise_stddev, "threshold": event.threshold, "max_words": event.max_words}
    assert isinstance(event, WordCounts)
    return {"noise_stddev": event.noise_stddev, "max_words": event.max_words}


def vocabulary_notes(config: RunConfig, event: VocabularyEvent | None) -> list[str]:
    """What the paper's formula claims, and what is true of it."""
    if config.vocabulary.method != "hoory" or not isinstance(event, ThresholdedHistogram):
        return []
    delta = config.privacy.budget.delta * config.vocabulary.delta_share
    claim = hoory_claim(event.noise_stddev, event.max_words, delta)
    return [
        f"vocabulary by the paper's formula: it claims delta {delta:.3g}; its true delta is at least "
        f"{histogram_delta(event, math.inf):.3g} (threshold {claim.threshold:.1f}, right is {claim.correct_threshold:.1f})"
    ]


def _own_words(config: RunConfig) -> str:
    """Which part of the private text the vocabulary comes from, where no public corpus is given."""
    return "screened" if config.marking is None else "unmarked"
