"""Near-duplicates: texts whose shingles are nearly the same, found by MinHash and locality-sensitive hashing (LSH).

A text is a set of shingles (runs of words or characters). Its signature has bands x rows minima, each of which two texts share
with probability s, their Jaccard similarity; texts that share all rows of a band are candidates, so a pair is one with
probability 1 - (1 - s^rows)^bands, the S-curve (Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, section 3.4). Each
candidate is verified by the exact Jaccard similarity of the shingle sets.

Numbers are never normalised away: texts with different numbers are different texts, however similar they are otherwise.

This never feeds a DP or confidentiality claim: one changed text can change which of all the others survive (arXiv 2309.05610),
so the stability is infinite, and `tacit.privacy.accounting.replacement.Screening` refuses it (``near-duplicates-before-claim``).
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness
from tacit.screening.deduplicate import Normalisation, check_choice, normalised
from tacit.screening.redact import MASK

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "NearDuplicates",
    "NearOptions",
    "NearReport",
    "Shingles",
    "jaccard",
    "numbers",
    "s_curve",
    "s_curve_table",
    "shingles",
]

Shingles = Literal["words", "characters"]

_MOST_PERMUTATIONS = 4096
_WORD = re.compile(r"\w+|[^\w\s]")
_APART = re.compile(r"\W+")
_ENGLISH_NUMBERS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
    "nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion dozen half quarter "
    "first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth sixteenth "
    "seventeenth eighteenth nineteenth twentieth thirtieth fortieth fiftieth sixtieth seventieth eightieth ninetieth hundredth "
    "once twice thrice"
)
_NUMBER_WORDS = frozenset(_ENGLISH_NUMBERS.split())


@dataclass(frozen=True)
class NearOptions:
    """What is a near-duplicate, and how it is looked for.

    Args:
        threshold: a candidate is one from this Jaccard similarity on.
        bands, rows: of the LSH; the signature has bands x rows permutations. `s_curve_table` shows what they find.
        shingles: runs of ``words`` (letters and digits; other signs are words of their own) or of ``characters``.
        shingle_size: words or characters in a shingle; a shorter text is one shingle.
        normalisation: before shingles are cut (`tacit.screening.deduplicate.normalised`); numbers are compared as they stand.
    """

    threshold: float = 0.8
    bands: int = 25
    rows: int = 5
    shingles: Shingles = "words"
    shingle_size: int = 3
    normalisation: Normalisation = "casefold"

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise UsageError(f"threshold is {self.threshold!r}; it must be above 0 and at most 1")
        if self.shingle_size < 1:
            raise UsageError(f"shingle_size is {self.shingle_size}; it must be at least 1")
        _check_bands(self.bands, self.rows)
        check_choice("shingles", self.shingles, Shingles)
        check_choice("normalisation", self.normalisation, Normalisation)

    @property
    def permutations(self) -> int:
        """Length of a signature."""
        return self.bands * self.rows


@dataclass(frozen=True)
class NearReport:
    """What was done. The counts are functions of the private text.

    Fields:
        texts, duplicates: texts marked so far, and those masked among them.
        candidates: pairs that were verified.
        found_at_threshold: the chance that a pair exactly at the threshold is found; above it the chance is higher.
        stability: infinite: no DP or confidentiality claim may rest on what is left.
    """

    options: NearOptions
    texts: int
    duplicates: int
    candidates: int
    found_at_threshold: float
    stability: float = math.inf

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; what must stay private is under ``private``."""
        return {
            **dataclasses.asdict(self.options),
            "permutations": self.options.permutations,
            "found_at_threshold": self.found_at_threshold,
            "stability": "infinity",
            "private": {"texts": self.texts, "duplicates": self.duplicates, "candidates": self.candidates},
        }


# The S-curve ----------------------------------------------------------------------------------------------------------


def s_curve(bands: int, rows: int) -> Callable[[float], float]:
    """Jaccard similarity -> probability that the pair becomes a candidate: 1 - (1 - s^rows)^bands.

    >>> round(s_curve(25, 5)(0.8), 5)
    0.99995
    """
    _check_bands(bands, rows)

    def found(similarity: float) -> float:
        if not 0 <= similarity <= 1:
            raise UsageError(f"similarity is {similarity!r}; it must lie from 0 to 1")
        return 1.0 if similarity == 1 else -math.expm1(bands * math.log1p(-(similarity**rows)))

    return found


def s_curve_table(bands: int, rows: int) -> str:
    """The S-curve in steps of 0.1, and the similarity at which half of the pairs become candidates."""
    found = s_curve(bands, rows)
    half = (-math.expm1(-math.log(2) / bands)) ** (1 / rows)
    lines = [f"{bands} bands of {rows} rows", "similarity  candidate"]
    lines += [f"{tenth / 10:<10.1f}  {found(tenth / 10):.6f}" for tenth in range(11)]
    return "\n".join([*lines, f"half of the pairs at similarity {half:.3f}"])


