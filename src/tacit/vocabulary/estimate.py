"""Counts for WordPiece from what was released: noisy counts, noisy weights, public counts. Post-processing: it reads nothing else.

At a small budget the noise on a count is as large as most counts: taken as they are, the counts of a long public word list would
put many words at the top that never occur. So each word has an expected count, and is moved from there towards its noisy count as
far as the noise allows (empirical Bayes, after Efron and Morris 1973):

- a public word: a multiple of a power of its public count, fitted to the noisy counts;
- a word that was chosen: its noisy weight, times the factor that fits the noisy counts of the words of its round best.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["ChosenWords", "estimate_counts", "weights_as_counts"]

_EXPONENTS = tuple(step / 20 for step in range(31))
"""0 is a list without counts."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ChosenWords:
    """What a round released: noisy weights by word, and the standard deviation of their noise, in the same steps."""

    weights: Mapping[str, int]
    noise_stddev: float


def estimate_counts(
    noisy: Mapping[str, int], noise_stddev: float, public: Mapping[str, int], rounds: Sequence[ChosenWords]
) -> dict[str, int]:
    """A count of at least 1 for every word.

    Args:
        noisy: the released counts; the words are the public ones and those of the rounds. They may be negative.
        noise_stddev: of these counts.
        public: counts in public text.
        rounds: what each round released.
    """
    found = dict(_of_public(noisy, noise_stddev, public))
    for chosen in rounds:
        found |= _of_chosen(noisy, noise_stddev, chosen)
    return {word: max(1, round(found[word])) for word in noisy}


def weights_as_counts(rounds: Sequence[ChosenWords], resolution: int) -> dict[str, int]:
    """Where no counts were released: each word's noisy weight, in whole units of the weight 1, and at least 1.

    >>> weights_as_counts([ChosenWords({"fever": 70_000, "cough": 200_000}, 9e4)], 65_536)
    {'fever': 1, 'cough': 3}

    Args:
        rounds: what each round released.
        resolution: steps of the weight 1.
    """
    return {word: max(1, round(weight / resolution)) for chosen in rounds for word, weight in chosen.weights.items()}


def _of_public(noisy: Mapping[str, int], noise_stddev: float, public: Mapping[str, int]) -> dict[str, float]:
    if not public:
        return {}
    words = sorted(public, key=lambda word: (-public[word], word))
    seen = np.array([noisy[word] for word in words], dtype=float)
    expected = _fitted_power(np.array([public[word] for word in words], dtype=float), seen)
    squares = float(np.sum((seen - expected) ** 2 - noise_stddev**2))
    # How far counts lie from what is expected, relative to it, once the noise is taken off; at least a tenth.
    spread = math.sqrt(max(squares / max(float(np.sum(expected**2)), 1.0), 0.01))
    return dict(zip(words, _between(expected, spread * expected, seen, noise_stddev).tolist(), strict=True))


def _fitted_power(public: Floats, seen: Floats) -> Floats:
    """The multiple of a power of the public counts that is nearest to the noisy counts, whose noise has mean 0."""
    relative = public / public.max()
    curves = [relative**exponent for exponent in _EXPONENTS]
    fits = [max(float(seen @ curve / (curve @ curve)), 0.0) * curve for curve in curves]
    return min(fits, key=lambda fit: float(np.sum((seen - fit) ** 2)))


def _of_chosen(noisy: Mapping[str, int], noise_stddev: float, chosen: ChosenWords) -> dict[str, float]:
    words = list(chosen.weights)
    if not words:
        return {}
    seen = np.array([noisy[word] for word in words], dtype=float)
    weights = np.array([chosen.weights[word] for word in words], dtype=float)
    factor = max(float(seen @ weights / (weights @ weights)), 0.0)
    expected = factor * weights
    spread = np.full(len(words), factor * chosen.noise_stddev)
    return dict(zip(words, _between(expected, spread, seen, noise_stddev).tolist(), strict=True))


def _between(expected: Floats, spread: Floats, seen: Floats, noise_stddev: float) -> Floats:
    trust = spread**2 / (spread**2 + noise_stddev**2)
    return expected + trust * (seen - expected)
