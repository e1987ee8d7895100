"""Count words so that one privacy unit moves each count by at most one, and at most ``max_words`` counts.

This is the whole sensitivity argument of the private vocabulary (Hoory et al. 2021, section 3.2, with the unit in place
of their 256-word tuple): a unit adds a 0/1 vector with at most ``max_words`` ones, so the counts have L2 sensitivity
``sqrt(max_words)`` when a unit is added or removed; weighted, the vector's norm is at most ``resolution``. It holds because
what a unit adds is a function of the unit, the key and the words that are public by then, never of the other units.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from string import ascii_letters, ascii_lowercase, digits, punctuation

from tacit.errors import DataError
from tacit.privacy.events import unit_weight
from tacit.randomness import KeyedRandomness
from tacit.vocabulary.tally import SortedCounts, Spill, Tally
from tacit.vocabulary.tokenizer import MAX_WORD_LENGTH, TokenizerOptions, normalizer_and_pretokenizer

__all__ = [
    "ContributionBound",
    "choose_words",
    "count_distinct",
    "count_words",
    "count_words_of_texts",
    "distinct_of_units",
    "distinct_words",
    "sorted_word_counts",
]

_CACHED_CHUNKS = 1 << 16
_CACHED_LENGTH = 256  # characters: what is remembered may take no more memory where a text has no spaces
_DIGEST_BYTES = 16
_SEPARATORS = "\n\t\r"
_BLANKS_FOR_SIGNS = bytes.maketrans(*(text.encode() for text in (punctuation + _SEPARATORS, " " * 35)))


def count_words(
    units: Iterable[tuple[str, Sequence[str]]],
    max_words: int,
    streams: KeyedRandomness,
    options: TokenizerOptions,
    *,
    resolution: int | None = None,
    without: AbstractSet[str] = frozenset(),
    only: AbstractSet[str] | None = None,
    ids_differ: bool = False,
) -> dict[str, int]:
    """The number of units in which each word is counted; or, with ``resolution``, the sum of the units' weights of it.

    Per unit: the distinct words of all its texts together; those over the alphabet and of at most ``MAX_WORD_LENGTH``
    characters (a public rule) and are not left out; at most ``max_words`` of them, by ``choose_words``; one for each, or
    floor(``resolution`` / sqrt(their number)).

    Args:
        units: (unit id, texts of the unit); read once, in one pass.
        max_words: the most counts that one unit can move.
        streams: keyed randomness for the choice of words.
        options: the text pipeline.
        resolution: steps of the weight 1 (tacit.privacy.accounting.weighted); None: every word counts one.
        without: words that are public already, and not counted.
        only: count these words and no others.
        ids_differ: whether no two units have one id, as in a store; otherwise all ids are held in memory to see that.

    Returns:
        Word to count; every count is at least 1 and, without weights, at most the number of units. Private.

    Raises:
        DataError: two units have one id (together they would move a count by two), or a text is not valid Unicode.
        ValueError: ``max_words`` is below 1.
    """
    distinct = distinct_of_units(units, options)
    tally = Tally()
    bound = ContributionBound(max_words, streams, resolution, without, only)
    _tally(distinct, bound, tally, ids_differ)
    return tally.in_memory()


def sorted_word_counts(
    units: Iterable[tuple[str, Sequence[str]]],
    bound: ContributionBound,
    options: TokenizerOptions,
    spill: Spill,
    *,
    ids_differ: bool = False,
) -> SortedCounts:
    """The counts of `count_words`, in the order of code points, and on disk where they do not fit in memory.

    Raises:
        DataError: as `count_words`; or the words can be held neither in memory nor on disk.
    """
    tally = Tally(spill)
    _tally(distinct_of_units(units, options), bound, tally, ids_differ)
    return tally.sums()


def count_distinct(
    units: Iterable[tuple[str, AbstractSet[str]]],
    max_words: int,
    streams: KeyedRandomness,
    *,
    resolution: int | None = None,
    without: AbstractSet[str] = frozenset(),
    only: AbstractSet[str] | None = None,
) -> dict[str, int]:
    """The counts of `count_words`, from the distinct words of each unit."""
    tally = Tally()
    _tally(units, ContributionBound(max_words, streams, resolution, without, only), tally)
    return tally.in_memory()


@dataclass(frozen=True)
class ContributionBound:
    """What one unit may add; the arguments are those of `count_words`."""

    max_words: int
    streams: KeyedRandomness
    resolution: int | None = None
    without: AbstractSet[str] = frozenset()
    only: AbstractSet[str] | None = None

    def __post_init__(self) -> None:
        if self.max_words < 1:
            raise ValueError(f"max_words must be at least 1, not {self.max_words}")

    def of(self, unit_id: str, words: AbstractSet[str]) -> tuple[Collection[str], int]:
        """The words of a unit's distinct ones that it moves, and by how much each."""
        countable = words - self.without if self.without else words
        countable = countable if self.only is None else countable & self.only
        chosen = choose_words(unit_id, countable, self.max_words, self.streams)
        if self.resolution is None or not chosen:
            return chosen, 1
        return chosen, unit_weight(self.resolution, len(chosen))


def _tally(
    units: Iterable[tuple[str, AbstractSet[str]]], bound: ContributionBound, tally: Tally, ids_differ: bool = False
) -> None:
    for unit_id, words in units if ids_differ else _refused_twice(units):
        chosen, weight = bound.of(unit_id, words)
        if chosen:
            tally.add(chosen, weight)


def _refused_twice(units: Iterable[tuple[str, AbstractSet[str]]]) -> Iterator[tuple[str, AbstractSet[str]]]:
    seen: set[str] = set()
    for number, (unit_id, words) in enumerate(units, start=1):
        if unit_id in seen:
            raise DataError(f"unit number {number} has the id of an earlier unit; gather the texts of a unit first")
        seen.add(unit_id)
        yield unit_id, words


