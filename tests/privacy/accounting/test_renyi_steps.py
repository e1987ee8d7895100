"""Renyi divergences of sampled steps against the library's, to the bit."""

from __future__ import annotations

import logging

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant as library

from tacit.privacy.accounting.renyi import _ORDERS
from tacit.privacy.accounting.renyi_steps import sampled_divergences


def expected(probability: float, noise: float, orders: tuple[float, ...] = _ORDERS) -> np.ndarray:
    return library._compute_rdp_poisson_subsampled_gaussian(probability, noise, np.array(orders))


@pytest.mark.parametrize("noise", [0.06, 0.5, 1.0, 1.37, 12.0, 900.0])
@pytest.mark.parametrize("probability", [1e-7, 0.003, 0.04, 0.5, 0.99, 1 - 1e-7])
def test_they_are_the_librarys(probability: float, noise: float) -> None:
    assert np.array_equal(sampled_divergences(probability, noise, _ORDERS), expected(probability, noise))


def test_all_units_or_none() -> None:
    for probability in (0.0, 1.0):
        assert np.array_equal(sampled_divergences(probability, 1.3, _ORDERS), expected(probability, 1.3))


def test_an_order_whose_series_does_not_end_is_infinite(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, logger="absl")
    found = sampled_divergences(0.6, 1.0, (1.01, 1.1, 2.0))
    assert np.array_equal(found, expected(0.6, 1.0, (1.01, 1.1, 2.0)))
    assert np.isinf(found[0])
    assert np.isfinite(found[-1])
