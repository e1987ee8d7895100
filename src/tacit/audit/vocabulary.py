"""Do planted words come out of the choice of a vocabulary more often than its law allows?

Words that only the planted units have go through the very counting, noise and threshold of a run, on planted units alone: words are
independent, so what else is in the corpus changes nothing. Of one unit's words a run may show so few (1e-7) that no number of
repetitions sees one. So units are planted in several copies: c copies give a word the weight c w, and it comes out with the
probability P[c w + X >= threshold], which the guarantee rests on. More than that means a broken threshold, noise or bound.

Nothing private is read: the words are keyed random strings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from tacit.errors import UsageError
from tacit.privacy.events import Choice
from tacit.randomness import KeyedRandomness
from tacit.vocabulary.count import count_distinct
from tacit.vocabulary.select import draw_noise, release

__all__ = ["PlantedWords", "allowed_rate", "plant_words", "planted_copies"]

Release = Callable[[Mapping[str, int], npt.NDArray[np.int64], int], dict[str, int]]

_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_CONFIDENCE = 0.999


@dataclass(frozen=True)
class PlantedWords:
    """How often planted words came out.

    Args:
        copies: units that were planted with the same words.
        words: of each of these units.
        trials: words that were planted, over all repetitions; each has its own noise.
        shown: how many of them came out.
        allowed: the probability by the law.
        low: of the rate, by the exact binomial interval (Clopper and Pearson, 99.9 %).
        high: likewise.
        p_value: of at least as many, at the allowed probability.
        least_p_value: of no more than these, likewise: far too few mean that the law is not that of what runs.
    """

    copies: int
    words: int
    trials: int
    shown: int
    allowed: float
    low: float
    high: float
    p_value: float
    least_p_value: float

    @property
    def exceeds(self) -> bool:
        """Whether words come out more often than is allowed, beyond a chance of one in a million."""
        return self.p_value < 1e-6


def allowed_rate(event: Choice, copies: int, words: int) -> float:
    """The probability that a word of so many planted units comes out, by summing the law of the integer noise.

    With noise of many steps the sum is its integral, from half a step below the threshold.
    """
    weight = copies * event.weight_of_word(words)
    steps = math.ceil(event.threshold) - weight
    stddev = event.noise_stddev
    if not event.has_integer_noise:
        return float(special.ndtr(-(event.threshold - weight) / stddev))
    if stddev > 1000:
        return float(special.ndtr(-(steps - 0.5) / stddev))
    reach = math.ceil(40 * stddev) + abs(steps)
    support = np.arange(-reach, reach + 1.0)
    masses = np.exp(-(support**2) / (2 * stddev**2))
    return float(masses[support >= steps].sum() / masses.sum())


def planted_copies(event: Choice, words: int) -> list[int]:
    """Numbers of copies at which a word comes out with a probability of about 1/1000, 1/40 and 1/2, and one."""
    weight = event.weight_of_word(words)
    wanted = (event.threshold - deviations * event.noise_stddev for deviations in (3.0, 2.0, 0.0))
    return sorted({1, *(max(1, math.ceil(steps / weight)) for steps in wanted)})


def plant_words(
    event: Choice,
    copies: int,
    words: int,
    repetitions: int,
    streams: KeyedRandomness,
    mechanism: Release = release,
) -> PlantedWords:
    """Plant units of new words, ``repetitions`` times with other words, and count what comes out.

    Args:
        event: the choice as the run executes it.
        copies: units with the same words.
        words: of a unit, at most ``event.max_words``.
        repetitions: groups of ``copies`` units.
        streams: what the words are drawn from. The noise is the operating system's, as in a run.
        mechanism: what takes weights, noise and threshold to released words; a test gives broken ones.

    Raises:
        UsageError: more words than a unit may count, so that a choice of them would be measured.
    """
    if not 1 <= words <= event.max_words:
        raise UsageError(f"{words} planted words: the mechanism counts from 1 to {event.max_words} of a unit")
    if copies < 1 or repetitions < 1:
        raise UsageError(f"{copies} copies, {repetitions} repetitions: both must be at least 1")
    resolution = event.counts_in_steps_of
    # All at once: a word's fate depends on its own weight and noise alone.
    planted = [_new_words(words, streams.generator("planted words", number)) for number in range(repetitions)]
    units = ((f"{number} {copy}", group) for number, group in enumerate(planted) for copy in range(copies))
    weights = count_distinct(units, event.max_words, streams, resolution=resolution)
    noise = draw_noise(len(weights), event.noise_stddev)
    shown = len(mechanism(weights, noise, int(event.threshold)))
    return _judged(copies, words, repetitions * words, shown, allowed_rate(event, copies, words))


def _new_words(number: int, generator: np.random.Generator) -> frozenset[str]:
    """Words of 16 letters."""
    found: set[str] = set()
    while len(found) < number:
        found.add("".join(_LETTERS[place] for place in generator.integers(0, len(_LETTERS), 16)))
    return frozenset(found)


def _judged(copies: int, words: int, trials: int, shown: int, allowed: float) -> PlantedWords:
    interval = stats.binomtest(shown, trials).proportion_ci(_CONFIDENCE, method="exact")
    return PlantedWords(
        copies=copies,
        words=words,
        trials=trials,
        shown=shown,
        allowed=allowed,
        low=float(interval.low),
        high=float(interval.high),
        p_value=float(stats.binom.sf(shown - 1, trials, allowed)),
        least_p_value=float(stats.binom.cdf(shown, trials, allowed)),
    )
