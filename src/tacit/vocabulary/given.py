"""A given tokenizer: the fast tokenizer of a local Hugging Face folder, or one ``tokenizer.json``. Nothing is fetched.

It is public because the user says so: it must not have been made from the private text. ``tokenizer.json`` alone decides what the
ids are. Which of its special tokens is for what stands in ``tokenizer_config.json`` or ``special_tokens_map.json``; what these leave
open is taken from the usual names, among the tokens that ``tokenizer.json`` marks as special.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from tacit.errors import DataError
from tacit.files import refuse_pipe
from tacit.vocabulary.special import ROLES, SpecialTokens, special_tokens
from tacit.vocabulary.suitable import check_suitable

__all__ = ["GivenTokenizer", "read_given", "tokenizer_digest"]

_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")

_USUAL: Mapping[str, tuple[str, ...]] = {
    "pad_token": ("[PAD]", "<pad>"),
    "cls_token": ("[CLS]",),
    "sep_token": ("[SEP]",),
    "mask_token": ("[MASK]", "<mask>"),
    "bos_token": ("<s>", "<bos>"),
    "eos_token": ("</s>", "<eos>", "<|endoftext|>"),
}


@dataclass(frozen=True)
class GivenTokenizer:
    """A tokenizer as a run uses it.

    Args:
        tokenizer: without padding and truncation.
        names: its special tokens by role.
        special: their ids.
        added: reserved tokens that it did not hold as one token; they have the last ids.
    """

    tokenizer: Tokenizer
    names: Mapping[str, str]
    special: SpecialTokens
    added: int


def read_given(path: Path, reserved: Sequence[str] = ()) -> GivenTokenizer:
    """Read a tokenizer.

    Args:
        path: a folder with ``tokenizer.json``, or such a file.
        reserved: tokens that are words of the text and read whole, such as the mask of redacted text; they are added where they
            are no token yet. A special token of that name becomes such a word.

    Raises:
        DataError: there is no tokenizer, it cannot be read, or it has no token to begin or end a row with.
    """
    tokenizer = _as_words(_read(_files(path)[0]), reserved)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    check_suitable(path, tokenizer)
    missing = [token for token in reserved if tokenizer.token_to_id(token) is None]
    size = _size(tokenizer) + len(missing)
    tokenizer.add_tokens([AddedToken(token, normalized=False) for token in reserved])
    names = {role: token for role, token in _names(path, tokenizer).items() if token not in reserved}
    try:
        special = special_tokens(tokenizer, names)
    except KeyError:
        raise DataError(
            f"{path}: the tokenizer has no token to begin and end a row with; name one as bos_token or eos_token in "
            "tokenizer_config.json"
        ) from None
    if special.size != size:  # `tokenizers` gives a new token the number of all tokens as its id
        raise DataError(f"{path}: the ids of the tokenizer have gaps, so {missing[0]} cannot be added; use another one")
    return GivenTokenizer(tokenizer, names, special, len(missing))


def tokenizer_digest(path: Path) -> str:
    """SHA-256 of the files that `read_given` reads."""
    digest = hashlib.sha256()
    for file in _files(path):
        digest.update(hashlib.sha256(file.name.encode()).digest() + hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    """``tokenizer.json`` first."""
    files = [path / name for name in _FILES if (path / name).is_file()] if path.is_dir() else [path]
    refuse_pipe(path)
    if not files or not files[0].is_file():
        raise DataError(f"{path}: no such tokenizer; give a folder with tokenizer.json, or that file")
    if path.is_dir() and files[0].name != _FILES[0]:
        raise DataError(f"{path} has no tokenizer.json; save its tokenizer again with transformers, as a fast one")
    return files


def _read(file: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises nothing more precise
        raise DataError(f"{file}: no tokenizer that can be read; save it again with transformers") from error


def _size(tokenizer: Tokenizer) -> int:
    return max(tokenizer.get_vocab(with_added_tokens=True).values(), default=-1) + 1


def _as_words(tokenizer: Tokenizer, reserved: Sequence[str]) -> Tokenizer:
    """The tokenizer with none of these marked as special: they are part of the text."""
    values = json.loads(tokenizer.to_str())
    marked = [entry for entry in values["added_tokens"] if entry["content"] in reserved and entry["special"]]
    if not marked:
        return tokenizer
    for entry in marked:
        entry.update(special=False, normalized=False)
    return Tokenizer.from_str(json.dumps(values))


def _names(path: Path, tokenizer: Tokenizer) -> dict[str, str]:
    """The tokens by role, as far as the tokenizer has them."""
    stated: dict[str, Any] = {}
    for file in _files(path)[1:]:
        stated = {**_mapping(file), **stated}  # tokenizer_config.json comes first, and counts first
    stated = {role: _content(stated.get(role)) for role in ROLES}
    unknown = _unknown(tokenizer)
    if unknown is not None:
        stated["unk_token"] = unknown
    marked = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    usual = {role: next((token for token in tokens if token in marked), None) for role, tokens in _USUAL.items()}
    found = {role: stated[role] or usual.get(role) for role in ROLES}
    return {role: token for role, token in found.items() if token and tokenizer.token_to_id(token) is not None}


def _mapping(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict):
        raise DataError(f"{file}: not JSON with the names of special tokens; save the tokenizer again")
    return values


def _content(token: Any) -> str | None:
    """A token is written as its text, or as an object with it."""
    value = token.get("content") if isinstance(token, dict) else token
    return value if isinstance(value, str) else None


def _unknown(tokenizer: Tokenizer) -> str | None:
    """What the tokenizer's model gives for a word that it cannot spell."""
    model = json.loads(tokenizer.to_str())["model"]
    if isinstance(model.get("unk_id"), int):  # unigram models have a number
        return tokenizer.id_to_token(model["unk_id"])
    return _content(model.get("unk_token"))
