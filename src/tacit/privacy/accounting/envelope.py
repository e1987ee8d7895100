"""One loss distribution that dominates several, between which something released earlier may have chosen.

A mechanism that is one of several, the choice being a function of earlier releases, has after each of these releases the delta(e) of
one of them. So it is dominated by any pair of laws whose delta(e) is at every e the largest of theirs. Being a maximum of convex
functions of exp(e) that are 1 at 0 and fall, that largest delta is the curve of such a pair (Zhu, Dong and Wang 2022, proposition 8),
and the pair composes with what was released before (their theorem 10). To compose each of the several with it, and take the maximum
last, is right only where the choice is fixed beforehand. Proof: docs/guarantees.md, "Choosing by what was released".

On a grid of losses each curve is linear in exp(e) between the grid's places, and so is the envelope, by chords: at each place the
largest curve, joined as Doroshenko et al. 2022 join the dots. Where one curve is the largest over a stretch its own masses are kept,
so nothing is lost to rounding; where another takes over, the chord between them adds a little mass at its two ends.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from dp_accounting.pld import pld_pmf
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import signal

from tacit.privacy.events import Relation

__all__ = ["envelope", "envelope_pld"]

_EQUAL = 1e-11
"""Relative difference of two deltas that counts as none: rounding would have curves that are equal change places all the time. All
masses are raised by twice this, so that the envelope lies above every curve."""


def envelope_pld(
    distributions: Sequence[pld.PrivacyLossDistribution], relation: Relation
) -> pld.PrivacyLossDistribution:
    """The distribution that dominates all of these, which are on one grid and rounded up.

    Whether a unit is added or removed is settled by the two corpora, so the directions keep apart. Under replacement the earlier
    release may choose which of two kinds the unit that leaves is of, and which the one that comes, so both directions of every
    distribution are in one envelope.
    """
    if len(distributions) == 1:
        return distributions[0]
    gone, come = [one._pmf_remove for one in distributions], [one._pmf_add for one in distributions]
    if relation == "replace":
        return pld.PrivacyLossDistribution(envelope([*gone, *come]))
    return pld.PrivacyLossDistribution(envelope(gone), envelope(come))


def envelope(pmfs: Sequence[pld_pmf.PLDPmf]) -> pld_pmf.PLDPmf:
    """The losses whose delta(e) is at least that of each of these, on the same grid; equal to it wherever one is the largest."""
    dense = [pmf.to_dense_pmf() for pmf in pmfs]
    grid = dense[0]._discretization
    first = min(pmf._lower_loss for pmf in dense)
    size = max(pmf._lower_loss + len(pmf._probs) for pmf in dense) - first
    masses_KL = np.zeros((len(dense), size))
    for row, pmf in zip(masses_KL, dense, strict=True):
        begin = pmf._lower_loss - first
        row[begin : begin + len(pmf._probs)] = np.maximum(
            pmf._probs, 0.0
        )  # transforms leave -1e-20 where there is none
    infinite_K = np.array([pmf._infinity_mass for pmf in dense])
    deltas_KL = np.stack([_deltas(row, mass, grid) for row, mass in zip(masses_KL, infinite_K, strict=True)])
    masses, last = _joined(masses_KL, deltas_KL, grid)
    raised = 1 + 2 * _EQUAL
    return pld_pmf.DensePLDPmf(grid, first, masses * raised, float(infinite_K[last]) * raised, True)


def _deltas(masses: np.ndarray, infinite: float, grid: float) -> np.ndarray:
    """Delta at each loss of the grid, by sums of numbers that are not negative: a tiny delta is as exact as a large one.

    With S_m the sum over j > m of p_j exp(-(j - m) grid), delta_k is the infinite mass and (1 - exp(-grid)) times the sum over m > k
    of p_m + S_m.
    """
    decay = math.exp(-grid)
    behind = signal.lfilter([0.0, decay], [1.0, -decay], masses[::-1])
    sums = np.cumsum(masses[::-1] + behind)
    return infinite - math.expm1(-grid) * np.append(sums[:-1][::-1], 0.0)


def _joined(masses_KL: np.ndarray, deltas_KL: np.ndarray, grid: float) -> tuple[np.ndarray, int]:
    """(masses of the envelope, which curve is the largest at the end)."""
    best = _largest(deltas_KL)
    places = np.arange(len(best))
    masses = masses_KL[best, places]
    at = np.flatnonzero(best[1:] != best[:-1])  # the largest changes between at and at + 1
    old, new = best[at], best[at + 1]
    # From delta_old at one end to delta_new at the other the chord is flatter than the old curve and steeper than the new one.
    masses[at] += np.maximum(deltas_KL[new, at + 1] - deltas_KL[old, at + 1], 0.0) / math.expm1(grid)
    masses[at + 1] += np.maximum(deltas_KL[old, at] - deltas_KL[new, at], 0.0) / -math.expm1(-grid)
    return masses, int(best[-1])


def _largest(deltas_KL: np.ndarray) -> np.ndarray:
    """Which curve is the largest at each place, or equal to it, with as few changes as there can be."""
    near_KL = deltas_KL >= deltas_KL.max(axis=0) * (1 - _EQUAL)
    size = near_KL.shape[1]
    ends = [np.append(np.flatnonzero(~near), size) for near in near_KL]  # where a curve is below the largest
    best = np.zeros(size, dtype=np.int64)
    place = begin = 0  # of the stretch to come, and of the one before it
    while place < size:
        reach = [int(stops[np.searchsorted(stops, place)]) for stops in ends]
        longest = int(np.argmax(reach))
        # Where the two cross, not where they are told apart: a chord between curves that have crossed before adds mass for nothing.
        old = best[place - 1] if place else longest
        above = np.flatnonzero(deltas_KL[old, begin:place] >= deltas_KL[longest, begin:place])
        begin, place = (begin + int(above[-1]) + 1 if len(above) else place), reach[longest]
        best[begin:place] = longest
    return best
