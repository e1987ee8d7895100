"""Text as the patterns read it: one way to write each character, with a map back to the code points of the original.

A secret can be hidden from a pattern by full-width digits, zero-width characters between digits, other dashes or spaces.
Every detector's pattern runs on the normalised text; every span is given in the original's code points.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

__all__ = ["Normalised", "is_plain", "normalise"]

_NOT_PLAIN = re.compile(r"[^\n\x20-\x7e]")
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
    return _NOT_PLAIN.search(text) is None


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


def _clusters(text: str) -> list[tuple[int, int]]:
    """A base character with the combining marks that follow it."""
    bases = [index for index, character in enumerate(text) if not unicodedata.combining(character) or index == 0]
    return list(zip(bases, [*bases[1:], len(text)], strict=True)) if text else []


def _plain(character: str) -> str:
    if "\x20" <= character <= "\x7e" or character == "\n":
        return character
    if character in _SPELLINGS:
        return _SPELLINGS[character]
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    return _BY_CATEGORY.get(unicodedata.category(character), character)
