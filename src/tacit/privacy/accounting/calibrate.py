"""Noise for a budget: the smallest noise whose certified epsilon meets a target, and never one that misses it.

Each search looks for the place with cheap bounds (a coarse loss grid, Renyi DP), then brackets and bisects with the accountant
that the certificate uses; an answer that fails certification is raised until it passes. What was solved once is looked up
(`tacit.privacy.accounting.solved`), and certified anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from scipy import special

from tacit.errors import BudgetError
from tacit.privacy.accounting.accountant import account_parts, epsilon, joint_epsilon
from tacit.privacy.accounting.composition import Account
from tacit.privacy.accounting.histogram import histogram_delta
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.accounting.solved import kept
from tacit.privacy.checks import require_delta, require_positive
from tacit.privacy.events import (
    SMALLEST_NOISE_MULTIPLIER,
    Choice,
    Gaussian,
    PoissonGaussian,
    Relation,
    Spend,
    ThresholdedHistogram,
)

__all__ = ["gaussian_noise", "histogram", "scaled_noise", "threshold_for", "training_noise"]

_COARSE_GRID = 1e-3
_LARGEST_COUNT_NOISE = 5000.0
_LARGEST_NOISE = 1e6
_SMALLEST_NOISE = SMALLEST_NOISE_MULTIPLIER


def _check_target(target_epsilon: float, delta: float) -> None:
    require_positive("epsilon", target_epsilon)
    require_delta(delta)


def _kept_noise(
    question: str,
    epsilon_of: Callable[[float], float],
    certify: Callable[[float], float],
    target: float,
    least: float = _SMALLEST_NOISE,
) -> float:
    """`_smallest_noise`, or what it found for this question before, if that is certified still."""

    def certified(stored: Any) -> float | None:
        return (
            stored
            if type(stored) is float and least <= stored <= _LARGEST_NOISE and certify(stored) <= target
            else None
        )

    return kept(question, lambda: _smallest_noise(epsilon_of, certify, target, least), float, certified)


def _smallest_noise(
    epsilon_of: Callable[[float], float],
    certify: Callable[[float], float],
    target: float,
    least: float = _SMALLEST_NOISE,
) -> float:
    """The smallest noise with epsilon at most ``target``, to half a percent; ``certify`` has the last word.

    ``epsilon_of`` is cheap and says where to look. It may be far too high (a coarse grid on many steps with a small sampling
    probability) or too low (a stand-in for a histogram), so the certified epsilon is bracketed and bisected again.
    """
    _, near = _bisect(epsilon_of, target, *_bracket(epsilon_of, target, max(1.0, least), 2.0, least), ratio=1.0005)
    _, enough = _bisect(certify, target, *_bracket(certify, target, _round_up(near), 1.004, least), ratio=1.005)
    enough = _round_up(enough)
    while certify(enough) > target:
        enough = _round_up(enough * 1.001)
    return enough


def _bracket(
    epsilon_of: Callable[[float], float], target: float, start: float, factor: float, least: float
) -> tuple[float, float]:
    """(too little noise, enough noise) around ``start``, in steps that grow up to a doubling."""
    low = high = start
    if epsilon_of(start) > target:
        while epsilon_of(high) > target:
            low, high, factor = high, high * factor, min(2.0, factor**2)
            if high > _LARGEST_NOISE:
                raise BudgetError(
                    f"no noise multiplier up to {_LARGEST_NOISE:g} meets epsilon {target:g}: raise the budget"
                )
    else:
        while low > least and epsilon_of(low) <= target:
            low, high, factor = max(low / factor, least), low, min(2.0, factor**2)
    return low, high


def _bisect(
    epsilon_of: Callable[[float], float], target: float, low: float, high: float, ratio: float
) -> tuple[float, float]:
    while high / low > ratio:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if epsilon_of(middle) > target else (low, middle)
    return low, high


def _round_up(noise: float) -> float:
    """Four significant digits, upward: a number that a person can copy."""
    unit = 10.0 ** (math.floor(math.log10(noise)) - 3)
    return math.ceil(noise / unit - 1e-9) * unit if unit >= 1 else math.ceil(noise / unit - 1e-9) / round(1 / unit)


def training_noise(
    target_epsilon: float,
    delta: float,
    schedule: Sequence[tuple[float, int]],
    relation: Relation = "add-or-remove",
    others: Sequence[Spend] = (),
) -> float:
    """The smallest noise multiplier of DP-SGD such that it and ``others`` together meet (epsilon, delta).

    Args:
        target_epsilon: the joint epsilon to meet.
        delta: at this delta.
        schedule: (sampling probability, steps) of each phase; all get the same noise multiplier.
        relation: the neighbouring relation.
        others: what else the same units are used for.

    Raises:
        BudgetError: ``others`` alone exceed the budget.
    """
    _check_target(target_epsilon, delta)
    if others and epsilon(others, delta, relation) >= target_epsilon:
        raise BudgetError(f"the other releases alone use epsilon {target_epsilon:g}: nothing is left for training")

    def training(noise: float) -> list[Spend]:
        return [Spend(PoissonGaussian(probability, noise), steps) for probability, steps in schedule]

    stand_ins = tuple(_stand_in(spend, relation) for spend in others)

    def roughly(noise: float) -> float:
        spends = (*stand_ins, *training(noise))
        coarse = Account(spends, relation, _COARSE_GRID).epsilon(delta)
        renyi = rdp_epsilon(spends, delta, relation)
        return coarse if renyi is None else min(coarse, renyi)

    question = repr(("training noise", target_epsilon, delta, list(schedule), relation, list(others)))
    return _kept_noise(
        question, roughly, lambda noise: epsilon((*others, *training(noise)), delta, relation), target_epsilon
    )


def scaled_noise(
    target_epsilon: float,
    delta: float,
    spends_at: Callable[[float], Sequence[Spend]],
    relation: Relation = "add-or-remove",
    least: float = _SMALLEST_NOISE,
) -> float:
    """The smallest s at which spends that get less private as s falls meet (epsilon, delta), in the worst band or pair of bands.

    Args:
        target_epsilon: the joint epsilon to meet.
        delta: at this delta.
        spends_at: everything that is spent, for an s.
        relation: the neighbouring relation.
        least: the smallest s that ``spends_at`` takes.

    Raises:
        BudgetError: no s meets it.
    """
    _check_target(target_epsilon, delta)

    def roughly(noise: float) -> float:
        stand_ins = [_stand_in(spend, relation) for spend in spends_at(noise)]
        bounds = []
        for part in account_parts(stand_ins, relation):
            coarse, renyi = Account(part, relation, _COARSE_GRID).epsilon(delta), rdp_epsilon(part, delta, relation)
            bounds.append(coarse if renyi is None else min(coarse, renyi))
        return max(bounds, default=0.0)

    two_places = [list(spends_at(max(1.0, least) * factor)) for factor in (1.0, 2.0)]
    return _kept_noise(
        repr(("scaled noise", target_epsilon, delta, two_places, relation, least)),
        roughly,
        lambda noise: joint_epsilon(spends_at(noise), delta, relation),
        target_epsilon,
        least,
    )


def _stand_in(spend: Spend, relation: Relation) -> Spend:
    """A histogram's likeliest worst neighbour as one Gaussian, for the search only: one composition instead of dozens."""
    if not isinstance(spend.event, Choice):
        return spend
    return Spend(spend.event.likely_worst(relation), spend.count, spend.partition)


