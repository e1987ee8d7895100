"""Check digits and number plans, against brute force and published examples."""

from __future__ import annotations

import random

import pytest

from tacit.screening.validators import is_card, is_date, is_iban, is_ip, is_phone, is_ssn, luhn


def luhn_by_hand(digits: str) -> bool:
    """From the right, every second digit doubled, nine taken off when above nine."""
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def one_check_digit_fits(check: object) -> bool:
    """Of the ten last digits exactly one is right, and it is the one found by hand."""
    rng = random.Random(20261120)
    for _ in range(300):
        body = "".join(rng.choices("0123456789", k=rng.randint(11, 18)))
        fits = [digit for digit in "0123456789" if check(body + digit)]
        if fits != [digit for digit in "0123456789" if luhn_by_hand(body + digit)] or len(fits) != 1:
            return False
    return True


def test_luhn() -> None:
    assert one_check_digit_fits(luhn)


def test_a_luhn_that_is_off_by_one_is_caught() -> None:
    def off_by_one(digits: str) -> bool:
        return luhn(digits) or luhn(digits[:-1] + str((int(digits[-1]) + 1) % 10))

    def from_the_left(digits: str) -> bool:
        return luhn(digits[::-1])

    assert not one_check_digit_fits(off_by_one)
    assert not one_check_digit_fits(from_the_left)


@pytest.mark.parametrize(
    "text", ["4111 1111 1111 1111", "378282246310005", "5555-5555-5555-4444", "6011\n1111\n1111\n1117"]
)
def test_cards(text: str) -> None:
    assert is_card(text)
    last = (int(text[-1]) + 1) % 10
    assert not is_card(text[:-1] + str(last))


@pytest.mark.parametrize(
    "text", ["GB29 NWBK 6016 1331 9268 19", "DE89370400440532013000", "fr14 2004 1010 0505 0001 3m02 606"]
)
def test_ibans(text: str) -> None:
    """Examples of the SWIFT registry; one character off, or two swapped, and they fail."""
    assert is_iban(text)
    assert not is_iban(text[:-1] + ("1" if text[-1] != "1" else "2"))
    swapped = text[:5] + text[6] + text[5] + text[7:]
    assert text[5] == text[6] or not is_iban(swapped)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("123-45-6789", True),
        ("123 45 6789", True),
        ("123456789", True),
        ("123-\n45-6789", True),
        ("000-45-6789", False),
        ("666-45-6789", False),
        ("900-45-6789", False),
        ("123-00-6789", False),
        ("123-45-0000", False),
        ("123-456789", False),
        ("1234-5-6789", False),
    ],
)
def test_ssns(text: str, right: bool) -> None:
    assert is_ssn(text) is right


@pytest.mark.parametrize(
    "text", ["+44 20 7946 0018", "(415) 555-2671", "+1-202-456-1414", "020 7946 0018", "2024561414"]
)
def test_phones(text: str) -> None:
    assert is_phone(text)


@pytest.mark.parametrize("text", ["12", "123-45", "1055810914", "12345678901234567890", "+999 1"])
def test_no_phones(text: str) -> None:
    assert not is_phone(text)


def test_addresses_of_the_internet() -> None:
    assert is_ip("10.0.0.255")
    assert is_ip("2001:db8::8a2e:370:7334")
    assert not is_ip("10.0.0.256")
    assert not is_ip("10.0.0")
    assert not is_ip("12:20:39")


def test_dates() -> None:
    assert all(map(is_date, ["2024-02-29", "29/2/2024", "2/29/2024", "31.12.99"]))
    assert not any(map(is_date, ["2023-02-29", "31/31/2024", "12-34", "1-2/2024"]))
