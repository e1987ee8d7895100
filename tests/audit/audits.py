"""A perfect attack, and the best one that a guarantee allows; `tacit.audit.self_test.simulated` has audits of known mechanisms."""

from __future__ import annotations

from itertools import combinations, product

import numpy as np
from scipy.optimize import linprog

from tacit.audit.bounds.evidence import Scores

__all__ = ["best_attack", "perfect_scores"]


def perfect_scores(size: int) -> Scores:
    """An attack that is always right: every second example is in."""
    included_m = np.arange(size) % 2 == 1
    return Scores(included_m + np.arange(size) / size / 2, included_m, np.arange(size))


def best_attack(
    secrets: int, candidates: int, guessed: int, least_right: int, curve: list[tuple[float, float]]
) -> float:
    """The largest P[at least ``least_right`` right] of all mechanisms that keep to every (epsilon, delta) of a curve.

    A linear programme: a mechanism gives each vector of secrets a law over vectors of guesses, None where nothing is guessed.
    """
    states = list(product(range(candidates), repeat=secrets))
    outputs = [
        tuple(dict(zip(places, values, strict=True)).get(place) for place in range(secrets))
        for places in combinations(range(secrets), guessed)
        for values in product(range(candidates), repeat=guessed)
    ]
    pairs = [
        (a, b)
        for a, b in product(range(len(states)), repeat=2)
        if sum(x != y for x, y in zip(states[a], states[b], strict=True)) == 1
    ]
    laws, width = len(states) * len(outputs), len(outputs)
    excesses = len(pairs) * len(curve) * width
    gain = np.zeros(laws + excesses)
    for number, (state, output) in enumerate(product(states, outputs)):
        gain[number] = sum(x == y for x, y in zip(state, output, strict=True)) >= least_right
    sums = np.zeros((len(states), laws + excesses))
    for number in range(len(states)):
        sums[number, number * width : (number + 1) * width] = 1
    # excess >= P_a(t) - e^epsilon P_b(t), excess >= 0, and the excesses of one pair are at most delta together
    rows, limits, at = [], [], laws
    for (a, b), (epsilon, delta) in product(pairs, curve):
        for output in range(width):
            row = np.zeros(laws + excesses)
            row[a * width + output], row[b * width + output], row[at + output] = 1, -np.exp(epsilon), -1
            rows.append(row)
            limits.append(0.0)
        row = np.zeros(laws + excesses)
        row[at : at + width] = 1
        rows.append(row)
        limits.append(delta)
        at += width
    found = linprog(-gain / len(states), np.array(rows), np.array(limits), sums, np.ones(len(states)), method="highs")
    assert found.success
    return -float(found.fun)
