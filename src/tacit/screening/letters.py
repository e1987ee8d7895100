"""A text as letters: one for each word and each gap between words, found for a whole batch of texts at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["letters_of"]

_ASCII = 128
_IN_WORD = bytes(code < _ASCII and chr(code).isalnum() for code in range(256))
_NOT_ASKED, _OF_GAPS, _OF_WORDS = 0, 1, 2
_KINDS = np.zeros(0x110000, np.uint8)  # of code points
_WIDEST_OF = (0x7F, 0x7FF, 0xFFFF)  # code points of one, two and three bytes in UTF-8


def letters_of(text: str, alphabet: Mapping[str, str]) -> tuple[str, NDArray[np.int64]]:
    """The letter of each gap (even places) and word (odd places) in order, and where each of them begins.

    A word is a maximal run of letters and digits; there is a gap before the first and after the last one, if need be of no
    character. Joined, the parts are the text.

    Args:
        text: any.
        alphabet: the letter, a character of ASCII, of each word and gap. It is asked once for each different one.

    Returns:
        The letters, and one place more than letters: the last one is where the text ends.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) == len(text):
        places = bytes_at = _places(np.frombuffer(data.translate(_IN_WORD), np.bool_))
    else:
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        places = _places(_in_word(codes))
        bytes_at = _bytes_before(codes)[places]
    return _looked_up(data, bytes_at, alphabet), places


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


def _bytes_before(codes: NDArray[np.uint32]) -> NDArray[np.int64]:
    """How many bytes of UTF-8 stand before each code point, and before the end."""
    widths = np.ones(len(codes), np.int64)
    for widest in _WIDEST_OF:
        widths += codes > widest
    return np.concatenate([[0], widths.cumsum()])


def _looked_up(data: bytes, places: NDArray[np.int64], alphabet: Mapping[str, str]) -> str:
    """The letters of the parts that begin at these bytes; Arrow's dictionary tells which parts are equal."""
    import pyarrow as pa  # not before it is needed: it takes a fifth of a second

    buffers = [None, pa.py_buffer(np.ascontiguousarray(places)), pa.py_buffer(data)]
    parts = pa.Array.from_buffers(pa.large_binary(), len(places) - 1, buffers).dictionary_encode()
    known = [part.decode("utf-8", "surrogatepass") for part in parts.dictionary.to_pylist()]
    table = np.frombuffer("".join(map(alphabet.__getitem__, known)).encode("ascii"), np.uint8)
    numbers = np.frombuffer(parts.indices.buffers()[1], np.int32, len(places) - 1)  # `to_numpy` would import pandas
    return table[numbers].tobytes().decode("ascii")
