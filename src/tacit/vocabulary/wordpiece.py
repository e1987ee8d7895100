"""WordPiece pieces from word counts alone: deterministic byte-pair merges over characters.

The rule is that of ``tokenizers.trainers.WordPieceTrainer``: start from the characters, and again and again join the
pair of neighbouring pieces that occurs most often. We cannot use that trainer: it takes text, so counts would have to
be written out word by word; it sums pair counts in 32-bit integers; and it breaks ties by the ids of the ``##``
characters, which it numbers in the order of a randomly seeded hash table, so that two runs can give two vocabularies.
Here equal counts give equal vocabularies, and every character of the public alphabet is a piece whether or not it
occurs.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from tacit.errors import UsageError
from tacit.vocabulary.tokenizer import CONTINUATION, SPECIAL_TOKENS

__all__ = ["base_pieces", "merge_pair", "train_wordpiece"]

Pair = tuple[int, int]


def train_wordpiece(
    counts: Mapping[str, int],
    size: int,
    alphabet: str,
    special_tokens: Sequence[str] = SPECIAL_TOKENS,
    min_frequency: int = 1,
) -> list[str]:
    """The vocabulary, a piece's id being its place in the list.

    First the ``base_pieces``; then, until there are ``size`` pieces, the concatenation of the pair with the largest
    count (the sum of the counts of the words in which it stands, once for each place), pairs of equal counts in
    ascending order of (id of the left piece, id of the right one). It ends early when no pair reaches
    ``min_frequency``. As in ``tokenizers``, a merge that spells a piece which is already there (a special token, or
    "##a" as the beginning of a word) adds none.

    >>> train_wordpiece({"aab": 2, "ab": 3}, size=10, alphabet="ab", special_tokens=["[UNK]"])
    ['[UNK]', 'a', 'b', '##a', '##b', 'ab', 'aa', 'aab']

    "a" + "##b" has 3; then "a" + "##a", ids (1, 3), and "##a" + "##b", ids (3, 4), have 2 each: the smaller ids come
    first. "aa" + "##b" has 2 and is a whole word; nothing is left, so there are 8 pieces and not 10.

    Args:
        counts: released noisy counts, each at least 1. Only these are read: the result is post-processing.
        size: the most pieces.
        alphabet: public; all characters of the words are in it.
        special_tokens: the first pieces.
        min_frequency: pairs that occur less often are not merged.

    Raises:
        ValueError: a count is below 1, or a word has a character outside the alphabet.
        UsageError: ``size`` does not hold the base pieces.
    """
    _check_counts(counts, alphabet)
    pieces = base_pieces(alphabet, special_tokens)
    if size < len(pieces):
        raise UsageError(f"a vocabulary of {size} does not hold the {len(pieces)} special tokens and characters")
    ids = {piece: number for number, piece in enumerate(pieces)}
    table = _PairTable(counts, ids)
    while len(pieces) < size and (pair := table.best(min_frequency)) is not None:
        piece = pieces[pair[0]] + pieces[pair[1]].removeprefix(CONTINUATION)
        if piece not in ids:
            ids[piece] = len(pieces)
            pieces.append(piece)
        table.merge(pair, ids[piece])
    return pieces


def base_pieces(alphabet: str, special_tokens: Sequence[str] = SPECIAL_TOKENS) -> list[str]:
    """The pieces that every vocabulary holds: special tokens, characters, characters with the ``##`` prefix.

    >>> base_pieces("ba", ["[UNK]"])
    ['[UNK]', 'a', 'b', '##a', '##b']
    """
    characters = sorted(set(alphabet))
    return [*special_tokens, *characters, *(CONTINUATION + character for character in characters)]


def merge_pair(symbols: list[int], pair: Pair, merged: int) -> list[int]:
    """Replace each occurrence of the pair, from the left and without overlap, by ``merged``.

    >>> merge_pair([5, 6, 6, 6, 7], (6, 6), 9)
    [5, 9, 6, 7]
    """
    left, right = pair
    result: list[int] = []
    place = 0
    while place < len(symbols):
        if symbols[place] == left and symbols[place + 1 : place + 2] == [right]:
            result.append(merged)
            place += 2
        else:
            result.append(symbols[place])
            place += 1
    return result


class _PairTable:
    """Words as lists of piece ids, and the count of every pair of neighbours, kept up to date through merges.

    The heap is corrected lazily: it holds, for each pair, at least one entry that is not below the pair's present
    count, so an entry that comes out with the present count belongs to the largest.
    """

    def __init__(self, counts: Mapping[str, int], ids: Mapping[str, int]) -> None:
        spelled = sorted(counts)
        self._weights = [counts[word] for word in spelled]
        self._words = [[ids[word[0]], *(ids[CONTINUATION + c] for c in word[1:])] for word in spelled]
        self._counts: defaultdict[Pair, int] = defaultdict(int)
        self._places: defaultdict[Pair, list[int]] = defaultdict(list)  # words that hold the pair, or once did
        for number, (symbols, weight) in enumerate(zip(self._words, self._weights, strict=True)):
            for pair in pairwise(symbols):
                self._counts[pair] += weight
                self._places[pair].append(number)
        self._heap = [(-count, pair) for pair, count in self._counts.items()]
        heapq.heapify(self._heap)

    def best(self, min_frequency: int) -> Pair | None:
        """The pair with the largest count, the smallest of these; None when it is below ``min_frequency`` or 1."""
        while self._heap:
            negative, pair = heapq.heappop(self._heap)
            count = self._counts[pair]
            if count == -negative:
                return pair if count >= max(min_frequency, 1) else None
            if count > 0:
                heapq.heappush(self._heap, (-count, pair))
        return None

    def merge(self, pair: Pair, merged: int) -> None:
        """Write ``merged`` for the pair in all words."""
        grown: set[Pair] = set()
        for number in self._places.pop(pair):
            before = self._words[number]
            after = merge_pair(before, pair, merged)
            if len(after) == len(before):
                continue
            self._words[number] = after
            weight = self._weights[number]
            for neighbours in pairwise(before):
                self._counts[neighbours] -= weight
            for neighbours in pairwise(after):
                self._counts[neighbours] += weight
                if merged in neighbours:
                    self._places[neighbours].append(number)
                    grown.add(neighbours)
        for neighbours in grown:
            heapq.heappush(self._heap, (-self._counts[neighbours], neighbours))


def _check_counts(counts: Mapping[str, int], alphabet: str) -> None:
    if any(count < 1 for count in counts.values()):
        raise ValueError("a count below 1 cannot be trained on; release with a threshold of at least 1")
    characters = frozenset(alphabet)
    if not all(word and characters.issuperset(word) for word in counts):
        raise ValueError("a word is empty or has a character outside the alphabet; count with the same alphabet")
