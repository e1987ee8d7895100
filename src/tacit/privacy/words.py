"""What a vocabulary releases from private text: several events as one, and how each of them is run.

How a release is run is a function of its event, as its law is: whoever runs it takes bound, noise and threshold from here, so that
what is run and what is accounted for cannot differ.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tacit.errors import UsageError
from tacit.privacy.events import Event, Spend, ThresholdedHistogram, WeightedHistogram, WordCounts

__all__ = ["VocabularyEvent", "WordEvents", "WordRelease", "word_release"]


@dataclass(frozen=True)
class WordEvents:
    """The releases of a vocabulary in their order: the rounds of the choice, then the counts of what was chosen."""

    rounds: tuple[ThresholdedHistogram | WeightedHistogram, ...]
    counts: WordCounts | None = None

    @property
    def chooses_words_in_rounds(self) -> bool:
        """See `Event.chooses_words_in_rounds`."""
        return True

    def releases(self, name_of_round: Callable[[int], str], name_of_counts: str) -> dict[str, Event]:
        """See `Event.releases`."""
        rounds: dict[str, Event] = {name_of_round(number): event for number, event in enumerate(self.rounds)}
        return rounds if self.counts is None else {**rounds, name_of_counts: self.counts}

    def spends(self) -> list[Spend]:
        """What they cost."""
        return [Spend(event) for event in self.releases(str, "counts").values()]


VocabularyEvent = Event | WordEvents
"""One release, whose noisy counts are the words' own (or which has no guarantee); or rounds of choosing words, and counts of what was
chosen."""


@dataclass(frozen=True)
class WordRelease:
    """How a release of words is run: each unit's words are counted under a bound, and each count gets integer Gaussian noise.

    Args:
        max_words: the most counts that one unit moves.
        noise_stddev: of the noise on each count, in the steps in which it is counted.
        threshold: words that occur and are not public yet are counted, and those whose noisy count is at least this come out. None:
            the words that are public by now are counted, and all of them come out.
        resolution: steps of the weight 1, of which the words of a unit get floor(resolution / sqrt(their number)) each; None: every
            word of a unit counts one.
    """

    max_words: int
    noise_stddev: float
    threshold: int | None
    resolution: int | None = None


@functools.singledispatch
def word_release(event: object) -> WordRelease:
    """How the release of words with this event is run. A new event of this sort registers its own: ``@word_release.register``.

    Raises:
        UsageError: it is not known how words are released under this event, and what is not known is not run.
    """
    raise UsageError(f"no words are released under the event {type(event).__qualname__}: it does not say how")


@word_release.register
def _histogram(event: ThresholdedHistogram) -> WordRelease:
    if event.noise != "discrete-gaussian":
        raise UsageError(f"words get integer noise, and this histogram's law is that of noise {event.noise!r}")
    return WordRelease(event.max_words, event.noise_stddev, int(event.threshold))


@word_release.register
def _weighted(event: WeightedHistogram) -> WordRelease:
    return WordRelease(event.max_words, event.noise_stddev, int(event.threshold), event.resolution)


@word_release.register
def _counts(event: WordCounts) -> WordRelease:
    return WordRelease(event.max_words, event.noise_stddev, None)
