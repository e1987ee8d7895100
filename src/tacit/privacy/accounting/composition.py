"""The joint privacy curve of all events of a run, by privacy loss distributions (PLD).

They are composed (Koskela et al. 2020, Doroshenko et al. 2022) with dp-accounting, and one choice of words (a thresholded or a
weighted histogram) is added by its own law: for each worst-case neighbour (weighted.choice_cases) the Gaussian part is composed with
everything else, and the maximum is taken over the neighbours. Several choices, of which the later ones may depend on what the
earlier ones released, enter by one dominating distribution each (weighted.worst_case_pld); so do events between which an earlier
release may have chosen (envelope.py).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from dp_accounting.pld import privacy_loss_distribution as pld

from tacit.errors import UsageError
from tacit.privacy.accounting.discrete_gaussian import discrete_gaussian_pld, refuse_tiny_noise
from tacit.privacy.accounting.envelope import envelope_pld
from tacit.privacy.accounting.falling import Falling, as_delta, smallest_epsilon
from tacit.privacy.accounting.histogram import Case, gaussian_delta
from tacit.privacy.accounting.sampled_gaussian import gaussian_pld
from tacit.privacy.accounting.self_composition import composed, delta_curve, let_go_of_plans, self_composed
from tacit.privacy.accounting.weighted import (
    choice_cases,
    effective_stddev,
    largest_distance,
    worst_case_pld,
)
from tacit.privacy.checks import require_delta
from tacit.privacy.events import (
    Choice,
    Chosen,
    Relation,
    Spend,
    ThresholdedHistogram,
    WeightedHistogram,
    check_relation,
)

__all__ = [
    "COARSEST_GRID",
    "GRIDS",
    "SMALLEST_DELTA",
    "Account",
    "chosen_pld",
    "composed_steps",
    "loss_distribution",
    "rounding_reserve",
]

GRIDS = (1e-4, 2e-5)
"""Discretisation of the loss: the first is tried first, the next when Renyi DP does better."""

SMALLEST_DELTA = 1e-12
"""Composition by Fourier transforms drops masses of about 1e-15: an epsilon at a smaller delta would be too small."""

_ROUNDING = 2.0**-53
"""What delta may be off by for each composed step. The n-th power of a transform's numbers multiplies their rounding by n, and where
the truth is a closed form (q = 1) the library's delta is too small by up to 0.27 n 2^-53: by 3e-12 after 100,000 steps."""


def composed_steps(spends: Iterable[Spend]) -> int:
    """How many events are composed. A choice between several counts as its longest alternative, and one more for the maximum."""
    return sum(spend.count * (spend.event.steps + 1 if isinstance(spend.event, Chosen) else 1) for spend in spends)


def rounding_reserve(spends: Iterable[Spend]) -> float:
    """How far the library's delta of these spends may be off, whichever way: 2^-53 a step, in every account."""
    return _ROUNDING * composed_steps(spends)


COARSEST_GRID = 1e-3
"""Cheap, and an upper bound all the same."""

_KEPT_CURVES = 6
"""On a finer grid: the last ones that were asked for, of several MiB each. Few are asked for again after so many others."""


def _choice_pld(event: Choice, words: float, grid: float, pessimistic: bool) -> pld.PrivacyLossDistribution:
    """The Gaussian part of a histogram when ``words`` counts differ by one, or weighted ones by this squared distance."""
    stddev = _real_noise(event, pessimistic)
    if stddev is not None:
        return gaussian_pld(stddev, "add-or-remove", grid, sensitivity=math.sqrt(words), pessimistic=pessimistic)
    refuse_tiny_noise(math.sqrt(words), event.noise_stddev)
    return discrete_gaussian_pld(event.noise_stddev * math.sqrt(words), int(words), grid, pessimistic=pessimistic)


def _real_noise(event: Choice, pessimistic: bool) -> float | None:
    """Noise of the Gaussian mechanism that stands for the histogram's Gaussian part; None where it has its own discrete law.

    An optimistic estimate uses the nominal noise of a weighted histogram, a pessimistic one a smaller noise that covers rounding.
    """
    if isinstance(event, WeightedHistogram):
        return (effective_stddev(event) if pessimistic else event.noise_stddev) / event.resolution
    return None if event.has_integer_noise else event.noise_stddev


@functools.lru_cache(maxsize=32)
def chosen_pld(event: Chosen, count: int, relation: Relation, grid: float) -> pld.PrivacyLossDistribution:
    """The loss of ``count`` such events, which dominates every alternative's.

    An alternative without any event is dominated by each of the others.
    """
    several = [Account(spends, relation, grid)._others for spends in event.alternatives]
    return self_composed(envelope_pld([one for one in several if one is not None], relation), count)


