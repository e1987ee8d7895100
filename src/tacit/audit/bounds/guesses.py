"""How many right guesses a differentially private release allows: the law behind `one_run` and `guessing_game`.

m secrets, each drawn independently and uniformly from k values: k = 2 for an example that a fair coin puts in or out. The
attacker sees the release, guesses r of the secrets and abstains from the others. Every two values of one secret are neighbours of
an (epsilon, delta) guarantee. C is the number of right guesses, and q = e^epsilon / (e^epsilon + k - 1).

    P[C >= v]  <=  P[Bin(r, q) >= v]  +  m delta (1 - q) D,    D = (D_1 + ... + D_r) / r,
    D_j = the largest P[Bin(r - j, q) = i] with v - j <= i <= v - 1.

For delta = 0 and k = 2 this is the pure case of Steinke, Nasr and Jagielski 2023 (arXiv 2305.08846). For delta their theorem 5.2,
as the published code has it, adds 2 m delta times the largest (P[Bin(r, q) >= v - i] - P[Bin(r, q) >= v]) / i. That is too small
for v below the mean: two guesses with the laws .5541 (both right), .2038 (either one) and .0383 (none) are (1, 0.1)-DP, and so
"one or more" has 0.9617, not at most 0.9566. For v above the mean, where audits are, their term was larger than ours in all cases
that the tests try. What follows proves ours.

*One secret.* Take a vector of guesses t and a secret i that it guesses. Let p_a be the probability of t where the secret is a,
the others being fixed or averaged over. Given t, the guess is right with probability p_t / sum p_a, which exceeds q by at most

    sum over a of max(0, p_t - e^epsilon p_a)  /  ((e^epsilon + k - 1) sum p_a),

and t has the probability sum p_a / k. So the excess, summed over all t, is at most k (k - 1) delta / (k (e^epsilon + k - 1)) =
(1 - q) delta: k (k - 1) ordered pairs of values, each with delta. By convexity the same holds when some other secrets are
known, also when t decides which.

*All secrets.* Given t, uncover the guessed secrets in a random order. Let V_j(w) = P[w + Bin(r - j, q) >= v]: what w right
guesses among the first j are worth. Then P[C >= v | t] - V_0(0) is the sum over j of E[V_j(C_j) - V_(j-1)(C_(j-1))], and each
term is the excess at the jth secret times V_j(w + 1) - V_j(w) = P[Bin(r - j, q) = v - 1 - w], which is at most D_j. Each guessed
secret is the jth with probability 1 / r. Summed over t and over the m secrets that is the second term. Nothing is assumed of how
the guesses depend on each other.

A leak that shows delta m of the secrets reaches about this (tests/audit/test_bounds_guesses.py).

*From the law to a bound.* If the right side is at most the level at some epsilon, that epsilon is refuted, and every smaller one
with it, for (epsilon, delta) implies (epsilon', delta) for epsilon' > epsilon.

*Groups.* A secret that stands in c units is a group: c epsilon, and delta (e^(c epsilon) - 1) / (e^epsilon - 1), for its
(epsilon, delta).
"""

from __future__ import annotations

import functools
import math

import numpy as np
from scipy import special

from tacit.audit.bounds.bound import largest

__all__ = ["most_right", "refuted_epsilon"]


def most_right(
    right: int, guesses: int, secrets: int, epsilon: float, delta: float, candidates: int = 2, units: int = 1
) -> float:
    """An upper bound on P[at least ``right`` of ``guesses`` are right], under an (epsilon, delta) guarantee.

    Args:
        right, guesses, secrets: v, r and m, with 1 <= v <= r <= m.
        candidates: k.
        units: c, in how many units each secret stands.
    """
    group_epsilon = units * epsilon
    group_delta = delta * (units if epsilon == 0 else math.expm1(group_epsilon) / math.expm1(epsilon))
    odds = math.log(candidates - 1) - group_epsilon  # of a wrong guess
    by_chance = float(special.bdtrc(right - 1, guesses, special.expit(-odds)))
    if delta == 0:
        return by_chance
    wrong = float(special.expit(odds))
    return min(1.0, by_chance + secrets * group_delta * wrong * _mean_peak(right, guesses, wrong))


def _mean_peak(right: int, guesses: int, wrong: float) -> float:
    """D: the mean of D_1..D_r."""
    if right == guesses:  # D_j = q^(r - j), a geometric series
        return -math.expm1(guesses * math.log1p(-wrong)) / (guesses * wrong)
    seen_j = np.arange(1, guesses + 1)
    left_j = guesses - seen_j
    mode_j = np.floor((left_j + 1) * (1 - wrong))
    at_j = np.clip(mode_j, np.maximum(right - seen_j, 0), np.minimum(right - 1, left_j))
    ways_j = special.gammaln(left_j + 1) - special.gammaln(at_j + 1) - special.gammaln(left_j - at_j + 1)
    return float(np.exp(ways_j + special.xlog1py(at_j, -wrong) + special.xlogy(left_j - at_j, wrong)).mean())


@functools.lru_cache(maxsize=4096)  # repeated audits meet the same counts
def refuted_epsilon(
    right: int, guesses: int, secrets: int, delta: float, level: float, candidates: int = 2, units: int = 1
) -> float:
    """The largest epsilon under which so many right guesses have a probability of at most ``level``; 0 if there is none.

    For delta = 0 it is the lower Clopper-Pearson limit of the share of right guesses, as an epsilon.
    """
    if right == 0:
        return 0.0
    wrong = special.betaincinv(guesses - right + 1, right, 1 - level)
    pure = (math.log(candidates - 1) + float(np.log1p(-wrong) - np.log(wrong))) / units
    if pure <= 0 or delta == 0:
        return max(0.0, pure)

    def is_refuted(epsilon: float) -> bool:
        return most_right(right, guesses, secrets, epsilon, delta, candidates, units) <= level

    return largest(is_refuted, 0.0, pure) if is_refuted(0.0) else 0.0