def distinct_of_units(
    units: Iterable[tuple[str, Sequence[str]]], options: TokenizerOptions
) -> Iterator[tuple[str, set[str]]]:
    """The id and the distinct countable words of each unit.

    Raises:
        DataError: a text is not valid Unicode.
    """
    words_of_texts = _reader(options)
    for number, (unit_id, texts) in enumerate(units, start=1):
        try:
            yield unit_id, words_of_texts(texts)
        except UnicodeEncodeError:
            # `from None`, because that error carries the text.
            raise DataError(
                f"unit number {number} holds a lone surrogate, which is not Unicode text; repair it when reading"
            ) from None


def distinct_words(texts: Sequence[str], options: TokenizerOptions) -> set[str]:
    """The distinct words of a unit that may be counted: over the alphabet, at most ``MAX_WORD_LENGTH`` characters."""
    return _reader(options)(texts)


def count_words_of_texts(texts: Iterable[str], options: TokenizerOptions) -> Counter[str]:
    """How often each countable word stands in texts, in the order in which the words first stand there.

    The library cuts each stretch without spaces once for all of its occurrences among some hundred thousand words.
    """
    in_chunk = _chunk_reader(options)
    counts, chunks = Counter[str](), Counter[str]()
    for text in texts:
        chunks.update(_with_blanks(text).split(" "))
        if len(chunks) > _CACHED_CHUNKS:
            _add_words(counts, chunks, in_chunk)
            chunks.clear()
    _add_words(counts, chunks, in_chunk)
    return counts


def _add_words(counts: Counter[str], chunks: Counter[str], in_chunk: Callable[[str], tuple[str, ...]]) -> None:
    for chunk, times in chunks.items():
        for word in in_chunk(chunk):
            counts[word] += times


def choose_words(unit_id: str, words: AbstractSet[str], max_words: int, streams: KeyedRandomness) -> Collection[str]:
    """Choose at most ``max_words`` of a unit's words, uniformly, by a keyed hash of (unit id, word).

    The choice depends on nothing but the key, the id and the set of words: not on the order of the words, nor on other
    units. A word that is chosen from a set is also chosen from every smaller set that holds it.
    """
    if len(words) <= max_words:
        return words
    keyed = hashlib.blake2b(key=streams.derive("vocabulary-words", unit_id), digest_size=_DIGEST_BYTES)

    def rank(word: str) -> bytes:
        hasher = keyed.copy()  # a fifth faster than setting the key again
        hasher.update(word.encode())
        return hasher.digest()

    return sorted(words, key=rank)[:max_words]


def _reader(options: TokenizerOptions) -> Callable[[Iterable[str]], set[str]]:
    """The distinct countable words of texts.

    The pipeline never looks across a space, tab or line break, so the words of a text are those of its chunks between these. Only
    these separate chunks: what else Python takes for white space, such as the form feed, the normaliser may remove.

    Printable ASCII, nearly all of English text, needs no library: the normaliser does no more than fold case there, and the
    pre-tokeniser cuts around every sign that is no letter or digit. The words of other chunks are remembered.
    """
    in_chunk = _chunk_reader(options)
    alphabet = frozenset(options.alphabet)
    letters = ascii_lowercase if options.lowercase else ascii_letters
    has_ascii = alphabet.issuperset(letters + digits + punctuation)

    def words_of_texts(texts: Iterable[str]) -> set[str]:
        words, odd = set[str](), set[str]()
        for text in texts:
            if not text.isascii():
                chunks = set(_with_blanks(text).split(" "))
                other = {chunk for chunk in chunks if not chunk.isascii()}
                odd |= other
                text = " ".join(chunks - other)
            if _with_blanks(text).isprintable():
                found = _ascii_words(text.lower() if options.lowercase else text)
                words = words | found if words else found
            else:
                odd.update(_with_blanks(text).split(" "))
        if not has_ascii or max(map(len, words), default=0) > MAX_WORD_LENGTH:
            words = {word for word in words if len(word) <= MAX_WORD_LENGTH and alphabet.issuperset(word)}
        return words.union(chain.from_iterable(map(in_chunk, odd))) if odd else words

    return words_of_texts


def _with_blanks(text: str) -> str:
    for separator in _SEPARATORS:
        text = text.replace(separator, " ")
    return text


def _ascii_words(text: str) -> set[str]:
    """The distinct words of printable ASCII text: runs of letters and digits, and every other sign on its own.

    >>> sorted(_ascii_words("T 37.5, T fell"))
    [',', '.', '37', '5', 'T', 'fell']
    """
    words = set(text.encode("ascii").translate(_BLANKS_FOR_SIGNS).decode("ascii").split(" "))
    words.discard("")
    words.update([sign for sign in punctuation if sign in text])
    return words


def _chunk_reader(options: TokenizerOptions) -> Callable[[str], tuple[str, ...]]:
    """The countable words of a stretch of text without spaces, as the library cuts it."""
    normalizer, pretokenizer = normalizer_and_pretokenizer(options)
    alphabet = frozenset(options.alphabet)

    def cut(chunk: str) -> tuple[str, ...]:
        words = [word for word, _ in pretokenizer.pre_tokenize_str(normalizer.normalize_str(chunk))]
        return tuple(word for word in words if len(word) <= MAX_WORD_LENGTH and alphabet.issuperset(word))

    remembered = lru_cache(maxsize=_CACHED_CHUNKS)(cut)
    return lambda chunk: remembered(chunk) if len(chunk) <= _CACHED_LENGTH else cut(chunk)
