"""Bounds on what is missed, against the binomial law."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scipy import stats

from tacit.errors import UsageError
from tacit.privacy.confidentiality.misses import Labels, labels_needed, missed_delta


def test_bounds_from_two_hundred_labels() -> None:
    assert Labels(200, 20).upper(0.95) == pytest.approx(0.142, abs=1e-4)
    assert Labels(200, 0).upper(0.95) == pytest.approx(0.0149, abs=1e-4)
    assert labels_needed(8e-5) == pytest.approx(37_500, rel=0.002)


@pytest.mark.parametrize(("labelled", "missed"), [(200, 20), (200, 0), (37, 36), (1, 0)])
def test_the_upper_bound_is_where_so_few_misses_become_unlikely(labelled: int, missed: int) -> None:
    for confidence in (0.5, 0.95, 0.999):
        upper = Labels(labelled, missed).upper(confidence)
        assert stats.binom.cdf(missed, labelled, upper) == pytest.approx(1 - confidence, rel=1e-6)
    assert Labels(labelled, labelled).upper(0.95) == 1.0


def test_labels_needed_is_the_smallest_number() -> None:
    for share in (0.3, 0.01, 8e-5):
        needed = labels_needed(share, 0.95)
        assert Labels(needed, 0).upper(0.95) <= share < Labels(needed - 1, 0).upper(0.95)


@pytest.mark.parametrize(
    ("ask", "named"),
    [
        (lambda: missed_delta(1e-3, 0.0), "not above delta"),
        (lambda: Labels(10, 11), "11 missed of 10"),
        (lambda: Labels(0, 0), "labelled"),
        (lambda: labels_needed(0.0), "share"),
    ],
)
def test_what_cannot_be_stated_is_one_line(ask: Callable[[], object], named: str) -> None:
    with pytest.raises(UsageError, match=named) as caught:
        ask()
    assert "\n" not in str(caught.value)
