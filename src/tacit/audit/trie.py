"""The total log-likelihood of every candidate secret, in one walk over the trie of their token sequences (Carlini et al. 2019).

The total, of all tokens of "My ID is: dddddd" given a start token, is what the definition of a rank asks for: a mean a token
would favour digits that the tokenizer happens to spell with many pieces. Candidates share prefixes, so their token sequences form
a trie; each distinct prefix is read once, and the last piece of a candidate is never read, only predicted. Six single digits cost
111,111 evaluations instead of 6 million, whatever the tokenizer makes of the digits.

Legend: N candidates, T tokens, M prefixes (nodes of the trie) at one time, K their children, V vocabulary.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import Tensor

from tacit.audit.scorers import Read, Scorer
from tacit.corpus.secrets import SecretFormat
from tacit.errors import DataError, UsageError

__all__ = ["BUDGET_BYTES", "Trie", "build_trie", "plain_tokenizer", "score_candidates"]

S = TypeVar("S")

BUDGET_BYTES = 64 * 2**20
"""Memory of the logits, or of the states if these are larger, of the prefixes that are read at one time."""

_ENCODED_AT_ONCE = 50_000


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

    def save(self, path: Path) -> None:
        """Write it, for other processes: encoding a million candidates takes longer than scoring them with a small model."""
        levels = {f"token{depth}": level.token_M for depth, level in enumerate(self.levels)}
        levels |= {f"first{depth}": level.first_M1 for depth, level in enumerate(self.levels)}
        with path.open("wb") as file:
            np.savez(file, allow_pickle=False, depth=self.depth_N, node=self.node_N, **levels)

    @classmethod
    def load(cls, path: Path) -> Trie:
        """What `save` wrote."""
        with np.load(path) as values:
            depths = range((len(values.files) - 2) // 2)
            levels = tuple(_Level(values[f"token{depth}"], values[f"first{depth}"]) for depth in depths)
            return cls(levels, values["depth"], values["node"])


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
    """A copy that neither pads nor truncates: both are the tokenizer's own state, which the training may have set."""
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


# The walk -------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def score_candidates(
    scorer: Scorer[S], trie: Trie, start_ids: Sequence[int], budget_bytes: int = BUDGET_BYTES
) -> np.ndarray:
    """Total log-likelihood of every candidate in nats, float64 (N,): sum over all its tokens, given ``start_ids``.

    The trie is walked in depth, a chunk of siblings at a time, so that few states exist: at most one chunk a level. The scorer's
    model must be in evaluation mode (`tacit.audit.candidates.measure_candidates` sees to it).

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
