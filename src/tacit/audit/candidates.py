"""Exposure of a planted secret by its exact rank among all candidates, under a causal language model (Carlini et al. 2019).

A canary is a template with six random digits, "My ID is: 281265". Its rank is its place when all 10^6 candidates are sorted by
their total log-likelihood (`tacit.audit.trie`).

    exposure = log2(candidates) - log2(rank)                           (Zhao et al. 2022, definition 9)

A secret was drawn uniformly, independent of everything else, so under a model that learned nothing of it its rank is uniform on
1..N, whatever the model prefers. The null exposure is therefore 1.44 bits for a mean and 4.23 for the highest of ten, not 0.

Planted copies and the unit of protection: see `tacit.corpus.secrets.insert_texts`.

Legend: N candidates, C canaries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaincc
from tokenizers import Tokenizer
from torch import nn

from tacit.audit.scorers import scorer_of
from tacit.audit.trie import build_trie, score_candidates
from tacit.corpus.secrets import SecretFormat
from tacit.errors import UsageError

__all__ = [
    "CandidateExposure",
    "candidate_exposure",
    "max_exposure_p_value",
    "mean_exposure_p_value",
    "measure_candidates",
    "null_max_exposure",
    "null_mean_exposure",
]


@dataclass(frozen=True)
class CandidateExposure:
    """Exposure of several canaries in bits. Numbers only; the ranks together with the model give the secrets away.

    Args:
        canaries: how many.
        candidates: N.
        ranks: of each, 1 is the likeliest; candidates of equal score count half.
        mean_bits, max_bits: mean and maximum of log2 N - log2 rank.
        null_mean_bits, null_max_bits: their expectations where nothing was learned.
        mean_p_value, max_p_value: probability of so much or more where nothing was learned; two tests, not one. Equal scores count
            against the canary here, so that they hold for any model: at most a share p of all keys has a p-value of p or less.
        ceiling_bits: log2 N.
    """

    canaries: int
    candidates: int
    ranks: tuple[float, ...]
    mean_bits: float
    null_mean_bits: float
    mean_p_value: float
    max_bits: float
    null_max_bits: float
    max_p_value: float
    ceiling_bits: float


def null_mean_exposure(candidates: int) -> float:
    """E[log2 N - log2 R] for R uniform on 1..N, of one canary and so of a mean of several: log2 N - log2(N!) / N."""
    return math.log2(candidates) - math.lgamma(candidates + 1) / (candidates * math.log(2))


def null_max_exposure(candidates: int, canaries: int) -> float:
    """Expected highest exposure of distinct secrets of which nothing was learned; about (1 + 1/2 + ... + 1/C) / ln 2.

    The smallest of C distinct ranks is above r with probability prod over i < C of 1 - r / (N - i).
    """
    rank = np.arange(1, candidates)
    above = np.ones(candidates - 1)
    for number in range(canaries):
        above *= np.maximum(1 - rank / (candidates - number), 0)
    return math.log2(candidates) - float((above * np.log2(1 + 1 / rank)).sum())


def max_exposure_p_value(best_rank: float, candidates: int, canaries: int) -> float:
    """P[the smallest of C distinct ranks, uniform on 1..N, is at most ``best_rank``], exact.

    Nearly 1 - (1 - r / N)^C, the law of independent ranks; distinct secrets have distinct ranks.
    """
    rank = math.floor(best_rank)
    if rank > candidates - canaries:
        return 1.0
    return -math.expm1(sum(math.log1p(-rank / (candidates - number)) for number in range(canaries)))


def mean_exposure_p_value(mean_bits: float, candidates: int, canaries: int) -> float:
    """An upper bound on P[mean exposure of C distinct secrets is at least ``mean_bits``], tight except for ranks close to 1.

    A uniform rank is ceil(N U) with U uniform, and ceil(N U) / N >= U: the exposure is at most -log2 U, an exponential variable.
    So C independent exposures have a sum with a smaller tail than the Gamma law of shape C. Distinct ranks are independent ones
    on the condition that they are distinct, which divides by the probability of that.
    """
    tail = float(gammaincc(canaries, max(mean_bits, 0.0) * canaries * math.log(2)))
    distinct = math.prod(1 - number / candidates for number in range(canaries))
    return min(1.0, tail / distinct)


def candidate_exposure(scores_N: np.ndarray, secrets: Sequence[int]) -> CandidateExposure:
    """Exposure of these secrets, all planted equally often, from the scores of all candidates.

    A score that is no number, of a model that diverged, is below all others.

    Raises:
        UsageError: no secret, one that is no candidate, or one twice.
    """
    candidates = len(scores_N)
    if not secrets or len(set(secrets)) != len(secrets) or not all(0 <= secret < candidates for secret in secrets):
        raise UsageError(f"exposure needs distinct secrets from 0 to {candidates - 1}")
    scores_N = np.where(np.isnan(scores_N), -math.inf, scores_N)
    above_C = np.array([np.count_nonzero(scores_N > scores_N[secret]) for secret in secrets])
    worst_C = np.array([np.count_nonzero(scores_N >= scores_N[secret]) for secret in secrets])
    rank_C = (above_C + 1 + worst_C) / 2
    bits_C = math.log2(candidates) - np.log2(rank_C)
    cautious_bits = math.log2(candidates) - float(np.log2(worst_C).mean())
    return CandidateExposure(
        canaries=len(secrets),
        candidates=candidates,
        ranks=tuple(float(rank) for rank in rank_C),
        mean_bits=float(bits_C.mean()),
        null_mean_bits=null_mean_exposure(candidates),
        mean_p_value=mean_exposure_p_value(cautious_bits, candidates, len(secrets)),
        max_bits=float(bits_C.max()),
        null_max_bits=null_max_exposure(candidates, len(secrets)),
        max_p_value=max_exposure_p_value(float(worst_C.min()), candidates, len(secrets)),
        ceiling_bits=math.log2(candidates),
    )


def measure_candidates(
    model: nn.Module,
    tokenizer: Tokenizer,
    secrets: Sequence[int],
    start_ids: Sequence[int],
    form: SecretFormat | None = None,
) -> CandidateExposure:
    """Trie, scores and exposure in one call. The model is left in evaluation mode.

    For several models with one tokenizer, or canaries planted in different numbers, build the trie once and score once a model.
    """
    model.eval()
    scores_N = score_candidates(scorer_of(model), build_trie(tokenizer, form), start_ids)
    return candidate_exposure(scores_N, secrets)
