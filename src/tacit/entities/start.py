"""The model that fine-tuning begins with: a local folder with its tokenizer. Needs no torch."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from tacit.config.shape import missing_folder, tagger_shape, weight_files
from tacit.config.tuning import StartModel, TuningOptions
from tacit.errors import DataError, UsageError
from tacit.vocabulary.given import GivenTokenizer, read_given, tokenizer_digest

__all__ = ["Start", "open_start"]

_LONGEST = 512


@dataclass(frozen=True)
class Start:
    """A folder that is fit to begin with.

    Args:
        length: positions of the rows that it is fine-tuned on.
        digest: SHA-256 of its config, weights and tokenizer.
    """

    folder: Path
    tokenizer: GivenTokenizer
    length: int
    digest: str


def open_start(options: StartModel, training: TuningOptions) -> Start:
    """Check a folder.

    Raises:
        DataError: it holds no model that can be read and tags words, or a tokenizer of another model.
        UsageError: rows longer than its positions, or windows that overlap by all of a row.
    """
    folder = options.resolved_folder
    if not folder.exists():
        raise missing_folder(options.folder, folder)
    shape = tagger_shape(folder)
    tokenizer = read_given(folder)
    if shape.vocabulary is None or tokenizer.special.size > shape.vocabulary:
        raise DataError(f"{folder}: the tokenizer has more ids than the model; give the folder of one model")
    positions = shape.positions or _LONGEST
    length = training.length or min(positions, _LONGEST)
    if length > positions:
        raise UsageError(f"training.length {length} is more than the {positions} positions of {folder}; lower it")
    if training.overlap >= length - 2:
        raise UsageError(f"training.overlap {training.overlap} leaves no room in rows of {length} positions; lower it")
    digest = hashlib.sha256(tokenizer_digest(folder).encode())
    for path in (folder / "config.json", *weight_files(folder)):
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return Start(folder, tokenizer, length, digest.hexdigest())
