"""The model that fine-tuning begins with: a local folder, its tokenizer, and what the certificate beside it says. Needs no torch."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.config.entities import StartModel, TuningOptions
from tacit.config.shape import folder_shape, weight_files
from tacit.errors import DataError, UsageError
from tacit.files import read_json
from tacit.privacy.certificate import file_digests, read_number
from tacit.privacy.events import Relation, Spend, event_from_dict
from tacit.vocabulary.given import GivenTokenizer, read_given, tokenizer_digest

__all__ = ["Pretraining", "Start", "open_start", "read_pretraining"]

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


@dataclass(frozen=True)
class Pretraining:
    """What a release's certificate says of the records that its model was trained on.

    Args:
        spends: by stage.
        epsilon, delta: as certified; epsilon is infinite where there is no guarantee.
        head: the end of its ledger.
        leaves_out: whether an earlier training is not among the spends, as a user declared that its people are others.
    """

    spends: Mapping[str, Spend]
    unit: str
    units: int
    relation: Relation
    epsilon: float
    delta: float
    head: str
    leaves_out: bool


def open_start(options: StartModel, training: TuningOptions) -> Start:
    """Check a folder.

    Raises:
        DataError: it holds no BERT that can be read, or a tokenizer of another model.
        UsageError: rows longer than its positions, or windows that overlap by all of a row.
    """
    folder = options.resolved_folder
    shape = folder_shape(folder, "bert")
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


def read_pretraining(folder: Path) -> Pretraining | None:
    """What ``certificate.json`` beside a release's ``model`` folder says; None where there is none.

    Raises:
        DataError: the certificate is damaged, or of other files than those of the folder.
    """
    path = folder.resolve().parent / "certificate.json"
    if not path.is_file():
        return None
    try:
        values = read_json(path)
        found = _pretraining(values)
        stated = {name.removeprefix("model/"): digest for name, digest in values["files"].items()}
    except (AttributeError, LookupError, TypeError, ValueError, UsageError):
        raise DataError(f"{path}: damaged, or of another version; bring the release's own certificate back") from None
    if stated != file_digests(folder):
        raise DataError(f"{path}: it certifies other files than those of {folder}; bring the release back as it was")
    return found


def _pretraining(values: dict[str, Any]) -> Pretraining:
    pair = values["epsilons"][0]
    tuned = values.get("fine_tuning")
    return Pretraining(
        spends={
            spend["stage"]: Spend(event_from_dict(spend["event"]), spend["count"], spend["partition"])
            for spend in values["spends"]
        },
        unit=values["unit"],
        units=values["units"],
        relation=values["relation"],
        epsilon=read_number(pair["epsilon"]),
        delta=float(pair["delta"]),
        head=values["ledger_head"],
        leaves_out=tuned is not None and tuned["pretraining"] is not None and not tuned["same_people"],
    )
