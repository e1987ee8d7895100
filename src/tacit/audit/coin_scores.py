"""How much an audit example looks trained on: `SCORES`, larger for members. A new one is a function and a row. Needs no torch.

Shapes: m examples, P tokens of each.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

__all__ = ["SCORES", "Seen", "TokenNats"]

_LEAST_LIKELY = 0.2


@dataclass(frozen=True, eq=False)
class TokenNats:
    """What a model says of each token of each example.

    Args:
        nats_mP: -ln of its probability.
        mean_mP: what such a number is on average over the model's own law of the token there: its entropy.
        deviation_mP: the standard deviation of the same.
    """

    nats_mP: np.ndarray
    mean_mP: np.ndarray
    deviation_mP: np.ndarray


@dataclass(frozen=True, eq=False)
class Seen:
    """All that a score may read. It says nothing of the coins.

    Args:
        after: under the attacked model.
        before: under the model as it was before the private phases.
        texts_m: the examples as text.
    """

    after: TokenNats
    before: TokenNats
    texts_m: tuple[str, ...]


def _loss(seen: Seen) -> np.ndarray:
    """Yeom et al. 2018, arXiv 1709.01604; of a masked model the pseudo-log-likelihood (Salazar et al. 2020, arXiv 1910.14659)."""
    return -seen.after.nats_mP.mean(axis=1)


def _calibrated(seen: Seen) -> np.ndarray:
    """The loss minus that of the model before its private phases: some texts are likely to any model (Watson et al. 2022,
    arXiv 2111.08440).
    """
    return (seen.before.nats_mP - seen.after.nats_mP).mean(axis=1)


def _zlib(seen: Seen) -> np.ndarray:
    """Loss over the length of the compressed text (Carlini et al. 2021, arXiv 2012.07805)."""
    lengths_m = np.array([len(zlib.compress(text.encode())) for text in seen.texts_m])
    return -seen.after.nats_mP.sum(axis=1) / lengths_m


def _min_k(seen: Seen) -> np.ndarray:
    """Loss of the least likely fifth of the tokens (Shi et al. 2024, arXiv 2310.16789)."""
    return _least(-seen.after.nats_mP)


def _min_k_plus(seen: Seen) -> np.ndarray:
    """Min-k% with each token in deviations from the mean of the model's own law (Zhang et al. 2024, arXiv 2404.02936)."""
    after = seen.after
    return _least((after.mean_mP - after.nats_mP) / np.maximum(after.deviation_mP, 1e-9))


def _least(likely_mP: np.ndarray) -> np.ndarray:
    least = math.ceil(_LEAST_LIKELY * likely_mP.shape[1])
    return np.sort(likely_mP, axis=1)[:, :least].mean(axis=1)


SCORES: dict[str, Callable[[Seen], np.ndarray]] = {
    "calibrated": _calibrated,
    "loss": _loss,
    "zlib": _zlib,
    "min-k": _min_k,
    "min-k++": _min_k_plus,
}
"""By name; each gives (m,)."""