def gaussian_noise(target_epsilon: float, delta: float, relation: Relation = "add-or-remove") -> float:
    """The smallest noise multiplier of one Gaussian release alone (the analytic calibration of Balle & Wang 2018)."""
    _check_target(target_epsilon, delta)

    def certified(noise: float) -> float:
        return epsilon([Spend(Gaussian(noise))], delta, relation)

    return _smallest_noise(
        lambda noise: Account((Spend(Gaussian(noise)),), relation, _COARSE_GRID).epsilon(delta),
        certified,
        target_epsilon,
    )


def threshold_for(
    noise_stddev: float,
    max_words: int,
    target_epsilon: float,
    delta: float,
    relation: Relation = "add-or-remove",
    noise: str = "gaussian",
) -> float | None:
    """The smallest threshold at which the histogram alone is (epsilon, delta)-DP; None when this noise is too small.

    A whole number for integer noise. ``epsilon = math.inf`` asks only that the tail mass 1 - p^N is at most delta.
    """

    def delta_at(threshold: float) -> float:
        event = ThresholdedHistogram(noise_stddev, threshold, max_words, noise)  # type: ignore[arg-type]
        return histogram_delta(event, target_epsilon, relation)

    _check_target(1.0 if target_epsilon == math.inf else target_epsilon, delta)
    whole = noise == "discrete-gaussian"
    high = math.ceil(1 - noise_stddev * float(special.ndtri(delta * 1e-6 / max_words)))
    if delta_at(high) > delta:
        return None
    low = 0.0
    while high - low > (1 if whole else 1e-6 * high):
        middle = (low + high) // 2 if whole else (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return float(high)


