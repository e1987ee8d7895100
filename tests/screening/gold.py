"""Gold spans of public corpora, and the split of each into a part to write policies on and a part that is held out.

The split was written down before the first pattern. It goes by what repeats: presidio-research's sentences by template,
CustomerSim and Schema-Guided Dialogue (SGD) by dialogue; all of SGD's dev file, whose services are other ones, is held
out too. Policies are written on `Part.WRITING`, and `Part.HELD_OUT` is read by the final measurement only.

``python tests/screening/gold.py DATA OUT`` writes the held-out secrets of each corpus for ``tacit screen --measure``.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any

__all__ = ["GOLD", "SECRETS", "Gold", "Part", "is_held_out", "secrets"]

Gold = tuple[str, list[tuple[int, int, str]]]

_KEY = b"tacit screening: held out since 2026-11-20"
_HELD_OUT_SHARE = 0.4


class Part(Enum):
    """The two sides of the split."""

    WRITING = "writing"
    HELD_OUT = "held-out"


def is_held_out(corpus: str, group: str) -> bool:
    """Whether a template or dialogue is on the held-out side: a keyed hash of the corpus and its own id."""
    digest = hashlib.blake2b(f"{corpus}/{group}".encode(), key=_KEY, digest_size=8).digest()
    return int.from_bytes(digest) < _HELD_OUT_SHARE * 2**64


def _lines(path: Path) -> Iterator[Any]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def presidio(data: Path, part: Part) -> Iterator[Gold]:
    """Synthetic sentences with labelled entities."""
    with gzip.open(data / "pii" / "presidio-research" / "synth_dataset_v2.json.gz", "rt", encoding="utf-8") as file:
        rows = json.load(file)
    for row in rows:
        if is_held_out("presidio", str(row["template_id"])) == (part is Part.HELD_OUT):
            spans = ((span["start_position"], span["end_position"], span["entity_type"]) for span in row["spans"])
            yield row["full_text"], sorted(spans)


def customersim(data: Path, part: Part) -> Iterator[Gold]:
    """Whole dialogues; every secret is labelled."""
    for row in _lines(data / "customersim" / "customersim.train.jsonl.gz"):
        if is_held_out("customersim", row["id"]) == (part is Part.HELD_OUT):
            yield row["text"], [(start, end, kind) for start, end, kind in row["spans"]]


def sgd(data: Path, part: Part) -> Iterator[Gold]:
    """Turns of the train file; every slot is labelled, secret or not."""
    for row in _lines(data / "sgd" / "sgd.train.jsonl.gz"):
        if is_held_out("sgd", row["id"]) == (part is Part.HELD_OUT):
            yield from _sgd_turns(row)


def sgd_other_services(data: Path, part: Part) -> Iterator[Gold]:
    """Turns of the dev file, held out as a whole."""
    if part is Part.HELD_OUT:
        for row in _lines(data / "sgd" / "sgd.dev.jsonl.gz"):
            yield from _sgd_turns(row)


def _sgd_turns(row: Any) -> Iterator[Gold]:
    for _, text, slots in row["turns"]:
        yield text, sorted((start, end, slot) for start, end, slot, _ in slots)


GOLD: dict[str, Callable[[Path, Part], Iterator[Gold]]] = {
    "presidio": presidio,
    "customersim": customersim,
    "sgd": sgd,
    "sgd-other-services": sgd_other_services,
}

_SGD = {
    "phone_number",
    "address",
    "street_address",
    "venue_address",
    "address_of_location",
    "doctor_name",
    "dentist_name",
    "stylist_name",
    "therapist_name",
    "recipient_account_name",
    "contact_name",
}
SECRETS: dict[str, set[str]] = {
    "presidio": {
        "PERSON",
        "STREET_ADDRESS",
        "CREDIT_CARD",
        "PHONE_NUMBER",
        "EMAIL_ADDRESS",
        "US_SSN",
        "IBAN_CODE",
        "IP_ADDRESS",
    },
    "customersim": {"name", "tracking_number", "order_number", "phone_number", "address"},
    "sgd": _SGD,
    "sgd-other-services": _SGD,
}
_MOST_RECORDS = 2000


def secrets(corpus: str, data: Path, part: Part) -> Iterator[Gold]:
    """Records that hold a secret, with the labels of secrets only."""
    for text, spans in GOLD[corpus](data, part):
        if kept := [span for span in spans if span[2] in SECRETS[corpus]]:
            yield text, kept


def main(data: Path, out: Path) -> None:
    """Write the gold files, at most 2,000 records each."""
    for corpus in GOLD:
        with (out / f"{corpus}.jsonl").open("w", encoding="utf-8") as file:
            for text, spans in islice(secrets(corpus, data, Part.HELD_OUT), _MOST_RECORDS):
                file.write(json.dumps({"text": text, "spans": spans}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
