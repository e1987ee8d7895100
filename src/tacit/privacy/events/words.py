"""Releases of words: two choices of words by a threshold, and counts of words that are public by then."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tacit.errors import RefusedError, UsageError
from tacit.privacy.checks import require_finite, require_positive
from tacit.privacy.events.base import Event, Relation, require
from tacit.privacy.events.gaussian import Gaussian

if TYPE_CHECKING:
    from dp_accounting import DpEvent

__all__ = ["Choice", "ThresholdedHistogram", "WeightedHistogram", "WordCounts", "unit_weight"]

_SMALLEST_INTEGER_NOISE = 3.0
"""In steps of the integers. From here on discrete Gaussian noise is a function of Gaussian noise
(tacit.privacy.accounting.weighted)."""


def unit_weight(resolution: int, words: int) -> int:
    """floor(resolution / sqrt(words)), exactly: what a unit adds to the weight of each of its words."""
    return math.isqrt(resolution * resolution // words)


def _require_integer_noise(noise_stddev: float) -> None:
    require_positive("noise_stddev", noise_stddev)
    if noise_stddev < _SMALLEST_INTEGER_NOISE:
        raise RefusedError("discrete-noise-too-small", "integer noise below 3 steps has no law here")


@dataclass(frozen=True)
class Choice(Event):
    """A release of words which a single unit may have brought: an account takes its law by cases of neighbours.

    Args:
        noise_stddev: standard deviation of the noise on each count or weight, in its own steps.
        threshold: smallest noisy value that is released.
        max_words: the most words of one unit that count.
    """

    noise_stddev: float
    threshold: float
    max_words: int

    @property
    def choice(self) -> Choice:
        return self

    @property
    @abstractmethod
    def counts_in_steps_of(self) -> int | None:
        """Steps of the weight 1 in which a unit's words are weighed; None where each word of a unit counts 1."""

    @property
    @abstractmethod
    def has_integer_noise(self) -> bool:
        """Whether the noise is discrete Gaussian."""

    @abstractmethod
    def weight_of_word(self, words: int) -> int:
        """What a unit of so many words adds to each of them, in steps."""

    def renyi_event(self, relation: Relation) -> DpEvent | None:
        """A Gaussian of the largest distance; what a single unit's words hide is taken from delta (`rdp_epsilon`).

        The discrete Gaussian's Renyi divergence is at most the Gaussian's (Canonne et al. 2020, proposition 5).
        """
        import dp_accounting

        from tacit.privacy.accounting.weighted import largest_distance

        factor, steps = (2 if relation == "replace" else 1), self.counts_in_steps_of or 1
        return dp_accounting.GaussianDpEvent(self.noise_stddev / steps / math.sqrt(factor * largest_distance(self)))

    def planned_numbers(self) -> dict[str, int | float | str]:
        """Noise and threshold in units of the weight 1."""
        noise, threshold, steps = self.noise_stddev, self.threshold, self.counts_in_steps_of
        if steps is not None:
            noise, threshold = round(noise / steps, 4), round(threshold / steps, 4)
        return {"noise_stddev": noise, "threshold": threshold, "max_words": self.max_words}

    def likely_worst(self, relation: Relation) -> Gaussian:
        """The likeliest worst neighbour as one Gaussian, for a search of noise alone: one composition instead of dozens."""
        noise = self.noise_stddev / (self.counts_in_steps_of or math.sqrt(self.max_words))
        return Gaussian(noise * math.sqrt(2 if relation == "replace" else 1))


