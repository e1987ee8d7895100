"""What is computed of Wu et al. 2022's epsilon, beside a quadrature; and a noise that says nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from tacit.reproduce.adp.printed import PARAMETERS, acceptable, nats_of_scale


@pytest.mark.parametrize(("own", "other"), [(1.0, 0.9), (0.5, 0.6), (1.0, 1 - 1 / 4096)])
def test_nats_of_noise_of_another_size(own: float, other: float) -> None:
    at_X = np.linspace(-14, 14, 400_001)
    p_X, log_ratio_X = (
        stats.norm.pdf(at_X, scale=own),
        stats.norm.logpdf(at_X, scale=own) - stats.norm.logpdf(at_X, scale=other),
    )
    expected = 1000 * float(np.trapezoid(p_X * log_ratio_X, at_X))
    assert nats_of_scale(own, other, 1000) == pytest.approx(expected, rel=1e-5)


def test_no_noise_beside_some_tells_everything() -> None:
    assert nats_of_scale(0.1, 0.0, 1) == nats_of_scale(0.0, 0.1, 1) == math.inf
    assert nats_of_scale(0.0, 0.0, 1) == nats_of_scale(0.3, 0.3, PARAMETERS) == 0.0


def test_an_infinite_epsilon_is_in_no_range() -> None:
    """Known right, and so undecided, since no range is printed: noise that does not hang on the batch."""
    claim = acceptable()
    assert (claim.verdict, claim.computed) == ("does not hold", True)
    assert "9.0 nats" in claim.numbers  # 151 million parameters over 4096^2
    assert pytest.approx(9.0, abs=0.01) == PARAMETERS / 4096**2
    constant = acceptable(1.0, 1.0)
    assert (constant.verdict, constant.computed) == ("undecided", True)
    finite = acceptable(0.5, 0.5 - 1 / 4096)
    assert finite.verdict == "undecided"
    assert "36.0 nats" in finite.numbers
