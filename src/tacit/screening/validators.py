"""What a run of digits or letters is: check digits and number plans. Each takes the text of a match, separators included."""

from __future__ import annotations

import ipaddress
import re
from datetime import date

import phonenumbers

__all__ = ["digits_of", "is_card", "is_date", "is_iban", "is_ip", "is_phone", "is_ssn", "luhn"]

_NOT_DIGITS = re.compile(r"[^0-9]+")
_DATE = re.compile(r"(\d{1,4})([-./])(\d{1,2})\2(\d{1,4})")
_SSN = re.compile(r"\s*(\d{3})([- \n]{0,3})(\d{2})([- \n]{0,3})(\d{4})\s*")
_IBAN = re.compile(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}")
_NORTH_AMERICA = re.compile(r"(?:\+?1[ .-]?)?\(?[2-9]\d\d\)?[ .-]?[2-9]\d\d[ .-]?\d{4}")
_DOUBLED = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)  # the digit sum of twice the digit
_REGIONS = ("US", "GB")


def digits_of(text: str) -> str:
    """The decimal digits of a text."""
    return text if text.isdecimal() and text.isascii() else _NOT_DIGITS.sub("", text)


def luhn(digits: str) -> bool:
    """Whether the last digit is the Luhn check digit of the others (ISO/IEC 7812-1, annex B)."""
    doubled = sum(_DOUBLED[int(digit)] for digit in digits[-2::-2])
    return (sum(map(int, digits[-1::-2])) + doubled) % 10 == 0


def is_card(text: str) -> bool:
    """A payment card number: 12 to 19 digits that do not begin with 0 and pass Luhn."""
    digits = digits_of(text)
    return 12 <= len(digits) <= 19 and digits[0] != "0" and luhn(digits)


def is_iban(text: str) -> bool:
    """An International Bank Account Number: ISO 13616, remainder 1 modulo 97."""
    compact = re.sub(r"[ \n-]", "", text).upper()
    if not _IBAN.fullmatch(compact):
        return False
    return int("".join(str(int(character, 36)) for character in compact[4:] + compact[:4])) % 97 == 1


def is_ssn(text: str) -> bool:
    """A US social security number: three, two, four digits; no part all zero, no area 666 or 900 and above."""
    match = _SSN.fullmatch(text)
    if match is None or bool(match[2]) != bool(match[4]):
        return False
    area, group, serial = match[1], match[3], match[5]
    return area not in ("000", "666") and area < "900" and group != "00" and serial != "0000"


def is_phone(text: str) -> bool:
    """A possible number of the US's or Britain's plan, or an international one that its country's plan allows."""
    digits = len(digits_of(text))
    if not 7 <= digits <= 15 or (digits == len(text) and not _NORTH_AMERICA.fullmatch(text)):
        return False
    if _NORTH_AMERICA.fullmatch(text):
        return True
    return any(_fits(text, region) for region in (_REGIONS if "+" not in text[:2] else (None,)))


def _fits(text: str, region: str | None) -> bool:
    try:
        number = phonenumbers.parse(text, region)
    except phonenumbers.NumberParseException:
        return False
    return phonenumbers.is_possible_number(number)


def is_ip(text: str) -> bool:
    """An IPv4 or IPv6 address."""
    if text.count(".") != 3 and ":" not in text:
        return False
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_date(text: str) -> bool:
    """Three numbers with one separator that are a day of the calendar in some order."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return False
    first, second, third = int(match[1]), int(match[3]), int(match[4])
    orders = ((first, second, third), (third, second, first), (third, first, second))
    return any(_is_day(*order) for order in orders)


def _is_day(year: int, month: int, day: int) -> bool:
    try:
        date(year if year > 99 else 2000 + year, month, day)
    except ValueError:
        return False
    return True
