"""Exposure of planted canaries under a masked language model (Hoory et al. 2021, section 5.2; Carlini et al. 2019).

For every canary the model scores each word piece as the secret, by its mean log-probability over several contexts in which the
canary stands with its secret masked; the secret's place in that order is its rank. In public contexts the result is a function of
the released model and the keyed canaries alone: it costs no privacy. In the sequences that the canary was planted in it is private.

    exposure = log2(candidates) - log2(mean rank over the canaries of a pattern)

The secret was drawn uniformly from the candidates, independent of everything: under a model that learned nothing of it its rank
is uniform on 1..V, whatever the model prefers and wherever the canary stands. So the null of the mean rank of n canaries is the
mean of n uniform numbers: that gives the null's expected exposure (1.02 bits for ten canaries, not 0) and an exact p-value.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.audit.exposed import Exposure
from tacit.corpus.canaries import Canary, insert_pieces
from tacit.models.masked import masked_logits
from tacit.randomness import KeyedRandomness
from tacit.training.masking import Masking, single_mask_rows

__all__ = [
    "Contexts",
    "exposure_of_ranks",
    "inserted",
    "measure_exposure",
    "null_exposure",
    "rank_p_value",
    "secret_ranks",
]


@functools.lru_cache(maxsize=32)
def _uniform_sum_weights(candidates: int, canaries: int) -> np.ndarray:
    """Probabilities of the sum of ``canaries`` ranks uniform on 1..candidates; entry s is the sum canaries + s."""
    weights = np.ones(1)
    window = np.full(candidates, 1.0 / candidates)
    for _ in range(canaries):
        # A convolution with a window is a difference of running sums: exact enough (1e-12) and linear in time.
        running = np.concatenate([np.cumsum(weights), np.full(candidates - 1, weights.sum())])
        shifted = np.concatenate([np.zeros(candidates), running[:-candidates]])
        weights = (running - shifted) * window[0]
    return np.maximum(weights, 0.0)


def rank_p_value(mean_rank: float, candidates: int, canaries: int) -> float:
    """P[mean of ``canaries`` ranks uniform on 1..candidates is at most ``mean_rank``], by exact convolution."""
    weights = _uniform_sum_weights(candidates, canaries)
    at_most = math.floor(mean_rank * canaries + 1e-9) - canaries
    if at_most < 0:
        return 0.0
    # Small sums have the closed form C(s + n, n) / V^n, which does not lose digits to cancellation.
    if at_most < candidates:
        logarithm = (
            math.lgamma(at_most + canaries + 1)
            - math.lgamma(at_most + 1)
            - math.lgamma(canaries + 1)
            - canaries * math.log(candidates)
        )
        return min(1.0, math.exp(logarithm))
    return float(min(1.0, weights[: at_most + 1].sum()))


def null_exposure(candidates: int, canaries: int) -> float:
    """Expected exposure in bits when nothing was learned."""
    weights = _uniform_sum_weights(candidates, canaries)
    means = (np.arange(len(weights)) + canaries) / canaries
    return float(math.log2(candidates) - (weights * np.log2(means)).sum() / weights.sum())


def exposure_of_ranks(
    pattern: str, ranks: np.ndarray, candidates: int, last_ranks: np.ndarray | None = None
) -> Exposure:
    """Exposure, null and p-value of the ranks of one pattern's secrets.

    Args:
        last_ranks: the ranks where each secret stands behind all candidates of the same score, from which the p-value is computed, so
            that ties do not make it smaller. None: there are no ties.
    """
    mean_rank = float(np.mean(ranks))
    last = mean_rank if last_ranks is None else float(np.mean(last_ranks))
    return Exposure(
        pattern=pattern,
        canaries=len(ranks),
        mean_rank=mean_rank,
        bits=math.log2(candidates) - math.log2(mean_rank),
        null_bits=null_exposure(candidates, len(ranks)),
        p_value=rank_p_value(last, candidates, len(ranks)),
        ceiling_bits=math.log2(candidates),
    )


@dataclass(frozen=True, eq=False)
class Contexts:
    """Sequences in which one canary stands: C of them.

    Args:
        ids_CT: int64 token ids.
        lengths_C: of the sequences.
        positions_C: of the secret.
    """

    ids_CT: np.ndarray
    lengths_C: np.ndarray
    positions_C: np.ndarray

    def __repr__(self) -> str:
        return "Contexts(<may be private>)"


def inserted(
    canaries: Sequence[Canary], contexts_CT: np.ndarray, lengths_C: np.ndarray, streams: KeyedRandomness
) -> list[Contexts]:
    """Each canary put into the same sequences, at random places."""
    found: list[Contexts] = []
    for number, canary in enumerate(canaries):
        generator = streams.generator("context", canary.pattern, number)
        ids, lengths = contexts_CT.astype(np.int64), lengths_C.copy()
        positions = np.empty(len(ids), dtype=np.int64)
        for row in range(len(ids)):
            start, lengths[row] = insert_pieces(ids[row], int(lengths[row]), canary.pieces, generator)
            positions[row] = start + canary.secret_offset
        found.append(Contexts(ids, lengths, positions))
    return found


def secret_ranks(
    model: PreTrainedModel, canaries: Sequence[Canary], contexts: Sequence[Contexts], masking: Masking
) -> np.ndarray:
    """The rank of every canary's secret among all pieces that are no special token (1 is the likeliest).

    Ties count half, so that a constant model has the middle rank. A score that is no number is below all others: a model that
    diverged tells nothing, and whether there is a release must not hang on that (the control is trained without noise).

    Args:
        contexts: of each canary.
    """
    first, last = _first_and_last_ranks(model, canaries, contexts, masking)
    return (first + last) / 2


@torch.no_grad()
def _first_and_last_ranks(
    model: PreTrainedModel, canaries: Sequence[Canary], contexts: Sequence[Contexts], masking: Masking
) -> tuple[np.ndarray, np.ndarray]:
    """The rank before all others of the same score, and the one behind them."""
    model.eval()
    first, last = np.empty(len(canaries)), np.empty(len(canaries))
    for number, (canary, own) in enumerate(zip(canaries, contexts, strict=True)):
        masked = single_mask_rows(own.ids_CT, own.lengths_C, own.positions_C, masking)
        logits_C1V = masked_logits(
            model,
            torch.from_numpy(masked.ids_BT),
            torch.from_numpy(masked.attention_BT.astype(np.int64)),
            torch.from_numpy(masked.slots_BK),
        )
        scores_V = (
            logits_C1V[:, 0, masking.ordinary].double().log_softmax(dim=-1).mean(dim=0).nan_to_num(-math.inf).numpy()
        )
        mine = scores_V[np.searchsorted(masking.ordinary, canary.secret)]
        first[number], last[number] = 1 + (scores_V > mine).sum(), (scores_V >= mine).sum()
    return first, last


def measure_exposure(
    model: PreTrainedModel, canaries: Sequence[Canary], contexts: Sequence[Contexts], masking: Masking
) -> list[Exposure]:
    """Exposure of every pattern, in the canaries' order.

    Args:
        contexts: of each canary.
    """
    first, last = _first_and_last_ranks(model, canaries, contexts, masking)
    patterns = np.array([canary.pattern for canary in canaries])
    return [
        exposure_of_ranks(pattern, ((first + last) / 2)[own], len(masking.ordinary), last[own])
        for pattern in dict.fromkeys(patterns.tolist())
        for own in (patterns == pattern,)
    ]
