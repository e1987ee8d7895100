"""Records that are replaced together were accounted without a reserve for the rounding of the composition.

What was wrong: loss distributions are composed by Fourier transforms, whose delta comes out too small by up to 3e-17 a step. Every
account adds 2^-53 a step to delta but that of groups under replacement. Where every step reads every record the truth is one Gaussian
mechanism: two records, 20,000 steps, delta 1e-11 have epsilon 10.116, and 10.107 was stated. Now it is above the truth.

Steps that read every record are no longer composed but taken as that one mechanism. What is composed here leaves a record out
once in 10^12 steps, which moves the truth by less than 1e-6 of delta; the transforms' rounding has either sign, and these are
settings where it falls below on the processors that were tried. How far is the processor's: 9.7765 and 7.2505 were stated on
one, 9.7853 and 7.2661 on another, 9.7853 and 7.2471 on a third, where 9.7882 and 7.2694 are true. So the known-wrong account is
also made without a processor: at a delta that is larger by the reserve, 2^-53 a step.
"""

from __future__ import annotations

import math

import pytest
from scipy import optimize

from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.accounting.replacement import _replacement_pld, replacement_epsilon
from tacit.privacy.events import PoissonGaussian, Spend

NEARLY = 1 - 1e-12


@pytest.mark.parametrize(
    ("noise", "steps", "delta", "true"),
    [(300.0, 10_000, 2e-12, 9.7882), (1200.0, 100_000, 1.3e-11, 7.2694)],
)
def test_a_group_is_not_certified_below_the_truth(noise: float, steps: int, delta: float, true: float) -> None:
    records = 2
    spends = (Spend(PoissonGaussian(NEARLY, noise), steps),)
    mu = 2 * records * math.sqrt(steps) / noise
    exact = float(optimize.brentq(lambda e: float(gaussian_delta(e, mu)) / delta - 1, 0.0, 100.0, xtol=1e-12))
    assert exact == pytest.approx(true, abs=1e-3)
    composed = _replacement_pld(spends, 0.0, records)  # known wrong: no reserve
    without = float(composed.get_epsilon_for_delta(delta))
    assert without == pytest.approx(exact, abs=0.03)
    assert without < exact <= replacement_epsilon(spends, delta, records)
    assert float(composed.get_epsilon_for_delta(delta + 2.0**-53 * steps)) < exact - 1e-3
    everybody = replacement_epsilon([Spend(PoissonGaussian(1.0, noise), steps)], delta, records)
    assert exact <= everybody <= exact * (1 + 1e-6)


def test_where_the_reserve_is_all_of_delta_nothing_is_certified() -> None:
    spends = (Spend(PoissonGaussian(NEARLY, 1200.0), 100_000),)
    assert math.isinf(replacement_epsilon(spends, 1e-11, 2))
    assert math.isfinite(replacement_epsilon(spends, 1.2e-11, 2))


def test_at_usual_deltas_the_reserve_is_not_seen() -> None:
    spends = (Spend(PoissonGaussian(0.05, 2.0), 500),)
    without = float(_replacement_pld(spends, 0.0, 2).get_epsilon_for_delta(1e-5))
    assert without <= replacement_epsilon(spends, 1e-5, 2) <= without * (1 + 1e-6)
