"""Exposure of a planted secret by its exact rank among all candidates, under a causal language model (Carlini et al. 2019).

A canary is a template with six random digits, "My ID is: 281265". Its rank is its place when all 10^6 candidates are sorted by
their *total* log-likelihood, all tokens of "My ID is: dddddd" given a start token. The total is what the definition asks for: a
mean a token would favour digits that the tokenizer happens to spell with many pieces. Candidates share prefixes, so their token
sequences form a trie; each distinct prefix is read once, and the last piece of a candidate is never read, only predicted.
Six single digits cost 111,111 evaluations instead of 6 million, whatever the tokenizer makes of the digits.

    exposure = log2(candidates) - log2(rank)                           (Zhao et al. 2022, definition 9)

A secret was drawn uniformly, independent of everything else, so under a model that learned nothing of it its rank is uniform on
1..N, whatever the model prefers. The null exposure is therefore 1.44 bits for a mean and 4.23 for the highest of ten, not 0.

Planted copies and the unit of protection: see `tacit.corpus.secrets.insert_texts`.

Legend: N candidates, T tokens, M prefixes (nodes of the trie) at one time, K their children, V vocabulary, C canaries.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch
from scipy.special import gammaincc
from tokenizers import Tokenizer
from torch import Tensor, nn
from transformers import DynamicCache

from tacit.corpus.secrets import SecretFormat
from tacit.errors import DataError, UsageError

__all__ = [
    "BUDGET_BYTES",
    "SCORERS",
    "CacheScorer",
    "CandidateExposure",
    "PrefixScorer",
    "Read",
    "Scorer",
    "StateScorer",
    "Trie",
    "build_trie",
    "candidate_exposure",
    "max_exposure_p_value",
    "mean_exposure_p_value",
    "measure_candidates",
    "null_max_exposure",
    "null_mean_exposure",
    "plain_tokenizer",
    "score_candidates",
    "scorer_of",
]

S = TypeVar("S")

BUDGET_BYTES = 64 * 2**20
"""Memory of the logits, or of the states if these are larger, of the prefixes that are read at one time."""

_ENCODED_AT_ONCE = 50_000


# Reading prefixes


@dataclass(frozen=True)
class Read(Generic[S]):
    """What a model says after M prefixes of equal length.

    Args:
        logits_MV: about the next token.
        state: whatever the scorer needs to read one more token.
        row_bytes: memory that one such prefix takes while it is read.
    """

    logits_MV: Tensor
    state: S
    row_bytes: int


class Scorer(Protocol[S]):
    """A causal model that reads many prefixes, token by token. Rows and tokens are int64 on the CPU."""

    def begin(self, ids: Sequence[int]) -> Read[S]:
        """Read one sequence."""
        ...

    def extend(self, state: S, rows_M: Tensor, tokens_M: Tensor) -> Read[S]:
        """Read token m after the prefix in row ``rows_M[m]`` of the state."""
        ...


@dataclass(frozen=True)
class PrefixScorer:
    """Reads whole prefixes again and again: any ``model(input_ids=..., attention_mask=...).logits``, and the slowest."""

    model: nn.Module

    def begin(self, ids: Sequence[int]) -> Read[Tensor]:
        return self._read(torch.tensor([list(ids)]))

    def extend(self, state: Tensor, rows_M: Tensor, tokens_M: Tensor) -> Read[Tensor]:
        return self._read(torch.cat([state[rows_M], tokens_M[:, None]], dim=1))

    def _read(self, ids_MT: Tensor) -> Read[Tensor]:
        on_device = ids_MT.to(_device(self.model))
        logits_MTV = self.model(input_ids=on_device, attention_mask=torch.ones_like(on_device)).logits
        # A copy: a view would keep the logits of all positions.
        return Read(logits_MTV[:, -1].clone(), ids_MT, _row_bytes(logits_MTV))


@dataclass(frozen=True)
class StateScorer:
    """Carries a recurrent state, as `tacit.models.lstm.LstmForCausalLM` does.

    The model takes ``state=`` (None at first) and returns it with the logits: a tuple of tensors with rows in dimension 1.
    """

    model: nn.Module

    def begin(self, ids: Sequence[int]) -> Read[tuple[Tensor, ...]]:
        return self._read(torch.tensor([list(ids)]), None)

    def extend(self, state: tuple[Tensor, ...], rows_M: Tensor, tokens_M: Tensor) -> Read[tuple[Tensor, ...]]:
        rows = rows_M.to(_device(self.model))
        return self._read(tokens_M[:, None], tuple(part.index_select(1, rows) for part in state))

    def _read(self, ids_MT: Tensor, state: tuple[Tensor, ...] | None) -> Read[tuple[Tensor, ...]]:
        output = self.model(input_ids=ids_MT.to(_device(self.model)), state=state)
        logits_MV = output.logits[:, -1]
        return Read(
            logits_MV, output.state, max(_row_bytes(logits_MV), sum(map(_row_bytes, output.state)) // len(ids_MT))
        )


@dataclass(frozen=True)
class CacheScorer:
    """Carries keys and values, for transformers' decoders that fill a ``DynamicCache``, such as GPT-2."""

    model: nn.Module

    def begin(self, ids: Sequence[int]) -> Read[DynamicCache]:
        return self._read(torch.tensor([list(ids)]), DynamicCache())

    def extend(self, state: DynamicCache, rows_M: Tensor, tokens_M: Tensor) -> Read[DynamicCache]:
        rows = rows_M.to(_device(self.model))
        cache = DynamicCache()
        for number, (keys, values) in enumerate(_keys_and_values(state)):
            cache.update(keys.index_select(0, rows), values.index_select(0, rows), number)
        return self._read(tokens_M[:, None], cache)

    def _read(self, ids_MT: Tensor, cache: DynamicCache) -> Read[DynamicCache]:
        ids_MT = ids_MT.to(_device(self.model))
        ones_MT = ids_MT.new_ones(len(ids_MT), cache.get_seq_length() + ids_MT.shape[1])
        output = self.model(input_ids=ids_MT, attention_mask=ones_MT, past_key_values=cache, use_cache=True)
        logits_MV = output.logits[:, -1]
        kept = sum(_row_bytes(keys) + _row_bytes(values) for keys, values in _keys_and_values(cache))
        return Read(logits_MV, cache, max(_row_bytes(logits_MV), kept))


