"""The combined pattern: what each form finds, and that no text makes it slow."""

from __future__ import annotations

import time

import pytest

from tacit.screening.patterns import formed


def found(text: str) -> list[tuple[str, str]]:
    return [(label, text[start:end]) for start, end, label, _ in formed(text)]


@pytest.mark.parametrize(
    ("text", "label", "part"),
    [
        ("mail ann.lee+x@mail.example.co.uk now", "email", "ann.lee+x@mail.example.co.uk"),
        ("see https://example.org/a?b=c.", "url", "https://example.org/a?b=c"),
        ("go to www.example.com, now", "url", "www.example.com"),
        ("from 192.168.10.4 today", "ip", "192.168.10.4"),
        ("at 2001:db8:0:0:1:0:0:1 now", "ip", "2001:db8:0:0:1:0:0:1"),
        ("to GB29 NWBK 6016 1331 9268 19 please", "iban", "GB29 NWBK 6016 1331 9268 19"),
        ("to DE89370400440532013000 more text", "iban", "DE89370400440532013000"),
        ("card 4111 1111 1111 1111 ok", "card", "4111 1111 1111 1111"),
        ("my ssn is 123-45-6789.", "ssn", "123-45-6789"),
        ("call (415) 555-2671 now", "phone", "(415) 555-2671"),
        ("call +44 20 7946 0018 now", "phone", "+44 20 7946 0018"),
        ("order 836-35527-7547 is", "record", "836-35527-7547"),
        ("it's 836-35527-7547.", "order", "836-35527-7547"),
        ("tracking: 6VJT7WO70Z.", "record", "6VJT7WO70Z"),
        ("use 6VJT7WO70Z.", "code", "6VJT7WO70Z"),
        ("use 0347ISQDMV.", "code", "0347ISQDMV"),
        ("policy number QXZPLMRT ok", "record", "QXZPLMRT"),
        ("born 24/12/1987 in", "date", "24/12/1987"),
        ("at 1980-07-28 19:49:46 it", "datetime", "1980-07-28 19:49:46"),
        ("on March 3rd, 2019 at", "date", "March 3rd, 2019"),
        ("a 93-year-old man", "age", "93-year-old"),
        ("aged 101, he", "age", "aged 101"),
        ("at SW1A 2AA in", "postcode", "SW1A 2AA"),
        ("to K1A 0B1 in", "postcode", "K1A 0B1"),
        ("in CT 85093 now", "postcode", "CT 85093"),
    ],
)
def test_forms(text: str, label: str, part: str) -> None:
    assert (label, part) in found(text)


@pytest.mark.parametrize(
    "text", ["a 45-year-old man", "at 7 pm on the 3rd", "the 12 of us", "4.2 stars", "12:20:39", "@home"]
)
def test_what_is_no_secret(text: str) -> None:
    assert found(text) == []


@pytest.mark.parametrize("text", ["in 1997 we", "it costs $1,250.50 now"])
def test_years_and_money_score_below_what_is_masked(text: str) -> None:
    assert [score for *_, score in formed(text)] == [0.2]


def test_an_iban_with_a_wrong_check_digit_is_still_a_code() -> None:
    assert found("to GB93PITW55383148579182 please") == [("code", "GB93PITW55383148579182")]


def test_a_card_that_fails_luhn_is_still_a_number() -> None:
    assert found("4111 1111 1111 1112") == [("number", "4111 1111 1111 1112")]


@pytest.mark.parametrize(
    "piece", ["a1", "1 ", "@", "a@", "a.", "A ", "1.", "::", "aA9-", "www.", "+(", "order 1", "AB12 "]
)
def test_time_is_linear(piece: str) -> None:
    """200 kB of the worst kind take a moment; a quadratic pattern would take minutes."""
    text = piece * (200_000 // len(piece))
    start = time.process_time()
    for _ in formed(text):
        pass
    assert time.process_time() - start < 5
