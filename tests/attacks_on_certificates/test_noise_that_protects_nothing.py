"""Integer noise that is tiny beside what one unit adds is refused in one line, and what is not a number is no delta.

What was wrong: with noise 3 and 5,000 words of a unit (2,500 under replacement) the account ended with a ValueError of the library,
or an IndexError, since exp(epsilon) times 0 is not a number beyond epsilon 709. Taken for a delta, that is below every other one.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from tacit.errors import UsageError
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.falling import as_delta
from tacit.privacy.accounting.histogram import discrete_gaussian_delta, gaussian_delta
from tacit.privacy.events import Gaussian, Relation, Spend, ThresholdedHistogram, WeightedHistogram
from tacit.privacy.ledger import Ledger, LedgerHeader

DELTA = 1e-5
BESIDE = Spend(Gaussian(1000.0))
IN_WORDS = (
    r"noise on the counts of words \(.*\) is less than 1/23 of .*: raise the noise \(noise_stddev, .*\(max_words\)$"
)


def words(most: int) -> Spend:
    return Spend(ThresholdedHistogram(3.0, 60, most))


@pytest.mark.parametrize(
    ("relation", "spends"),
    [
        ("add-or-remove", [words(5000)]),
        ("add-or-remove", [words(5000), BESIDE]),
        ("add-or-remove", [BESIDE, words(5000)]),
        ("replace", [words(2500)]),
        ("replace", [words(2500), BESIDE]),
        ("replace", [BESIDE, words(2500)]),
        ("add-or-remove", [BESIDE, words(40_000)]),
        ("add-or-remove", [BESIDE, Spend(WeightedHistogram(3.0, 655_360, 64, 65_536))]),  # it asked for all memory
    ],
)
def test_tiny_integer_noise_is_refused_in_one_line(relation: Relation, spends: list[Spend]) -> None:
    with pytest.raises(UsageError, match=IN_WORDS) as caught:
        epsilon(spends, DELTA, relation)
    assert "\n" not in str(caught.value)


def test_a_ledger_refuses_it_before_anything_is_paid(tmp_path: Path) -> None:
    header = LedgerHeader("user", "add-or-remove", 1000, 8.0, DELTA, "0" * 64, "c" * 64)
    with Ledger.create(tmp_path / "ledger.sqlite", header) as ledger:
        with pytest.raises(UsageError, match=IN_WORDS):
            ledger.plan("vocabulary", words(5000).event, 1)
        assert not ledger.plans


def test_what_is_just_large_enough_is_counted() -> None:
    """Its epsilon is above 100, and within a tenth above that of a Gaussian mechanism of this distance."""
    most = 1000
    found = epsilon([Spend(ThresholdedHistogram(3.0, 60, most))], DELTA)
    mu = math.sqrt(most) / 3
    assert float(gaussian_delta(found * 0.9, mu)) > DELTA >= float(gaussian_delta(found * 1.001, mu))


@pytest.mark.parametrize("most", [5000, 20_000])
def test_the_hockey_stick_of_many_words_is_a_number_and_that_of_a_gaussian(most: int) -> None:
    epsilons = np.array([-1500.0, -710.0, 0.0, 300.0, 600.0, 709.0, 710.0, 800.0, 1500.0, 1e5])
    found = discrete_gaussian_delta(epsilons, most, 3.0)
    assert np.isfinite(found).all()
    assert np.all(np.diff(found) <= 1e-12)
    seen = found > 1e-60  # a discrete law lies within a few percent of the continuous one there
    assert seen.sum() >= 5
    assert found[seen] == pytest.approx(gaussian_delta(epsilons, math.sqrt(most) / 3)[seen], rel=0.2)


def test_not_a_number_is_no_delta() -> None:
    assert max(0.0, math.nan) == 0.0  # known wrong: what the account took it for
    with pytest.raises(UsageError, match=r"no delta can be computed .*: raise the noise"):
        as_delta(math.nan)
    assert [as_delta(value) for value in (-1.0, 0.5, 2.0, math.inf)] == [0.0, 0.5, 1.0, 1.0]
