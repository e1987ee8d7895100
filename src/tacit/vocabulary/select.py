"""The private release of a vocabulary: integer noise on the counts of words that occur, and a threshold.

The noise and its use are two functions, because a run keeps the noise before it combines it with the counts: a run that
is killed and started again must repeat the release that it may already have shown, not draw a second one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from tacit.vocabulary.tally import SortedCounts

__all__ = ["draw_noise", "noise_blocks", "noisy_counts", "release"]

_BLOCK = 1 << 16


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
    blocks = noise_blocks(count, noise_stddev)
    noise = np.empty(count, dtype=np.int64)
    for start, block in zip(range(0, count, _BLOCK), blocks, strict=True):
        noise[start : start + _BLOCK] = block
    return noise


def noise_blocks(count: int, noise_stddev: float) -> Iterator[npt.NDArray[np.int64]]:
    """The draws of `draw_noise` a block at a time, for more words than the memory should hold noise of.

    Raises:
        ValueError: at the call, as `draw_noise`.
    """
    if count < 0:
        raise ValueError(f"cannot draw {count} values")
    if not math.isfinite(noise_stddev) or noise_stddev < 0:
        raise ValueError(f"noise_stddev must be finite and at least 0, not {noise_stddev}")
    sizes = (
        min(_BLOCK, count - start) for start in range(0, count, _BLOCK)
    )  # a list of Python's integers is five times as large
    if noise_stddev == 0:
        return (np.zeros(size, dtype=np.int64) for size in sizes)
    # only here: it takes longer to import than the rest of a command that draws nothing; also where there is no word, so that none
    # decides whether it can be imported
    from opendp.domains import atom_domain, vector_domain
    from opendp.measurements import make_gaussian
    from opendp.metrics import l2_distance
    from opendp.mod import enable_features

    enable_features("contrib")
    integers = vector_domain(atom_domain(T="i64"))
    add_noise = make_gaussian(integers, l2_distance(T="f64"), scale=float(noise_stddev))
    return (np.array(add_noise([0] * size), dtype=np.int64) for size in sizes)


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


def release(counts: Mapping[str, int] | SortedCounts, noise: npt.NDArray[np.int64], threshold: int) -> dict[str, int]:
    """The words whose noisy count reaches the threshold, with their noisy counts (Hoory et al. 2021, section 3.2).

    The words are taken in the order of their code points and the i-th gets ``noise[i]``, so the result does not depend
    on the order of ``counts``. Its own order, from the largest noisy count down and then by word, is a function of what
    is released and tells nothing more.

    >>> release({"cough": 7, "fever": 9, "zoster": 1}, np.array([1, -2, 0]), threshold=5)
    {'cough': 8, 'fever': 7}

    Args:
        counts: from ``count_words`` or ``sorted_word_counts``: every word that occurs, each count at least 1.
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
    in_order = counts if isinstance(counts, SortedCounts) else SortedCounts.of(counts)
    kept: list[tuple[str, int]] = []
    for (word, count), extra in zip(in_order, _integers(noise), strict=True):
        if count < 1:
            raise ValueError("a word that does not occur (count below 1) is among the counts; take it out")
        if count + extra >= threshold:
            kept.append((word, count + extra))
    return dict(sorted(kept, key=lambda item: (-item[1], item[0])))


def _integers(noise: npt.NDArray[np.int64]) -> Iterator[int]:
    """The values as Python's integers, whose sums cannot wrap around; a block at a time, for they are large."""
    for start in range(0, len(noise), _BLOCK):
        yield from noise[start : start + _BLOCK].tolist()
