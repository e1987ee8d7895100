"""Privacy loss random variables in closed form: what one output tells an attacker, and how often.

P is the law of the output on one dataset, Q its law on a neighbour. The privacy loss of an output t is
L = ln(P(t) / Q(t)), and t is drawn from P (Dinur and Nissim 2003; Dwork and Rothblum 2016). Two functions of L are
easily confused:

    tail(e)  = P[L > e]                        the probability of an output that is worse than e
    delta(e) = E[max(0, 1 - exp(e - L))]       the hockey-stick divergence of order exp(e)

A mechanism is (epsilon, delta)-DP exactly when delta(epsilon) <= delta for every ordered pair of neighbours. Since
delta(e) <= tail(e), a small tail is enough; it is not necessary: a Gaussian mechanism with mu = 1 is (4.377, 1e-5)-DP
and has tail(4.377) = 5.3e-5. Courses and papers often call the two conditions equivalent; only one direction holds.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special

from tacit.errors import UsageError
from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.checks import require_delta, require_finite, require_positive, require_whole

__all__ = [
    "DiscreteLoss",
    "ExponentialLoss",
    "GaussianLoss",
    "LaplaceLoss",
    "PrivacyLoss",
    "hockey_stick",
    "smallest",
]


def smallest(is_enough: Callable[[float], bool], low: float, high: float) -> float:
    """The smallest float in (low, high] that is enough, for a condition that stays true once it is true at ``high``."""
    while low < (middle := low + (high - low) / 2) < high:
        low, high = (low, middle) if is_enough(middle) else (middle, high)
    return high


def hockey_stick(losses: np.ndarray, probabilities: np.ndarray, epsilon: float) -> float:
    """E[max(0, 1 - exp(epsilon - L))] of a loss with these values (infinite ones too) and probabilities, both [K]."""
    above = losses > epsilon
    return float(probabilities[above] @ -np.expm1(epsilon - losses[above]))


class PrivacyLoss(abc.ABC):
    """The law of L = ln(P(t) / Q(t)) for t drawn from P, in nats. Every ``epsilon`` may be any finite number."""

    @abc.abstractmethod
    def sample(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """``n`` independent losses, float64 [n]."""

    @abc.abstractmethod
    def mean(self) -> float:
        """E[L], the Kullback-Leibler divergence of P from Q."""

    @abc.abstractmethod
    def tail(self, epsilon: float) -> float:
        """P[L > epsilon]. At least `delta`, and not the delta of differential privacy."""

    def two_sided_tail(self, epsilon: float) -> float:
        """P[|L| > epsilon], the form in which courses bound the loss; at least `tail`, so enough for delta and not necessary."""
        require_finite("epsilon", epsilon)
        below = max(0.0, 1 - self.tail(float(np.nextafter(-epsilon, -math.inf))))  # P[L <= the float below -epsilon]
        return min(1.0, self.tail(epsilon) + below) if epsilon >= 0 else 1.0

    @abc.abstractmethod
    def delta(self, epsilon: float) -> float:
        """The hockey-stick divergence: the smallest delta with P(S) <= exp(epsilon) Q(S) + delta for every event S."""

    @abc.abstractmethod
    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 whose `delta` is at most ``delta``; infinite if there is none."""


@dataclass(frozen=True)
class GaussianLoss(PrivacyLoss):
    """N(0, 1) against N(mu, 1): the loss is itself normal, with mean mu^2 / 2 and variance mu^2 (Balle and Wang 2018).

    Args:
        mu: l2 sensitivity over the noise's standard deviation.
    """

    mu: float

    def __post_init__(self) -> None:
        require_positive("mu", self.mu)

    def at(self, outputs: np.ndarray) -> np.ndarray:
        """The loss of these outputs t, ln(P(t) / Q(t)), where the noise has standard deviation 1, P mean 0 and Q mean mu."""
        return self.mu**2 / 2 - self.mu * np.asarray(outputs, dtype=float)

    def sample(self, n: int, generator: np.random.Generator) -> np.ndarray:
        return generator.normal(self.mean(), self.mu, size=n)

    def mean(self) -> float:
        return self.mu**2 / 2

    def tail(self, epsilon: float) -> float:
        require_finite("epsilon", epsilon)
        return float(special.ndtr(self.mu / 2 - epsilon / self.mu))

    def delta(self, epsilon: float) -> float:
        require_finite("epsilon", epsilon)
        return float(gaussian_delta(epsilon, self.mu))

    def epsilon(self, delta: float) -> float:
        require_delta(delta)
        if self.delta(0.0) <= delta:
            return 0.0
        # Chernoff: delta(e) <= tail(e) <= exp(-(e - mu^2/2)^2 / (2 mu^2)), so the answer is below `enough`.
        enough = self.mean() + self.mu * math.sqrt(-2 * math.log(delta))
        return smallest(lambda epsilon: self.delta(epsilon) <= delta, 0.0, enough)


