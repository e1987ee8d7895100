"""Bounds as text: an upper one is never printed below what holds, nor a lower one above it."""

from __future__ import annotations

import math
from decimal import Decimal

__all__ = ["lower", "upper"]


def upper(value: float, spec: str = ".4g") -> str:
    """An upper bound in a format of numbers, rounded up.

    >>> upper(8.9931, ".2f"), upper(0.000519, ".2f"), upper(9.00004), upper(math.inf)
    ('9.00', '0.01', '9.001', 'inf')
    """
    text = format(value, spec)
    if not math.isfinite(value) or Decimal(text) >= Decimal(str(value)):
        return text
    digits = Decimal(format(value, f"#{spec}"))  # with the zeros at its end, which say how far it was rounded
    return format(digits + Decimal(1).scaleb(int(digits.as_tuple().exponent)), "f")


def lower(value: float, spec: str = ".4g") -> str:
    """A lower bound, at least 0, in a format of numbers, rounded down.

    >>> lower(2.4186, ".2f"), lower(0.0), lower(4.5678)
    ('2.41', '0', '4.567')
    """
    return upper(-value, spec).removeprefix("-")
