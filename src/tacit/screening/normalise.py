"""Text as the patterns read it: one way to write each character, with a map back to the code points of the original.

A secret can be hidden from a pattern by full-width digits, zero-width characters between digits, other dashes or spaces.
Every detector's pattern runs on the normalised text; every span is given in the original's code points.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

__all__ = ["Normalised", "is_plain", "normal_form", "normalise"]

_MOST_MARKS = 30
"""Combining marks that are put in order together, as in Unicode's stream-safe text (UAX 15, D3): sorting them is quadratic."""

_PLAIN = bytes([ord("\n"), *range(0x20, 0x7F)])
_SPELLINGS = {"’": "'", "‘": "'", "−": "-", "\t": " ", "\r": " ", "\x0b": "\n", "\x0c": "\n", "\x85": "\n"}
_BY_CATEGORY = {"Pd": "-", "Zs": " ", "Zl": "\n", "Zp": "\n", "Cf": "", "Cc": "", "Mn": "", "Me": ""}


@dataclass(frozen=True, slots=True)
class Normalised:
    """A normalised text; character ``i`` comes from code points ``starts[i]`` to ``ends[i]`` of the original."""

    text: str
    starts: list[int]
    ends: list[int]

    def original(self, start: int, end: int) -> tuple[int, int]:
        """The original's code points behind characters ``start`` to ``end`` (exclusive), of which there is at least one."""
        return self.starts[start], self.ends[end - 1]


def is_plain(text: str) -> bool:
    """Whether the text is printable ASCII and line feeds, which normalisation leaves alone."""
    return text.isascii() and not text.encode("ascii").translate(None, _PLAIN)


def normalise(text: str) -> Normalised:
    """NFKC, decimal digits of all scripts as 0-9, dashes as ``-``, spaces as one kind; invisible characters dropped.

    It works on one base character with its combining marks at a time, so that every result has a place in the original.
    What is left of the marks after composition is dropped: an underline between digits hides nothing.
    """
    pieces: list[str] = []
    starts: list[int] = []
    ends: list[int] = []
    for start, end in _clusters(text):
        for character in unicodedata.normalize("NFKC", text[start:end]):
            plain = _plain(character)
            pieces.append(plain)
            starts += [start] * len(plain)
            ends += [end] * len(plain)
    return Normalised("".join(pieces), starts, ends)


def normal_form(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
    """A normal form of Unicode, in time that grows with the text and no faster: of more than 30 marks in a row piece by piece."""
    if len(text) <= _MOST_MARKS or text.isascii():
        return unicodedata.normalize(form, text)
    cuts = [start for start, is_base in _starts(text) if not is_base]
    pieces = (text[start:end] for start, end in pairwise([0, *cuts, len(text)]))
    return "".join(unicodedata.normalize(form, piece) for piece in pieces)


def _clusters(text: str) -> list[tuple[int, int]]:
    """A base character with the combining marks that follow it; of very many marks several, the later ones without a base."""
    return list(pairwise([*(start for start, _ in _starts(text)), len(text)])) if text else []


def _starts(text: str) -> Iterator[tuple[int, bool]]:
    """Where clusters begin, and whether with a base."""
    marks = 0
    for index, character in enumerate(text):
        is_base = index == 0 or not unicodedata.combining(character)
        marks = 0 if is_base else marks + 1
        if is_base or marks > _MOST_MARKS:
            marks = 0
            yield index, is_base


def _plain(character: str) -> str:
    if "\x20" <= character <= "\x7e" or character == "\n":
        return character
    if character in _SPELLINGS:
        return _SPELLINGS[character]
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    return _BY_CATEGORY.get(unicodedata.category(character), character)
