"""The Gaussian family of trade-off curves."""

from __future__ import annotations

import functools

from tacit.privacy.textbook.loss import GaussianLoss

__all__ = ["gaussian_epsilon"]


@functools.lru_cache(maxsize=4096)
def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon at delta of a mu-GDP mechanism (Dong, Roth and Su 2022, corollary 2.13; Balle and Wang 2018); 0 for mu <= 0."""
    return GaussianLoss(mu).epsilon(delta) if mu > 0 else 0.0
