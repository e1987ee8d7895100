"""The confidentiality account of confidentially redacted training (CRT; Zhao, Li and Wang 2022), corrected.

The claim compares two worlds: the corpus D, and D' in which a secret is replaced by <MASK> (definition 2). Two statements:

    worst case   (epsilon at delta) for r *replaced* records: the secret's record, times what deduplication changes with it;
    Bayesian     the secret is drawn from mu, of which the balanced policy misses at most gamma and the conservative one
                 delta_2: first epsilon' at delta' = (delta - delta_2) / gamma, then log(1 + gamma (e^epsilon' - 1)).

Neither is the DP epsilon of the corpus, and neither is added to it: all are computed from the same spends. Proofs, and where
the paper differs, are in docs/confidentiality.md.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import special

from tacit.errors import DataError, RefusedError, UsageError
from tacit.privacy.accountant import SMALLEST_DELTA, epsilon, rdp_epsilon
from tacit.privacy.certificate import write_number
from tacit.privacy.events import Gaussian, NonPrivate, PoissonGaussian, Relation, Spend

__all__ = [
    "PAPER_FORMULAS",
    "Claim",
    "Confidentiality",
    "Guarantee",
    "Labels",
    "PaperRow",
    "Screening",
    "Stability",
    "Statement",
    "amplified",
    "check_group",
    "confidentiality",
    "labels_needed",
    "missed_delta",
    "paper_rows",
    "replacement_epsilon",
    "stability",
]

Deduplication = Literal["none", "mask-all", "keep-first"]
Order = Literal["deduplicate-first", "redact-first"]
Policy = Literal["patterns", "context"]
Status = Literal["proved", "measured", "heuristic"]


# What is claimed, and about which screening ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """Secrets that were labelled by hand, drawn independently from mu, and how many of them a policy missed."""

    labelled: int
    missed: int

    def __post_init__(self) -> None:
        if not 0 <= self.missed <= self.labelled or self.labelled < 1:
            raise UsageError(
                f"{self.missed} missed of {self.labelled} labelled secrets; give 1 or more labels and at most as many misses"
            )

    @property
    def share(self) -> float:
        """The point estimate. It is too small in about half of all measurements, so no statement is made with it."""
        return self.missed / self.labelled

    def upper(self, confidence: float) -> float:
        """The one-sided upper bound of Clopper and Pearson (1934): the true share lies above it with chance 1 - confidence."""
        _check_confidence(confidence)
        if self.missed == self.labelled:
            return 1.0
        return float(special.betaincinv(self.missed + 1, self.labelled - self.missed, confidence))


def labels_needed(share: float, confidence: float = 0.95) -> int:
    """How many labels without a single miss bound the missed share by ``share``."""
    _check_confidence(confidence)
    if not 0 < share < 1:
        raise UsageError(f"share is {share!r}; it must be above 0 and below 1")
    return math.ceil(math.log1p(-confidence) / math.log1p(-share))


@dataclass(frozen=True)
class Screening:
    """How the corpus was screened, as far as the statement depends on it.

    Args:
        deduplication: ``mask-all`` masks every copy of a repeated sentence, ``keep-first`` all but the first (dropping them
            counts the same); exact copies only.
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
        if self.deduplication == "near":
            raise RefusedError(
                "near-duplicates-before-claim",
                "near-duplicate removal changes an unbounded number of records with one: use exact deduplication",
            )
        _check_choice("deduplication", self.deduplication, Deduplication)
        _check_choice("order", self.order, Order)
        _check_choice("policy", self.policy, Policy)


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


def check_group(members: int, claim: Claim) -> None:
    """Raise `DataError` when the corpus has more members of a group than the claim says."""
    if members > claim.group_size:
        raise DataError(f"a group occurs in {members} data points, {claim.group_size} are claimed: claim {members}")


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
    elif screening.order == "redact-first":
        found = _REDACT_FIRST[screening.deduplication, all_copies]
    else:
        table = _RESERVED_MASK if screening.mask_reserved else _DEDUPLICATE_FIRST
        found = table[screening.deduplication, all_copies]
    if screening.whole_units and screening.deduplication == "keep-first":
        found = Stability(1, min(1, found.caught))
    # Other labels may flip with the secret, so its record differs in both worlds even when the secret itself is masked.
    return Stability(found.missed, found.missed) if screening.policy == "context" else found


