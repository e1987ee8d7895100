"""Membership inference on a causal language model: are texts of the training data likelier than others (Zhao et al. 2022, A.5)?

The attacker has members (sentences of the training data that hold a secret) and true non-members (the same sentences with secrets
that occur nowhere in the training data), and takes those of low perplexity for members; for groups, those of low mean
(Carlini et al. 2021). Three things make such numbers wrong, and are mended here:

- the best threshold of the same data is above 1/2 where there is nothing to find. Accuracy here is *cross-fitted*: the threshold
  of one half is evaluated on the other, so its expectation at the null is 1/2 exactly;
- members and non-members may differ without any model. A *blind baseline* tells them apart by their characters and length alone
  (Das et al. 2024, arXiv 2406.16201): where it finds something, the attack's number is no evidence about the model;
- overlapping groups are not independent, and their intervals too short. Groups here are disjoint.

The members are private text: what comes back is a function of the private data *beside* the released model. No certificate covers
it. It is for the curator's eyes, or needs an event of its own; exposure of canaries (`tacit.audit.candidates`) does not.

Legend: n members, and as many non-members, pair by pair from the same sentence; G groups; B rows, T positions, V vocabulary.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from scipy.special import bdtr, betaincinv, expit, logit, ndtri
from tokenizers import Tokenizer
from torch import nn

from tacit.audit.candidates import BUDGET_BYTES, plain_tokenizer
from tacit.errors import DataError, UsageError
from tacit.randomness import Streams

__all__ = [
    "CONFIDENCE",
    "Attack",
    "Blind",
    "Estimate",
    "MembershipReport",
    "MembershipSamples",
    "attack_scores",
    "blind_baseline",
    "customersim_samples",
    "delong_auc",
    "grouped",
    "measure_membership",
    "text_nats",
    "tpr_at_fpr",
]

CONFIDENCE = 0.95
"""Of every interval."""

_FALSE_POSITIVE_RATE = 0.01
_NOT_ALPHANUMERIC = re.compile(r"[^0-9a-z]+")


@dataclass(frozen=True)
class Estimate:
    """A number and its two-sided interval."""

    value: float
    low: float
    high: float

    def holds(self, value: float) -> bool:
        """Whether the interval contains a number."""
        return self.low <= value <= self.high


@dataclass(frozen=True)
class Attack:
    """How well a score tells members from non-members.

    Args:
        members: how many, and as many non-members; groups where the attack is on groups.
        accuracy: of the threshold from one half on the other half, both ways. Clopper-Pearson on the pooled count.
        accuracy_in_sample: of the best threshold of the same data, as it is often reported; above 1/2 at the null.
        auc: probability that a member scores lower than a non-member, ties half. DeLong et al. 1988, on the logit scale.
        tpr: share of members found where 1 % of the non-members are taken for members; None below 100 non-members. Its interval
            needs no assumption on the scores: see `tpr_at_fpr`.
        at_chance: whether the interval of ``accuracy`` contains 1/2. True is no proof that nothing was learned.
    """

    members: int
    accuracy: Estimate
    accuracy_in_sample: float
    auc: Estimate
    tpr: Estimate | None
    at_chance: bool


@dataclass(frozen=True)
class Blind:
    """How well members and non-members are told apart by somebody who has no model.

    Args:
        accuracy: of a naive Bayes classifier of characters, trained on one half and evaluated on the other, both ways. The two
            counts are nearly one number (both grow with the likeness of the halves' differences), so the interval is
            Clopper-Pearson for the trials of one half; on all trials it would miss 1/2 in 10 % of the cases at the null.
        auc: mean of the two halves'; DeLong, as if they were one number.
        at_chance: whether the interval of ``accuracy`` contains 1/2. If not, the attack's numbers mean nothing.
    """

    accuracy: Estimate
    auc: Estimate
    at_chance: bool


@dataclass(frozen=True)
class MembershipReport:
    """The attack on single texts and on groups, each with its blind baseline. Numbers only, and private."""

    single: Attack
    single_blind: Blind
    group_size: int
    group: Attack
    group_blind: Blind


# The attack on scores


def attack_scores(member_n: np.ndarray, non_member_n: np.ndarray, streams: Streams) -> Attack:
    """The attack that takes low scores for members.

    At the null (each pair's two scores exchangeable, pairs independent) the expected accuracy is 1/2 exactly: the half that is
    judged has no part in the threshold.

    Args:
        member_n: scores of members.
        non_member_n: as many; where member i and non-member i are one sentence with two secrets they fall into one half.
        streams: draws the halves.

    Raises:
        UsageError: unequal numbers (guessing would not be right in half of the cases), or fewer than 2.
        DataError: a score is not a number.
    """
    _check_scores(member_n, non_member_n)
    correct = 0
    for fit, judge in _folds(len(member_n), streams):
        threshold, _ = _best_threshold(member_n[fit], non_member_n[fit])
        correct += np.count_nonzero(member_n[judge] < threshold) + np.count_nonzero(non_member_n[judge] >= threshold)
    accuracy = _clopper_pearson(int(correct), 2 * len(member_n))
    return Attack(
        members=len(member_n),
        accuracy=accuracy,
        accuracy_in_sample=_best_threshold(member_n, non_member_n)[1],
        auc=_auc_estimate([delong_auc(member_n, non_member_n)], len(member_n)),
        tpr=tpr_at_fpr(member_n, non_member_n),
        at_chance=accuracy.holds(0.5),
    )


def _check_scores(member_n: np.ndarray, non_member_n: np.ndarray) -> None:
    if len(member_n) != len(non_member_n) or len(member_n) < 2:
        raise UsageError(
            f"membership needs as many non-members as members, at least 2 of each, not {len(member_n)} members and "
            f"{len(non_member_n)} non-members"
        )
    if not (np.isfinite(member_n).all() and np.isfinite(non_member_n).all()):
        raise DataError("a score of the membership attack is not a finite number; the model's weights are broken")


def _folds(size: int, streams: Streams) -> list[tuple[np.ndarray, np.ndarray]]:
    """(to choose on, to judge) twice: a random half and its complement. Pairs stay together."""
    order = streams.generator("membership-halves", size).permutation(size)
    one, other = np.sort(order[: size // 2]), np.sort(order[size // 2 :])
    return [(one, other), (other, one)]


def _best_threshold(member_n: np.ndarray, non_member_n: np.ndarray) -> tuple[float, float]:
    """(threshold, its accuracy): "below it" is the guess "member". Thresholds lie midway between two scores, or at an end."""
    values = np.unique(np.concatenate([member_n, non_member_n]))
    thresholds = np.concatenate([[-np.inf], (values[:-1] + values[1:]) / 2, [np.inf]])
    below_member = np.searchsorted(np.sort(member_n), thresholds)
    below_other = np.searchsorted(np.sort(non_member_n), thresholds)
    correct = below_member + len(non_member_n) - below_other
    best = int(correct.argmax())
    return float(thresholds[best]), float(correct[best] / (len(member_n) + len(non_member_n)))


def delong_auc(member_m: np.ndarray, non_member_n: np.ndarray) -> tuple[float, float]:
    """(AUC, its variance) of "lower is a member", ties half: Mann-Whitney with DeLong's structural components."""
    sorted_member, sorted_other = np.sort(member_m), np.sort(non_member_n)
    # Share of non-members above each member, and of members below each non-member.
    other_at_most = np.searchsorted(sorted_other, member_m, "left") + np.searchsorted(sorted_other, member_m, "right")
    member_below = np.searchsorted(sorted_member, non_member_n, "left")
    member_at_most = np.searchsorted(sorted_member, non_member_n, "right")
    beaten_m = 1 - other_at_most / 2 / len(non_member_n)
    beating_n = (member_below + member_at_most) / 2 / len(member_m)
    variance = beaten_m.var(ddof=1) / len(member_m) + beating_n.var(ddof=1) / len(non_member_n)
    return float(beaten_m.mean()), float(variance)


def _auc_estimate(halves: list[tuple[float, float]], pairs: int) -> Estimate:
    """Mean of AUCs, with a normal interval on the logit scale. A mean's deviation is at most the mean deviation, also where
    the AUCs depend on each other.

    A variance of 0 (all pairs right, all wrong, or all tied) would give an interval without width. The pairs (member i,
    non-member i) are then so many independent trials: Clopper-Pearson, or Hoeffding's bound for ties.
    """
    value = float(np.mean([auc for auc, _ in halves]))
    deviation = float(np.mean([math.sqrt(variance) for _, variance in halves]))
    if value in (0.0, 1.0):
        return _clopper_pearson(round(value * pairs), pairs)
    if deviation == 0:
        reach = math.sqrt(math.log(2 / (1 - CONFIDENCE)) / (2 * pairs))
        return Estimate(value, max(0.0, value - reach), min(1.0, value + reach))
    reach = float(ndtri(0.5 + CONFIDENCE / 2)) * deviation / (value * (1 - value))
    return Estimate(value, float(expit(logit(value) - reach)), float(expit(logit(value) + reach)))


def tpr_at_fpr(
    member_m: np.ndarray, non_member_n: np.ndarray, false_positive_rate: float = _FALSE_POSITIVE_RATE
) -> Estimate | None:
    """Share of members below the threshold that this share of non-members is below; None if the data cannot resolve the share.

    The interval holds for any law of the scores: with probability 1 - alpha / 2 the true quantile lies between two order
    statistics of the non-members (binomial), and the members below each of these two are counted by one-sided Clopper-Pearson
    with alpha / 4. Its price is width.
    """
    others, tail = np.sort(non_member_n), (1 - CONFIDENCE) / 4
    allowed = math.floor(false_positive_rate * len(others) + 1e-9)
    if allowed < 1:
        return None
    counts = np.arange(len(others))
    # at_most[k] = P[at most k of the non-members are below the true quantile]
    at_most = bdtr(counts, len(others), false_positive_rate)
    low_rank = int(np.count_nonzero(at_most < tail))  # y_(a) with P[Bin >= a] >= 1 - tail; 0: no lower end
    high_rank = int(np.count_nonzero(at_most < 1 - tail)) + 1  # y_(b) with P[Bin <= b - 1] >= 1 - tail
    low = 0 if low_rank == 0 else np.count_nonzero(member_m < others[low_rank - 1])
    high = len(member_m) if high_rank > len(others) else np.count_nonzero(member_m < others[high_rank - 1])
    return Estimate(
        value=float(np.mean(member_m < others[allowed])),
        low=_binomial_low(int(low), len(member_m), tail),
        high=_binomial_high(int(high), len(member_m), tail),
    )


def _binomial_low(successes: int, trials: int, tail: float) -> float:
    return 0.0 if successes == 0 else float(betaincinv(successes, trials - successes + 1, tail))


def _binomial_high(successes: int, trials: int, tail: float) -> float:
    return 1.0 if successes == trials else float(betaincinv(successes + 1, trials - successes, 1 - tail))


def _clopper_pearson(successes: int, trials: int) -> Estimate:
    tail = (1 - CONFIDENCE) / 2
    low, high = _binomial_low(successes, trials, tail), _binomial_high(successes, trials, tail)
    return Estimate(successes / trials, low, high)


def _half_the_trials(successes: int, trials: int) -> Estimate:
    """The interval where the two halves of the trials may be one half twice, rounded outwards."""
    low, high = (_clopper_pearson(count, trials // 2) for count in (successes // 2, (successes + 1) // 2))
    return Estimate(successes / trials, low.low, high.high)


# Groups


def grouped(size: int, group_size: int, streams: Streams) -> np.ndarray:
    """Disjoint random groups (G, group_size) of the indices below ``size``; what is left over is in none.

    Member i and non-member i are in groups of the same number, so that pairs stay pairs.

    Raises:
        UsageError: fewer than 2 groups.
    """
    groups = size // group_size if group_size >= 1 else 0
    if groups < 2:
        raise UsageError(f"{size} texts are fewer than 2 groups of {group_size}; take smaller groups or more texts")
    order = streams.generator("membership-groups", size, group_size).permutation(size)
    return order[: groups * group_size].reshape(groups, group_size)


# The blind baseline


def blind_baseline(members: Sequence[Sequence[str]], non_members: Sequence[Sequence[str]], streams: Streams) -> Blind:
    """Tell groups of texts apart without a model: naive Bayes over runs of 1 to 3 characters, and lengths, cross-fitted.

    Args:
        members: groups of texts; groups of one text for single texts.
        non_members: as many groups.
        streams: draws the halves.

    Raises:
        UsageError: unequal numbers of groups, or fewer than 4.
    """
    if len(members) != len(non_members) or len(members) < 4:
        raise UsageError(
            f"the blind baseline needs as many non-members as members, at least 4 of each, not {len(members)} and {len(non_members)}"
        )
    counts = [[_features(group) for group in side] for side in (members, non_members)]
    correct, halves = 0, []
    for fit, judge in _folds(len(members), streams):
        weights = _log_odds(*(_total(side[i] for i in fit) for side in counts))
        # As everywhere here, low means member.
        member, other = (np.array([_weighted(side[i], weights) for i in judge]) for side in counts)
        correct += np.count_nonzero(member < 0) + np.count_nonzero(other >= 0)
        halves.append(delong_auc(member, other))
    accuracy = _half_the_trials(int(correct), 2 * len(members))
    return Blind(accuracy, _auc_estimate(halves, len(members) // 2), accuracy.holds(0.5))


def _features(texts: Sequence[str]) -> Counter[str]:
    """Runs of characters with a mark at the ends, and the length in steps of 4 characters under a name no text has."""
    found: Counter[str] = Counter()
    for text in texts:
        marked = f"\x02{text}\x03"
        for size in (1, 2, 3):
            found.update(marked[start : start + size] for start in range(len(marked) - size + 1))
        found[f"\x00length {len(text) // 4}"] += 1
    return found


def _total(counters: Iterable[Counter[str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for counter in counters:
        total.update(counter)
    return total


def _log_odds(member: Counter[str], other: Counter[str]) -> dict[str, float]:
    """log P[feature | non-member] - log P[feature | member], each with one more count for every feature seen."""
    seen = member.keys() | other.keys()
    shift = math.log((member.total() + len(seen)) / (other.total() + len(seen)))
    return {feature: math.log((other[feature] + 1) / (member[feature] + 1)) + shift for feature in seen}


def _weighted(features: Counter[str], weights: dict[str, float]) -> float:
    return sum(count * weights.get(feature, 0.0) for feature, count in features.items())


# Scores of a model


@torch.no_grad()
def text_nats(
    model: nn.Module,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    start_ids: Sequence[int],
    end_ids: Sequence[int] = (),
    budget_bytes: int = BUDGET_BYTES,
) -> np.ndarray:
    """Mean negative log-likelihood a token in nats, float64 (n,): the logarithm of the perplexity. The model is left in eval mode.

    Args:
        model: causal, ``model(input_ids=..., attention_mask=...).logits``; rows are padded on the right.
        tokenizer: its own special tokens, padding and truncation are not used.
        texts: private.
        start_ids: what stands before a text in training, not scored itself; at least the start token.
        end_ids: what stands behind it, scored like the text.
        budget_bytes: memory for logits.

    Raises:
        UsageError: no start token.
        DataError: a text without tokens.
    """
    if not start_ids:
        raise UsageError(
            "a causal model predicts the first token from a start token; give start_ids, such as the bos token"
        )
    model.eval()
    device = next(model.parameters()).device
    plain = plain_tokenizer(tokenizer)
    rows = [[*start_ids, *plain.encode(text, add_special_tokens=False).ids, *end_ids] for text in texts]
    if any(len(row) == len(start_ids) + len(end_ids) for row in rows):
        raise DataError("a text of the membership attack has no tokens; leave empty texts out")
    order = sorted(range(len(rows)), key=lambda number: len(rows[number]))
    nats_n = np.empty(len(rows))
    done, at_once = 0, 1  # the first row alone tells how wide the logits are
    while done < len(order):
        chosen = order[done : done + at_once]
        ids_BT, real_BT = _padded([rows[number] for number in chosen])
        logits_BTV = model(input_ids=ids_BT.to(device), attention_mask=real_BT.long().to(device)).logits
        nats_n[chosen] = _mean_nats(logits_BTV, ids_BT.to(device), real_BT.to(device), len(start_ids))
        done += len(chosen)
        longest = len(rows[order[min(done + 2 * at_once, len(order)) - 1]])  # rows get longer: at most double the batch
        at_once = min(2 * at_once, max(1, budget_bytes // (longest * logits_BTV[0, 0].nbytes)))
    return nats_n


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
class MembershipSamples:
    """Sentences of the training data, and the same sentences with secrets that occur nowhere in it, pair by pair. Private."""

    members: tuple[str, ...]
    non_members: tuple[str, ...]

    def __repr__(self) -> str:
        return "MembershipSamples(<private>)"


def measure_membership(
    model: nn.Module,
    tokenizer: Tokenizer,
    samples: MembershipSamples,
    start_ids: Sequence[int],
    streams: Streams,
    group_size: int = 20,
    end_ids: Sequence[int] = (),
) -> MembershipReport:
    """Both attacks and both baselines.

    Raises:
        UsageError, DataError: as the parts do.
    """
    member_n = text_nats(model, tokenizer, samples.members, start_ids, end_ids)
    other_n = text_nats(model, tokenizer, samples.non_members, start_ids, end_ids)
    _check_scores(member_n, other_n)
    groups_Gs = grouped(len(member_n), group_size, streams)
    singles = np.arange(len(member_n))[:, None]
    return MembershipReport(
        single=attack_scores(member_n, other_n, streams),
        single_blind=_blind(samples, singles, streams),
        group_size=group_size,
        group=attack_scores(member_n[groups_Gs].mean(axis=1), other_n[groups_Gs].mean(axis=1), streams),
        group_blind=_blind(samples, groups_Gs, streams),
    )


def _blind(samples: MembershipSamples, groups_Gs: np.ndarray, streams: Streams) -> Blind:
    members, others = (
        [[side[number] for number in group] for group in groups_Gs] for side in (samples.members, samples.non_members)
    )
    return blind_baseline(members, others, streams)


# CustomerSim

CustomerKind = Literal["name", "address", "phone_number", "order_number"]


def customersim_samples(folder: Path, kind: CustomerKind, count: int, streams: Streams) -> MembershipSamples:
    """Members and true non-members of CustomerSim; A.5 takes addresses.

    A member is the line of a training dialogue that holds a secret, one line a distinct secret. Its non-member is that line with
    the secret of a customer of whom neither name, address, phone nor order number is among the training spans; 497 of the 1,985
    secrets of the test dialogues do occur there, so test dialogues are no non-members. Spelling is ignored: case, spaces, dashes
    and dots. Names are shared by customers, so the names that are left are rarer than those of members: prefer another kind.

    Args:
        folder: with customersim.train.jsonl.gz and database_20000.csv.gz.
        kind: the spans' kind and the table's column.
        count: pairs.
        streams: draws both.

    Raises:
        UsageError: another kind (tracking numbers are in no table), or more pairs than there are.
        DataError: a file cannot be read or has another form.
    """
    if kind not in get_args(CustomerKind):
        raise UsageError(
            f"there are no true non-members of kind {kind!r}; use one of {', '.join(get_args(CustomerKind))}"
        )
    lines: dict[str, tuple[str, str, str]] = {}
    seen: set[str] = set()
    for text, spans in _dialogues(folder / "customersim.train.jsonl.gz"):
        for start, end, label in spans:
            secret = _spelling(text[start:end])
            seen.add(secret)
            if label == kind:
                before, after = text[:start].rpartition("\n")[2], text[end:].partition("\n")[0]
                lines.setdefault(secret, (before, text[start:end], after))
    fresh: dict[str, str] = {}
    for customer in _customers(folder / "database_20000.csv.gz"):
        if not any(_spelling(customer[column]) in seen for column in get_args(CustomerKind)):
            fresh.setdefault(_spelling(customer[kind]), customer[kind])
    if not 1 <= count <= min(len(lines), len(fresh)):
        raise UsageError(
            f"there are {min(len(lines), len(fresh))} pairs of kind {kind}; take 1 to so many, not {count}"
        )
    chosen = [_choose(list(values), count, streams, side, kind) for side, values in (("in", lines), ("out", fresh))]
    pairs = [(lines[inside], fresh[outside]) for inside, outside in zip(*chosen, strict=True)]
    return MembershipSamples(
        members=tuple(before + secret + after for (before, secret, after), _ in pairs),
        non_members=tuple(before + other + after for (before, _, after), other in pairs),
    )


def _choose(values: list[str], count: int, streams: Streams, *address: str) -> list[str]:
    places = streams.generator("membership-draw", *address).permutation(len(values))[:count]
    return [values[place] for place in places]


def _spelling(secret: str) -> str:
    return _NOT_ALPHANUMERIC.sub("", secret.lower())


def _dialogues(path: Path) -> Iterator[tuple[str, list[tuple[int, int, str]]]]:
    """Text and spans of each dialogue."""
    for number, line in enumerate(_lines(path), start=1):
        dialogue = _dialogue(line)
        if dialogue is None:
            raise DataError(f"{path}, line {number}: this is no dialogue with text and spans; restore the file")
        yield dialogue


def _dialogue(line: str) -> tuple[str, list[tuple[int, int, str]]] | None:
    """None if it is none: the errors of ``json`` quote the line, so none of them goes on."""
    try:
        values: Any = json.loads(line)
        return str(values["text"]), [(int(start), int(end), str(label)) for start, end, label in values["spans"]]
    except (ValueError, KeyError, TypeError):
        return None


def _customers(path: Path) -> Iterator[dict[str, str]]:
    table = csv.DictReader(_lines(path))
    if not set(get_args(CustomerKind)) <= set(table.fieldnames or ()):
        raise DataError(f"{path}: the table has not the columns {', '.join(get_args(CustomerKind))}; restore the file")
    yield from table


def _lines(path: Path) -> list[str]:
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            return file.readlines()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError):
        pass
    raise DataError(f"{path}: the file cannot be read; check the path")