def _check_bands(bands: int, rows: int) -> None:
    if bands < 1 or rows < 1 or bands * rows > _MOST_PERMUTATIONS:
        raise UsageError(f"{bands} bands of {rows} rows: take 1 of each or more, at most {_MOST_PERMUTATIONS} together")


# Texts as sets --------------------------------------------------------------------------------------------------------


def shingles(text: str, options: NearOptions) -> frozenset[str]:
    """The runs of ``shingle_size`` words or characters of the normalised text; never empty."""
    text = normalised(text, options.normalisation)
    size = options.shingle_size
    if options.shingles == "characters":
        return frozenset(text[at : at + size] for at in range(max(1, len(text) - size + 1)))
    words = _WORD.findall(text)
    return frozenset(" ".join(words[at : at + size]) for at in range(max(1, len(words) - size + 1)))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of the union that is in both; of two empty sets 1."""
    both = len(one & other)
    union = len(one) + len(other) - both
    return both / union if union else 1.0


def numbers(text: str) -> tuple[str, ...]:
    """The numbers of a text in order: words that hold a digit (of any script, also "½"), with their signs, and number words.

    A word goes from space to space, without the brackets and stops around it, so a code such as "LF64NAH4Z9" is one number.

    >>> numbers("It's -2.5 for two; call 555-0100, ref. A7!")
    ('-2.5', 'two', '555-0100', 'a7')
    """
    words = (word.lstrip("([{").rstrip(".,;:!?)]}") for word in text.lower().split())
    return tuple(word for word in words if _is_number(word))


def _is_number(word: str) -> bool:
    if word.isalpha() and word.isascii():
        return word in _NUMBER_WORDS
    return any(map(str.isnumeric, word)) or not _NUMBER_WORDS.isdisjoint(_APART.split(word))


# Marking --------------------------------------------------------------------------------------------------------------


class NearDuplicates:
    """Masks a text that is nearly the same as one that was kept before; in memory, in one pass.

    Args:
        options: what is nearly the same.
        streams: of the run's key; addresses ``("near-duplicates", ...)``.
    """

    def __init__(self, options: NearOptions, streams: KeyedRandomness) -> None:
        from datasketch import MinHash

        self.options = options
        empty = hashlib.blake2b(key=streams.derive("near-duplicates", "shingles"), digest_size=4)

        def number(shingle: bytes) -> int:
            found = empty.copy()
            found.update(shingle)
            return int.from_bytes(found.digest(), "little")

        seed = streams.seed("near-duplicates", "permutations") % 2**32
        self._empty = MinHash(options.permutations, seed, hashfunc=number, scheme="affine32")
        self._buckets: dict[tuple[int, tuple[str, ...], bytes], list[int]] = {}
        self._kept: list[frozenset[str]] = []
        self._texts = self._duplicates = self._candidates = 0

    def mark(self, text: str) -> bool:
        """Whether a text that was kept before has the same numbers and at least the threshold's similarity."""
        found = shingles(text, self.options)
        keys = self._keys(found, numbers(text))
        near = False
        for candidate in self._in_buckets(keys):
            self._candidates += 1
            if jaccard(found, self._kept[candidate]) >= self.options.threshold:
                near = True
                break
        self._texts += 1
        self._duplicates += near
        if not near:
            for key in keys:
                self._buckets.setdefault(key, []).append(len(self._kept))
            self._kept.append(found)
        return near

    def mask(self, texts: Iterable[str]) -> Iterator[str]:
        """Each text in turn, or ``<MASK>``."""
        for text in texts:
            yield MASK if self.mark(text) else text

    def candidates(self, text: str) -> list[int]:
        """Which kept texts, by their number among the kept ones, share a band and all numbers with this one; unverified."""
        return self._in_buckets(self._keys(shingles(text, self.options), numbers(text)))

    def report(self) -> NearReport:
        """What was done so far."""
        chance = s_curve(self.options.bands, self.options.rows)(self.options.threshold)
        return NearReport(self.options, self._texts, self._duplicates, self._candidates, chance)

    def signature(self, found: frozenset[str]) -> np.ndarray:
        """The minimum of each permutation over a set of shingles."""
        sketch = self._empty.copy()
        sketch.update_batch([shingle.encode("utf-8", "surrogatepass") for shingle in found])
        return sketch.hashvalues

    def _keys(self, found: frozenset[str], its_numbers: tuple[str, ...]) -> list[tuple[int, tuple[str, ...], bytes]]:
        """One key a band. The numbers are part of it: texts with other numbers never meet in a bucket."""
        signature = self.signature(found).tobytes()
        width = len(signature) // self.options.bands
        return [(band, its_numbers, signature[band * width : (band + 1) * width]) for band in range(self.options.bands)]

    def _in_buckets(self, keys: list[tuple[int, tuple[str, ...], bytes]]) -> list[int]:
        return sorted({index for key in keys for index in self._buckets.get(key, ())})