SCORERS: dict[str, Callable[[nn.Module], Scorer[Any]]] = {"tacit-lstm": StateScorer, "gpt2": CacheScorer}
"""Scorers faster than `PrefixScorer`, by the ``model_type`` of a model's config."""


def scorer_of(model: Any) -> Scorer[Any]:
    """The fastest scorer for a transformers model."""
    return SCORERS.get(model.config.model_type, PrefixScorer)(model)


def _device(model: nn.Module) -> torch.device:
    return next(model.parameters()).device


def _row_bytes(tensor: Tensor) -> int:
    return tensor.nbytes // len(tensor)


def _keys_and_values(cache: DynamicCache) -> list[tuple[Tensor, Tensor]]:
    layers: list[Any] = cache.layers
    return [(layer.keys, layer.values) for layer in layers]


# The trie


@dataclass(frozen=True)
class _Level:
    """The distinct prefixes of one length, sorted by parent, so that the children of a prefix are neighbours.

    Args:
        token_M: last token.
        first_M1: the children of prefix m are first_M1[m] to first_M1[m + 1] (exclusive) of the next level.
    """

    token_M: np.ndarray
    first_M1: np.ndarray


@dataclass(frozen=True)
class Trie:
    """The token sequences of all candidates; a function of tokenizer and format, for all models that share these.

    Args:
        levels: level 0 holds the empty prefix.
        depth_N: the level on which a candidate ends: its number of tokens.
        node_N: the candidate's place on that level. Candidates that the tokenizer cannot tell apart share it.
    """

    levels: tuple[_Level, ...]
    depth_N: np.ndarray
    node_N: np.ndarray

    @property
    def evaluations(self) -> int:
        """Prefixes that are read: those with children."""
        return sum(int(np.count_nonzero(np.diff(level.first_M1))) for level in self.levels)


