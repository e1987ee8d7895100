"""What a tokenizer's file may not say, whoever made it: with such a one a text could end the run, or change what others become.

A ``tokenizer.json`` is a program. It is public, and somebody may have made it for one word that somebody says. What it does at a text
may hang on that text alone, and there must be something that it does at every text.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tokenizers import Tokenizer

from tacit.errors import DataError
from tacit.vocabulary.growth import MOST_GROWTH, growth_of

__all__ = ["check_suitable"]

_LONGEST = 256
"""Characters of a word, or of a piece: time grows with their cube, and their number. Known tokenizers have at most 128."""
_NONCHARACTER = re.compile("[\ufdd0-\ufdef]")
"""They stand for special tokens and marks in conversations (`tacit.vocabulary.chats`): one that a tokenizer writes is mistaken."""


def check_suitable(place: object, tokenizer: Tokenizer) -> None:
    """Whether it has tokens for every text, the same ones each time, within bounded memory and time.

    Args:
        place: where it is from, for the message.

    Raises:
        DataError: it has not.
    """
    problem = _problem(tokenizer.to_str())
    if problem is not None:
        raise DataError(f"{place}: the tokenizer {problem}")


def _problem(file: str) -> str | None:
    """What is wrong with it, in words that follow "the tokenizer"."""
    stated = json.loads(file)
    model = stated["model"]
    if not _spells_every_text(model):
        return _CANNOT_SPELL
    if growth_of(stated) > MOST_GROWTH:
        return _GROWS
    if _repeats(stated["post_processor"]):
        return _REPEATS
    if _longest_word(model) > _LONGEST:
        return _LONG_WORDS
    if _has_stand_ins(stated):
        return _HAS_STAND_INS
    return _DRAWS if model.get("dropout") else None


_CANNOT_SPELL = (
    "cannot spell every text and has no token for what it does not know; give its model an unk_token that is in its "
    "vocabulary"
)
_GROWS = (
    f"may make a text more than {MOST_GROWTH:g} times as long, so one text might take all memory; leave stages out of its normalizer "
    "and pre-tokenizer, or shorten what they write"
)
_REPEATS = (
    "writes a text's tokens several times (post_processor), so one text might take all memory; name $A once there"
)
_LONG_WORDS = (
    f"has words or pieces of more than {_LONGEST} characters, so one text might take hours; lower max_input_chars_per_word, or leave "
    "such pieces out"
)
_HAS_STAND_INS = "holds a noncharacter (U+FDD0 to U+FDEF), which stands for special tokens while conversations are read; leave it out"
_DRAWS = (
    "draws at random how it cuts a word (dropout), so no run with it can be repeated; set its model.dropout to null"
)


def _spells_every_text(model: Mapping[str, Any]) -> bool:
    """A model that stops at a character that it does not know would stop a run at one unit.

    No text that is tried shows this, since a normalizer may change it first; what the model says of itself does. Of the library's
    four models BPE alone skips what it does not know, where it has no token for it.
    """
    total = {
        "BPE": model.get("unk_token") is None or model.get("unk_token") in model["vocab"],
        "Unigram": model.get("unk_id") is not None,
        "WordLevel": model.get("unk_token") in model["vocab"],
        "WordPiece": model.get("unk_token") in model["vocab"],
    }
    return total.get(model["type"], False)


def _repeats(post_processor: Mapping[str, Any] | None) -> bool:
    """Whether it writes a text's own tokens more than once, as a template does for each ``$A``, asked for special tokens or not."""
    if post_processor is None:
        return False
    parts = post_processor["processors"] if post_processor["type"] == "Sequence" else [post_processor]
    templates = [part for part in parts if part["type"] not in ("BertProcessing", "ByteLevel", "RobertaProcessing")]
    if any(part["type"] != "TemplateProcessing" for part in templates) or len(templates) > 1:
        return True
    return any(
        sum("Sequence" in piece and piece["Sequence"]["id"] == name for piece in part["single"]) > 1
        for part in templates
        for name in "AB"
    )


def _longest_word(model: Mapping[str, Any]) -> int:
    """The most characters that the model compares with its pieces at once; 0 of a model that states no such number."""
    if model["type"] == "WordPiece":
        return model["max_input_chars_per_word"]
    if model["type"] == "Unigram":
        return max((len(piece) for piece, _ in model["vocab"]), default=0)
    return 0


def _has_stand_ins(stated: Mapping[str, Any]) -> bool:
    tables = [value for name, value in _strings(stated["normalizer"]) if name == "precompiled_charsmap"]
    written = [base64.b64decode(table).decode(errors="replace") for table in tables]
    return any(_NONCHARACTER.search(text) for text in (json.dumps(stated, ensure_ascii=False), *written))


def _strings(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """All texts in a JSON value, each with its name."""
    if isinstance(value, str):
        yield name, value
    for key, part in value.items() if isinstance(value, dict) else ():
        yield from _strings(part, key)
    for part in value if isinstance(value, list) else ():
        yield from _strings(part, name)
