"""Checks of numbers: each raises one line that names the number, its value and what it must be."""

from __future__ import annotations

import math

from tacit.errors import UsageError

__all__ = ["require_delta", "require_finite", "require_fraction", "require_positive", "require_whole"]


def require_finite(name: str, value: float) -> None:
    """Raises UsageError unless ``value`` is a finite number."""
    if not math.isfinite(value):
        raise UsageError(f"{name} is {value!r}; it must be a finite number")


def require_positive(name: str, value: float) -> None:
    """Raises UsageError unless ``value`` is a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{name} is {value!r}; it must be a finite number above 0")


def require_fraction(name: str, value: float) -> None:
    """Raises UsageError unless ``value`` lies strictly between 0 and 1."""
    if not 0 < value < 1:
        raise UsageError(f"{name} is {value!r}; it must be above 0 and below 1")


def require_delta(delta: float) -> None:
    """Raises UsageError unless ``delta`` lies strictly between 0 and 1."""
    require_fraction("delta", delta)


def require_whole(name: str, value: float, at_least: int) -> None:
    """Raises UsageError unless ``value`` is a whole number of at least ``at_least``."""
    if not (value >= at_least and float(value).is_integer()):
        raise UsageError(f"{name} is {value!r}; it must be a whole number of at least {at_least}")