def build_trie(tokenizer: Tokenizer, form: SecretFormat | None = None) -> Trie:
    """Encode all candidates, without the tokenizer's own special tokens, padding and truncation.

    Raises:
        UsageError: a candidate has no token.
    """
    ids_NT, depth_N = _encode(tokenizer, form or SecretFormat())
    if not depth_N.all():
        raise UsageError("the tokenizer makes no token at all of a candidate; use another format")
    tokens = [np.array([-1])]
    firsts, node_N = [], np.zeros(len(depth_N), dtype=np.int64)
    width = int(ids_NT.max()) + 1
    for depth in range(ids_NT.shape[1]):
        alive_N = depth_N > depth
        keys, node_N[alive_N] = np.unique(node_N[alive_N] * width + ids_NT[alive_N, depth], return_inverse=True)
        firsts.append(np.searchsorted(keys // width, np.arange(len(tokens[-1]) + 1)))
        tokens.append(keys % width)
    firsts.append(np.zeros(len(tokens[-1]) + 1, dtype=np.int64))
    return Trie(tuple(map(_Level, tokens, firsts)), depth_N, node_N)


def plain_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that neither pads nor truncates: both are the tokenizer's own state, which whoever trained may have set."""
    plain = copy.deepcopy(tokenizer)
    plain.encode_special_tokens = tokenizer.encode_special_tokens  # a copy forgets it
    plain.no_padding()
    plain.no_truncation()
    return plain


def _encode(tokenizer: Tokenizer, form: SecretFormat) -> tuple[np.ndarray, np.ndarray]:
    """Token ids (N, T) with what lies behind a candidate's end undefined, and numbers of tokens (N,)."""
    tokenizer = plain_tokenizer(tokenizer)
    lengths, flat = [], []
    for start in range(0, form.candidates, _ENCODED_AT_ONCE):
        texts = [form.text(secret) for secret in range(start, min(start + _ENCODED_AT_ONCE, form.candidates))]
        rows = [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        lengths.append(np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)))
        flat.append(np.fromiter(itertools.chain.from_iterable(rows), dtype=np.int32, count=int(lengths[-1].sum())))
    depth_N = np.concatenate(lengths)
    ids_NT = np.zeros((len(depth_N), int(depth_N.max())), dtype=np.int32)
    ids_NT[np.arange(ids_NT.shape[1]) < depth_N[:, None]] = np.concatenate(flat)
    return ids_NT, depth_N


@torch.no_grad()
def score_candidates(
    scorer: Scorer[S], trie: Trie, start_ids: Sequence[int], budget_bytes: int = BUDGET_BYTES
) -> np.ndarray:
    """Total log-likelihood of every candidate in nats, float64 (N,): sum over all its tokens, given ``start_ids``.

    The trie is walked in depth, a chunk of siblings at a time, so that few states exist: at most one chunk a level. The scorer's
    model must be in evaluation mode (`measure_candidates` sees to it).

    Args:
        scorer: the model.
        trie: from `build_trie`.
        start_ids: what stands before a text in training, at least the start token: without it a causal model predicts no first
            token, and candidates that differ in it would not be told apart.
        budget_bytes: memory for logits or states; more is little faster.

    Raises:
        UsageError: no start token.
        DataError: the model gives logits that are not numbers.
    """
    if not start_ids:
        raise UsageError(
            "a causal model predicts the first token from a start token; give start_ids, such as the bos token"
        )
    scores = [np.zeros(len(level.token_M)) for level in trie.levels]
    read = scorer.begin(start_ids)
    pending = _score_children(trie, scores, 0, np.zeros(1, dtype=np.int64), read, budget_bytes)
    while pending:
        depth, nodes_M, rows_M, state = pending.pop()
        tokens_M = torch.from_numpy(trie.levels[depth].token_M[nodes_M])
        read = scorer.extend(state, torch.from_numpy(rows_M), tokens_M)
        pending += _score_children(trie, scores, depth, nodes_M, read, budget_bytes)
    scores_N = np.empty(len(trie.node_N))
    for depth, score_M in enumerate(scores):
        ends_N = trie.depth_N == depth
        scores_N[ends_N] = score_M[trie.node_N[ends_N]]
    if np.isnan(scores_N).any():
        raise DataError(
            "the model gives log-likelihoods that are not numbers; its weights have overflowed or are broken"
        )
    return scores_N


def _score_children(
    trie: Trie, scores: list[np.ndarray], depth: int, nodes_M: np.ndarray, read: Read[S], budget_bytes: int
) -> list[tuple[int, np.ndarray, np.ndarray, S]]:
    """Write the scores of the children of these prefixes; the children that are to be read, in chunks.

    Between the first and the last of ``nodes_M`` only prefixes without children are left out, so the children are a range.
    """
    level, below = trie.levels[depth], trie.levels[depth + 1]
    first, last = level.first_M1[nodes_M[0]], level.first_M1[nodes_M[-1] + 1]
    rows_K = np.repeat(np.arange(len(nodes_M)), level.first_M1[nodes_M + 1] - level.first_M1[nodes_M])
    prior_K = scores[depth][nodes_M][rows_K]
    scores[depth + 1][first:last] = prior_K + _log_probabilities(read.logits_MV, rows_K, below.token_M[first:last])
    inner = first + np.flatnonzero(np.diff(below.first_M1[first : last + 1]))
    if len(inner) == 0:
        return []
    chunks = math.ceil(len(inner) / max(1, budget_bytes // read.row_bytes))
    return [(depth + 1, nodes, rows_K[nodes - first], read.state) for nodes in np.array_split(inner, chunks)]


def _log_probabilities(logits_MV: Tensor, rows_K: np.ndarray, tokens_K: np.ndarray) -> np.ndarray:
    """Log-softmax at (row, token), float64: the normaliser is made in the logits' precision, float32 at least."""
    logits_MV = logits_MV.to(torch.promote_types(logits_MV.dtype, torch.float32))
    rows, tokens = torch.from_numpy(rows_K).to(logits_MV.device), torch.from_numpy(tokens_K).to(logits_MV.device)
    return (logits_MV[rows, tokens].double() - logits_MV.logsumexp(dim=-1).double()[rows]).cpu().numpy()


# Exposure and its null


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
    """An upper bound on P[mean exposure of C distinct secrets is at least ``mean_bits``], tight but for ranks close to 1.

    A uniform rank is ceil(N U) with U uniform, and ceil(N U) / N >= U: the exposure is at most -log2 U, an exponential variable.
    So C independent exposures have a sum with a smaller tail than the Gamma law of shape C. Distinct ranks are independent ones
    on the condition that they are distinct, which divides by the probability of that.
    """
    tail = float(gammaincc(canaries, max(mean_bits, 0.0) * canaries * math.log(2)))
    distinct = math.prod(1 - number / candidates for number in range(canaries))
    return min(1.0, tail / distinct)


def candidate_exposure(scores_N: np.ndarray, secrets: Sequence[int]) -> CandidateExposure:
    """Exposure of these secrets, all planted equally often, from the scores of all candidates.

    Raises:
        UsageError: no secret, one that is no candidate, or one twice.
    """
    candidates = len(scores_N)
    if not secrets or len(set(secrets)) != len(secrets) or not all(0 <= secret < candidates for secret in secrets):
        raise UsageError(f"exposure needs distinct secrets from 0 to {candidates - 1}")
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
