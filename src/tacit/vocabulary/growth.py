"""By how much a tokenizer may make a text longer, before its model sees it.

A text of a word that four replacements write as 10^12 characters ends the process for want of memory, and so one unit would decide
whether there is a release. So does one "é" that forty byte levels in a row double each. What Unicode's tables do is measured (the
tests enumerate it); what a tokenizer's file says is looked at here, stage by stage: the largest that each can do, multiplied.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

__all__ = ["MOST_GROWTH", "growth_of"]

MOST_GROWTH = 128.0
"""Known tokenizers have 1 to 36 (XLM-R's table may write 18 characters for one, and "▁" stands before each piece), ALBERT's 648."""

_TABLES = {"NFC": 3.0, "NFD": 4.0, "NFKC": 18.0, "NFKD": 18.0, "Lowercase": 2.0, "StripAccents": 1.0}
"""One after another they do no more than the largest: what they write they leave as it is, but for its case."""
_NORMALIZERS = {"Nmt": 1.0, "Strip": 1.0, "BertNormalizer": 3.0}
_PRE_TOKENIZERS = frozenset(
    (
        "BertPreTokenizer",
        "CharDelimiterSplit",
        "Digits",
        "FixedLength",
        "Punctuation",
        "Split",
        "UnicodeScripts",
        "Whitespace",
        "WhitespaceSplit",
    )
)
"""They cut, and write nothing."""
_BYTES = 4.0
"""A character for each byte of one."""
_AT_LEAST = re.compile(r"[^\\^$.|?*+(){}\[\]]\{(\d+),\}")

Stage = Mapping[str, Any]


def growth_of(stated: Mapping[str, Any]) -> float:
    """How many times as long a text may become; infinite where nobody knows.

    Args:
        stated: ``tokenizer.json``; its normalizer and pre-tokenizer count.

    >>> growth_of({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "abc"}})
    3.0
    >>> growth_of({"normalizer": {"type": "NFC"}, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}})
    12.0
    """
    stages = _flat(stated.get("normalizer"), "normalizers")
    product = 1.0
    for is_table, group in itertools.groupby(stages, lambda stage: stage.get("type") in _TABLES):
        own = list(group)
        product *= max(_TABLES[stage["type"]] for stage in own) if is_table else _product(_of_normalizer, own)
    return product * _product(_of_pre_tokenizer, _flat(stated.get("pre_tokenizer"), "pretokenizers"))


def _flat(stage: Stage | None, parts: str) -> list[Stage]:
    """The stages of a sequence, one after another."""
    if stage is None:
        return []
    if stage.get("type") != "Sequence":
        return [stage]
    return [one for part in stage[parts] for one in _flat(part, parts)]


def _product(growth: Callable[[Stage], float], stages: Iterable[Stage]) -> float:
    product = 1.0
    for stage in stages:
        product *= growth(stage)
    return product


def _of_normalizer(stage: Stage) -> float:
    match stage:
        case {"type": str(name)} if name in _NORMALIZERS:
            return _NORMALIZERS[name]
        case {"type": "ByteLevel"}:
            return _BYTES
        case {"type": "Prepend", "prepend": str(text)}:
            return 1.0 + len(text)
        case {"type": "Replace", "pattern": {"String": str(pattern)}, "content": str(text)} if pattern:
            return max(1.0, len(text) / len(pattern))
        case {"type": "Replace", "pattern": {"Regex": str(pattern)}, "content": str(text)} if _least(pattern):
            return max(1.0, len(text) / _least(pattern))
        case {"type": "Replace", "content": str(text)}:
            return 1.0 + 2 * len(text)  # an expression may find nothing, before and behind a character
        case {"type": "Precompiled", "precompiled_charsmap": str(table)}:
            return _longest_of(table)
        case _:
            return float("inf")


def _of_pre_tokenizer(stage: Stage) -> float:
    match stage:
        case {"type": str(name)} if name in _PRE_TOKENIZERS:
            return 1.0
        case {"type": "ByteLevel"}:
            return _BYTES + bool(stage.get("add_prefix_space", True))
        case {"type": "Metaspace"}:
            return 2.0  # one before each piece
        case _:
            return float("inf")


def _least(pattern: str) -> int:
    """Characters that an expression such as `` {2,}``, of a letter that stands for itself, finds at least; 0 of another one."""
    found = _AT_LEAST.fullmatch(pattern)
    return 0 if found is None else int(found[1])


def _longest_of(table: str) -> float:
    """Characters that a table of sentencepiece writes at most: the length of a trie in 4 bytes, that, and texts that end in 0."""
    try:
        decoded = base64.b64decode(table, validate=True)
        trie = int.from_bytes(decoded[:4], "little")
        return max([1.0, *(float(len(text.decode())) for text in decoded[4 + trie :].split(b"\0"))])
    except (binascii.Error, ValueError):
        return float("inf")
