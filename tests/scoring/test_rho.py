"""rho in closed form, its bounds, and what is refused."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit.errors import DataError, UsageError
from tacit.scoring.rho import PrivacyProbability, checked_rho

FINITE = st.floats(-1e6, 1e6)


def by_hand(value: float, lower: float, upper: float) -> float:
    """The formula, one number at a time."""
    if not math.isfinite(value) or value >= upper:
        return 1.0
    return 0.0 if value <= lower else (value - lower) / (upper - lower)


@given(st.lists(st.floats(), max_size=20), FINITE, st.floats(1e-3, 1e6))
def test_the_closed_form(values: list[float], lower: float, width: float) -> None:
    rho = PrivacyProbability(lower, lower + width)
    found = rho.of(values)
    assert found.dtype == np.float64
    np.testing.assert_allclose(
        found, [by_hand(value, lower, lower + width) for value in values], rtol=1e-12, atol=1e-15
    )
    assert ((found >= 0) & (found <= 1)).all()


def test_it_grows_with_perplexity_and_keeps_the_shape() -> None:
    found = PrivacyProbability(1.0, 3.0).of([[0.5, 1.0, 1.5], [2.0, 3.0, 9.0]])
    assert found.tolist() == [[0.0, 0.0, 0.25], [0.5, 1.0, 1.0]]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_cannot_be_scored_is_most_private(value: float) -> None:
    assert PrivacyProbability(1.0, 3.0).of(value) == 1.0


def test_far_values_do_not_overflow() -> None:
    with np.errstate(all="raise"):
        assert PrivacyProbability(-1e308, 1e300).of([-1.7e308, 1.7e308]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("lower", "upper", "part"),
    [
        (2.0, 2.0, "below upper"),
        (3.0, 2.0, "below upper"),
        (math.nan, 2.0, "finite"),
        (1.0, math.inf, "finite"),
        (-1.7e308, 1.7e308, "too far apart"),
    ],
)
def test_bounds_that_make_no_rho(lower: float, upper: float, part: str) -> None:
    with pytest.raises(UsageError, match=part) as caught:
        PrivacyProbability(lower, upper)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bad", [-1e-9, 1 + 1e-9, math.nan, math.inf])
def test_a_rho_outside_the_unit_interval(bad: float) -> None:
    with pytest.raises(DataError, match=r"scores\.jsonl, line 3: a rho lies outside \[0, 1\]"):
        checked_rho([0.0, bad, 1.0], "scores.jsonl, line 3")
    assert checked_rho([0.0, 0.5, 1.0], "x").tolist() == [0.0, 0.5, 1.0]


def test_rho_and_scores_need_no_torch() -> None:
    code = (
        "import sys, tacit.scoring.rho, tacit.scoring.scores\n"
        "assert not {'torch', 'transformers', 'dp_accounting', 'matplotlib'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
