"""By how much a tokenizer's normalizer may make a text longer.

A text of a word that four replacements write as 10^12 characters ends the process for want of memory, and so one unit would decide
whether there is a release. What a normalizer does by Unicode's tables is bounded by these; what its file says is looked at here.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

__all__ = ["MOST_GROWTH", "growth_of"]

MOST_GROWTH = 16.0
"""Known tokenizers have 1 to 3."""

_BY_TABLES = frozenset(
    ("BertNormalizer", "ByteLevel", "Lowercase", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Strip", "StripAccents")
)
"""Each character becomes at most 18 (NFKD of U+FDFA)."""

_LONGEST = 64
"""Bytes that a precompiled table may write for a character: sentencepiece's have 33."""


def growth_of(normalizer: Mapping[str, Any] | None) -> float:
    """How many times as long a text may become, beside what Unicode's tables do; infinite where nobody knows.

    Args:
        normalizer: as ``tokenizer.json`` has it.

    >>> growth_of({"type": "Replace", "pattern": {"String": "``"}, "content": '"'})
    1.0
    >>> growth_of({"type": "Replace", "pattern": {"String": "a"}, "content": "abc"})
    3.0
    """
    if normalizer is None or normalizer.get("type") in _BY_TABLES:
        return 1.0
    match normalizer:
        case {"type": "Sequence", "normalizers": list(parts)}:
            product = 1.0
            for part in parts:
                product *= growth_of(part)
            return product
        case {"type": "Prepend", "prepend": str(text)}:
            return 1.0 + len(text)
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(text)} if pattern:
            return max(1.0, len(text) / len(pattern))
        case {"type": "Replace", "content": str(text)}:
            return 1.0 + 2 * len(text)  # an expression may find nothing, before and behind a character
        case {"type": "Precompiled", "precompiled_charsmap": str(table)}:
            return 1.0 if _longest_of(table) <= _LONGEST else float("inf")
        case _:
            return float("inf")


def _longest_of(table: str) -> float:
    """Bytes of what a table of sentencepiece writes at most: 4 that say how long its trie is, the trie, and texts that end in 0."""
    try:
        decoded = base64.b64decode(table, validate=True)
    except (binascii.Error, ValueError):
        return float("inf")
    trie = int.from_bytes(decoded[:4], "little")
    return max(map(len, decoded[4 + trie :].split(b"\0")), default=0)