@dataclass(frozen=True)
class LaplaceLoss(PrivacyLoss):
    """Laplace(0, 1) against Laplace(pure_epsilon, 1).

    L = |x - epsilon| - |x| = clip(epsilon - 2x, -epsilon, epsilon): half of the mass sits exactly at +epsilon,
    exp(-epsilon) / 2 at -epsilon, and between them the density is exp((l - epsilon) / 2) / 4. With noise on several
    coordinates this pair is the worst one of its l1 sensitivity: moving one coordinate after the other is a group of
    steps, and for log-concave noise the group privacy of Dong, Roth and Su 2022 is the curve of one long step.

    Args:
        pure_epsilon: l1 sensitivity over the noise's scale.
    """

    pure_epsilon: float

    def __post_init__(self) -> None:
        require_positive("pure_epsilon", self.pure_epsilon)

    def at(self, outputs: np.ndarray) -> np.ndarray:
        """The loss of these outputs t, ln(P(t) / Q(t)), where the noise has scale 1, P mean 0 and Q mean ``pure_epsilon``."""
        bound = self.pure_epsilon
        return np.clip(bound - 2 * np.asarray(outputs, dtype=float), -bound, bound)

    def sample(self, n: int, generator: np.random.Generator) -> np.ndarray:
        return self.at(generator.laplace(size=n))

    def mean(self) -> float:
        return self.pure_epsilon + math.expm1(-self.pure_epsilon)

    def tail(self, epsilon: float) -> float:
        require_finite("epsilon", epsilon)
        if epsilon >= self.pure_epsilon:
            return 0.0
        if epsilon < -self.pure_epsilon:
            return 1.0
        return 1 - math.exp((epsilon - self.pure_epsilon) / 2) / 2

    def delta(self, epsilon: float) -> float:
        require_finite("epsilon", epsilon)
        if epsilon >= self.pure_epsilon:
            return 0.0
        return -math.expm1(min((epsilon - self.pure_epsilon) / 2, epsilon))

    def epsilon(self, delta: float) -> float:
        require_delta(delta)
        return max(0.0, self.pure_epsilon + 2 * math.log1p(-delta))


@dataclass(frozen=True)
class ExponentialLoss(PrivacyLoss):
    """The tightest single law that bounds every pair of neighbours of the exponential mechanism.

    For one pair the losses span at most epsilon, so the worst pairs have two outputs with losses t and
    t - epsilon for some t in [0, epsilon] (Dong, Durfee and Rogers 2020). The maximum of their hockey-sticks over t is

        delta(e) = (1 - exp((e - epsilon) / 2))^2 / (1 - exp(-epsilon)),   -epsilon <= e <= epsilon,

    which is the hockey-stick of a loss with density proportional to exp(l / 2) on [-epsilon, epsilon]. `delta` and
    `epsilon` are exact for the mechanism, since two candidates attain every t; `tail` and `mean` are those of this
    dominating law (Zhu, Dong and Wang 2022), which no single pair of neighbours has.

    Args:
        pure_epsilon: the mechanism's pure budget.
    """

    pure_epsilon: float

    def __post_init__(self) -> None:
        require_positive("pure_epsilon", self.pure_epsilon)

    def _tilt(self) -> float:
        return -math.expm1(-self.pure_epsilon)

    def sample(self, n: int, generator: np.random.Generator) -> np.ndarray:
        bound = self.pure_epsilon
        return np.maximum(bound + 2 * np.log1p(-generator.random(n) * self._tilt()), -bound)

    def mean(self) -> float:
        return self.pure_epsilon - 2 + 2 * self.pure_epsilon * math.exp(-self.pure_epsilon) / self._tilt()

    def tail(self, epsilon: float) -> float:
        require_finite("epsilon", epsilon)
        inside = min(max(epsilon, -self.pure_epsilon), self.pure_epsilon)
        return -math.expm1((inside - self.pure_epsilon) / 2) / self._tilt()

    def delta(self, epsilon: float) -> float:
        require_finite("epsilon", epsilon)
        if epsilon >= self.pure_epsilon:
            return 0.0
        if epsilon <= -self.pure_epsilon:
            return -math.expm1(epsilon)
        return math.expm1((epsilon - self.pure_epsilon) / 2) ** 2 / self._tilt()

    def epsilon(self, delta: float) -> float:
        require_delta(delta)
        root = math.sqrt(delta * self._tilt())
        return max(0.0, self.pure_epsilon + 2 * math.log1p(-root))


