"""Membership inference on a causal language model: are texts of the training data likelier than others (Zhao et al. 2022, A.5)?

The attacker has members (texts of the training data that hold a secret) and true non-members (texts whose secrets occur nowhere in
the training data), and takes those of low perplexity for members; for groups, those of low mean
(Carlini et al. 2021). Both come from any corpus with a held-out part (`tacit.audit.pairs`), or from CustomerSim as in the paper
(`tacit.reproduce.crt.customersim`). Three things make such numbers wrong, and are mended here:

- the best threshold of the same data is above 1/2 where there is nothing to find. Accuracy here is *cross-fitted*: the threshold
  of one half is evaluated on the other, so its expectation at the null is 1/2 exactly;
- members and non-members may differ without any model. A *blind baseline* tells them apart by their characters and length alone
  (Das et al. 2024, arXiv 2406.16201): where it finds something, the attack's number is no evidence about the model;
- overlapping groups are not independent, and their intervals too short. Groups here are disjoint.

The members are private text: what comes back is a function of the private data *beside* the released model. No certificate covers
it. Only the curator may see it, or it needs an event of its own; exposure of canaries (`tacit.audit.candidates`) does not.

Legend: n members, and as many non-members, pair by pair; R rows of their texts, B at a time; G groups; T positions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from torch import nn

from tacit.audit.blind import Blind, blind_baseline
from tacit.audit.inference import Attack, attack_scores, check_scores, grouped
from tacit.audit.samples import MembershipSamples
from tacit.audit.shadow_models import ShadowLosses
from tacit.audit.trie import BUDGET_BYTES, plain_tokenizer
from tacit.errors import DataError, UsageError
from tacit.randomness import KeyedRandomness
from tacit.vocabulary.encode import encode_texts

__all__ = ["MembershipReport", "mean_nll", "measure_against_shadows", "measure_membership"]


@torch.no_grad()
def mean_nll(
    model: nn.Module,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    start_ids: Sequence[int],
    end_ids: Sequence[int] = (),
    budget_bytes: int = BUDGET_BYTES,
    length: int | None = None,
) -> np.ndarray:
    """Mean negative log-likelihood a token in nats, float64 (n,): the logarithm of the perplexity. The model is left in eval mode.

    Args:
        model: causal, ``model(input_ids=..., attention_mask=...).logits``; rows are padded on the right.
        tokenizer: its own special tokens, padding and truncation are not used.
        texts: private.
        start_ids: what stands before a text in training, not scored itself; at least the start token.
        end_ids: what stands behind it, scored like the text.
        budget_bytes: memory for logits.
        length: positions of a row; a longer text is several rows, cut as in training. None: a text is one row.

    Raises:
        UsageError: no start token, or no place beside it.
        DataError: a text without tokens.
    """
    if not start_ids:
        raise UsageError(
            "a causal model predicts the first token from a start token; give start_ids, such as the bos token"
        )
    plain = plain_tokenizer(tokenizer)
    body = None if length is None else length - len(start_ids) - len(end_ids)
    if body is not None and body < 1:
        raise UsageError(f"a row of {length} positions has no place for a text between its start and end tokens")
    rows: list[list[int]] = []
    text_of_R: list[int] = []
    for number, text in enumerate(texts):
        ids = encode_texts(plain, [text])[0].ids
        if not ids:
            raise DataError("a text of the membership attack has no tokens; leave empty texts out")
        step = body or len(ids)
        pieces = [[*start_ids, *ids[start : start + step], *end_ids] for start in range(0, len(ids), step)]
        rows += pieces
        text_of_R += [number] * len(pieces)
    scored_R = np.array([len(row) - len(start_ids) for row in rows])
    nats_R = _row_nats(model, rows, len(start_ids), budget_bytes) * scored_R
    text_R = np.array(text_of_R, dtype=np.int64)
    return np.bincount(text_R, nats_R, len(texts)) / np.bincount(text_R, scored_R, len(texts))


def _row_nats(model: nn.Module, rows: Sequence[list[int]], start: int, budget_bytes: int) -> np.ndarray:
    """Mean nats of the tokens behind the first ``start`` of each row (R,), many rows at a time, the short ones first."""
    model.eval()
    device = next(model.parameters()).device
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    nats_R = np.empty(len(rows))
    done, at_once = 0, 1  # the first row alone tells how wide the logits are
    while done < len(order):
        chosen = order[done : done + at_once]
        ids_BT, real_BT = _padded([rows[number] for number in chosen])
        logits_BTV = model(input_ids=ids_BT.to(device), attention_mask=real_BT.long().to(device)).logits
        nats_R[chosen] = _mean_nats(logits_BTV, ids_BT.to(device), real_BT.to(device), start)
        done += len(chosen)
        longest = len(rows[order[min(done + 2 * at_once, len(order)) - 1]])  # rows get longer: at most double the batch
        at_once = min(2 * at_once, max(1, budget_bytes // (longest * logits_BTV[0, 0].nbytes)))
    return nats_R


def _padded(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    ids_BT = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    lengths_B = torch.tensor([len(row) for row in rows])
    return ids_BT, torch.arange(longest) < lengths_B[:, None]


def _mean_nats(logits_BTV: torch.Tensor, ids_BT: torch.Tensor, real_BT: torch.Tensor, start: int) -> np.ndarray:
    logits = logits_BTV[:, start - 1 : -1].to(torch.promote_types(logits_BTV.dtype, torch.float32))
    picked = logits.gather(2, ids_BT[:, start:, None])[..., 0]
    nats = (logits.logsumexp(dim=-1) - picked).double() * real_BT[:, start:]
    return (nats.sum(dim=1) / real_BT[:, start:].sum(dim=1)).cpu().numpy()


@dataclass(frozen=True)
class MembershipReport:
    """The attack on single texts and on groups, each with its blind baseline. Numbers only, and private."""

    single: Attack
    single_blind: Blind
    group_size: int
    group: Attack
    group_blind: Blind


def measure_membership(
    model: nn.Module,
    tokenizer: Tokenizer,
    samples: MembershipSamples,
    start_ids: Sequence[int],
    streams: KeyedRandomness,
    group_size: int = 20,
    end_ids: Sequence[int] = (),
    length: int | None = None,
) -> MembershipReport:
    """Both attacks and both baselines.

    Raises:
        UsageError, DataError: as the parts do.
    """
    member_n, other_n = (
        mean_nll(model, tokenizer, side, start_ids, end_ids, length=length)
        for side in (samples.members, samples.non_members)
    )
    check_scores(member_n, other_n)
    groups_Gs = grouped(len(member_n), group_size, streams)
    singles = np.arange(len(member_n))[:, None]
    return MembershipReport(
        single=attack_scores(member_n, other_n, streams),
        single_blind=_blind(samples, singles, streams),
        group_size=group_size,
        group=attack_scores(member_n[groups_Gs].mean(axis=1), other_n[groups_Gs].mean(axis=1), streams),
        group_blind=_blind(samples, groups_Gs, streams),
    )


def measure_against_shadows(
    model: nn.Module,
    tokenizer: Tokenizer,
    samples: MembershipSamples,
    shadows: ShadowLosses,
    start_ids: Sequence[int],
    streams: KeyedRandomness,
    group_size: int = 20,
    end_ids: Sequence[int] = (),
    length: int | None = None,
) -> tuple[Attack, Attack]:
    """The attack on single texts and the one on groups, by losses less those under shadow models.

    Raises:
        UsageError, DataError: as `measure_membership`.
    """
    member_n, other_n = (
        mean_nll(model, tokenizer, texts, start_ids, end_ids, length=length) - shadow_n
        for texts, shadow_n in (
            (samples.members, shadows.member_n),
            (samples.non_members, shadows.non_member_n),
        )
    )
    check_scores(member_n, other_n)
    groups_Gs = grouped(len(member_n), group_size, streams)
    return (
        attack_scores(member_n, other_n, streams),
        attack_scores(member_n[groups_Gs].mean(axis=1), other_n[groups_Gs].mean(axis=1), streams),
    )


def _blind(samples: MembershipSamples, groups_Gs: np.ndarray, streams: KeyedRandomness) -> Blind:
    members, others = (
        [[side[number] for number in group] for group in groups_Gs] for side in (samples.members, samples.non_members)
    )
    return blind_baseline(members, others, streams)
