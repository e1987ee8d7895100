"""The 18 identifiers that the safe harbour of HIPAA names (45 CFR 164.514(b)(2)(i)), and which detections belong to each.

A detection is no removal, and to remove what is listed is not all that the rule asks for (the rest must identify nobody either). What
the detectors miss of each is measured on labelled text (docs/screening.md), not known from this table.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["IDENTIFIERS", "Identifier"]


@dataclass(frozen=True)
class Identifier:
    """One of them, in few words.

    Args:
        letter: of its paragraph in the rule.
        labels: of the core detector's detections that may be one.
        note: what of it the core detector does not look for.
    """

    letter: str
    name: str
    labels: tuple[str, ...]
    note: str = ""


_NUMBERS = ("record", "code", "number")

IDENTIFIERS: tuple[Identifier, ...] = (
    Identifier(
        "A", "names", ("name",), "in lower case a name that is an ordinary word only after a title or “my name is”"
    ),
    Identifier("B", "places smaller than a state", ("address", "postcode", "name"), "places in lower case"),
    Identifier(
        "C",
        "dates but for the year, ages over 89",
        ("date", "datetime", "age"),
        "a day without its year, such as June 5",
    ),
    Identifier("D", "telephone numbers", ("phone", "number"), "numbers of fewer than four digits"),
    Identifier("E", "fax numbers", ("phone", "number"), "numbers of fewer than four digits"),
    Identifier("F", "e-mail addresses", ("email",)),
    Identifier("G", "social security numbers", ("ssn", "number")),
    Identifier("H", "medical record numbers", _NUMBERS, "numbers of fewer than four digits"),
    Identifier("I", "health plan beneficiary numbers", _NUMBERS, "numbers of fewer than four digits"),
    Identifier("J", "account numbers", ("iban", "card", "order", *_NUMBERS), "numbers of fewer than four digits"),
    Identifier("K", "certificate and licence numbers", _NUMBERS, "numbers of fewer than four digits"),
    Identifier(
        "L",
        "vehicle identifiers, licence plates",
        ("code", "number"),
        "plates of fewer than six signs with less than four digits",
    ),
    Identifier("M", "device identifiers, serial numbers", ("code", "number"), "numbers of fewer than four digits"),
    Identifier("N", "web addresses", ("url", "domain")),
    Identifier("O", "IP addresses", ("ip",)),
    Identifier("P", "biometric identifiers", (), "text alone is read"),
    Identifier("Q", "full-face photographs", (), "text alone is read"),
    Identifier(
        "R",
        "any other unique number, characteristic or code",
        ("record", "code", "number", "mixed"),
        "characteristics in words",
    ),
)
