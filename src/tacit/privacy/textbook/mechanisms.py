"""The textbook mechanisms with their exact privacy: Laplace, Gaussian, exponential, randomized response.

Each is a frozen dataclass that adds its own randomness (`release`) and knows its exact hockey-stick curve (`delta`,
`epsilon`) and its privacy loss (`privacy_loss`). They are for single releases, teaching and tests; the engine's
training noise and the vocabulary's histogram have their own code and events.

The guarantee holds for real-number noise. `release` draws double-precision floats, whose grid can leak the input to a
determined reader (Mironov 2012); do not publish the raw floats of `Laplace` or `Gaussian` where that attack matters.
A sensitivity is the caller's claim: it must hold for every pair of neighbouring datasets, not just for those at hand.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike

from tacit.errors import RefusedError, UsageError
from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.checks import require_delta, require_positive, require_whole
from tacit.privacy.textbook.loss import (
    DiscreteLoss,
    ExponentialLoss,
    GaussianLoss,
    LaplaceLoss,
    PrivacyLoss,
    smallest,
)

__all__ = [
    "MECHANISMS",
    "Exponential",
    "Gaussian",
    "Laplace",
    "Mechanism",
    "RandomizedResponse",
    "basic_composition",
    "group_privacy",
    "l1_sensitivity",
    "l2_sensitivity",
]

Dataset = TypeVar("Dataset")


class Mechanism(abc.ABC):
    """One randomised release with an exact privacy curve, for the worst pair of neighbours in either order."""

    @abc.abstractmethod
    def release(self, values: ArrayLike, generator: np.random.Generator) -> np.ndarray | int:
        """The private output for these values; each call spends the budget once more."""

    @abc.abstractmethod
    def privacy_loss(self) -> PrivacyLoss:
        """The privacy loss random variable of the worst pair of neighbours."""

    def delta(self, epsilon: float) -> float:
        """The smallest delta for which the mechanism is (epsilon, delta)-DP: the exact hockey-stick divergence.

        Args:
            epsilon: a finite number of at least 0; 0 gives the total variation distance.
        """
        _require_epsilon(epsilon)
        return self.privacy_loss().delta(epsilon)

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon >= 0 for which the mechanism is (epsilon, delta)-DP; ``delta`` is in (0, 1)."""
        return self.privacy_loss().epsilon(delta)


def _require_epsilon(epsilon: float) -> None:
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise UsageError(f"epsilon is {epsilon!r}; it must be a finite number of at least 0")


def _finite(values: ArrayLike) -> np.ndarray:
    array = np.asarray(values, dtype=float)
    if not np.isfinite(array).all():
        raise UsageError("a value to release is NaN or infinite; no noise can hide it, so clip the values first")
    return array


@dataclass(frozen=True)
class Laplace(Mechanism):
    """Adds Laplace noise to every value: pure l1_sensitivity / scale (Dwork, McSherry, Nissim and Smith 2006).

    Args:
        scale: b in the density exp(-|x| / b) / (2b); the standard deviation is sqrt(2) b.
        l1_sensitivity: largest l1 distance between the values on neighbouring datasets.
    """

    scale: float
    l1_sensitivity: float

    def __post_init__(self) -> None:
        require_positive("scale", self.scale)
        require_positive("l1_sensitivity", self.l1_sensitivity)

    @classmethod
    def calibrate(cls, epsilon: float, l1_sensitivity: float) -> Laplace:
        """The Laplace mechanism that is exactly (epsilon, 0)-DP."""
        require_positive("epsilon", epsilon)
        require_positive("l1_sensitivity", l1_sensitivity)
        scale = l1_sensitivity / epsilon
        # Half of the losses sit exactly on the bound, so rounding must not pass it.
        while l1_sensitivity / scale > epsilon:
            scale = math.nextafter(scale, math.inf)
        return cls(scale, l1_sensitivity)

    def release(self, values: ArrayLike, generator: np.random.Generator) -> np.ndarray:
        """The values plus independent noise, float64 of the same shape."""
        array = _finite(values)
        return np.asarray(array + generator.laplace(0.0, self.scale, size=array.shape))

    def privacy_loss(self) -> LaplaceLoss:
        return LaplaceLoss(self.l1_sensitivity / self.scale)


