"""How a release of words is run is read from its event alone, and an event that does not say how is not run."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tacit.errors import UsageError
from tacit.privacy.events import (
    Event,
    Gaussian,
    NonPrivate,
    PoissonGaussian,
    ThresholdedHistogram,
    WeightedHistogram,
    WordCounts,
)
from tacit.privacy.words import WordRelease, word_release


@pytest.mark.parametrize(
    ("event", "how"),
    [
        (ThresholdedHistogram(6.0, 40.0, 16), WordRelease(16, 6.0, 40)),
        (WeightedHistogram(9e4, 400_000, 16, 65_536), WordRelease(16, 9e4, 400_000, 65_536)),
        (WordCounts(7.5, 16), WordRelease(16, 7.5, None)),
    ],
)
def test_bound_noise_and_threshold_are_those_of_the_event(event: Event, how: WordRelease) -> None:
    assert word_release(event) == how
    assert how.threshold is None or isinstance(word_release(event).threshold, int)


@pytest.mark.parametrize("event", [PoissonGaussian(0.1, 1.0), Gaussian(1.0), NonPrivate("all of it")])
def test_an_event_that_does_not_say_how_is_refused(event: Event) -> None:
    with pytest.raises(UsageError, match=f"event {type(event).__name__}: it does not say how"):
        word_release(event)


def test_a_law_of_real_noise_is_not_run_with_integers() -> None:
    with pytest.raises(UsageError, match="integer noise"):
        word_release(ThresholdedHistogram(6.0, 40.0, 16, "gaussian"))


@dataclass(frozen=True)
class Halved:
    """An event of somebody else's file."""

    noise_stddev: float


def test_a_new_event_says_how_in_its_own_file() -> None:
    word_release.register(Halved, lambda event: WordRelease(1, 2 * event.noise_stddev, 5))
    assert word_release(Halved(3.0)) == WordRelease(1, 6.0, 5)
