"""Where a pattern of names and addresses can begin (tacit.screening.words): most words begin none, and are passed over at once.

What is said here of each form is the least that it takes: its first word, the next one, and what must follow within some
words. A test tries the forms at all other words too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["ADDRESS", "BUSINESS", "NAME", "places_to_try"]

_BESIDE = 2  # words before and after one that may be looked at by themselves
_SETS = {
    "seed": "UFfu",
    "member": "UFGCIZTBSMQONKxdD",
    "member or link": "UFGCIZTBSMQONKxdDoeAaiWJ",
    "before a stop": "ITZSQ",
    "begins a link": "oOAW",
    "after A": "IxdUBC",
    "number": "dDx",
    "long number": "D",
    "before a long number": "ZwWoO",
    "street": "SsT",
    "address": "dDxsSUFuf",
    "address name": "UFufS",
    "before a post": "QqUFCGuf",
    "military": "Mm",
    "unit": "Qq",
    "corner": "Kk",
    "begins a business": "UFGCufxDSoOAWa",
    "small": "acufis",
    "business": "bhB",
    "Business": "B",
    "salon": "b",
    "title": "tT",
    "titled": "UFGCIufc",
    "title or state": "tTZ",
    "lower name": "efu",
    "lower": "abcdefghijklmnopqrstuvwxyz",
    "lower or name": "abcdefghijklmnopqrstuvwxyzN",
    "with": "woN",
    "with or to": "woNai",
    "name": "Nn",
    "named": "cfuiCWUFGI",
    "letters": "cufIi",
}
_BITS = {name: np.uint32(1 << number) for number, name in enumerate(_SETS)}


def _table(sets: Mapping[str, str]) -> NDArray[np.uint32]:
    """The bits of the sets that each character of ASCII is in."""
    found = np.zeros(128, np.uint32)
    for name, letters in sets.items():
        found[[ord(letter) for letter in letters]] |= _BITS[name]
    return found


_TABLE = _table(_SETS)
Mask = NDArray[np.bool_]


class _Words:
    """Letters of words and of the gaps before and after each; all answers are one a word."""

    def __init__(self, letters: str) -> None:
        codes = np.frombuffer(letters.encode("ascii"), np.uint8)
        self._gaps, words = codes[::2].copy(), codes[1::2]
        self.count = len(words)
        none = np.zeros(_BESIDE, np.uint8)
        self._words = np.concatenate([none, words, none])
        self._sets = _TABLE[self._words]

    def among(self, name: str, offset: int = 0) -> Mask:
        """Whether the word, or one so many words after it, is of a set."""
        return (self._sets[_BESIDE + offset : _BESIDE + offset + self.count] & _BITS[name]) != 0

    def is_(self, letter: str, offset: int = 0) -> Mask:
        return self._words[_BESIDE + offset : _BESIDE + offset + self.count] == ord(letter)

    def within(self, words: int, mask: Mask) -> Mask:
        """Whether one of so many words after it has the property."""
        reached, span = mask, 1  # whether one of so many words from it on has the property
        while span < words:
            step = min(span, words - span)
            reached, before = reached.copy(), reached
            reached[:-step] |= before[step:]
            span += step
        found = np.zeros(self.count, np.bool_)
        found[:-1] = reached[1:]
        return found

    def after(self, gaps: str) -> Mask:
        """Whether the gap after it is one of these."""
        return _one_of(self._gaps[1:], gaps)

    def before(self, gaps: str) -> Mask:
        """Whether the gap before it is one of these."""
        return _one_of(self._gaps[:-1], gaps)


def _one_of(codes: NDArray[np.uint8], letters: str) -> Mask:
    found = codes == ord(letters[0])
    for letter in letters[1:]:
        found |= codes == ord(letter)
    return found


ADDRESS = 1
"""Family of forms."""
BUSINESS = 2
"""Family of forms."""
NAME = 4
"""Family of forms."""


def places_to_try(letters: str) -> Iterator[tuple[int, int]]:
    """Places of letters, in order, each with the families of which a form may match there: elsewhere none does.

    Args:
        letters: those of gaps (even places) and words (odd places) in turn, a gap first and last.
    """
    words = _Words(letters)
    found = ((ADDRESS, _addresses(words)), (BUSINESS, _businesses(words)), (NAME, _names(words)))
    families = np.bitwise_or.reduce([np.uint8(family) * mask.view(np.uint8) for family, mask in found])
    places = np.flatnonzero(families)
    return zip((2 * places + 1).tolist(), families[places].tolist(), strict=True)


def _addresses(words: _Words) -> Mask:
    space, number = words.after(" "), words.among("number")
    zip_ = words.within(17, words.among("long number") & words.among("before a long number", -1))
    numbered = space & words.among("address", 1) & words.within(3, words.among("address name"))
    house = number & (zip_ | words.within(8, words.among("street")) | numbered)
    before_street = (words.is_("s") | words.is_("S")) & words.after(" .") & words.among("address name", 1)
    named = (words.among("address name") | before_street) & words.within(15, number)
    corner = words.among("corner") | ((words.is_("o") | words.is_("O")) & words.among("corner", 1))
    military = words.among("before a post") & words.within(7, words.among("military"))
    return house | named | (corner & space) | military | (words.among("unit") & words.among("number", 1))


def _businesses(words: _Words) -> Mask:
    near = words.within(19, words.among("Business")) | words.within(6, words.among("business"))
    small = words.among("small") & words.among("with", -1) & words.before(" ") & words.within(9, words.among("salon"))
    return (words.among("begins a business") & near) | small


def _names(words: _Words) -> Mask:
    space, lower_before = words.after(" "), words.among("lower or name", -1) & words.before(" ")
    titled = words.among("title") & words.after(" .") & words.among("titled", 1)
    name_is = words.is_("w", -1) & words.among("name", -2)
    named = (name_is | (words.among("name", -1) & words.before(":"))) & words.among("named")
    letters = words.is_("c") & words.among("letters", 1) & words.within(3, words.among("title or state"))
    lettered = words.among("with or to", -1) & words.before(" ") & letters
    common = words.is_("G") & (lower_before | (words.before("|:") & words.after("|.")))
    labelled = (words.is_("G") | words.is_("B")) & words.after(":")
    alone = (words.is_("I") | words.is_("Z")) & words.before(",/") & words.after("/")
    lower = words.is_("e") & space & words.among("lower name", 1)
    return words.among("seed") | titled | named | lettered | common | labelled | alone | lower | _runs(words)


def _runs(words: _Words) -> Mask:
    near, link = words.within(5, words.among("member")), words.after(" -")
    follows = words.among("member or link", 1) & (link | (words.after(".") & words.among("before a stop")))
    run = words.among("member") & (follows | (words.after("-") & words.among("lower", 1))) & near
    linked = words.among("begins a link") & words.among("lower or name", -1) & words.before(" ") & words.after(" ")
    article = (words.is_("A") | words.is_("a")) & link & words.among("after A", 1)
    return run | (linked & words.among("member", 1)) | article
