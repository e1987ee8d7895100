"""The policies on text that they were not written on (gold.py says how it was set aside), against the issue's targets."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from tacit.screening.measure import GoldRecord, Measured, measure
from tacit.screening.policy import POLICIES, Policy, package_policy

from .gold import GOLD, SECRETS, Part, is_held_out, secrets

BALANCED, CONSERVATIVE = map(package_policy, POLICIES)
FORMS = {"CREDIT_CARD", "PHONE_NUMBER", "EMAIL_ADDRESS", "US_SSN", "IBAN_CODE", "IP_ADDRESS"}
NAMES = {"PERSON", "STREET_ADDRESS"}
PINNED = [False, False, False, False, False, False, False, False]
SGD_PHONES = {"phone_number"}
SGD_ADDRESSES = {"address", "street_address", "venue_address", "address_of_location"}
SGD_NAMES = {"doctor_name", "dentist_name", "stylist_name", "recipient_account_name"}


def held_out(data: Path, corpus: str, labels: set[str], limit: int | None = None) -> list[GoldRecord]:
    """Held-out records with a secret of these labels."""
    kept = (
        (text, tuple(span for span in spans if span[2] in labels))
        for text, spans in secrets(corpus, data, Part.HELD_OUT)
    )
    return list(islice((GoldRecord(text, spans) for text, spans in kept if spans), limit))


def measured(policy: Policy, records: list[GoldRecord]) -> Measured:
    return measure([policy], iter(records))[0]


def recall(found: Measured, labels: set[str]) -> float:
    return sum(found.found[label] for label in labels) / sum(found.spans[label] for label in labels)


def test_customersim(data_dir: Path) -> None:
    records = held_out(data_dir, "customersim", SECRETS["customersim"], limit=1000)
    found = measured(BALANCED, records).to_dict()
    assert found["recall"] >= 0.99
    assert found["precision"] >= 0.9
    assert min(found["per_label"].values()) >= 0.98


def test_presidio(data_dir: Path) -> None:
    records = held_out(data_dir, "presidio", FORMS | NAMES)
    found = measured(BALANCED, records)
    for label in FORMS & found.spans.keys():
        assert recall(found, {label}) >= 0.98, label
    for label in NAMES:
        assert recall(found, {label}) >= 0.80, label
    assert recall(measured(CONSERVATIVE, records), set(found.spans)) >= 0.99


@pytest.mark.slow
@pytest.mark.parametrize("labels", [SGD_PHONES, SGD_ADDRESSES, SGD_NAMES], ids=["phones", "addresses", "names"])
def test_sgd(data_dir: Path, labels: set[str]) -> None:
    records = held_out(data_dir, "sgd", labels, limit=1500)
    assert recall(measured(BALANCED, records), labels) >= 0.95
    assert recall(measured(CONSERVATIVE, records), labels) >= 0.999


def test_conservative_leaves_something_public(data_dir: Path) -> None:
    """A policy that marks everything would meet every target on recall."""
    texts = [text for text, _ in islice(GOLD["sgd"](data_dir, Part.HELD_OUT), 2000)]
    marked = [bool(spans) for spans in CONSERVATIVE.spans_of(texts)]
    assert 0.3 < sum(marked) / len(marked) < 0.8


def test_the_split_is_what_was_written_down() -> None:
    """A fixed keyed hash of the corpus and the group's own id, about four tenths; other corpora split otherwise."""
    held = [is_held_out("sgd", f"1_{number:05d}") for number in range(2000)]
    assert 0.36 < sum(held) / len(held) < 0.44
    assert held != [is_held_out("customersim", f"1_{number:05d}") for number in range(2000)]
    assert [is_held_out("sgd", f"1_0000{number}") for number in range(8)] == PINNED
