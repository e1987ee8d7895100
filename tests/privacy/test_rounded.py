"""What is printed of an upper bound is never below it, and at most one unit of its last digit above."""

from __future__ import annotations

import math
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.privacy.rounded import upper


@given(st.floats(1e-12, 1e9), st.sampled_from([".2f", ".3f", ".4f", ".4g", ".3g"]))
def test_never_below_and_never_far_above(value: float, spec: str) -> None:
    printed = Decimal(upper(value, spec))
    assert printed >= Decimal(str(value))
    unit = Decimal(1).scaleb(-int(spec[1])) if spec.endswith("f") else Decimal(str(value)).scaleb(1 - int(spec[1]))
    assert printed - Decimal(str(value)) <= unit


@pytest.mark.parametrize(
    ("value", "spec", "text"),
    [
        (8.9931, ".2f", "9.00"),
        (0.000519, ".2f", "0.01"),
        (8.0, ".2f", "8.00"),
        (7.994, ".4g", "7.994"),
        (9.00004, ".4g", "9.001"),
        (9.99999, ".4g", "10"),
        (1.23456e-5, ".3g", "0.0000124"),
        (0.0, ".4g", "0"),
        (math.inf, ".2f", "inf"),
    ],
)
def test_examples(value: float, spec: str, text: str) -> None:
    assert upper(value, spec) == text


def test_to_the_nearest_would_be_seen() -> None:
    """Known wrong: what was printed."""
    assert Decimal(f"{0.000519:.2f}") < Decimal("0.000519") <= Decimal(upper(0.000519, ".2f"))
