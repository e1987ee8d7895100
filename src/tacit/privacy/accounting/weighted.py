"""The law of a choice of words by a weighted histogram, in one round or several (docs/vocabulary.md has the proofs).

Mechanism: a unit with k countable words, k <= K, adds the integer w_k = floor(G / sqrt(k)) to the weight of each, so what it adds
has norm at most G, the ``resolution``. Each word that occurs gets discrete Gaussian noise of parameter s, and is released with its
noisy weight when that reaches the threshold t.

One unit, j of whose k words other units have too and m = k - j only it has. A new word stays hidden with probability
p_k = P[w_k + X < t], all of them with p_k^m; given that, the two corpora differ by a Gaussian mechanism whose squared distance is
x = j w_k^2 / G^2, in units of G. With leak = -m ln p_k and H_x the hockey-stick of that mechanism,

    unit removed:  delta(e) = 1 - exp(-leak) + exp(-leak) H_x(e + leak)
    unit added:    delta(e) = H_x(e - leak)

Both grow with x and with leak, so only the pairs (x, leak) count that no other pair exceeds in both (`frontier`). Under replacement
a unit with (x, leak) goes and another comes, whose best place is taken separately in x and in leak: squared distance 1 + x, shift
leak - L, L the largest leak of all.

Integer noise: discrete Gaussian noise of parameter s is, up to a factor 1 +- 1e-33 a word, Gaussian noise of variance s^2 - 4 that
is then rounded at random, without looking at the data (lemma 1). So H_x is at most the Gaussian one at that variance, whatever the
weights are. The tail is bounded by its integral (lemma 2).

Several rounds: which words are countable, and so (x, leak), depends on what earlier rounds released. Each round therefore enters
with the largest delta(e) over all its neighbours, at every e: the hockey-stick of one pair, which all dominate (lemma 3).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special

from tacit.errors import UsageError
from tacit.privacy.accounting.discrete_gaussian import refuse_tiny_noise
from tacit.privacy.accounting.falling import as_delta
from tacit.privacy.accounting.histogram import (
    Case,
    cases,
    discrete_gaussian_delta,
    gaussian_delta,
    log_hidden_probability,
)
from tacit.privacy.events.base import Relation, check_relation
from tacit.privacy.events.words import Choice, ThresholdedHistogram, WeightedHistogram, WordCounts, unit_weight

__all__ = [
    "choice_cases",
    "effective_stddev",
    "frontier",
    "integer_noise",
    "largest_distance",
    "largest_leak",
    "line_of_cases",
    "weighted_cases",
    "weighted_delta",
    "worst_case_pld",
]

_ROUNDING_VARIANCE = 4.0
"""Variance of the random rounding of lemma 1: the error 2 exp(-2 pi^2 4) is 1e-34."""

_FINE = 30.0
"""From this noise on, a histogram's own discrete law is that of lemma 1 to a quarter of a percent."""

_DOTS = 2001
_MOST_CASES = 64


def effective_stddev(event: WeightedHistogram | WordCounts) -> float:
    """Standard deviation of a Gaussian mechanism that the integer noise is a function of (lemma 1)."""
    return math.sqrt(event.noise_stddev**2 - _ROUNDING_VARIANCE)


def integer_noise(stddev: float) -> float:
    """The inverse of `effective_stddev`, in steps; at least what an event takes."""
    return max(3.0, math.sqrt(stddev**2 + _ROUNDING_VARIANCE))


