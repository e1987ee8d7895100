"""What a run is given from outside: a tokenizer, and a model to start from. Public because the user says so; checked together here.

Nothing is fetched and no weights are loaded, so `tacit plan` can check it too. The ledger binds what the files hold: a run does not
go on with others.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tacit.config import RunConfig
from tacit.config.kinds import KINDS, is_routed, one_of
from tacit.config.shape import read_config, shape_of, weight_files
from tacit.errors import DataError, RefusedError, UsageError
from tacit.screening.redact import MASK
from tacit.vocabulary.chat_template import default_template, read_chat_template
from tacit.vocabulary.chats import ChatEncoder, check_template
from tacit.vocabulary.given import GivenTokenizer, read_given, tokenizer_digest
from tacit.vocabulary.public_words import read_bytes
from tacit.vocabulary.rendering import rendered_apart
from tacit.vocabulary.tokenizer import cuts_into_words

_PADDING = 1024
"""More rows than tokens that a table may have: many are filled up to a multiple of 64 or more."""

__all__ = [
    "chat_template",
    "check_folder",
    "fingerprints",
    "given_tokenizer",
    "has_chats",
    "reserved_tokens",
    "scorer_digest",
]


def reserved_tokens(config: RunConfig) -> tuple[str, ...]:
    """Words that every tokenizer of this run reads whole: the mask of redacted text."""
    return () if config.screening is None else (MASK,)


def given_tokenizer(config: RunConfig) -> GivenTokenizer:
    """The given tokenizer, which suits the model that is trained and the folder that it starts from.

    Raises:
        DataError: the tokenizer or the folder cannot be read, or do not belong together.
        UsageError: the tokenizer lacks what this kind of model needs, or the rows are longer than the model's positions.
        RefusedError: ``tokens-across-words``, with marking.
    """
    path = config.vocabulary.resolved_path
    found = read_given(path, reserved_tokens(config))
    if config.marking is not None and not cuts_into_words(found.tokenizer):
        raise RefusedError(
            "tokens-across-words",
            f"{path}: with marking, no private character may decide a public token beside it, and this tokenizer need not cut text "
            "where marks end; leave out vocabulary.method: given, or give a WordPiece with normalizer and pre-tokenizer of BERT",
        )
    if not config.model.is_causal:
        lacking = [role for role in ("mask_token", "pad_token") if role not in found.names]
        if lacking:
            causal = one_of(kind for kind in KINDS.values() if kind.is_causal)
            raise UsageError(
                f"{path}: the tokenizer has no {lacking[0]}, which model.kind {config.model.kind} needs; name one in "
                f"tokenizer_config.json, or train a {causal}"
            )
    if config.model.folder is not None:
        check_folder(config, found)
    if has_chats(config):
        template = rendered_apart(chat_template(config, found) or "", str(path))
        check_template(ChatEncoder(found.tokenizer, found.special, found.names, template), str(path))
    return found


def has_chats(config: RunConfig) -> bool:
    """Whether records of a corpus are conversations, which the tokenizer's chat template writes."""
    return any(corpus.messages is not None for corpus in (config.private, *config.public))


def chat_template(config: RunConfig, tokenizer: GivenTokenizer) -> str | None:
    """The chat template of the given tokenizer, in Jinja; where it has none, the default one if the run needs one.

    Raises:
        DataError: the run needs it, and it cannot be read.
    """
    try:
        found = read_chat_template(config.vocabulary.resolved_path)
    except DataError:
        if has_chats(config):
            raise
        return None
    if found is not None or not has_chats(config):
        return found
    special = tokenizer.special
    start, end = (tokenizer.tokenizer.id_to_token(number) or "" for number in (special.start, special.end))
    return default_template(start, end)


def check_folder(config: RunConfig, tokenizer: GivenTokenizer | None = None) -> None:
    """Check that the folder which the model starts from suits the run.

    Args:
        config: has ``model.folder``.
        tokenizer: the run's own one where it is given; with ``model.new_vocabulary`` the folder's is read instead.

    Raises:
        DataError: the folder cannot be read, or its model and tokenizer do not belong together.
        UsageError: the rows are longer than the model's positions.
    """
    folder, length = config.model.resolved_folder, config.model.length
    shape = shape_of(config.model)
    adapter = config.model.adapter
    if is_routed(read_config(folder)[1]) and (adapter is None or adapter.targets == "all-linear"):
        raise UsageError(
            f"{folder} holds a mixture of experts, which cannot be clipped exactly as a whole: all rows share them; train "
            "an adapter on its attention alone: model.adapter: {targets: [q_proj, k_proj, v_proj, o_proj]}"
        )
    if tokenizer is None or config.model.new_vocabulary:
        tokenizer, path = read_given(folder), folder
    else:
        path = config.vocabulary.resolved_path
    known, size = shape.vocabulary or 0, tokenizer.special.size - tokenizer.added
    of_text = max((one for one in range(size) if one not in tokenizer.special.ids), default=-1) + 1
    # For special tokens beyond it the table is made large enough (`tacit.models.kinds`).
    if not of_text <= known <= size + _PADDING:
        own = "save model and tokenizer together again" if path == folder else "give the tokenizer of this model"
        raise DataError(f"{folder}: the model knows {known} token ids and the tokenizer {path} has {size}; {own}")
    if shape.positions is not None and shape.positions < length:
        raise UsageError(f"model.length {length} is more than the {shape.positions} positions of {folder}; lower it")
    weight_files(folder)


def fingerprints(config: RunConfig) -> dict[str, str]:
    """SHA-256 of what the run is given, by name; empty where that is nothing. The ledger binds them."""
    found: dict[str, str] = {}
    if config.vocabulary.how.brings_tokenizer:
        path = config.vocabulary.resolved_path
        found["the given tokenizer"] = tokenizer_digest(path)
        if has_chats(config) and (template := read_chat_template(path)) is not None:
            found["the chat template"] = hashlib.sha256(template.encode()).hexdigest()
    if config.vocabulary.public_words:
        digest = hashlib.sha256()
        for path in config.vocabulary.public_word_paths:
            digest.update(hashlib.sha256(read_bytes(path)).digest())
        found["the public word lists"] = digest.hexdigest()
    if config.model.folder is not None:
        found["the model folder"] = _model_digest(config.model.resolved_folder)
    if config.model.new_vocabulary:
        found["the model folder's tokenizer"] = tokenizer_digest(config.model.resolved_folder)
    return found


def scorer_digest(folder: Path) -> str:
    """SHA-256 of a scorer's folder: its model, and the tokenizer in whose pieces it reads.

    Raises:
        DataError: it cannot be read.
    """
    return hashlib.sha256(f"{_model_digest(folder)}{tokenizer_digest(folder)}".encode()).hexdigest()


def _model_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in (folder / "config.json", *weight_files(folder)):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
