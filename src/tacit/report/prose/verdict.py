"""What a verdict consists of, and the bounds that follow from (epsilon, delta)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from tacit.report.schema import EpsilonPair

__all__ = ["WEAK", "Verdict", "even_odds_bound", "guess_bound", "outcome_factor"]

WEAK = 0.99
"""An even-odds attacker who may be right more often than this is hardly limited, and the verdict says so."""


def outcome_factor(epsilon: float) -> float:
    """e^epsilon, infinite where a float ends."""
    return math.exp(epsilon) if epsilon < 700 else math.inf


def even_odds_bound(pair: EpsilonPair) -> float:
    """The largest chance with which an attacker who gives even odds to two neighbouring corpora names the right one.

    (e^epsilon + delta) / (1 + e^epsilon), half of one plus the largest total variation distance that (epsilon, delta)
    allows; the four-outcome mechanism of Kairouz, Oh, Viswanath 2015 reaches it. 1 for an infinite epsilon.
    """
    inverse = math.exp(-pair.epsilon)
    return (1 + pair.delta * inverse) / (1 + inverse)


def guess_bound(pair: EpsilonPair, chance: float) -> float:
    """The largest chance of guessing a secret of one unit that could be guessed with ``chance`` without the unit."""
    return min(1.0, outcome_factor(pair.epsilon) * chance + pair.delta)


@dataclass(frozen=True)
class Verdict:
    """The report's first words.

    Args:
        tone: proved, conditional (confidentiality under assumptions), or none; it decides the colour.
        headline: what it comes to.
        paragraph: the guarantee in plain words, for whom, and what an attacker gains.
        limited: what an attacker cannot do, one sentence each.
        not_covered: what the guarantee does not say, one sentence each.
        says: the same about the even-odds attacker, in a few words.
        success: the even-odds attacker's largest chance of being right.
        basis: the formulas, and the points of the privacy curve that they were taken at.
        known: how well each number is known, as (proved, measured or assumed; the number); where that is not said elsewhere.
    """

    tone: Literal["proved", "conditional", "none"]
    headline: str
    paragraph: str
    limited: tuple[str, ...]
    not_covered: tuple[str, ...]
    says: str
    success: float
    basis: str
    known: tuple[tuple[str, str], ...] = ()
