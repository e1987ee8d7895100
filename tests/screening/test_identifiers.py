"""Of each identifier that the table names detections for, the package's policy marks an example by one of them."""

from __future__ import annotations

import pytest

from tacit.screening import package_policy
from tacit.screening.identifiers import IDENTIFIERS

EXAMPLES = {
    "A": "seen by Jennifer Lopez today",
    "B": "lives at 12 Oak Street, Springfield",
    "C": "admitted on 2021-03-04, aged 93",
    "D": "call 415-555-2671 before noon",
    "E": "fax 415-555-2672 before noon",
    "F": "write to a.b@example.org",
    "G": "ssn 078-05-1120",
    "H": "the patient number is 4482913",
    "I": "member id H12345678",
    "J": "account 99812, IBAN DE89370400440532013000, card 4111111111111111, order 123-45678-9012",
    "K": "licence no D1234567",
    "L": "the car with the plate 7ABC123",
    "M": "a pacemaker, serial A1B2C3D4",
    "N": "see www.example.org/a and example.org/b",
    "O": "logged in from 10.1.2.3",
    "R": "study code QX77120, batch 12x7",
}


def test_there_are_eighteen() -> None:
    assert "".join(row.letter for row in IDENTIFIERS) == "ABCDEFGHIJKLMNOPQR"
    assert (
        {row.letter for row in IDENTIFIERS if not row.labels}
        == {"P", "Q"}
        == {row.letter for row in IDENTIFIERS} - set(EXAMPLES)
    )


@pytest.mark.parametrize("letter", EXAMPLES)
def test_an_example_of_each_is_found_by_a_label_of_its_row(letter: str) -> None:
    (row,) = [row for row in IDENTIFIERS if row.letter == letter]
    assert {span.label for span in package_policy("balanced").spans(EXAMPLES[letter])} & set(row.labels)


def test_what_a_note_says_is_missed_is_missed() -> None:
    policy = package_policy("balanced")
    for text in ("he came on June 5 again", "the patient has a scar on the left knee"):
        assert policy.spans(text) == []