@dataclass(frozen=True)
class ThresholdedHistogram(Choice):
    """The word histogram of Hoory et al. 2021, section 3.2, under its exact law (tacit.privacy.accounting.histogram).

    A unit adds 1 to at most ``max_words`` counts; words that occur get noise; noisy counts of at least ``threshold`` are
    released.

    Args:
        noise_stddev: standard deviation of the noise on each count (not divided by the sensitivity).
        threshold: smallest noisy count that is released; a whole number for ``discrete-gaussian``.
        max_words: N, the number of distinct words of one unit that count.
        noise: ``gaussian`` (real-valued) or ``discrete-gaussian`` (integers, Canonne et al. 2020).
    """

    noise: Literal["gaussian", "discrete-gaussian"] = "discrete-gaussian"

    def __post_init__(self) -> None:
        require_positive("noise_stddev", self.noise_stddev)
        require_finite("threshold", self.threshold)
        require(self.max_words >= 1, "max_words", self.max_words, "at least 1")
        if self.noise not in ("gaussian", "discrete-gaussian"):
            raise UsageError(f"noise is {self.noise!r}; it must be 'gaussian' or 'discrete-gaussian'")
        if self.noise == "discrete-gaussian":
            # Below 3 the sum of discrete Gaussians is no longer a discrete Gaussian to within 1e-30 (histogram.py).
            if self.noise_stddev < 3:
                raise RefusedError("discrete-noise-too-small", "integer histogram noise below 3 has no exact law here")
            if self.threshold != int(self.threshold):
                raise UsageError(f"threshold is {self.threshold}; integer noise needs a whole number")

    @property
    def title(self) -> str:
        return "thresholded word histogram with integer Gaussian noise"

    @property
    def least_units(self) -> float:
        return self.threshold

    @property
    def counts_in_steps_of(self) -> None:
        return None

    @property
    def has_integer_noise(self) -> bool:
        return self.noise == "discrete-gaussian"

    def weight_of_word(self, words: int) -> int:
        return 1


@dataclass(frozen=True)
class WeightedHistogram(Choice):
    """One choice of words by a weighted histogram, under its law (tacit.privacy.accounting.weighted; docs/vocabulary.md).

    A unit with k countable words, at most ``max_words``, adds floor(resolution / sqrt(k)) to the weight of each, so that what it
    adds has norm at most ``resolution``. Words that occur get integer (discrete Gaussian) noise; those whose noisy weight is at
    least ``threshold`` are released with it. Which words are countable may depend on what was released before.

    Args:
        noise_stddev: of the noise on each weight, in steps.
        threshold: smallest noisy weight that is released, in steps; above the largest weight of one unit, which is ``resolution``.
        max_words: the most words of one unit that count.
        resolution: steps of the weight 1.
    """

    threshold: int
    resolution: int

    def __post_init__(self) -> None:
        _require_integer_noise(self.noise_stddev)
        require_finite("threshold", self.threshold)
        require(self.max_words >= 1, "max_words", self.max_words, "at least 1")
        require(self.resolution**2 >= self.max_words, "resolution", self.resolution, "at least sqrt(max_words)")
        require(self.threshold == int(self.threshold), "threshold", self.threshold, "a whole number")
        require(self.threshold > self.resolution, "threshold", self.threshold, f"above resolution, {self.resolution}")

    @property
    def title(self) -> str:
        return "choice of words by weight, integer Gaussian noise, threshold"

    @property
    def counts_in_steps_of(self) -> int:
        return self.resolution

    @property
    def has_integer_noise(self) -> bool:
        return True

    @property
    def least_units(self) -> float:
        """How many units with all of ``max_words`` words are needed; those of fewer words weigh more."""
        return self.threshold / self.resolution * math.sqrt(self.max_words)

    def weight_of_word(self, words: int) -> int:
        return unit_weight(self.resolution, words)


@dataclass(frozen=True)
class WordCounts(Event):
    """Noisy counts of words that are public by now: integer (discrete Gaussian) noise, no threshold.

    A unit adds 1 to the counts of at most ``max_words`` of them.

    Args:
        noise_stddev: of the noise on each count.
        max_words: the most counts that one unit moves.
    """

    noise_stddev: float
    max_words: int

    def __post_init__(self) -> None:
        _require_integer_noise(self.noise_stddev)
        require(self.max_words >= 1, "max_words", self.max_words, "at least 1")

    @property
    def title(self) -> str:
        return "counts of the chosen words, integer Gaussian noise"

    def gaussian_mu(self, count: int, relation: Relation, pessimistic: bool) -> float:
        """Two units' words differ in at most 2 max_words places. A lower estimate takes the noise as it is, and no smaller."""
        from tacit.privacy.accounting.weighted import effective_stddev

        sensitivity = math.sqrt((2 if relation == "replace" else 1) * self.max_words)
        stddev = effective_stddev(self) if pessimistic else self.noise_stddev
        return math.sqrt(count) * sensitivity / stddev

    def renyi_event(self, relation: Relation) -> DpEvent | None:
        import dp_accounting

        factor = 2 if relation == "replace" else 1
        return dp_accounting.GaussianDpEvent(self.noise_stddev / math.sqrt(factor * float(self.max_words)))
