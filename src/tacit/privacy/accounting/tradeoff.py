"""The proved trade-off curve of a release, and what follows from it for groups of units: from points of the account's delta(epsilon).

An attacker is shown the release and told that it was made from one of two neighbouring corpora. Let g(a) be the largest chance of
finding a unit that is there, of all attackers who accuse one that is not there with probability a. f(a) = 1 - g(a) is the trade-off
function of Dong, Roth and Su 2022 (arXiv 1905.02383). (epsilon, delta)-DP in both directions says (their proposition 2.5)

    g(a) <= delta + e^epsilon a        and        g(a) <= 1 - e^-epsilon (1 - delta) + e^-epsilon a,

the second being the first at -epsilon, with 1 - e^-epsilon (1 - delta) for delta. The account's delta(epsilon) is pessimistic, so
each of these lines holds, and so does the smallest of finitely many: `PrivacyCurve.most_found` is never below the true g, and 1 minus
it never above the true f. More points give a better curve; none gives a wrong one.

k units are k steps from neighbour to neighbour, and g of the group is at most g composed with itself k times (their theorem 2.14).
For lines that is: if g(a) <= d + e^x a and g_j(a) <= d_j + e^y a, then g_(j+1)(a) <= d + e^x d_j + e^(x + y) a. Of all ways to make
up x + y the smallest is taken.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tacit.privacy.accounting.accountant import account_parts, exchanged_parts, joint_epsilon, shared_account
from tacit.privacy.accounting.composition import COARSEST_GRID, GRIDS, SMALLEST_DELTA, Account, composed_steps
from tacit.privacy.accounting.replacement import replacement_epsilon
from tacit.privacy.checks import require_delta, require_whole
from tacit.privacy.events import Relation, Spend

__all__ = ["PrivacyCurve", "group_epsilon", "privacy_curve", "within_unit_epsilon"]

_STEPS = 24
"""Points of a curve up to the certified epsilon; as many again lie above it, which is where groups take theirs from."""

_FEW_STEPS = 1000

_LEAST, _MOST = 1e-3, 100.0
"""Between these lies the epsilon in the middle of a curve; twice the second is far from where e^epsilon has no double."""

_LOOSER = 1.02
"""A cheaper account is taken if its epsilon is at most so many times as large as the certified one."""


@dataclass(frozen=True)
class PrivacyCurve:
    """Points of a proved privacy curve, (epsilon, delta)-DP at each, at equal distances from 0.

    Args:
        step: distance of the epsilons, in nats; above 0.
        deltas: at epsilon 0, step, 2 step, ...
    """

    step: float
    deltas: tuple[float, ...]

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """(epsilon, delta)."""
        return tuple((number * self.step, delta) for number, delta in enumerate(self.deltas))

    @property
    def _both_ways(self) -> np.ndarray:
        """Delta at -n step, ..., n step."""
        above = np.array(self.deltas)
        below = 1 - np.exp(-self.step * np.arange(len(above))) * (1 - above)
        return np.concatenate([below[:0:-1], above])

    def most_found(self, false_alarms: np.ndarray | float) -> np.ndarray:
        """An upper bound on the chance of finding a unit that is there, at each chance of accusing one that is not."""
        deltas = self._both_ways
        slopes = np.exp(self.step * (np.arange(len(deltas)) - len(self.deltas) + 1))
        rate = np.asarray(false_alarms, dtype=float)[..., None]
        return np.minimum(1.0, (deltas + slopes * rate).min(axis=-1))

    def trade_off(self, false_alarms: np.ndarray | float) -> np.ndarray:
        """A lower bound on the trade-off function: the least chance of missing a unit that is there."""
        return 1 - self.most_found(false_alarms)

    @property
    def corners(self) -> tuple[tuple[float, float], ...]:
        """The bound `most_found` as the corners of a line from (0, ...) to (1, 1): (false alarms, most found)."""
        deltas = self._both_ways
        slopes = np.exp(self.step * (np.arange(len(deltas)) - len(self.deltas) + 1))
        lines = list(zip(slopes.tolist(), deltas.tolist(), strict=True))
        kept: list[tuple[float, float]] = []
        for slope, start in sorted(lines, key=lambda line: (-line[0], line[1])):
            # A flatter line is below the last one from where they cross; that one counts for nothing if this is left of its begin.
            while kept and start <= kept[-1][1]:
                kept.pop()
            while len(kept) > 1 and _crossing(kept[-1], (slope, start)) <= _crossing(kept[-2], kept[-1]):
                kept.pop()
            kept.append((slope, start))
        kept.append((0.0, 1.0))
        between = [_crossing(one, other) for one, other in itertools.pairwise(kept)]
        rates = sorted({0.0, *(rate for rate in between if 0 < rate < 1), 1.0})
        return tuple(zip(rates, self.most_found(np.array(rates)).tolist(), strict=True))

    def of_group(self, size: int) -> PrivacyCurve:
        """The proved curve of ``size`` units together, at the epsilons of one unit and on to ``size`` times as far."""
        require_whole("size", size, 1)
        one = self._both_ways
        group = one
        for _ in range(size - 1):
            group = _after(one, group, self.step)
        return PrivacyCurve(self.step, tuple(group[len(group) // 2 :].tolist()))

    def epsilon(self, delta: float) -> float:
        """The smallest epsilon that these points prove at this delta; infinite where none does.

        Between two points delta is at most on the chord between them over e^epsilon, since two lines that hold have all their
        averages between them.
        """
        require_delta(delta)
        lowest = np.minimum.accumulate(np.array(self.deltas))
        if lowest[-1] > delta:
            return math.inf
        after = int(np.argmax(lowest <= delta))
        if after == 0:
            return 0.0
        share = (lowest[after - 1] - delta) / (lowest[after - 1] - lowest[after])
        return (after - 1) * self.step + math.log1p(share * math.expm1(self.step))


def _crossing(steep: tuple[float, float], flat: tuple[float, float]) -> float:
    """Where two lines (slope, value at 0) cross."""
    return (flat[1] - steep[1]) / (steep[0] - flat[0])


def _after(one: np.ndarray, group: np.ndarray, step: float) -> np.ndarray:
    """Delta, at sums of their epsilons, of a further unit after a group; both at epsilons that lie about 0."""
    middle = len(one) // 2
    found = np.full(len(one) + len(group) - 1, np.inf)
    for place, delta in enumerate(one.tolist()):
        raised = delta + math.exp(step * (place - middle)) * group
        window = found[place : place + len(group)]
        np.minimum(window, raised, out=window)
    return np.minimum(found, 1.0)


def privacy_curve(spends: Sequence[Spend], delta: float, relation: Relation) -> PrivacyCurve | None:
    """The proved curve of a ledger's spends, of the worst part of the units at each epsilon; None where nothing is proved.

    Args:
        delta: the certified one; the points lie around the epsilon that belongs to it.
    """
    return _curve(tuple(spends), delta, relation)


@functools.lru_cache(maxsize=8)
def _curve(spends: tuple[Spend, ...], delta: float, relation: Relation) -> PrivacyCurve | None:
    certified = joint_epsilon(spends, delta, relation)
    if math.isinf(certified):
        return None
    middle = min(max(certified, _LEAST), _MOST) * (1 + 1e-12)
    parts = [_cheap_account(part, delta, relation, certified) for part in account_parts(spends, relation)]
    epsilons = middle * np.arange(2 * _STEPS + 1) / _STEPS
    deltas = [max((part.delta(at) for part in parts), default=0.0) for at in epsilons.tolist()]
    if certified <= middle:  # Renyi DP may have proved more there than these accounts
        deltas[_STEPS] = min(deltas[_STEPS], delta)
    # What holds at an epsilon holds above it; below `SMALLEST_DELTA` composition is not exact enough.
    falling = [max(least, SMALLEST_DELTA) for least in itertools.accumulate(deltas, min)]
    return PrivacyCurve(middle / _STEPS, tuple(falling))


def _cheap_account(part: tuple[Spend, ...], delta: float, relation: Relation, certified: float) -> Account:
    """An account whose many points cost little, if it is nearly as good as the certifying one; upper bounds both."""
    cheap = Account(part, relation, COARSEST_GRID, full_law=False)
    good = delta >= SMALLEST_DELTA and cheap.epsilon(delta) <= _LOOSER * certified
    return cheap if good else shared_account(part, relation)


def group_epsilon(spends: Sequence[Spend], delta: float, relation: Relation, size: int) -> float:
    """Epsilon of ``size`` units together at this delta, an upper bound; infinite where none is proved at it.

    Under replacement the exact law of sampled Gaussians is a second bound (`replacement_epsilon`), and the smaller one is taken. The
    units may be in different parts of the corpus: each step from neighbour to neighbour costs what the worst part does.
    """
    if size == 1:
        return joint_epsilon(spends, delta, relation)
    curve = privacy_curve(spends, delta, relation)
    found = math.inf if curve is None else curve.of_group(size).epsilon(delta)
    return min(found, replacement_epsilon(spends, delta, size)) if relation == "replace" else found


def within_unit_epsilon(spends: Sequence[Spend], delta: float, relation: Relation) -> float:
    """Epsilon of a part of one unit's text, such as one record of a user, the unit's other text being as it is.

    With the part and without it the unit has two different texts, and one is exchanged for the other. So under add-or-remove this is
    more than epsilon of the whole unit, which compares the unit's text with none. The unit has to stay in its part of the corpus,
    which its id decides.
    """
    if relation == "replace":
        return joint_epsilon(spends, delta, relation)
    found = group_epsilon(spends, delta, relation, 2)
    if delta < SMALLEST_DELTA:
        return found
    exchanged = [_exchanged_epsilon(part, delta) for part in exchanged_parts(spends)]
    return min(found, max(exchanged, default=0.0))


@functools.lru_cache(maxsize=64)
def _exchanged_epsilon(part: tuple[Spend, ...], delta: float) -> float:
    """Epsilon of the exchange. With few steps the coarsest grid loses nothing that can be seen."""
    grid = COARSEST_GRID if composed_steps(part) <= _FEW_STEPS else GRIDS[0]
    return Account(part, "replace", grid, full_law=False).epsilon(delta)