# Replacing several records --------------------------------------------------------------------------------------------


_GRID = 1e-4
_CELLS = 200_000
_LARGEST_LOSS = 600.0  # mass beyond it counts as infinite: e^loss must fit a double


def replacement_epsilon(spends: Sequence[Spend], delta: float, records: int = 1) -> float:
    """Epsilon when ``records`` units are replaced at once, each sampled by its own coin; an upper bound.

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
    if any(isinstance(spend.event, NonPrivate) for spend in spends):
        return math.inf
    if not all(isinstance(spend.event, PoissonGaussian | Gaussian) for spend in spends):
        return _chained_epsilon(spends, delta, records)
    return float(_replacement_pld(tuple(spends), records).get_epsilon_for_delta(delta))


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


@functools.lru_cache(maxsize=4)
def _replacement_pld(spends: tuple[Spend, ...], records: int) -> pld.PrivacyLossDistribution:
    """The loss of all spends when all ``records`` records move from one end of the clip ball to the other.

    A step with sampling probability q and noise s is then P = sum of Bin(k; r, q) N(k, s^2) against its mirror image, which
    no other records exceed (docs/confidentiality.md, lemma 3).
    """
    pairs = [_Pair(spend.event, records) for spend in spends if isinstance(spend.event, PoissonGaussian)]
    grid = max([_GRID, *(pair.largest_loss / _CELLS for pair in pairs)])
    steps = [spend.count for spend in spends if isinstance(spend.event, PoissonGaussian)]
    parts = [
        pld.PrivacyLossDistribution.create_from_rounded_probability(*pair.masses(grid), grid).self_compose(count)
        for pair, count in zip(pairs, steps, strict=True)
    ] + [
        pld.from_gaussian_mechanism(
            spend.event.noise_multiplier,
            sensitivity=2 * records * math.sqrt(spend.count),
            value_discretization_interval=grid,
        )
        for spend in spends
        if isinstance(spend.event, Gaussian)
    ]
    return functools.reduce(lambda one, other: one.compose(other), parts)


class _Pair:
    """P = sum over k of Bin(k; records, q) N(k, s^2), and Q, its mirror image at 0; the loss ln P/Q grows with x."""

    def __init__(self, event: PoissonGaussian, records: int) -> None:
        q, self.stddev = event.sampling_probability, event.noise_multiplier
        drawn = np.arange(records if q == 1 else 0, records + 1.0)
        ways = special.gammaln(records + 1) - special.gammaln(drawn + 1) - special.gammaln(records - drawn + 1)
        self.shifts = drawn
        self.log_weights = ways + special.xlogy(drawn, q) + special.xlog1py(records - drawn, -q)
        self.reach = records + 10.5 * self.stddev  # P has 1e-25 beyond it
        self.largest_loss = min(_LARGEST_LOSS, float(self._loss(np.array([self.reach]))[0][0]))

    def _log_density(self, x: np.ndarray, sign: float) -> tuple[np.ndarray, np.ndarray]:
        """(log density up to a constant, its derivative) of P, or of Q for sign -1."""
        total, slope = np.full_like(x, -math.inf), np.zeros_like(x)
        for shift, log_weight in zip(sign * self.shifts, self.log_weights, strict=True):
            term = log_weight + x * shift / self.stddev**2 - shift**2 / (2 * self.stddev**2)
            new = np.logaddexp(total, term)
            slope = slope * np.exp(total - new) + shift / self.stddev**2 * np.exp(term - new)
            total = new
        return total, slope

    def _loss(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (upper, rise), (lower, fall) = self._log_density(x, 1.0), self._log_density(x, -1.0)
        return upper - lower, rise - fall

    def _edges(self, grid: float) -> np.ndarray:
        """The x >= 0 at which the loss is 0, grid, 2 grid, ...: looked up in a table, then two steps of Newton."""
        losses = np.arange(math.floor(self.largest_loss / grid) + 1) * grid
        table = np.linspace(0.0, self.reach, 2**16)
        x = np.interp(losses, self._loss(table)[0], table)
        for _ in range(2):
            value, slope = self._loss(x)
            x = np.clip(x - (value - losses) / slope, 0.0, self.reach)
        return np.maximum.accumulate(x)

    def _cells(self, x: np.ndarray, sign: float) -> np.ndarray:
        """Probability between neighbouring edges, and beyond the last, without cancellation on either side."""
        total = np.zeros(len(x))
        for shift, weight in zip(sign * self.shifts, np.exp(self.log_weights), strict=True):
            z = (np.append(x, math.inf) - shift) / self.stddev
            below, above = np.diff(special.ndtr(z)), -np.diff(special.ndtr(-z))
            total += weight * np.where(z[:-1] < 0, below, above)
        return total

    def masses(self, grid: float) -> tuple[dict[int, float], float]:
        """(loss in grid steps -> probability under P, infinite mass), by connecting the dots (Doroshenko et al. 2022).

        In each cell P's mass goes to the two ends such that Q's mass is kept as well, so delta(epsilon) is exact on the grid.
        """
        edges = self._edges(grid)
        p, q = self._cells(edges, 1.0), self._cells(edges, -1.0)
        cells = len(edges) - 1
        # Cells of positive loss, then their mirror images, in which P and Q change places.
        low = np.concatenate([np.arange(cells), -np.arange(1, cells + 1)])
        here, there = np.concatenate([p[:-1], q[:-1]]), np.concatenate([q[:-1], p[:-1]])
        upper = np.clip((here - np.exp(low * grid) * there) / -math.expm1(-grid), 0.0, here)
        masses = np.zeros(2 * cells + 1)
        np.add.at(masses, low + cells, here - upper)
        np.add.at(masses, low + cells + 1, upper)
        masses[0] += q[-1]
        return {index - cells: float(mass) for index, mass in enumerate(masses) if mass > 0}, float(p[-1])


# The two statements ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guarantee:
    """An (epsilon, delta) with the relation that it was computed for."""

    epsilon: float
    delta: float
    relation: Relation


def missed_delta(delta: float, gamma: float, delta_2: float = 0.0) -> float:
    """delta' = (delta - delta_2) / gamma, at which epsilon' is to be taken so that the whole statement has delta.

    Raises:
        UsageError: gamma or delta_2 is no share; nothing of delta is left; delta' is 1 or more.
    """
    _check_share("gamma", gamma)
    _check_share("delta_2", delta_2)
    if delta_2 >= delta:
        raise UsageError(
            f"delta_2 {delta_2:.4g} is not below delta {delta:g}: label more secrets, let everything be private, or raise delta"
        )
    if gamma == 0 or delta - delta_2 >= gamma:
        raise UsageError(
            f"gamma {gamma:.4g} is not above delta {delta - delta_2:.4g}: no epsilon is needed; lower delta"
        )
    return (delta - delta_2) / gamma


def amplified(guarantee: Guarantee, gamma: float, delta_2: float = 0.0) -> Guarantee:
    """Proposition 6 and theorem 8.3: (epsilon', delta') becomes (log(1 + gamma (e^epsilon' - 1)), gamma delta' + delta_2).

    Args:
        guarantee: for the replaced record of a secret that the balanced policy missed.
        gamma: share of the secrets under mu that the balanced policy *misses*.
        delta_2: share that both policies miss.

    Raises:
        RefusedError: the guarantee is one of add-or-remove, which says nothing of that size about a replacement.
    """
    _check_replace(guarantee.relation)
    _check_share("gamma", gamma)
    _check_share("delta_2", delta_2)
    return Guarantee(_amplify(guarantee.epsilon, gamma), gamma * guarantee.delta + delta_2, "replace")


def _amplify(found: float, gamma: float) -> float:
    if found > 700 and gamma > 0:
        return found + math.log(gamma) + 1e-12  # e^found is beyond a double, and the 1 - gamma beside it below one
    return math.log1p(gamma * math.expm1(found)) if gamma > 0 else 0.0


@dataclass(frozen=True)
class Statement:
    """One statement: its numbers, the sentence, what it assumes, and the steps by which epsilon was found.

    ``records`` were replaced at ``delta_missed`` for ``epsilon_missed``; the worst case has no gamma. ``confidence`` is that
    with which all bounds from labels hold together.
    """

    kind: Literal["worst-case", "bayesian"]
    status: Status
    epsilon: float
    delta: float
    records: int
    epsilon_missed: float
    delta_missed: float
    gamma: float | None
    delta_2: float
    confidence: float | None
    sentence: str
    steps: tuple[str, ...]
    assumptions: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; infinity is a word."""
        values = dataclasses.asdict(self)
        return values | {name: write_number(values[name]) for name in ("epsilon", "epsilon_missed")}


PAPER_FORMULAS = (
    ("theorem 8.1", "(epsilon 1[pi misses x], delta)", "replace-one epsilon of the records that change with x"),
    ("proposition 7", "deduplication costs nothing", "masking one copy changes up to 3 records"),
    (
        "theorem 8.2",
        "(gamma m epsilon, gamma m e^(gamma m epsilon) delta)",
        "the records of all missed secrets, replaced at once",
    ),
    ("theorem 8.2", "pi detects a share gamma of the group", "pi misses it"),
    (
        "theorem 8.3",
        "log(1 + gamma (e^epsilon - 1)) at gamma delta + delta_2",
        "epsilon' at (delta - delta_2)/gamma, replace-one",
    ),
    ("appendix A.4", "recall 90 % and 100 % from 200 labels", "upper bounds on what is missed"),
)
"""(where, what the paper has, what we do)"""


@dataclass(frozen=True)
class PaperRow:
    """One step from the paper's number to ours: what is changed, epsilon of a missed secret, epsilon of the statement."""

    change: str
    epsilon_missed: float
    epsilon: float


@dataclass(frozen=True)
class Confidentiality:
    """The account: the worst case first, then the Bayesian statement where gamma was given."""

    worst_case: Statement
    bayesian: Statement | None
    stability: Stability
    apart: str = "This is not the DP epsilon of the corpus and is never added to it; both come from the same spends."

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values."""
        return {
            "worst_case": self.worst_case.to_dict(),
            "bayesian": None if self.bayesian is None else self.bayesian.to_dict(),
            "stability": dataclasses.asdict(self.stability),
            "apart": self.apart,
        }


def confidentiality(
    spends: Sequence[Spend],
    delta: float,
    *,
    gamma: float | Labels | None = None,
    delta_2: float | Labels | None = None,
    confidence: float = 0.95,
    screening: Screening | None = None,
    claim: Claim | None = None,
) -> Confidentiality:
    """The confidentiality of a training whose private stream, and all else that read private records, cost ``spends``.

    Args:
        spends: everything in the ledger (`Ledger.spends`), whatever its relation: it is accounted again under replacement.
        delta: of each statement.
        gamma: share of the secrets that the balanced policy misses; None: no Bayesian statement. A bare number is taken at
            its word, which makes the statement a heuristic.
        delta_2: share that the conservative policy misses; None: every record is in the private stream.
        confidence: of each upper bound from labels.
        screening: how the corpus was screened.
        claim: whom the statement is about.

    Raises:
        UsageError: a number is impossible, or nothing can be stated with these.
        RefusedError: the screening has no proof.
    """
    screening, claim = screening or Screening(), claim or Claim()
    _check_confidence(confidence)
    changed = stability(screening, claim.all_copies)
    worst = _worst_case(spends, delta, screening, claim, changed, delta_2 is None)
    if gamma is None:
        if delta_2 is not None:
            raise UsageError(
                "delta_2 alone states nothing: give gamma, the share that the balanced policy misses, as well"
            )
        return Confidentiality(worst, None, changed)
    return Confidentiality(worst, _bayesian(spends, delta, gamma, delta_2, confidence, screening, claim), changed)


def _worst_case(
    spends: Sequence[Spend], delta: float, screening: Screening, claim: Claim, changed: Stability, everything: bool
) -> Statement:
    missed = claim.group_size if claim.missed is None else claim.missed
    records = missed * changed.missed + (claim.group_size - missed) * changed.caught
    found = replacement_epsilon(spends, delta, records)
    exempt = f"a secret that the balanced policy catches changes {_count(changed.caught, 'record')}" + (
        ": epsilon 0" if changed.caught == 0 else ": being caught does not exempt it"
    )
    coverage = (
        "Every record of the private corpus is in the private stream, trained with DP."
        if everything
        else "The conservative policy marks the record of the secret. Of a secret that both policies miss nothing is said."
    )
    group = () if claim.missed is None else (f"The balanced policy misses at most {missed} of the group.",)
    return Statement(
        kind="worst-case",
        status="heuristic" if math.isinf(found) else "proved",
        epsilon=found,
        delta=delta,
        records=records,
        epsilon_missed=found,
        delta_missed=delta,
        gamma=None,
        delta_2=0.0,
        confidence=None,
        sentence=_sentence(f"For {_whom(claim)}, whatever the reader knows,", found, delta),
        steps=(f"epsilon = {found:.4g} at delta {delta:.3g}, {_count(records, 'record')} replaced", exempt),
        assumptions=(coverage, *group, *_common_assumptions(screening, claim, changed)),
    )


def _bayesian(
    spends: Sequence[Spend],
    delta: float,
    gamma: float | Labels,
    delta_2: float | Labels | None,
    confidence: float,
    screening: Screening,
    claim: Claim,
) -> Statement:
    changed = stability(screening, claim.all_copies)
    size = claim.group_size
    used = [share for share in (None if changed.caught else gamma, delta_2) if share is not None]
    # Some secret of a group is missed with probability at most size * gamma, however the misses depend on each other.
    missing = min(1.0, size * _upper("gamma", gamma, confidence))
    both = 0.0 if delta_2 is None else min(1.0, size * _upper("delta_2", delta_2, confidence))
    records = size * changed.missed
    found, epsilon_missed, delta_missed = _amplified_epsilon(spends, delta, missing, both, records, changed)
    if changed.caught:
        last = f"no amplification: a caught secret still changes {_count(changed.caught, 'record')}"
    else:
        last = f"epsilon = log(1 + {missing:.4g} (e^{epsilon_missed:.4g} - 1)) = {found:.4g}"
    bounds = sum(isinstance(share, Labels) for share in used)
    status: Status = "proved" if not used else "measured" if bounds == len(used) else "heuristic"
    return Statement(
        kind="bayesian",
        status="heuristic" if math.isinf(found) else status,
        epsilon=found,
        delta=delta,
        records=records,
        epsilon_missed=epsilon_missed,
        delta_missed=delta_missed,
        gamma=missing,
        delta_2=both,
        confidence=max(0.0, 1 - bounds * (1 - confidence)) if bounds else None,
        sentence=_sentence(f"For {_whom(claim)}, drawn from mu and not otherwise known to the reader,", found, delta),
        steps=(
            f"epsilon' = {epsilon_missed:.4g} at delta' = {delta_missed:.3g}, {_count(records, 'record')} replaced",
            last,
        ),
        assumptions=(
            *_share_assumptions(gamma, delta_2, confidence),
            *_common_assumptions(screening, claim, changed),
        ),
    )


def _amplified_epsilon(
    spends: Sequence[Spend], delta: float, gamma: float, delta_2: float, records: int, changed: Stability
) -> tuple[float, float, float]:
    """(epsilon, epsilon', delta'); without amplification when a caught secret leaves a trace."""
    if gamma == 0 and delta_2 < delta and not changed.caught:
        return 0.0, 0.0, delta - delta_2
    left = missed_delta(delta, 1.0 if changed.caught else gamma, delta_2)
    found = replacement_epsilon(spends, left, records)
    return (found if changed.caught else _amplify(found, gamma)), found, left


def _upper(name: str, share: float | Labels, confidence: float) -> float:
    value = share.upper(confidence) if isinstance(share, Labels) else share
    _check_share(name, value)
    return value


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _whom(claim: Claim) -> str:
    one = "one secret" if claim.group_size == 1 else f"a group of secrets in at most {claim.group_size} data points"
    return one + (" in all copies of its sentence" if claim.all_copies else "")


def _sentence(whom: str, found: float, delta: float) -> str:
    if math.isinf(found):
        return f"{whom} nothing is guaranteed: a release without a finite epsilon is among the spends."
    return (
        f"{whom} training on the secret and training on <MASK> in its place differ in the probability of anything that can be "
        f"seen in the release by at most a factor of e^{found:.4g}, give or take {delta:.3g}."
    )


def _common_assumptions(screening: Screening, claim: Claim, changed: Stability) -> tuple[str, ...]:
    copies = {
        "none": "No copies are removed: a secret that occurs k times is a group of k.",
        "mask-all": "Every copy of a repeated sentence is masked; exact copies only.",
        "keep-first": "All copies of a sentence but the first are masked or dropped; exact copies only.",
    }[screening.deduplication]
    once = " (copies counted once)" if claim.all_copies else ""
    token = (
        ("The raw corpus cannot contain the mask token.",)
        if screening.mask_reserved and screening.deduplication != "none"
        else ()
    )
    whole = (
        ("What is deduplicated is the unit that training samples, its copies equal to the byte as trained.",)
        if screening.whole_units and screening.deduplication == "keep-first"
        else ()
    )
    policy = (
        "The policies label each token from that token alone; runs of masks become one mask."
        if screening.policy == "patterns"
        else "The policies read one record at a time and may flip its other labels: a caught secret is not exempt."
    )
    return (
        f"The secret, or the group, occurs in at most {_count(claim.group_size, 'data point')}{once}.",
        f"{copies} Masking one secret then changes at most {_count(changed.missed, 'record')}, each a unit of the training.",
        *token,
        *whole,
        policy,
        "Every record that holds <MASK> is in the private stream; text is split into data points before it is screened.",
        "Steps, sampling, noise, clip and normaliser were fixed without looking at the private text.",
    )


def _share_assumptions(gamma: float | Labels, delta_2: float | Labels | None, confidence: float) -> tuple[str, ...]:
    lines = ["The secret is drawn from mu; the reader knows mu and everything else, but not the secret."]
    for name, policy, share in (("gamma", "balanced", gamma), ("delta_2", "conservative", delta_2)):
        if isinstance(share, Labels):
            lines.append(
                f"{name} <= {share.upper(confidence):.4g} with confidence {confidence:g}: the {policy} policy missed "
                f"{share.missed} of {share.labelled} secrets, drawn independently from mu and labelled rightly."
            )
        elif share is not None:
            lines.append(f"{name} = {share:.4g}: the {policy} policy misses this share of mu. Nothing was measured.")
    if delta_2 is None:
        lines.append("Every record of the private corpus is in the private stream (delta_2 = 0).")
    lines.append(
        "A secret is caught only if redaction leaves the very text in which it is masked; anything else is a miss."
    )
    return tuple(lines)


# The paper's own number, and the way from it to ours ------------------------------------------------------------------


def paper_rows(
    spends: Sequence[Spend],
    delta: float,
    *,
    gamma: float | Labels | None = None,
    delta_2: float | Labels | None = None,
    confidence: float = 0.95,
    screening: Screening | None = None,
    claim: Claim | None = None,
) -> tuple[PaperRow, ...]:
    """The paper's epsilon as its authors compute it, then one correction a row; the last row is our statement's."""
    screening, claim = screening or Screening(), claim or Claim()
    ours = confidentiality(
        spends, delta, gamma=gamma, delta_2=delta_2, confidence=confidence, screening=screening, claim=claim
    )
    last = ours.bayesian or ours.worst_case
    share = 1.0 if gamma is None else gamma.share if isinstance(gamma, Labels) else gamma

    def row(change: str, account: Callable[[float], float | None], share: float) -> PaperRow:
        found = account(delta / share) if share > delta else 0.0  # delta / gamma of 1 or more asks for nothing
        found = math.inf if found is None else found
        return PaperRow(change, found, _amplify(found, share))

    rows = [
        row("the paper: add-or-remove, by Renyi DP", lambda left: rdp_epsilon(spends, left), share),
        row("the same by loss distributions, which is tighter", lambda left: epsilon(spends, left), share),
        row("the secret is replaced: replace-one", lambda left: replacement_epsilon(spends, left), share),
    ]
    if isinstance(gamma, Labels):
        upper = gamma.upper(confidence)
        change = f"gamma at its upper bound {upper:.4g}, not {share:.4g}"
        rows.append(row(change, lambda left: replacement_epsilon(spends, left), upper))
    if last.records != 1 or last.delta_2 or (gamma is not None and ours.stability.caught):
        change = f"{_count(last.records, 'record')} replaced, delta_2 {last.delta_2:.3g} taken from delta"
        trace = ", a caught secret leaves a trace" if ours.stability.caught else ""
        rows.append(PaperRow(change + trace, last.epsilon_missed, last.epsilon))
    return tuple(rows)


# Checks ---------------------------------------------------------------------------------------------------------------


def _check_replace(relation: Relation) -> None:
    if relation != "replace":
        raise RefusedError(
            "replace-claim-from-add-or-remove",
            "confidentiality replaces a secret by <MASK>: give an epsilon that was accounted under relation replace",
        )


def _check_share(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise UsageError(f"{name} is {value!r}; it is a share of misses, from 0 to 1")


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise UsageError(f"confidence is {confidence!r}; it must be above 0 and below 1")


def _check_choice(name: str, value: str, kind: Any) -> None:
    if value not in get_args(kind):
        raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(get_args(kind))}")
