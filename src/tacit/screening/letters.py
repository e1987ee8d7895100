"""A text as letters: one for each word and each gap between words, found for a whole batch of texts at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["letters_of"]

_ASCII = 128
_PAIR = 2
_SPACE = ord(" ")
_IN_WORD = bytes(code < _ASCII and chr(code).isalnum() for code in range(256))
_ONLY_WORDS = bytes(code if is_in_word else _SPACE for code, is_in_word in enumerate(_IN_WORD))
_NOT_ASKED, _OF_GAPS, _OF_WORDS = 0, 1, 2
_KINDS = np.zeros(0x110000, np.uint8)  # of code points


def letters_of(text: str, alphabet: Mapping[str, str]) -> tuple[str, NDArray[np.int64]]:
    """The letter of each gap (even places) and word (odd places) in order, and where each of them begins.

    A word is a maximal run of letters and digits; there is a gap before the first and after the last one, if need be of no
    character. Joined, the parts are the text.

    Args:
        text: any.
        alphabet: the letter, a character of ASCII, of each word and gap.

    Returns:
        The letters, and one place more than letters: the last one is where the text ends.
    """
    codes, in_word, words = _split(text)
    places = _places(in_word)
    letters = np.empty(len(places) - 1, np.uint8)
    letters[1::2] = _looked_up(words, alphabet)
    letters[::2] = _gaps(text, codes, places, alphabet)
    return letters.tobytes().decode("ascii"), places


def _split(text: str) -> tuple[NDArray[np.unsignedinteger], NDArray[np.bool_], list[str]]:
    """The code points of a text, whether each is part of a word, and the words."""
    if text.isascii():
        data = text.encode("ascii")
        in_word = np.frombuffer(data.translate(_IN_WORD), np.bool_)
        return np.frombuffer(data, np.uint8), in_word, data.translate(_ONLY_WORDS).decode("ascii").split()
    codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    in_word = _in_word(codes)
    only_words = np.where(in_word, codes, np.uint32(_SPACE))
    return codes, in_word, only_words.tobytes().decode("utf-32-le", "surrogatepass").split()


def _in_word(codes: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Whether each code point is a letter or digit, as `str.isalnum` says and Python's ``[^\\W_]``; each is asked once."""
    kinds = _KINDS[codes]
    for code in set(codes[kinds == _NOT_ASKED].tolist()):
        _KINDS[code] = _OF_WORDS if chr(code).isalnum() else _OF_GAPS
    return (kinds if kinds.all() else _KINDS[codes]) == _OF_WORDS


def _places(in_word: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Where gaps and words begin in turn, and the end; the first is a gap, and so is the last."""
    if not len(in_word):
        return np.zeros(2, np.int64)
    changes = np.flatnonzero(in_word[1:] != in_word[:-1]) + 1
    return np.concatenate([[0] * (2 if in_word[0] else 1), changes, [len(in_word)] * (2 if in_word[-1] else 1)])


def _gaps(
    text: str, codes: NDArray[np.unsignedinteger], places: NDArray[np.int64], alphabet: Mapping[str, str]
) -> NDArray[np.uint8]:
    """Gaps of one or two characters of ASCII, nearly all of them, are looked up once each."""
    starts, ends = places[:-1:2], places[1::2]
    lengths = ends - starts
    short = np.flatnonzero((lengths == 1) | (lengths == _PAIR))
    short = short[(codes[starts[short]] < _ASCII) & (codes[ends[short] - 1] < _ASCII)]
    first, last = codes[starts[short]].astype(np.int64), codes[ends[short] - 1]
    keys = np.where(lengths[short] == 1, first, _ASCII + first * _ASCII + last)
    known = np.flatnonzero(np.bincount(keys, minlength=1))
    table = np.zeros(_ASCII + _ASCII * _ASCII, np.uint8)
    table[known] = _looked_up(map(_short_gap, known.tolist()), alphabet)
    letters = np.empty(len(starts), np.uint8)
    letters[short] = table[keys]
    others = np.delete(np.arange(len(starts)), short)
    spans = zip(starts[others].tolist(), ends[others].tolist(), strict=True)
    letters[others] = _looked_up([text[start:end] for start, end in spans], alphabet)
    return letters


def _short_gap(key: int) -> str:
    return chr(key) if key < _ASCII else chr((key - _ASCII) // _ASCII) + chr(key % _ASCII)


def _looked_up(parts: Iterable[str], alphabet: Mapping[str, str]) -> NDArray[np.uint8]:
    return np.frombuffer("".join(map(alphabet.__getitem__, parts)).encode("ascii"), np.uint8)
