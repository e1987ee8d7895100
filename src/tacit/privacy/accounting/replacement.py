"""Replaced records: how many one masked secret makes, and what replacing so many at once costs.

Masking a secret in the raw corpus changes up to three records of the training, by what deduplication and redaction make of
it (`stability`; proposition 7 of Zhao, Li and Wang 2022 says one, whatever they do). `replacement_epsilon` is what r
replaced records cost when each is sampled independently. Proofs: docs/confidentiality.md, the table and lemmas 1 to 3.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special

from tacit.errors import RefusedError, UsageError
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.composition import SMALLEST_DELTA, rounding_reserve
from tacit.privacy.accounting.falling import Falling, smallest_epsilon
from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.accounting.mixtures import LARGEST_LOSS, REACH, MixturePair
from tacit.privacy.accounting.sampled_gaussian import NEARLY_ALL, gaussian_pld
from tacit.privacy.accounting.self_composition import composed, self_composed
from tacit.privacy.events import Gaussian, PoissonGaussian, Spend

__all__ = [
    "Claim",
    "Deduplication",
    "Screening",
    "Stability",
    "counted",
    "replacement_epsilon",
    "screening_assumptions",
    "screening_from_words",
    "stability",
]

Deduplication = Literal["none", "mask-all", "keep-first", "unmasked"]
Order = Literal["deduplicate-first", "redact-first"]
Policy = Literal["patterns", "context"]
Word = TypeVar("Word", bound=str)


# How many records one masked secret makes -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Screening:
    """How the corpus was screened, as far as the statement depends on it.

    Args:
        deduplication: ``mask-all`` masks every copy of a repeated sentence, ``keep-first`` all but the first (dropping them
            counts the same); exact copies only. ``unmasked`` is keep-first among the private sentences in which redaction
            masked nothing, so it is there with ``redact-first`` alone.
        order: whether copies are looked for before redaction (the paper's algorithm 1) or after it.
        policy: ``patterns`` label each token from that token alone; ``context`` may flip other labels of the record with x.
        mask_reserved: no sentence of the raw corpus holds the mask token (the reader refuses or escapes it).
        whole_units: what is deduplicated is the very unit that training samples, and copies are equal to the byte as trained;
            then only the set of records counts, not their order.

    Raises:
        RefusedError: near-duplicate removal, whose effect on other records has no bound (arXiv 2309.05610).
    """

    deduplication: Deduplication = "none"
    order: Order = "deduplicate-first"
    policy: Policy = "patterns"
    mask_reserved: bool = False
    whole_units: bool = False

    def __post_init__(self) -> None:
        _deduplication(self.deduplication)
        _chosen("order", self.order, get_args(Order))
        if self.deduplication == "unmasked" and self.order != "redact-first":
            raise UsageError("deduplication unmasked needs order redact-first: what is masked is not known before")
        _chosen("policy", self.policy, get_args(Policy))


def screening_from_words(
    deduplication: str, order: str, policy: str, *, mask_reserved: bool = False, whole_units: bool = False
) -> Screening:
    """A `Screening` from words of a command line or a file; an unknown word is a `UsageError` that lists the known ones."""
    return Screening(
        _deduplication(deduplication),
        _chosen("order", order, get_args(Order)),
        _chosen("policy", policy, get_args(Policy)),
        mask_reserved,
        whole_units,
    )


def _deduplication(word: str) -> Deduplication:
    if word == "near":
        raise RefusedError(
            "near-duplicates-before-claim",
            "near-duplicate removal changes an unbounded number of records with one: use exact deduplication",
        )
    return _chosen("deduplication", word, get_args(Deduplication))


def _chosen(name: str, word: str, known: tuple[Word, ...]) -> Word:
    for choice in known:
        if choice == word:
            return choice
    raise UsageError(f"{name} is {word!r}; it must be one of {', '.join(known)}")


@dataclass(frozen=True)
class Stability:
    """Output records that change at most when one secret is masked: when the balanced policy misses it, and catches it."""

    missed: int
    caught: int


# (mode, all copies) -> records changed, by every way to place the copies (the proof is an enumeration, which a test repeats).
_DEDUPLICATE_FIRST = {
    ("keep-first", False): Stability(3, 2),
    ("mask-all", False): Stability(2, 2),
    ("keep-first", True): Stability(2, 1),
    ("mask-all", True): Stability(2, 2),
}
_RESERVED_MASK = {
    ("keep-first", False): Stability(2, 1),
    ("mask-all", False): Stability(2, 2),
    ("keep-first", True): Stability(1, 0),
    ("mask-all", True): Stability(1, 0),
}
_REDACT_FIRST = {  # redaction itself makes sentences with masks, so reserving the mask token is of no use
    ("keep-first", False): Stability(3, 0),
    ("mask-all", False): Stability(2, 0),
    ("keep-first", True): Stability(2, 0),
    ("mask-all", True): Stability(2, 0),
}


def stability(screening: Screening, all_copies: bool = False) -> Stability:
    """How many records change when one secret is masked; the paper's proposition 7 says 1, whatever deduplication does."""
    if screening.deduplication == "none":
        if all_copies:
            raise UsageError("all copies count as one only after deduplication: state group_size instead")
        found = Stability(1, 0)
    elif screening.deduplication == "unmasked":
        if all_copies:
            raise UsageError(
                "all copies do not count as one when masked sentences are not deduplicated: state group_size instead"
            )
        found = Stability(2, 0)
    elif screening.order == "redact-first":
        found = _REDACT_FIRST[screening.deduplication, all_copies]
    else:
        table = _RESERVED_MASK if screening.mask_reserved else _DEDUPLICATE_FIRST
        found = table[screening.deduplication, all_copies]
    if screening.whole_units and screening.deduplication in ("keep-first", "unmasked"):
        found = Stability(1, min(1, found.caught))
    if screening.policy == "patterns":
        return found
    # Other labels may flip with the secret, so its record differs in both worlds even when the secret itself is masked.
    # With ``unmasked`` that record has a mask in both, and so is nobody's copy: nothing else changes.
    return Stability(found.missed, 1 if screening.deduplication == "unmasked" else found.missed)


@dataclass(frozen=True)
class Claim:
    """Whom the statement is about.

    Args:
        group_size: in how many data points the secrets of one group occur (1: one secret in one data point). With
            ``all_copies`` copies of the same sentence count once.
        all_copies: the secret is masked in every copy of its sentence at once, not in a single one. Needs deduplication.
        missed: how many of the group the balanced policy misses (theorem 8.2); None: all of them.
    """

    group_size: int = 1
    all_copies: bool = False
    missed: int | None = None

    def __post_init__(self) -> None:
        if self.group_size < 1:
            raise UsageError(f"group_size is {self.group_size}; it must be at least 1")
        if self.missed is not None and not 0 <= self.missed <= self.group_size:
            raise UsageError(
                f"{self.missed} missed of a group of {self.group_size}: a group cannot miss more than it has"
            )

    def records(self, changed: Stability) -> int:
        """The records of the training that change at most when the whole group is masked."""
        missed = self.group_size if self.missed is None else self.missed
        return missed * changed.missed + (self.group_size - missed) * changed.caught


def counted(number: int, noun: str) -> str:
    """``1 record``, ``2 records``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def screening_assumptions(screening: Screening, changed: Stability) -> tuple[str, ...]:
    """What `stability` rests on, a sentence or two each."""
    copies = {
        "none": "No copies are removed: a secret that occurs k times is a group of k.",
        "mask-all": "Every copy of a repeated sentence is masked; exact copies only.",
        "keep-first": "All copies of a sentence but the first are masked or dropped; exact copies only.",
        "unmasked": "Of private sentences in which nothing was masked, all copies but the first are masked; exact copies only. "
        "A secret that occurs k times is a group of k.",
    }[screening.deduplication]
    lines = [
        f"{copies} Masking one secret then changes at most {counted(changed.missed, 'record')}, each a unit of the training."
    ]
    if screening.mask_reserved and screening.deduplication != "none":
        lines.append("The raw corpus cannot contain the mask token.")
    if screening.whole_units and screening.deduplication in ("keep-first", "unmasked"):
        lines.append("What is deduplicated is the unit that training samples, its copies equal to the byte as trained.")
    lines.append(
        "The policies label each token from that token alone, and no private text made them; runs of masks become one mask."
        if screening.policy == "patterns"
        else "The policies read one record at a time, no private text made them, and they may flip a record's other labels: a caught "
        "secret is not exempt."
    )
    return tuple(lines)


# What replacing them costs --------------------------------------------------------------------------------------------

_GRID = 1e-4
_CELLS = 200_000


def replacement_epsilon(spends: Sequence[Spend], delta: float, records: int = 1) -> float:
    """Epsilon when ``records`` units are replaced at once, each sampled independently; an upper bound.

    One unit: the project's accountant. More: the exact worst pair where all events are Gaussian, and group privacy on top of the
    joint replace-one curve where a histogram is among them.
    """
    if not SMALLEST_DELTA <= delta < 1:
        raise UsageError(f"delta is {delta!r}; it must be at least {SMALLEST_DELTA:g} and below 1")
    if records < 0:
        raise UsageError(f"records is {records}; it must be at least 0")
    if records == 0 or not spends:
        return 0.0
    if records == 1:
        return epsilon(spends, delta, "replace")
    if any(not spend.event.is_private for spend in spends):
        return math.inf
    if not all(isinstance(spend.event, PoissonGaussian | Gaussian) for spend in spends):
        return _chained_epsilon(spends, delta, records)
    sampled = tuple(spend for spend in spends if _is_sampled(spend.event))
    mu = 2 * records * _inverse_noise([spend for spend in spends if not _is_sampled(spend.event)])
    if not sampled:
        return smallest_epsilon(Falling(lambda at: float(gaussian_delta(at, mu))), delta)
    left = delta - rounding_reserve(spends)
    if left <= 0 or mu * (mu / 2 + REACH) > LARGEST_LOSS:
        return math.inf
    return float(_replacement_pld(sampled, mu, records).get_epsilon_for_delta(left))


def _chained_epsilon(spends: Sequence[Spend], delta: float, records: int) -> float:
    """Group privacy: (e, d) for one gives (r e, d (1 + e^e + ... + e^((r-1) e))) for r; the smallest e that fits."""

    def holds(one: float) -> bool:
        left = delta * math.expm1(one) / math.expm1(records * one)
        return left >= SMALLEST_DELTA and epsilon(spends, left, "replace") <= one

    low, high = 0.0, 0.5
    while records * high <= 700 and not holds(high):
        low, high = high, 2 * high
    if records * high > 700:
        return math.inf
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return records * high


def _is_sampled(event: object) -> bool:
    """Whether a step leaves a unit out; a sampling probability next to 1 counts as 1, which costs more."""
    return isinstance(event, PoissonGaussian) and event.sampling_probability <= NEARLY_ALL


def _inverse_noise(spends: Sequence[Spend]) -> float:
    """1 / the noise multiplier of the one Gaussian mechanism that all of these are; 0 of none."""
    events = [(spend.event, spend.count) for spend in spends]
    known = [
        (event.noise_multiplier, count) for event, count in events if isinstance(event, PoissonGaussian | Gaussian)
    ]
    return math.sqrt(sum(count / noise**2 for noise, count in known))


@functools.lru_cache(maxsize=4)
def _replacement_pld(spends: tuple[Spend, ...], mu: float, records: int) -> pld.PrivacyLossDistribution:
    """The loss of all spends when all ``records`` records move from one end of the clip ball to the other.

    A step with sampling probability q and noise s is then P = sum of Bin(k; r, q) N(k, s^2) against its mirror image, which
    no other records exceed (docs/confidentiality.md, lemma 3).

    Args:
        spends: of steps that leave a unit out.
        mu: sensitivity over noise of the releases that read every unit; 0 where there are none.
    """
    pairs = [(_pair(spend.event, records), spend.count) for spend in spends if isinstance(spend.event, PoissonGaussian)]
    largest = [mu * (mu / 2 + REACH), *(pair.largest_loss for pair, _ in pairs)]
    grid = max(_GRID, max(largest) / _CELLS)
    parts = [
        self_composed(pld.PrivacyLossDistribution.create_from_rounded_probability(*pair.masses(grid)[0], grid), count)
        for pair, count in pairs
    ]
    if mu > 0:
        parts.append(gaussian_pld(1.0, "add-or-remove", grid, sensitivity=mu))
    return composed(parts)


def _pair(event: PoissonGaussian, records: int) -> MixturePair:
    """P = sum over k of Bin(k; records, q) N(k, s^2), and Q, its mirror image at 0."""
    q, drawn = event.sampling_probability, np.arange(records + 1.0)
    ways = special.gammaln(records + 1) - special.gammaln(drawn + 1) - special.gammaln(records - drawn + 1)
    log_weights = ways + special.xlogy(drawn, q) + special.xlog1py(records - drawn, -q)
    return MixturePair(event.noise_multiplier, (drawn, log_weights))