@dataclass(frozen=True)
class DiscreteLoss(PrivacyLoss):
    """A loss with finitely many values; an infinite one is an output that the neighbour never gives.

    It is one ordered pair (P, Q): differential privacy also needs the pair (Q, P).

    Args:
        losses: the values [K], in nats; ``math.inf`` is allowed.
        probabilities: their probabilities under P [K]; they sum to 1.

    Raises:
        UsageError: lengths differ, a number is not one, the probabilities do not sum to 1, or no pair has these losses:
            E[exp(-L)] is the mass of Q where P has some, so it cannot exceed 1.
    """

    losses: tuple[float, ...]
    probabilities: tuple[float, ...]

    def __post_init__(self) -> None:
        losses, probabilities = self._arrays()
        if losses.ndim != 1 or losses.shape != probabilities.shape or losses.size == 0:
            raise UsageError("losses and probabilities must be two lists of one length, at least 1")
        if np.isnan(losses).any() or np.isneginf(losses).any():
            raise UsageError("a loss is NaN or minus infinity; it must be a number or infinity")
        _check_law(probabilities, "probabilities")
        normal = probabilities >= np.finfo(float).tiny  # below it a float holds too few digits to check anything
        with np.errstate(over="ignore"):
            if np.exp(-losses[normal]) @ probabilities[normal] > 1 + 1e-9:
                raise UsageError("these losses belong to no pair of laws: the mean of exp(-loss) is above 1")

    @classmethod
    def of_pair(cls, p: Sequence[float] | np.ndarray, q: Sequence[float] | np.ndarray) -> DiscreteLoss:
        """The loss of two laws on the same outcomes, [K] each; infinite where ``q`` is 0 and ``p`` is not."""
        p_array, q_array = np.asarray(p, dtype=float), np.asarray(q, dtype=float)
        if p_array.ndim != 1 or p_array.shape != q_array.shape or p_array.size == 0:
            raise UsageError("p and q must be two lists of one length, at least 1")
        _check_law(p_array, "p")
        _check_law(q_array, "q")
        seen = p_array > 0
        p_array, q_array = p_array[seen], q_array[seen]
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            ratio = p_array / q_array
            # The ratio is the more accurate form, the difference the one that survives subnormal probabilities.
            losses = np.where(np.isfinite(ratio) & (ratio > 0), np.log(ratio), np.log(p_array) - np.log(q_array))
        return cls(tuple(losses.tolist()), tuple(p_array.tolist()))

    @classmethod
    def randomized_response(cls, pure_epsilon: float, buckets: int = 2) -> DiscreteLoss:
        """Losses +epsilon (the true answer), -epsilon (the neighbour's) and, above two buckets, 0 (the others)."""
        require_positive("pure_epsilon", pure_epsilon)
        require_whole("buckets", buckets, 2)
        odds = math.exp(-pure_epsilon)
        keep = 1 / (1 + (buckets - 1) * odds)
        losses, probabilities = (pure_epsilon, -pure_epsilon), (keep, odds * keep)
        if buckets == 2:
            return cls(losses, probabilities)
        return cls((*losses, 0.0), (*probabilities, (buckets - 2) * odds * keep))

    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        return np.asarray(self.losses, dtype=float), np.asarray(self.probabilities, dtype=float)

    def sample(self, n: int, generator: np.random.Generator) -> np.ndarray:
        losses, probabilities = self._arrays()
        return generator.choice(losses, size=n, p=probabilities / probabilities.sum())

    def mean(self) -> float:
        losses, probabilities = self._arrays()
        seen = probabilities > 0
        return float(losses[seen] @ probabilities[seen])

    def tail(self, epsilon: float) -> float:
        require_finite("epsilon", epsilon)
        losses, probabilities = self._arrays()
        return float(probabilities[losses > epsilon].sum())

    def delta(self, epsilon: float) -> float:
        require_finite("epsilon", epsilon)
        return hockey_stick(*self._arrays(), epsilon)

    def epsilon(self, delta: float) -> float:
        # By Neyman and Pearson delta(e) = max over k of P_k - exp(e) Q_k, with P_k and Q_k the masses of the k
        # outputs of largest loss; so e is enough when exp(e) >= (P_k - delta) / Q_k for every k.
        require_delta(delta)
        losses, probabilities = self._arrays()
        order = np.argsort(-losses)
        excess = np.cumsum(probabilities[order]) - delta
        with np.errstate(divide="ignore"):
            log_q = np.logaddexp.accumulate(np.log(probabilities[order]) - losses[order])
            return max(0.0, float(np.max(np.log(excess[excess > 0]) - log_q[excess > 0], initial=0.0)))


def _check_law(probabilities: np.ndarray, name: str) -> None:
    if not (np.all(probabilities >= 0) and abs(probabilities.sum() - 1) <= 1e-9):
        raise UsageError(f"{name} must be numbers of at least 0 that sum to 1")
