"""The vocabulary in the plan: its event, what it is called, how many entries it has."""

from __future__ import annotations

import math

from tacit.config import RunConfig
from tacit.planning.stages import TRAINING, VOCABULARY, Stage
from tacit.privacy import calibrate
from tacit.privacy.events import NonPrivate, ThresholdedHistogram
from tacit.privacy.histogram import histogram_delta, hoory_claim

__all__ = [
    "VocabularyEvent",
    "has_vocabulary_event",
    "vocabulary_event",
    "vocabulary_notes",
    "vocabulary_size",
    "vocabulary_stage",
]

VocabularyEvent = ThresholdedHistogram | NonPrivate


def vocabulary_size(config: RunConfig) -> int:
    """Entries of the tokenizer: of a given one exactly, else at most.

    Raises:
        TacitError: the given tokenizer, or the model folder, is not suitable.
    """
    if config.vocabulary.method != "given":
        return config.vocabulary.size
    from tacit.given import given_tokenizer  # `tokenizers` comes with it, which other plans do not need

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
    if options.method == "hoory":
        noise = options.noise_stddev or math.sqrt(options.max_words * 2 * math.log(1.25 / delta)) / target
        threshold = math.ceil(hoory_claim(noise, options.max_words, delta).threshold)
        return ThresholdedHistogram(noise, threshold, options.max_words)
    if options.noise_stddev is not None and options.threshold is not None:
        return ThresholdedHistogram(options.noise_stddev, options.threshold, options.max_words)
    return calibrate.histogram(target, delta, options.max_words, privacy.relation)


def vocabulary_stage(config: RunConfig, event: VocabularyEvent | None) -> Stage:
    """The vocabulary as `tacit plan` shows it.

    Raises:
        TacitError: see `vocabulary_size`.
    """
    if config.vocabulary.method == "given":
        return Stage(VOCABULARY, "given tokenizer", {"entries": vocabulary_size(config)}, 1, None, "", seconds=1.0)
    seconds = config.privacy.units * 0.003
    if not isinstance(event, ThresholdedHistogram):
        text = "public" if event is None else _own_words(config)
        return Stage(VOCABULARY, f"words of {text} text", {}, 1, event, TRAINING if event else "", seconds=seconds)
    numbers: dict[str, float | int | str] = {
        "noise_stddev": event.noise_stddev,
        "threshold": event.threshold,
        "max_words": event.max_words,
    }
    mechanism = "thresholded histogram of words, integer Gaussian noise"
    return Stage(VOCABULARY, mechanism, numbers, 1, event, TRAINING, seconds=seconds)


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
