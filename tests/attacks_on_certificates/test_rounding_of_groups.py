"""Records that are replaced together were accounted without a reserve for the rounding of the composition.

What was wrong: loss distributions are composed by Fourier transforms, whose delta comes out too small by up to 3e-17 a step. Every
account adds 2^-53 a step to delta but that of groups under replacement. Where every step reads every record the truth is one Gaussian
mechanism: two records, 20,000 steps, delta 1e-11 have epsilon 10.116, and 10.107 was stated. Now it is above the truth.
"""

from __future__ import annotations

import math

import pytest
from scipy import optimize

from tacit.privacy.events import PoissonGaussian, Spend
from tacit.privacy.histogram import gaussian_delta
from tacit.privacy.replacement import _replacement_pld, replacement_epsilon


@pytest.mark.parametrize(
    ("noise", "steps", "was", "true"), [(400.0, 20_000, 10.107, 10.116), (1200.0, 100_000, 7.270, 7.311)]
)
def test_a_group_is_not_certified_below_the_truth(noise: float, steps: int, was: float, true: float) -> None:
    records, delta = 2, 1e-11
    spends = (Spend(PoissonGaussian(1.0, noise), steps),)
    mu = 2 * records * math.sqrt(steps) / noise
    exact = float(optimize.brentq(lambda e: float(gaussian_delta(e, mu)) / delta - 1, 0.0, 100.0, xtol=1e-12))
    without = float(_replacement_pld(spends, records).get_epsilon_for_delta(delta))  # known wrong: no reserve
    assert (without, exact) == (pytest.approx(was, abs=1e-3), pytest.approx(true, abs=1e-3))
    assert without < exact <= replacement_epsilon(spends, delta, records)


def test_where_the_reserve_is_all_of_delta_nothing_is_certified() -> None:
    spends = (Spend(PoissonGaussian(1.0, 1200.0), 100_000),)
    assert math.isinf(replacement_epsilon(spends, 1e-11, 2))
    assert math.isfinite(replacement_epsilon(spends, 1.2e-11, 2))


def test_at_usual_deltas_the_reserve_is_not_seen() -> None:
    spends = (Spend(PoissonGaussian(0.05, 2.0), 500),)
    without = float(_replacement_pld(spends, 2).get_epsilon_for_delta(1e-5))
    assert without <= replacement_epsilon(spends, 1e-5, 2) <= without * (1 + 1e-6)
