"""The exact law of the thresholded Gaussian histogram (Hoory et al. 2021, section 3.2, corrected).

Mechanism: a unit adds 1 to the counts of at most N distinct words; each word that occurs gets noise of standard deviation
s; the words whose noisy count reaches the threshold are released with it.

Take a unit with j words that other units have too and m = N - j words that only it has. p is the probability that a count
of 1 stays below the threshold. With the unit, all its m new words stay hidden with probability p^m; given that, the two
corpora differ by a Gaussian mechanism of sensitivity sqrt(j). So, with H_j the hockey-stick of that Gaussian mechanism
(composed with whatever else ran, such as training),

    unit removed:  delta(e) = 1 - p^m + p^m H_j(e - m ln p)
    unit added:    delta(e) = H_j(e + m ln p)

and the guarantee is the maximum over j = 0..N. The paper's corollary 1 misses a sqrt(2) in erf: see `hoory_claim`.

Under replacement one unit leaves with m1 new words and another enters with m2: delta(e) = 1 - p^m1 + p^m1 H(e - (m1 - m2) ln p)
with sensitivity sqrt(2N - m1 - m2). We bound it over m2 by taking the best m2 in each place separately: shift for m2 = N,
sensitivity for m2 = 0. That costs at most N |ln p| in epsilon, about the mass of the tail.

Integer noise: the sum of j discrete Gaussians of parameter s is a discrete Gaussian of parameter s sqrt(j) up to a factor
exp(+-10 N exp(-pi^2 s^2)) (Canonne, Kamath and Steinke 2020, section 5): below 1e-35 for s >= 3, under double precision, and
smaller s is refused. So H_j is the hockey-stick of one discrete Gaussian with sensitivity j and parameter s sqrt(j).
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy import special

from tacit.errors import UsageError
from tacit.privacy.events.base import Relation, check_relation
from tacit.privacy.events.words import ThresholdedHistogram

__all__ = [
    "Case",
    "HooryClaim",
    "cases",
    "discrete_gaussian_delta",
    "gaussian_delta",
    "histogram_delta",
    "histogram_epsilon",
    "hoory_claim",
    "log_hidden_probability",
]


def gaussian_delta(epsilon: float | np.ndarray, mu: float | np.ndarray) -> np.ndarray:
    """H(e, mu) = Phi(mu/2 - e/mu) - exp(e) Phi(-mu/2 - e/mu): the hockey-stick of a Gaussian mechanism (Balle & Wang 2018).

    ``mu`` is sensitivity over standard deviation; mu = 0 gives max(0, 1 - exp(e)). Any real epsilon.
    """
    epsilon = np.asarray(epsilon, dtype=float)
    mu = np.asarray(mu, dtype=float)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratio = epsilon / mu
        upper = special.log_ndtr(mu / 2 - ratio)
        lower = epsilon + special.log_ndtr(-mu / 2 - ratio)
        # exp(upper) - exp(lower), without cancellation to a negative
        value = np.where(lower < upper, -np.expm1(np.minimum(lower - upper, 0.0)) * np.exp(upper), 0.0)
    return np.where(mu > 0, value, np.maximum(0.0, -np.expm1(np.minimum(epsilon, 0.0))))


def discrete_gaussian_delta(epsilons: np.ndarray, words: int, noise_stddev: float) -> np.ndarray:
    """The hockey-stick of integer noise of parameter s on ``words`` counts that differ by one: of their sum (see the text above)."""
    if words == 0:
        return np.maximum(0.0, -np.expm1(np.minimum(epsilons, 0.0)))
    stddev = noise_stddev * math.sqrt(words)
    reach = math.ceil(40 * stddev) + words
    masses = np.exp(-(np.arange(-reach, reach + 1.0) ** 2) / (2 * stddev**2))
    tail = np.append(np.cumsum(masses[::-1])[::-1], 0.0) / masses.sum()  # tail[i] = P[X >= i - reach]
    first = np.floor(epsilons * noise_stddev**2 + words / 2) + 1  # where the likelihood ratio exceeds exp(epsilon)
    with_unit, without = (tail[np.clip(first - shift + reach, 0, 2 * reach + 1).astype(int)] for shift in (words, 0))
    with np.errstate(divide="ignore"):  # where the tail is 0 nothing is taken off, however large exp(epsilon) is
        taken = np.exp(np.minimum(0.0, epsilons + np.log(without)))
    return np.maximum(0.0, with_unit - taken)


@functools.lru_cache(maxsize=64)
def _discrete_log_tail(noise_stddev: float, at_least: int) -> float:
    """ln P[X >= at_least] for a discrete Gaussian X with P[X = x] proportional to exp(-x^2 / (2 s^2))."""
    reach = math.ceil(45 * noise_stddev) + abs(at_least) + 2
    support = np.arange(-reach, reach + 1, dtype=float)
    exponents = -(support**2) / (2 * noise_stddev**2)
    return float(special.logsumexp(exponents[support >= at_least]) - special.logsumexp(exponents))


def log_hidden_probability(event: ThresholdedHistogram) -> float:
    """ln p: p is the probability that a word which one unit alone has stays below the threshold."""
    if event.noise == "gaussian":
        return float(special.log_ndtr((event.threshold - 1) / event.noise_stddev))
    log_shown = _discrete_log_tail(event.noise_stddev, int(event.threshold) - 1)
    return float(np.log1p(-math.exp(log_shown))) if log_shown < 0 else -math.inf


@dataclass(frozen=True)
class Case:
    """One worst-case neighbour: delta(e) = infinite_mass + (1 - infinite_mass) * H(e + shift), H of sensitivity sqrt(words).

    Args:
        words: number of counts that differ by one, given that nothing new is shown; of weighted counts, the squared distance.
        infinite_mass: probability that a word which only the one unit has is released.
        shift: added to epsilon.
    """

    words: float
    infinite_mass: float
    shift: float


def cases(event: ThresholdedHistogram, relation: Relation) -> list[Case]:
    """Every neighbour that the guarantee is the maximum of (see the module's text)."""
    check_relation(relation)
    n = event.max_words
    log_p = log_hidden_probability(event)
    rows: list[Case] = []
    for m in range(n + 1):
        hidden = m * log_p if m else 0.0  # 0 * -inf is not a number
        mass = -math.expm1(hidden)
        if relation == "replace":
            rows.append(Case(2 * n - m, mass, (n - m) * log_p if m < n else 0.0))
        else:
            rows.append(Case(n - m, mass, -hidden))
            rows.append(Case(n - m, 0.0, hidden))
    return rows


def histogram_delta(event: ThresholdedHistogram, epsilon: float, relation: Relation = "add-or-remove") -> float:
    """The smallest delta of the histogram alone at this epsilon, real-valued noise (closed form).

    ``epsilon = math.inf`` gives the smallest delta that this threshold can have: 1 - p^N.
    """
    if math.isinf(epsilon):
        return -math.expm1(event.max_words * log_hidden_probability(event))
    rows = cases(event, relation)
    mass = np.array([row.infinite_mass for row in rows])
    shift = np.array([row.shift for row in rows])
    mu = np.sqrt(np.array([row.words for row in rows])) / event.noise_stddev
    return float(np.max(mass + (1 - mass) * gaussian_delta(epsilon + shift, mu)))


def histogram_epsilon(event: ThresholdedHistogram, delta: float, relation: Relation = "add-or-remove") -> float:
    """The smallest epsilon of the histogram alone at this delta, real-valued noise; infinite when delta < 1 - p^N."""
    if histogram_delta(event, math.inf, relation) > delta:
        return math.inf
    low, high = 0.0, 1.0
    if histogram_delta(event, low, relation) <= delta:
        return 0.0
    while histogram_delta(event, high, relation) > delta:
        high *= 2
        if high > 1e6:
            return math.inf
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if histogram_delta(event, middle, relation) > delta else (low, middle)
    return high


@dataclass(frozen=True)
class HooryClaim:
    """What corollary 1 of Hoory et al. 2021 states, and what is true of it.

    Args:
        threshold: the paper's C = 1 + s erfinv(1 - delta/N).
        claimed_epsilon: sqrt(N)/s sqrt(2 ln(1.25/delta)).
        claimed_delta: the delta that the paper asked for.
        smallest_true_delta: 1 - p^N: no epsilon has a smaller delta at this threshold.
        correct_threshold: the smallest threshold at which 1 - p^N is the claimed delta.
    """

    threshold: float
    claimed_epsilon: float
    claimed_delta: float
    smallest_true_delta: float
    correct_threshold: float


def hoory_claim(noise_stddev: float, max_words: int, delta: float) -> HooryClaim:
    """The paper's formula with the delta that it really has (SOUNDNESS: erf(x) is not Phi(x), a sqrt(2) is missing)."""
    if not 0 < delta < 1.25 * math.exp(-1.5):
        raise UsageError(f"delta is {delta}; corollary 1 needs it above 0 and below 1.25 exp(-3/2)")
    threshold = 1 + noise_stddev * float(special.erfinv(1 - delta / max_words))
    event = ThresholdedHistogram(noise_stddev, threshold, max_words, "gaussian")
    shown = -math.expm1(math.log1p(-delta) / max_words)
    return HooryClaim(
        threshold=threshold,
        claimed_epsilon=math.sqrt(max_words) / noise_stddev * math.sqrt(2 * math.log(1.25 / delta)),
        claimed_delta=delta,
        smallest_true_delta=histogram_delta(event, math.inf),
        correct_threshold=1 - noise_stddev * float(special.ndtri(shown)),
    )