def _log_shown(event: WeightedHistogram, weight: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Upper bound of ln P[weight + X >= threshold] (lemma 2): the integral from half a step below, or a step near the middle."""
    steps = (event.threshold - weight).astype(float)
    start = np.where(steps - 0.5 >= event.noise_stddev, steps - 0.5, steps - 1)
    return special.log_ndtr(-start / event.noise_stddev)


@functools.lru_cache(maxsize=64)
def frontier(event: WeightedHistogram) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(squared distances, leaks) of the neighbours that no other one exceeds in both: distances fall, leaks rise."""
    k = np.arange(1, event.max_words + 1)
    weight, leak_of_one = _weights(event.resolution, event.max_words), _leaks_of_one(event)
    shared = np.concatenate([np.arange(words, -1, -1) for words in k])
    of = np.repeat(k - 1, k + 1)
    squares = shared * (weight[of] / event.resolution) ** 2
    leaks = (k[of] - shared) * leak_of_one[of]
    order = np.lexsort((-leaks, -squares))
    squares, leaks = squares[order], leaks[order]
    earlier = np.concatenate([[-1.0], np.maximum.accumulate(leaks)[:-1]])
    kept = leaks > earlier
    return squares[kept], leaks[kept]


def largest_distance(event: Choice) -> float:
    """The largest squared distance of the counts of neighbouring corpora, nothing new being shown, when a unit goes."""
    return float(frontier(event)[0][0]) if isinstance(event, WeightedHistogram) else float(event.max_words)


def largest_leak(event: Choice) -> float:
    """-ln of the least probability that everything which only one unit has stays hidden."""
    if isinstance(event, WeightedHistogram):
        return float(np.max(np.arange(1, event.max_words + 1) * _leaks_of_one(event)))
    return -event.max_words * log_hidden_probability(_thresholded(event))


def _thresholded(event: Choice) -> ThresholdedHistogram:
    """The other choice that has a law here; what is not known is refused."""
    if not isinstance(event, ThresholdedHistogram):
        raise UsageError(f"{type(event).__qualname__} is no choice of words that an accountant knows")
    return event


def _leaks_of_one(event: WeightedHistogram) -> npt.NDArray[np.float64]:
    """-ln p_k for a unit of k = 1, ..., K words."""
    return -np.log1p(-np.exp(_log_shown(event, _weights(event.resolution, event.max_words))))


@functools.lru_cache(maxsize=16)
def _weights(resolution: int, most: int) -> npt.NDArray[np.int64]:
    return np.array([unit_weight(resolution, words) for words in range(1, most + 1)])


def weighted_cases(event: WeightedHistogram, relation: Relation) -> list[Case]:
    """Every neighbour that the guarantee is the maximum of; ``words`` is the squared distance in units of the resolution."""
    check_relation(relation)
    squares, leaks = frontier(event)
    return _cases(squares.tolist(), leaks.tolist(), relation)


def _cases(squares: Sequence[float], leaks: Sequence[float], relation: Relation) -> list[Case]:
    rows: list[Case] = []
    for square, leak in zip(squares, leaks, strict=True):
        mass = -math.expm1(-leak)
        if relation == "replace":
            rows.append(Case(squares[0] + square, mass, leak - leaks[-1]))
        else:
            rows.append(Case(square, mass, leak))
            rows.append(Case(square, 0.0, -leak))
    return rows


def line_of_cases(leak: float, relation: Relation, steps: int = 64) -> list[Case]:
    """Neighbours of a choice whose largest leak is this: distance x and leak (1 - x) L, for x from 1 down to 0."""
    new = np.linspace(0.0, 1.0, steps + 1)
    return _cases((1 - new).tolist(), (new * leak).tolist(), relation)


def choice_cases(event: Choice, relation: Relation) -> list[Case]:
    """The neighbours of either kind of choice."""
    return (
        weighted_cases(event, relation)
        if isinstance(event, WeightedHistogram)
        else cases(_thresholded(event), relation)
    )


def weighted_delta(event: WeightedHistogram, epsilon: float, relation: Relation = "add-or-remove") -> float:
    """The smallest delta of one round alone that this law gives; ``math.inf`` gives the mass of the tail, 1 - exp(-L)."""
    if math.isinf(epsilon):
        return -math.expm1(-largest_leak(event))
    neighbours = _Neighbours(weighted_cases(event, relation), _gaussian_part(event))
    return float(neighbours.delta(np.array([epsilon]))[0])


@dataclass(frozen=True)
class _Neighbours:
    """Cases, and the hockey-stick of the Gaussian part at a squared distance."""

    rows: Sequence[Case]
    gaussian_part: Callable[[npt.NDArray[np.float64], float], npt.NDArray[np.float64]]

    def delta(self, epsilons: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The largest delta over the neighbours, at each epsilon."""
        found = np.zeros(len(epsilons))
        for row in self.rows:
            hidden = 1 - row.infinite_mass
            found = np.maximum(found, row.infinite_mass + hidden * self.gaussian_part(epsilons + row.shift, row.words))
        _ = as_delta(float(found.max(initial=0.0)))  # NaN is the maximum of what has one
        return found


@functools.lru_cache(maxsize=64)
def worst_case_pld(event: Choice, relation: Relation, grid: float) -> pld.PrivacyLossDistribution:
    """One loss distribution that dominates every neighbour of one round, whatever was released before (lemma 3).

    Its hockey-stick is the largest delta over the neighbours, joined by chords between 2,001 places on the grid (Doroshenko et al.
    2022): never below the truth.

    Raises:
        UsageError: as `refuse_tiny_noise`.
    """
    rows = _few_cases(event, relation)
    distance = max(math.sqrt(row.words) for row in rows)
    refuse_tiny_noise(distance, event.noise_stddev / (event.resolution if isinstance(event, WeightedHistogram) else 1))
    mu = distance / _real_stddev(event)
    reach = mu**2 / 2 + 9.5 * mu + max(abs(row.shift) for row in rows)
    dots = np.unique(np.round(np.linspace(-reach, reach, _DOTS) / grid).astype(int))

    def pmf(chosen: Sequence[Case]) -> pld_pmf.PLDPmf:
        deltas = _Neighbours(chosen, _gaussian_part(event)).delta(dots * grid)
        return pld_pmf.create_pmf_pessimistic_connect_dots(grid, dots, np.minimum.accumulate(np.minimum(deltas, 1.0)))

    if relation == "replace":
        return pld.PrivacyLossDistribution(pmf(rows))
    return pld.PrivacyLossDistribution(pmf(rows[::2]), pmf(rows[1::2]))  # a unit goes, a unit comes


def _real_stddev(event: Choice) -> float:
    """Noise, in units of the weight 1, of a Gaussian mechanism that the counts' noise is a function of."""
    if isinstance(event, WeightedHistogram):
        return effective_stddev(event) / event.resolution
    return math.sqrt(event.noise_stddev**2 - _ROUNDING_VARIANCE) if event.has_integer_noise else event.noise_stddev


def _gaussian_part(event: Choice) -> Callable[[npt.NDArray[np.float64], float], npt.NDArray[np.float64]]:
    if not isinstance(event, WeightedHistogram) and event.has_integer_noise and event.noise_stddev < _FINE:
        return lambda epsilons, words: discrete_gaussian_delta(epsilons, int(words), event.noise_stddev)
    stddev = _real_stddev(event)
    return lambda epsilons, words: gaussian_delta(epsilons, math.sqrt(words) / stddev)


def _few_cases(event: Choice, relation: Relation) -> list[Case]:
    """Neighbours that dominate all others, not too many, by turns of a unit that goes and one that comes.

    Neighbours of a similar leak are taken together, with the largest distance and the largest leak among them.
    """
    squares, leaks = _distances(event)
    if len(leaks) > _MOST_CASES:
        bins = np.ceil(leaks * (_MOST_CASES / leaks[-1])) if leaks[-1] > 0 else np.zeros(len(leaks))
        starts = np.flatnonzero(np.diff(bins, prepend=-1.0))
        squares, leaks = squares[starts], leaks[np.append(starts[1:], len(bins)) - 1]
    return _cases(squares.tolist(), leaks.tolist(), relation)


def _distances(event: Choice) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(squared distances, leaks) of either kind of choice, as in `frontier`."""
    if isinstance(event, WeightedHistogram):
        return frontier(event)
    new = np.arange(event.max_words + 1.0)
    return event.max_words - new, new * (largest_leak(event) / event.max_words)