def histogram(
    target_epsilon: float, delta: float, max_words: int, relation: Relation = "add-or-remove"
) -> ThresholdedHistogram:
    """The integer-noise histogram that is (epsilon, delta)-DP alone with the lowest threshold, so that it keeps most words.

    More noise lets less delta go to the counts and more to the tail, but also widens the tail: the lowest threshold lies a
    few percent above the smallest noise that works.
    """
    _check_target(target_epsilon, delta)

    def certified(stored: Any) -> ThresholdedHistogram | None:
        noise, threshold = stored
        event = ThresholdedHistogram(noise, threshold, max_words, "discrete-gaussian")
        return event if epsilon([Spend(event)], delta, relation) <= target_epsilon else None

    return kept(
        repr(("histogram", target_epsilon, delta, max_words, relation)),
        lambda: _solved_histogram(target_epsilon, delta, max_words, relation),
        lambda event: [event.noise_stddev, event.threshold],
        certified,
    )


def _solved_histogram(target_epsilon: float, delta: float, max_words: int, relation: Relation) -> ThresholdedHistogram:
    smallest = _smallest_histogram_noise(target_epsilon, delta, max_words, relation)
    if smallest > _LARGEST_COUNT_NOISE:
        raise BudgetError(
            f"a histogram with epsilon {target_epsilon:g} needs noise of {smallest:.0f} on every count: no corpus that fits "
            "here would release a word; raise the budget or lower max_words"
        )
    best: tuple[float, float] | None = None
    for step in range(41):
        noise = max(3.0, round(smallest * (1 + 0.005 * step), 2))
        threshold = threshold_for(noise, max_words, target_epsilon, delta, relation)
        if threshold is not None and (best is None or threshold < best[0]):
            best = (threshold, noise)
    noise = best[1] if best else smallest
    whole = threshold_for(noise, max_words, target_epsilon, delta, relation, "discrete-gaussian")
    if best is None or whole is None:
        raise BudgetError(
            f"no histogram meets epsilon {target_epsilon:g} at delta {delta:g} with {max_words} words a unit"
        )
    event = ThresholdedHistogram(noise, whole, max_words, "discrete-gaussian")
    # The search used the real-valued closed form for the counts; the integer law, on a grid, has the last word. The steps
    # double, because the grid's rounding is large beside a very small epsilon.
    factor = 1.002
    while epsilon([Spend(event)], delta, relation) > target_epsilon:
        threshold = math.ceil(event.threshold * factor)
        event = ThresholdedHistogram(round(event.noise_stddev * factor, 2) + 0.01, threshold, max_words)
        factor = 1 + 2 * (factor - 1)
    return event


def _smallest_histogram_noise(target_epsilon: float, delta: float, max_words: int, relation: Relation) -> float:
    low, high = 1e-3, 1.0
    while threshold_for(high, max_words, target_epsilon, delta, relation) is None:
        low, high = high, high * 2
    while high / low > 1.0005:
        middle = math.sqrt(low * high)
        low, high = (
            (middle, high)
            if threshold_for(middle, max_words, target_epsilon, delta, relation) is None
            else (low, middle)
        )
    return high
