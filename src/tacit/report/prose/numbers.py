"""Numbers as text, rounded so that none of them claims more than it may: an upper bound is rounded up, a "1 in N" down."""

from __future__ import annotations

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal

from tacit.report.schema import INFINITY

__all__ = ["NBSP", "at_least_text", "bound_text", "number_text", "odds_text", "percent_text", "power_text"]

NBSP = "\N{NO-BREAK SPACE}"
_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_text(value: float, digits: int = 3) -> str:
    """A small or large number as a power of ten, rounded up: ``2.5e-6`` is ``2.5 × 10⁻⁶``, ``1e-6`` is ``10⁻⁶``."""
    mantissa, exponent = f"{_ceiling(value, digits):e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    power = "10" + str(int(exponent)).translate(_SUPERSCRIPTS)
    return power if mantissa == "1" else f"{mantissa}{NBSP}×{NBSP}{power}"


def bound_text(value: float, digits: int = 3) -> str:
    """An upper bound, rounded up to significant digits: ``3.7612`` is ``3.77``, infinity is ``infinity``."""
    if math.isinf(value):
        return INFINITY
    if value == 0:
        return "0"
    if not 1e-3 <= value < 1e6:
        return power_text(value, digits)
    rounded = _ceiling(value, digits)
    return f"{rounded.to_integral():,f}" if rounded == rounded.to_integral() else f"{rounded:,f}"


def at_least_text(value: float, digits: int = 3) -> str:
    """A lower bound, rounded down to significant digits: ``0.6289`` is ``0.628``."""
    rounded = Context(prec=digits, rounding=ROUND_FLOOR).create_decimal(str(value))
    return "0" if rounded < Decimal("0.001") else f"{rounded.normalize():,f}"


def number_text(value: float | int | str, digits: int = 6) -> str:
    """A parameter or a measurement, rounded to the nearest: ``12000`` is ``12,000``, ``1e-06`` is ``10⁻⁶``."""
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return f"{value:,}"
    rounded = f"{value:,.{digits}g}"
    return power_text(float(rounded), digits) if "e" in rounded else rounded


def percent_text(probability: float) -> str:
    """An upper bound on a probability in per cent, rounded up; near 100 with as many digits as tell it from 100."""
    percent = Decimal(str(probability)) * 100
    decimals = 1 if percent < 99 else min(4, 1 - (100 - percent).adjusted()) if percent < 100 else 0
    rounded = percent.quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_CEILING)
    return f"{100 if rounded == 100 else rounded}{NBSP}%"


def odds_text(probability: float) -> str:
    """An upper bound on a small probability as ``1 in N``, N rounded down; from a tenth on in per cent."""
    return f"1{NBSP}in{NBSP}{math.floor(1 / probability + 1e-9):,}" if probability < 0.1 else percent_text(probability)


def _ceiling(value: float, digits: int) -> Decimal:
    # str gives the shortest decimal that means this float: 1e-5 must not become 1.01e-5 by its last binary digit
    return Context(prec=digits, rounding=ROUND_CEILING).create_decimal(str(value))