def _alternatives(spends: Sequence[Spend]) -> list[tuple[Spend, ...]]:
    """The spends with every choice made beforehand, in all ways: each of them is a case, so none bounds the truth from above."""
    events = [spend.event.alternatives if isinstance(spend.event, Chosen) else ((spend,),) for spend in spends]
    return [tuple(itertools.chain.from_iterable(made)) for made in itertools.product(*events)]


@dataclass(frozen=True)
class Account:
    """The joint curve delta(epsilon) of events that all read the same units.

    Args:
        spends: what was spent, in the order in which it was released as far as choices of words go.
        relation: the neighbouring relation.
        grid: discretisation interval of the privacy loss, in nats.
        pessimistic: True for an upper bound (what is certified), False for a lower one (what `verify` checks against).
        full_law: whether a choice of words that comes first enters by its full law; else by an upper bound, as the others, which is
            much cheaper where many points of the curve are asked for.

    Infinite epsilon when a non-private event is among them. Of banded events the worst band counts in each
    (`tacit.privacy.accounting.accountant.account_parts` tells the bands apart). A choice of words that comes first enters by its
    full law; one that may depend on what was shown before it enters by an upper bound (weighted.worst_case_pld).
    """

    spends: tuple[Spend, ...]
    relation: Relation = "add-or-remove"
    grid: float = GRIDS[0]
    pessimistic: bool = True
    full_law: bool = True
    _curves: dict[float, Falling] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_relation(self.relation)

    def delta(self, epsilon: float) -> float:
        """The smallest delta at this epsilon (up to the grid)."""
        if not all(spend.event.is_private for spend in self.spends):
            return 1.0
        if self._fixed_cases:
            return max(case.delta(epsilon) for case in self._fixed_cases)
        neighbours = self._neighbours
        if not neighbours:
            return self._curve(0)(epsilon)
        return self._worst(neighbours, epsilon)[0]

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon at this delta; infinite when no epsilon has it."""
        require_delta(delta)
        if not all(spend.event.is_private for spend in self.spends):
            return math.inf
        if self._fixed_cases:
            return max(case.epsilon(delta) for case in self._fixed_cases)
        neighbours = self._neighbours
        if not neighbours:
            return smallest_epsilon(self._curve(0), delta)
        # Solve for one neighbour, look which is the worst there, and go on until the worst one meets delta.
        worst, found = neighbours[0], 0.0
        for _ in range(len(neighbours) + 1):
            found = max(found, smallest_epsilon(self._case_curve(worst), delta))
            if math.isinf(found):
                return math.inf
            value, worst = self._worst(neighbours, found)
            if value <= delta * (1 + 1e-9):
                return found
        return found

    @functools.cached_property
    def _fixed_cases(self) -> list[Account]:
        """The spends with every choice between events made beforehand, for a lower estimate; else none."""
        if self.pessimistic or not any(isinstance(spend.event, Chosen) for spend in self.spends):
            return []
        return [Account(spends, self.relation, self.grid, False) for spends in _alternatives(self.spends) if spends]

    @functools.cached_property
    def _choices(self) -> list[Choice]:
        return [spend.event for spend in self.spends for _ in range(spend.count) if isinstance(spend.event, Choice)]

    @functools.cached_property
    def _fixed(self) -> Choice | None:
        """The choice that enters by its full law: it came first, so what a unit is in it depends on the two corpora alone.

        A thresholded histogram with others behind it; a weighted one where there is no other.
        """
        first = self.spends[0].event if self.spends and self.full_law else None
        if isinstance(first, ThresholdedHistogram):
            return first
        return first if isinstance(first, WeightedHistogram) and len(self._choices) == 1 else None

    @functools.cached_property
    def _neighbours(self) -> list[Case]:
        return [] if self._fixed is None else choice_cases(self._fixed, self.relation)

    @functools.cached_property
    def _others(self) -> pld.PrivacyLossDistribution | None:
        """Everything but the choice that enters by its full law, composed; None when there is nothing else."""
        parts = [
            spend.event.loss_distribution(spend.count, self.relation, self.grid, self.pessimistic)
            for spend in self.spends
            if spend.event.is_private and not isinstance(spend.event, Choice)
        ]
        parts += [self._further(event) for event in self._further_choices]
        return composed(parts) if parts else None

    @functools.cached_property
    def _further_choices(self) -> list[Choice]:
        further = list(self._choices)
        if self._fixed is not None:
            further.remove(self._fixed)
        return further

    def _further(self, event: Choice) -> pld.PrivacyLossDistribution:
        """A choice whose neighbours may depend on earlier releases; the lower estimate takes one neighbour, with nothing new."""
        if self.pessimistic:
            return worst_case_pld(event, self.relation, self.grid)
        words = largest_distance(event) * (2 if self.relation == "replace" else 1)
        return _choice_pld(event, words, self.grid, self.pessimistic)

    def _curve(self, words: float) -> Falling:
        """Hockey-stick of everything, the counts of the choice with the full law differing in ``words`` places."""
        found = self._curves.pop(words, None) or self._make_curve(words)
        if self.grid < COARSEST_GRID and len(self._curves) >= _KEPT_CURVES:
            del self._curves[next(iter(self._curves))]
        self._curves[words] = found
        return found

    def _make_curve(self, words: float) -> Falling:
        mu = self._only_gaussian(words)
        if mu is not None:
            return Falling(lambda epsilon: float(gaussian_delta(epsilon, mu)))
        others = self._others
        if self._fixed is not None and words > 0:
            mine = _choice_pld(self._fixed, words, self.grid, self.pessimistic)
            whole = mine if others is None else composed([others, mine])
            let_go_of_plans()  # each number of words has a length of its own
        else:
            assert others is not None
            whole = others
        reserve = rounding_reserve(self.spends) * (1 if self.pessimistic else -1)
        return delta_curve(whole).then(lambda delta: as_delta(delta + reserve))

    def _only_gaussian(self, words: float) -> float | None:
        """Mu of the whole when it is Gaussian mechanisms alone, which compose to one exactly; else None."""
        others = [spend for spend in self.spends if not isinstance(spend.event, Choice)]
        mus = [spend.event.gaussian_mu(spend.count, self.relation, self.pessimistic) for spend in others]
        known = [mu for mu in mus if mu is not None]
        if self._further_choices or len(known) < len(mus):
            return None
        squares = 0.0
        if self._fixed is not None and words > 0:
            stddev = _real_noise(self._fixed, self.pessimistic)
            if stddev is None:
                return None
            squares += words / stddev**2
        return math.sqrt(squares + sum(mu**2 for mu in known))

    def _case_curve(self, case: Case) -> Falling:
        mass = case.infinite_mass
        return self._curve(case.words).then(lambda delta: mass + (1 - mass) * delta, case.shift)

    def _worst(self, neighbours: Sequence[Case], epsilon: float) -> tuple[float, Case]:
        """The largest delta over the neighbours, and the neighbour that has it, with few compositions.

        Neighbours come in runs in which ``words`` falls and the infinite mass rises. H grows with the number of words, so
        the value of a run's first curve with its last masses bounds the whole run. The bounds, and a first look at each
        neighbour, come from a coarser grid, which lies above this one and is much cheaper; runs are halved until no bound
        exceeds the best neighbour on this grid. For a lower estimate the ends of the runs are enough.
        """
        best, best_case = -1.0, neighbours[0]
        runs = [[case for case in neighbours if bool(case.infinite_mass) == kind] for kind in (False, True)]
        pending = [run for run in runs if run]
        while pending:
            run = pending.pop()
            for case in {run[0], run[-1]}:
                if not self.pessimistic or self._coarser._case_curve(case).exceeds(epsilon, best):
                    curve = self._case_curve(case)
                    if curve.exceeds(epsilon, best):
                        best, best_case = curve(epsilon), case
            if self.pessimistic and len(run) > 2 and self._exceeds(run, epsilon, best):
                middle = len(run) // 2
                pending += [run[middle:], run[: middle + 1]]
        return best, best_case

    @functools.cached_property
    def _coarser(self) -> Account:
        """Upper bounds of this account's curves: a pessimistic grid of ten times the width rounds every loss up further."""
        return Account(self.spends, self.relation, 10 * self.grid) if self.grid < COARSEST_GRID else self

    def _exceeds(self, run: Sequence[Case], epsilon: float, best: float) -> bool:
        """Whether a run may hold a larger delta. Over many steps the coarser grid's bound says nothing; then this grid's does."""
        mass = max(case.infinite_mass for case in run)
        shift = min(case.shift for case in run)
        bound = Case(max(case.words for case in run), mass, shift)
        return all(account._case_curve(bound).exceeds(epsilon, best * (1 + 1e-12)) for account in (self._coarser, self))


def loss_distribution(spends: Sequence[Spend], relation: Relation = "add-or-remove") -> tuple[np.ndarray, np.ndarray]:
    """The composed privacy loss distribution (of removal): losses in nats, the last one infinite, and their masses.

    For plots and teaching. Only events without a histogram: that one has no single worst neighbour.
    """
    account = Account(tuple(spends), relation)
    others = account._others
    if others is None or account._neighbours:
        raise UsageError("a loss distribution needs at least one Gaussian or DP-SGD event, and no histogram")
    # The library offers no public view of the masses; `Account` needs none, so this is the only place that looks inside.
    pmf = others._pmf_remove.to_dense_pmf()
    losses = (pmf._lower_loss + np.arange(len(pmf._probs))) * pmf._discretization
    # The library composes by Fourier transforms, which leave masses of about -1e-20 where there are none.
    masses = np.maximum(np.append(pmf._probs, pmf._infinity_mass), 0.0)
    return np.append(losses, math.inf), masses / masses.sum()
