"""The proved trade-off curve in numbers: how many units an attacker finds at most who accuses so many others."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from tacit.report.schema import RELEASED, SHARE, AttackFacts, ProvedCurve

__all__ = ["FALSE_ALARMS", "CurvePoint", "curve_points", "most_found"]

FALSE_ALARMS = (0.001, 0.01, 0.1, 0.5)
"""Where the table reads the curve."""


@dataclass(frozen=True)
class CurvePoint:
    """A point that an attack reached: its share of false alarms and of members that were found, with the interval of that."""

    name: str
    model: str
    false_alarms: float
    found: float
    interval: tuple[float, float] | None


def most_found(curve: ProvedCurve, false_alarms: float) -> float:
    """The largest chance of finding a unit that is there, which is linear between the curve's corners."""
    for (left, low), (right, high) in pairwise(curve.corners):
        if left <= false_alarms <= right:
            return min(1.0, low + (high - low) * (false_alarms - left) / (right - left))
    return math.nan


def curve_points(attacks: Sequence[AttackFacts]) -> tuple[CurvePoint, ...]:
    """The points of all attacks that have one, those of the released model first."""
    rows = [(attack, row) for attack in attacks for row in attack.rows if row.unit == SHARE]
    points = [
        CurvePoint(f"{attack.title}: {row.name}", row.model, row.false_alarms, row.value, row.interval)
        for attack, row in rows
        if row.false_alarms is not None
    ]
    return tuple(sorted(points, key=lambda point: point.model != RELEASED))
