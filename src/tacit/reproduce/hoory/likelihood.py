"""WordPiece as its papers describe it: of all pairs the one is merged that makes the words likeliest (Schuster and Nakajima 2012; Wu
et al. 2016, whom Hoory et al. follow), where `tacit.vocabulary.wordpiece`, as today's libraries, merges the most frequent.

For the comparison alone: it looks at every pair before each merge.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from tacit.vocabulary.tokenizer import CONTINUATION
from tacit.vocabulary.wordpiece import base_pieces, merge_pair

__all__ = ["train_by_likelihood"]


def train_by_likelihood(counts: Mapping[str, int], size: int, alphabet: str, min_frequency: int = 1) -> list[str]:
    """The vocabulary, as of `train_wordpiece`: merged is the pair that adds most to the likelihood of all words under a model of
    independent pieces, fitted again after the merge; of equal ones the first that was seen.

    >>> train_by_likelihood({"ab": 5, "cb": 5, "xy": 4}, size=17, alphabet="abcxy")[-2:]
    ['xy', 'ab']

    "x" and "y" are always together: their 4 say more than the 5 of "a" with "b", which "c" has as often.

    Args:
        counts: of words, each at least 1.
        size: the most pieces.
        alphabet: all characters of the words are in it.
        min_frequency: pairs that occur less often are not merged.
    """
    pieces = base_pieces(alphabet)
    table = _Table(counts, {piece: number for number, piece in enumerate(pieces)}, size)
    known = set(pieces)
    while len(pieces) < size and (pair := table.best(min_frequency)) is not None:
        piece = pieces[pair[0]] + pieces[pair[1]].removeprefix(CONTINUATION)
        if piece in known:
            table.forget(pair)
            continue
        known.add(piece)
        table.merge(pair, len(pieces))
        pieces.append(piece)
    return pieces


class _Table:
    """Words as lists of piece ids, with the counts of pieces and of pairs of neighbours."""

    def __init__(self, counts: Mapping[str, int], ids: Mapping[str, int], size: int) -> None:
        spelled = sorted(counts)
        self._weights = [counts[word] for word in spelled]
        self._words = [[ids[word[0]], *(ids[CONTINUATION + c] for c in word[1:])] for word in spelled]
        self._count_V = np.zeros(size, dtype=np.int64)
        self._number_of: dict[tuple[int, int], int] = {}
        self._pair_P2 = np.zeros((1024, 2), dtype=np.int64)
        self._count_P = np.zeros(1024, dtype=np.int64)
        self._places: defaultdict[int, list[int]] = defaultdict(list)  # words that hold the pair, or once did
        for number, (symbols, weight) in enumerate(zip(self._words, self._weights, strict=True)):
            self._add(symbols, weight)
            for pair in set(pairwise(symbols)):
                self._places[self._number_of[pair]].append(number)

    def best(self, min_frequency: int) -> tuple[int, int] | None:
        """The pair whose merge adds most to the log-likelihood; None when all are rarer than ``min_frequency``."""
        used = len(self._number_of)
        (frequent,) = np.nonzero(self._count_P[:used] >= max(min_frequency, 1))
        if not len(frequent):
            return None
        together = self._count_P[frequent]
        left, right = self._count_V[self._pair_P2[frequent]].T
        total = self._count_V.sum()
        same = self._pair_P2[frequent, 0] == self._pair_P2[frequent, 1]
        without = np.where(
            same,
            _h(np.maximum(left - 2 * together, 0)) - _h(left),
            _h(left - together) - _h(left) + _h(right - together) - _h(right),
        )
        gain = without + _h(together) - _h(total - together) + _h(total)
        first, second = self._pair_P2[frequent[int(gain.argmax())]]
        return int(first), int(second)

    def forget(self, pair: tuple[int, int]) -> None:
        """Never merge it: what it spells is a piece already."""
        self._count_P[self._number_of[pair]] = np.iinfo(np.int64).min // 2

    def merge(self, pair: tuple[int, int], merged: int) -> None:
        """Write ``merged`` for the pair in all words."""
        for number in dict.fromkeys(self._places.pop(self._number_of[pair])):
            before, weight = self._words[number], self._weights[number]
            after = merge_pair(before, pair, merged)
            if len(after) == len(before):
                continue
            self._words[number] = after
            self._add(before, -weight)
            self._add(after, weight)
            for own in {own for own in pairwise(after) if merged in own}:
                self._places[self._number_of[own]].append(number)

    def _add(self, symbols: list[int], weight: int) -> None:
        for symbol in symbols:
            self._count_V[symbol] += weight
        for pair in pairwise(symbols):
            number = self._number_of.setdefault(pair, len(self._number_of))
            if number == len(self._count_P):
                self._count_P = np.concatenate([self._count_P, np.zeros_like(self._count_P)])
                self._pair_P2 = np.concatenate([self._pair_P2, np.zeros_like(self._pair_P2)])
            self._pair_P2[number] = pair
            self._count_P[number] += weight


def _h(count: np.ndarray) -> np.ndarray:
    """n ln n, 0 for none: log-likelihoods are sums of it."""
    return count * np.log(np.maximum(count, 1))
