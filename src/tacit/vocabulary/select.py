"""The private release of a vocabulary: integer noise on the counts of words that occur, and a threshold.

The noise and its use are two functions, because a run keeps the noise before it combines it with the counts: a run that
is killed and started again must repeat the release that it may already have shown, not draw a second one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from opendp.domains import atom_domain, vector_domain
from opendp.measurements import make_gaussian
from opendp.metrics import l2_distance
from opendp.mod import enable_features

__all__ = ["draw_noise", "noisy_counts", "release"]


def draw_noise(count: int, noise_stddev: float) -> npt.NDArray[np.int64]:
    """``count`` independent draws of discrete Gaussian noise from OpenDP, about 13 microseconds each.

    The probability of the integer k is proportional to exp(-k^2 / (2 noise_stddev^2)) (Canonne, Kamath, Steinke 2020).
    It is sampled exactly, in rational arithmetic, with the operating system's randomness: it cannot be drawn again, so
    keep it.

    Args:
        count: how many draws, one for each word that occurs.
        noise_stddev: the scale, in units of the count; 0 gives zeros.

    Raises:
        ValueError: ``count`` is negative, or ``noise_stddev`` is negative or not finite.
    """
    if count < 0:
        raise ValueError(f"cannot draw {count} values")
    if not math.isfinite(noise_stddev) or noise_stddev < 0:
        raise ValueError(f"noise_stddev must be finite and at least 0, not {noise_stddev}")
    if count == 0 or noise_stddev == 0:
        return np.zeros(count, dtype=np.int64)
    enable_features("contrib")
    integers = vector_domain(atom_domain(T="i64"))
    add_noise = make_gaussian(integers, l2_distance(T="f64"), scale=float(noise_stddev))
    return np.array(add_noise([0] * count), dtype=np.int64)


def noisy_counts(words: Sequence[str], counts: Mapping[str, int], noise: npt.NDArray[np.int64]) -> dict[str, int]:
    """Counts of words that are public already, with noise: the i-th of ``words`` gets ``noise[i]``, and none is left out.

    >>> noisy_counts(["cough", "fever"], {"fever": 9}, np.array([-2, 1]))
    {'cough': -2, 'fever': 10}

    Args:
        words: in an order that does not depend on the counts.
        counts: of the words that occur.
        noise: one integer for each word, from ``draw_noise``.

    Raises:
        ValueError: another number of noise values than words, noise that is not integer, or counts of other words.
    """
    if noise.shape != (len(words),) or not np.issubdtype(noise.dtype, np.integer):
        raise ValueError(
            f"{len(words)} words need as many whole noise values, not {noise.dtype} of shape {noise.shape}"
        )
    if not counts.keys() <= set(words):
        raise ValueError("there are counts of words that are not public")
    return {word: counts.get(word, 0) + extra for word, extra in zip(words, noise.tolist(), strict=True)}


def release(counts: Mapping[str, int], noise: npt.NDArray[np.int64], threshold: int) -> dict[str, int]:
    """The words whose noisy count reaches the threshold, with their noisy counts (Hoory et al. 2021, section 3.2).

    The words are taken in the order of their code points and the i-th gets ``noise[i]``, so the result does not depend
    on the order of ``counts``. Its own order, from the largest noisy count down and then by word, is a function of what
    is released and tells nothing more.

    >>> release({"cough": 7, "fever": 9, "zoster": 1}, np.array([1, -2, 0]), threshold=5)
    {'cough': 8, 'fever': 7}

    Args:
        counts: from ``count_words``: every word that occurs, each count at least 1.
        noise: one integer for each word, from ``draw_noise``.
        threshold: the least noisy count that is released; at least 1 if the counts go into ``train_wordpiece``.

    Raises:
        ValueError: another number of noise values than words, noise that is not integer, or a count below 1: the law of
            the release holds for noise on words that occur.
    """
    if noise.shape != (len(counts),):
        raise ValueError(f"{len(counts)} words need as many noise values, not an array of shape {noise.shape}")
    if not np.issubdtype(noise.dtype, np.integer):
        raise ValueError(f"the noise must be integer, not {noise.dtype}")
    if any(count < 1 for count in counts.values()):
        raise ValueError("a word that does not occur (count below 1) is among the counts; take it out")
    # Python integers: a sum in int64 could wrap around.
    noisy = ((word, counts[word] + extra) for word, extra in zip(sorted(counts), noise.tolist(), strict=True))
    kept = [(word, count) for word, count in noisy if count >= threshold]
    return dict(sorted(kept, key=lambda item: (-item[1], item[0])))
