"""Text that two corpora share. Public text that repeats private text is read without noise, and no ledger can know of it.

Texts are compared by their runs of six words, without case and punctuation: so a text is also found where its names and dates were
replaced, or where half of it was written anew.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

__all__ = ["RunIndex", "Shared", "word_runs"]

_WORD = re.compile(r"\w+")
_RUN = 6  # words: shorter ones are phrases that many texts have


@dataclass(frozen=True)
class Shared:
    """What a text has in common with the text of an index that is likest to it.

    Args:
        text: number of that text, from 0.
        runs: different runs of six words that both have.
        share: of the different runs of the one that has fewer.
    """

    text: int
    runs: int
    share: float


def word_runs(text: str) -> np.ndarray:
    """The different runs of six words of a text (R,), each as a 64-bit number that is good within this process, in order.

    >>> len(word_runs("Chest pain, since the day before YESTERDAY.")), len(word_runs("Chest pain"))
    (2, 0)
    """
    words = _WORD.findall(text.casefold())
    runs = zip(*(words[start:] for start in range(_RUN)), strict=False)  # as many as the last of these lists is long
    return np.unique(np.fromiter(map(hash, runs), np.int64))


class RunIndex:
    """The runs of many texts: 16 bytes for each different run of a text.

    Shapes: R runs of all texts, N texts.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        runs = [word_runs(text) for text in texts]
        self._sizes_N = np.array([len(own) for own in runs], np.int64)
        runs_R = np.concatenate([np.empty(0, np.int64), *runs])
        order = np.argsort(runs_R, kind="stable")
        self._runs_R = runs_R[order]
        self._texts_R = np.repeat(np.arange(len(runs)), self._sizes_N)[order]

    def likest(self, text: str, least: int = 1) -> Shared | None:
        """The text with the largest share of runs in common, of those that have so many; None: there is none.

        Args:
            least: runs in common, so that a text of a few words, all of them in this one, does not stand before a longer one.
        """
        own = word_runs(text)
        first = np.searchsorted(self._runs_R, own, "left")
        last = np.searchsorted(self._runs_R, own, "right")
        there = first < last
        found = [self._texts_R[start:end] for start, end in zip(first[there], last[there], strict=True)]
        if not found:
            return None
        texts, counts = np.unique(np.concatenate(found), return_counts=True)
        texts, counts = texts[counts >= least], counts[counts >= least]
        if not len(texts):
            return None
        shares = counts / np.minimum(self._sizes_N[texts], len(own))
        best = int(np.argmax(shares))
        return Shared(int(texts[best]), int(counts[best]), float(shares[best]))