@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Adds Gaussian noise to every value (Dwork and Roth 2014; exact curve: Balle and Wang 2018, theorem 8).

    Args:
        noise_stddev: standard deviation of the noise on each value.
        l2_sensitivity: largest l2 distance between the values on neighbouring datasets.
    """

    noise_stddev: float
    l2_sensitivity: float

    def __post_init__(self) -> None:
        require_positive("noise_stddev", self.noise_stddev)
        require_positive("l2_sensitivity", self.l2_sensitivity)

    @classmethod
    def classic(cls, epsilon: float, delta: float, l2_sensitivity: float) -> Gaussian:
        """Noise of sqrt(2 ln(1.25 / delta)) l2_sensitivity / epsilon: the textbook formula, right and wasteful.

        Raises:
            RefusedError: ``classic-gaussian-epsilon`` for epsilon >= 1, where the formula is not proved, and for large
                epsilon false (Balle and Wang 2018, section 2).
        """
        _require_budget(epsilon, delta, l2_sensitivity)
        if epsilon >= 1:
            raise RefusedError(
                "classic-gaussian-epsilon",
                f"the classic Gaussian formula holds for epsilon below 1, not {epsilon}; use Gaussian.analytic",
            )
        return cls(math.sqrt(2 * math.log(1.25 / delta)) * l2_sensitivity / epsilon, l2_sensitivity)

    @classmethod
    def analytic(cls, epsilon: float, delta: float, l2_sensitivity: float) -> Gaussian:
        """The smallest noise that is (epsilon, delta)-DP, for any epsilon (Balle and Wang 2018); use this one."""
        _require_budget(epsilon, delta, l2_sensitivity)

        def is_enough(noise_stddev: float) -> bool:
            return bool(gaussian_delta(epsilon, l2_sensitivity / noise_stddev) <= delta)

        enough = l2_sensitivity
        while not is_enough(enough):
            enough *= 2
        return cls(smallest(is_enough, 0.0, enough), l2_sensitivity)

    def release(self, values: ArrayLike, generator: np.random.Generator) -> np.ndarray:
        """The values plus independent noise, float64 of the same shape."""
        array = _finite(values)
        return np.asarray(array + generator.normal(0.0, self.noise_stddev, size=array.shape))

    def privacy_loss(self) -> GaussianLoss:
        return GaussianLoss(self.l2_sensitivity / self.noise_stddev)


def _require_budget(epsilon: float, delta: float, l2_sensitivity: float) -> None:
    require_positive("epsilon", epsilon)
    require_delta(delta)
    require_positive("l2_sensitivity", l2_sensitivity)


@dataclass(frozen=True)
class Exponential(Mechanism):
    """Picks a candidate with probability proportional to exp(pure_epsilon * utility / (2 utility_sensitivity)).

    McSherry and Talwar 2007, in the form of Dwork and Roth 2014, definition 3.4.
    The curve is the worst case over all candidates and utilities: see `tacit.privacy.textbook.loss.ExponentialLoss`.

    Args:
        pure_epsilon: the mechanism is (pure_epsilon, 0)-DP.
        utility_sensitivity: largest change of one candidate's utility between neighbouring datasets.
    """

    pure_epsilon: float
    utility_sensitivity: float

    def __post_init__(self) -> None:
        require_positive("pure_epsilon", self.pure_epsilon)
        require_positive("utility_sensitivity", self.utility_sensitivity)

    def _log_weights(self, utilities: ArrayLike) -> np.ndarray:
        array = _finite(utilities)
        if array.ndim != 1 or array.size == 0:
            raise UsageError(f"utilities have shape {array.shape}; they must be a list with one number a candidate")
        with np.errstate(over="ignore"):  # a gap beyond the floats is a weight of exactly 0
            return (array - array.max()) * (self.pure_epsilon / self.utility_sensitivity / 2)

    def probabilities(self, utilities: ArrayLike) -> np.ndarray:
        """The probability of each candidate, [candidates]; private, since it is a function of the utilities."""
        weights = np.exp(self._log_weights(utilities))
        return weights / weights.sum()

    def release(self, values: ArrayLike, generator: np.random.Generator) -> int:
        """The index of the chosen candidate; ``values`` are the utilities, [candidates].

        Takes the largest log weight plus Gumbel noise: exactly the law of `probabilities`, and it never overflows.
        """
        log_weights = self._log_weights(values)
        return int(np.argmax(log_weights + generator.gumbel(size=log_weights.shape)))

    def privacy_loss(self) -> ExponentialLoss:
        return ExponentialLoss(self.pure_epsilon)


@dataclass(frozen=True)
class RandomizedResponse(Mechanism):
    """Each answer is kept with probability e^epsilon / (e^epsilon + buckets - 1), else replaced by a uniform other one.

    Local differential privacy (Warner 1965; Kairouz, Bonawitz and Ramage 2016): the unit is one answer, and
    neighbours differ in the value of that answer.

    Args:
        pure_epsilon: each answer is (pure_epsilon, 0)-DP.
        buckets: number of possible answers, 0 to buckets - 1.
    """

    pure_epsilon: float
    buckets: int = 2

    def __post_init__(self) -> None:
        require_positive("pure_epsilon", self.pure_epsilon)
        require_whole("buckets", self.buckets, 2)

    def keep_probability(self) -> float:
        """The probability that an answer is reported as it is."""
        return 1 / (1 + (self.buckets - 1) * math.exp(-self.pure_epsilon))

    def release(self, values: ArrayLike, generator: np.random.Generator) -> np.ndarray:
        """The answers after randomisation, int64 of the same shape."""
        array = np.asarray(values)
        if array.dtype.kind not in "biu" or not np.all((array >= 0) & (array < self.buckets)):
            raise UsageError(f"an answer is not a whole number from 0 to {self.buckets - 1}")
        replaced = generator.random(array.shape) >= self.keep_probability()
        shift = generator.integers(1, self.buckets, size=array.shape)
        return np.asarray((array.astype(np.int64) + np.where(replaced, shift, 0)) % self.buckets)

    def privacy_loss(self) -> DiscreteLoss:
        return DiscreteLoss.randomized_response(self.pure_epsilon, self.buckets)


MECHANISMS: dict[str, type[Mechanism]] = {
    "laplace": Laplace,
    "gaussian": Gaussian,
    "exponential": Exponential,
    "randomized-response": RandomizedResponse,
}


def _largest_distance(
    function: Callable[[Dataset], ArrayLike], pairs: Iterable[tuple[Dataset, Dataset]], order: int
) -> float:
    distances = []
    for one, other in pairs:
        a, b = np.asarray(function(one), dtype=float), np.asarray(function(other), dtype=float)
        if a.shape != b.shape:
            raise UsageError(f"the function gives shape {a.shape} on one neighbour and {b.shape} on the other")
        if not (np.isfinite(a).all() and np.isfinite(b).all()):
            raise UsageError("the function is NaN or infinite on a dataset; its sensitivity has no bound")
        distances.append(float(np.linalg.norm((a - b).ravel(), ord=order)))
    if not distances:
        raise UsageError("there is no pair of neighbours to measure the sensitivity on")
    return max(distances)


def l1_sensitivity(function: Callable[[Dataset], ArrayLike], pairs: Iterable[tuple[Dataset, Dataset]]) -> float:
    """The largest l1 distance of the function's values over these pairs of neighbours.

    A proof only when the pairs are *all* neighbours of a finite domain; on a sample of them it is a lower bound.
    """
    return _largest_distance(function, pairs, 1)


def l2_sensitivity(function: Callable[[Dataset], ArrayLike], pairs: Iterable[tuple[Dataset, Dataset]]) -> float:
    """The largest l2 distance of the function's values over these pairs of neighbours; see `l1_sensitivity`."""
    return _largest_distance(function, pairs, 2)


