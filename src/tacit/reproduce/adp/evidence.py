"""What the claims are judged by: log ratios of perplexities, exposures and shares, each with its interval.

Shapes: S replicates, D test documents.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from tacit.audit.inference import Estimate
from tacit.reproduce.adp.scale import Cell, Scale
from tacit.reproduce.judging import log_ratio, over_seeds

__all__ = ["Evidence", "Model", "exposure_estimate", "mean_share", "share_difference"]

Model = Cell | str
"""A trained model, of any replicate; or what has read no private text: ``model`` (where all begin) or ``unigram``."""


@dataclass(frozen=True)
class Evidence:
    """The results that are there, at a level.

    Args:
        level: of an interval, both tails; already divided by the number of claims.
    """

    results: Mapping[str, Mapping[str, Any]]
    scale: Scale
    level: float

    def seeds(self, *models: Model) -> list[int]:
        """Replicates that have all these models."""
        cells = [model for model in models if isinstance(model, Cell)]
        return [
            seed
            for seed in range(self.scale.seeds)
            if all(_of_seed(cell, seed).name in self.results for cell in cells) and "public" in self.results
        ]

    def log_ratio(self, own: Sequence[Model], other: Sequence[Model], text: str) -> Estimate | None:
        """ln of the ratio of perplexities; of several models the product of theirs, on each side as many."""
        seeds = self.seeds(*own, *other)
        if not seeds:
            return None
        if all(isinstance(model, str) for model in (*own, *other)):
            seeds = [0, 0]  # of these there is one model, and the draw is that of the documents alone
        own_SD, other_SD = (np.sum([self._nats(model, seeds, text) for model in side], axis=0) for side in (own, other))
        tokens_D = np.array(self.results["public"]["test"][text]["model"]["document_tokens"])
        return log_ratio(own_SD, other_SD, tokens_D, self.level)

    def perplexity(self, model: Model, text: str) -> float:
        """Geometric mean over the replicates."""
        tokens = sum(self.results["public"]["test"][text]["model"]["document_tokens"])
        return math.exp(float(self._nats(model, self.seeds(model), text).sum(axis=1).mean()) / tokens)

    def _nats(self, model: Model, seeds: Sequence[int], text: str) -> np.ndarray:
        if isinstance(model, str):
            return np.array([self.results["public"]["test"][text][model]["document_nats"]] * len(seeds))
        return np.array([self._of(model, seed)["test"][text]["document_nats"] for seed in seeds])

    def exposure(self, cell: Cell) -> Estimate | None:
        """Mean bits of the replicates' canaries."""
        bits_S = self.bits(cell, self.seeds(cell))
        return exposure_estimate(bits_S, self.level) if len(bits_S) else None

    def exposure_difference(self, own: Cell, other: Cell) -> Estimate | None:
        """Mean bits more than under another model, whose canaries are the same."""
        seeds = self.seeds(own, other)
        if not seeds:
            return None
        return over_seeds(self.bits(own, seeds) - self.bits(other, seeds), 0.0, 1, self.level)

    def bits(self, cell: Cell, seeds: Sequence[int]) -> np.ndarray:
        """Exposure in each replicate (S,)."""
        return np.array([self._of(cell, seed)["exposure"]["bits"] for seed in seeds])

    def _of(self, cell: Cell, seed: int) -> Mapping[str, Any]:
        return self.results[_of_seed(cell, seed).name]


def _of_seed(cell: Cell, seed: int) -> Cell:
    return dataclasses.replace(cell, seed=seed)


def exposure_estimate(bits_S: np.ndarray, level: float) -> Estimate:
    """Mean exposure of independently drawn canaries.

    A canary of which nothing was learned has a uniform rank, so its exposure in nats is exponential and their sum has the Gamma law
    of shape S (`tacit.audit.candidates.mean_exposure_p_value`): the interval is that of the mean of an exponential law, exact there.
    Ranks that were learned vary less, relative to their mean, and the interval is too wide.
    """
    mean, doubled = float(bits_S.mean()), 2 * len(bits_S)
    low, high = (doubled / float(stats.chi2.isf(tail, doubled)) for tail in (level / 2, 1 - level / 2))
    return Estimate(mean, mean * low, mean * high)


def mean_share(found: Mapping[str, Any], level: float) -> Estimate:
    """The mean share of private-like lines of a document, over documents."""
    return _sum_of_means([_shares(found)], level)


def share_difference(own: Mapping[str, Any], other: Mapping[str, Any], level: float) -> Estimate:
    """How much larger the mean share is than among other documents."""
    return _sum_of_means([_shares(own), -_shares(other)], level)


def _shares(found: Mapping[str, Any]) -> np.ndarray:
    return np.array(found["private_like"]) / np.array(found["lines"])


def _sum_of_means(samples: Sequence[np.ndarray], level: float) -> Estimate:
    """The sum of means of independent samples; documents are independent, lines of one are not. The margin is as in `over_seeds`."""
    mean = float(sum(sample.mean() for sample in samples))
    if min(map(len, samples)) < 2:
        return Estimate(mean, -math.inf, math.inf)
    margin = math.hypot(
        *(float(stats.t.isf(level / 2, len(own) - 1)) * float(own.std(ddof=1)) / math.sqrt(len(own)) for own in samples)
    )
    return Estimate(mean, mean - margin, mean + margin)
