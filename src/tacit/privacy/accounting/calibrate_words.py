"""Noise and thresholds for a choice of words in rounds, with noisy counts after it, for one joint budget.

The budget is squared: with mu the sensitivity over noise of a release, the mu^2 of the rounds and of the counts add up to M^2, and
each release gets its share of M^2; a round gets the same share of L, the leak of all rounds (tacit.privacy.accounting.weighted). A
closed form,
in which a unit is the same in every round, says where to look; the accountant that the certificate uses has the last word.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import special

from tacit.errors import BudgetError
from tacit.privacy.accounting import calibrate
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.accounting.solved import kept
from tacit.privacy.accounting.weighted import integer_noise, largest_leak, line_of_cases
from tacit.privacy.checks import require_delta, require_positive
from tacit.privacy.events import Relation, WeightedHistogram, WordCounts
from tacit.privacy.words import WordEvents

__all__ = ["RESOLUTION", "WordEvents", "histogram_and_counts", "weighted_rounds"]

RESOLUTION = 65_536
"""Steps of the weight 1: a unit of 256 words adds 4,096 to each."""

_MOST_NOISE = 1e4
_TAILS = (0.08, 0.2, 0.4, 0.6, 0.8)
"""Shares of delta that the tail of the rounds may have; the one with the lowest last threshold is taken."""

_TRIES = 30


def weighted_rounds(
    target_epsilon: float,
    delta: float,
    max_words: int,
    shares: Sequence[float] = (1.0,),
    counts_share: float = 0.0,
    relation: Relation = "add-or-remove",
) -> WordEvents:
    """Weighted histograms and counts that are jointly (epsilon, delta)-DP, with the lowest threshold in the last round.

    Args:
        target_epsilon: of all rounds and the counts together.
        delta: likewise.
        max_words: the most words of one unit in a round, and in the counts.
        shares: of the rounds, in their order; they are scaled to add up to one.
        counts_share: the share of the counts in the squared budget; 0: no counts.
        relation: the neighbouring relation.

    Raises:
        BudgetError: no noise that a corpus could bear meets the target.
    """
    require_positive("epsilon", target_epsilon)
    require_delta(delta)

    def certified(stored: Any) -> WordEvents | None:
        rounds = tuple(
            WeightedHistogram(noise, threshold, max_words, RESOLUTION) for noise, threshold in stored["rounds"]
        )
        counts = None if stored["counts"] is None else WordCounts(stored["counts"], max_words)
        events = WordEvents(rounds, counts)
        shaped = len(rounds) == len(shares) and (counts is None) == (counts_share == 0)
        return events if shaped and epsilon(events.spends(), delta, relation) <= target_epsilon else None

    return kept(
        repr(("weighted rounds", target_epsilon, delta, max_words, list(shares), counts_share, relation)),
        lambda: _solved_rounds(target_epsilon, delta, max_words, shares, counts_share, relation),
        _to_json,
        certified,
    )


def _to_json(events: WordEvents) -> dict[str, Any]:
    return {
        "rounds": [[event.noise_stddev, event.threshold] for event in events.rounds],
        "counts": None if events.counts is None else events.counts.noise_stddev,
    }


def _solved_rounds(
    target_epsilon: float,
    delta: float,
    max_words: int,
    shares: Sequence[float],
    counts_share: float,
    relation: Relation,
) -> WordEvents:
    parts = tuple(share / sum(shares) for share in shares)
    best: WordEvents | None = None
    for tail in _TAILS:
        wanted = _Wanted(target_epsilon, delta, relation, parts, counts_share, max_words, -math.log1p(-tail * delta))
        found = _with_most_mu(wanted)
        if found is not None and (best is None or found.rounds[-1].threshold < best.rounds[-1].threshold):
            best = found
    if best is None:
        raise BudgetError(f"no vocabulary meets epsilon {target_epsilon:g} at delta {delta:g}: raise the budget")
    return best


def histogram_and_counts(
    target_epsilon: float, delta: float, max_words: int, counts_share: float, relation: Relation = "add-or-remove"
) -> WordEvents:
    """A thresholded histogram, and counts with about this share of the squared budget; without a share, the histogram alone."""
    if counts_share == 0:
        return WordEvents((calibrate.histogram(target_epsilon, delta, max_words, relation),))
    left = 1 - counts_share
    first = calibrate.histogram(target_epsilon * math.sqrt(left), delta * left, max_words, relation)
    mu = 1 / calibrate.gaussian_noise(target_epsilon, delta)
    noise = integer_noise(math.sqrt(max_words) / (mu * math.sqrt(counts_share)))
    while True:
        events = WordEvents((first,), WordCounts(_rounded(noise), max_words))
        if epsilon(events.spends(), delta, relation) <= target_epsilon:
            return events
        noise *= 1.01


@dataclass(frozen=True)
class _Wanted:
    """The target, how it is split, and the leak of all rounds."""

    epsilon: float
    delta: float
    relation: Relation
    parts: tuple[float, ...]
    counts_share: float
    max_words: int
    leak: float

    def events(self, mu: float) -> WordEvents:
        """The events with this mu of all releases together."""
        of_rounds = mu * math.sqrt(1 - self.counts_share)
        rounds = tuple(_round(of_rounds * math.sqrt(part), self.leak * part, self.max_words) for part in self.parts)
        if self.counts_share == 0:
            return WordEvents(rounds)
        noise = integer_noise(math.sqrt(self.max_words) / (mu * math.sqrt(self.counts_share)))
        return WordEvents(rounds, WordCounts(_rounded(noise), self.max_words))

    def closed_form(self, mu: float) -> float:
        """delta when a unit is the same neighbour in every round, which is a little too small for several rounds."""
        rows = line_of_cases(self.leak, self.relation)
        fixed = self.counts_share * (2 if self.relation == "replace" else 1)
        mus = mu * np.sqrt([fixed + (1 - self.counts_share) * row.words for row in rows])
        mass, shift = np.array([row.infinite_mass for row in rows]), np.array([row.shift for row in rows])
        return float(np.max(mass + (1 - mass) * gaussian_delta(self.epsilon + shift, mus)))


def _with_most_mu(wanted: _Wanted) -> WordEvents | None:
    """The events with the least noise, to a few parts in a thousand; None where even the most noise is too little."""
    mu = _largest(lambda mu: wanted.closed_form(mu) <= wanted.delta, 1 / _MOST_NOISE)
    if mu is None:
        return None
    for _ in range(_TRIES):
        events = wanted.events(mu)
        found = epsilon(events.spends(), wanted.delta, wanted.relation)
        if found <= wanted.epsilon:
            return events
        mu *= min(0.999, wanted.epsilon / found) if math.isfinite(found) else 0.9
    return None


def _largest(holds: Callable[[float], bool], low: float) -> float | None:
    """The largest number from ``low`` on at which this holds, to a part in 10,000; None where it does not hold at ``low``."""
    if not holds(low):
        return None
    high = low * 2
    while holds(high) and high < _MOST_NOISE:
        low, high = high, high * 2
    while high / low > 1.0001:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _round(mu: float, leak: float, max_words: int) -> WeightedHistogram:
    """The round with this mu and the lowest threshold that keeps this leak."""
    noise = float(math.ceil(integer_noise(RESOLUTION / mu)))
    low, high = RESOLUTION, RESOLUTION + math.ceil(noise * -special.ndtri(leak / max_words / 100))

    def event(threshold: int) -> WeightedHistogram:
        return WeightedHistogram(noise, threshold, max_words, RESOLUTION)

    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if largest_leak(event(middle)) <= leak else (middle, high)
    return event(high)


def _rounded(noise: float) -> float:
    return math.ceil(noise * 100) / 100