def _require_guarantee(epsilon: float, delta: float) -> None:
    _require_epsilon(epsilon)
    if not 0 <= delta < 1:
        raise UsageError(f"delta is {delta!r}; it must be at least 0 and below 1")


def basic_composition(budgets: Iterable[tuple[float, float]]) -> tuple[float, float]:
    """(sum of epsilons, sum of deltas) of releases run one after the other, chosen adaptively or not.

    Dwork and Roth 2014, theorem 3.16 and appendix B. Pure releases have delta 0. A sum of deltas of 1 or more is
    given as 1.0: it promises nothing. Loose for many releases; tacit's accountant composes exactly.
    """
    pairs = list(budgets)
    for epsilon, delta in pairs:
        _require_guarantee(epsilon, delta)
    return math.fsum(epsilon for epsilon, _ in pairs), min(1.0, math.fsum(delta for _, delta in pairs))


def group_privacy(epsilon: float, delta: float, k: int) -> tuple[float, float]:
    """What an (epsilon, delta)-DP mechanism promises to k units together: (k epsilon, k exp(epsilon (k - 1)) delta).

    Dwork and Roth 2014, theorem 2.2, for delta = 0; in general k steps from neighbour to neighbour add up to
    (1 + exp(epsilon) + ... + exp(epsilon (k - 1))) delta. A delta of 1 or more is given as 1.0: it promises nothing.
    """
    _require_guarantee(epsilon, delta)
    require_whole("k", k, 1)
    if delta == 0:
        return k * epsilon, 0.0
    if epsilon * (k - 1) + math.log(k * delta) >= 0:
        return k * epsilon, 1.0
    return k * epsilon, k * math.exp(epsilon * (k - 1)) * delta
