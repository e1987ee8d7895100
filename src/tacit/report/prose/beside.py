"""The proved upper bound and the measured lower bound on epsilon, side by side: the truth lies between them.

A row of an attack in the unit "epsilon" is a lower bound; the first one of the released model counts, and none means that the model
was not tested so. An attack that finds nothing proves nothing, so no words here praise a small number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from tacit.report.prose.numbers import NBSP, at_least_text, bound_text
from tacit.report.schema import AttackFacts, AttackRow, Guarantee

__all__ = ["Beside", "beside"]


@dataclass(frozen=True)
class Beside:
    """Both bounds in words.

    Args:
        upper, lower: in a few signs.
        upper_note, lower_note: where each comes from, and what it is worth.
        state: of the lower bound: found, not tested, or contradicted, where it is above the proved one.
    """

    upper: str
    upper_note: str
    lower: str
    lower_note: str
    state: Literal["found", "untested", "contradicted"]


def beside(guarantee: Guarantee, attacks: Sequence[AttackFacts], confidential: bool = False) -> Beside:
    """What is proved from above and measured from below.

    Args:
        confidential: whether a statement of confidentiality holds in place of differential privacy.
    """
    pair = guarantee.certified
    upper, upper_note = "no limit", _CONFIDENTIAL if confidential else "Nothing is proved: epsilon is infinite."
    if guarantee.is_proved:
        upper = f"ε{NBSP}≤{NBSP}{bound_text(pair.epsilon)}"
        upper_note = f"Of every attack, known or unknown, at δ{NBSP}={NBSP}{bound_text(pair.delta)}."
    bounds = [(attack, row) for attack in attacks for row in attack.rows if row.is_lower_bound]
    if not bounds:
        return Beside(upper, upper_note, "not tested", _NOT_TESTED, "untested")
    attack, row = bounds[0]
    lower = f"ε{NBSP}≥{NBSP}{at_least_text(row.value)}"
    if row.value > pair.epsilon and not row.assumes:
        return Beside(upper, upper_note, lower, f"{_note(attack, row, pair.epsilon)} {_CONTRADICTED}", "contradicted")
    return Beside(upper, upper_note, lower, _note(attack, row, pair.epsilon), "found")


_CONFIDENTIAL = "Of differential privacy: epsilon is infinite. What holds is confidentiality, as said above."
_NOT_TESTED = (
    "No attack on this model gives a lower bound on epsilon. That says nothing for the model and nothing against it."
)
_CONTRADICTED = "It is above what is proved: the proof, or the program, is wrong. Do not publish, and report it."


def _note(attack: AttackFacts, row: AttackRow, proved: float) -> str:
    """The row's own words, which know its confidence and its verdict; or what the numbers say."""
    if row.words:
        words = row.words.removeprefix("So ")
        return f"{words[0].upper()}{words[1:]}. A better attack may find more."
    found = f"{attack.title}: {row.name}."
    if row.ceiling is None:
        return f"{found} A better attack may find more."
    capacity = f"A perfect attack of this size could at best show {at_least_text(row.ceiling)}"
    if row.ceiling < proved:
        return f"{found} {capacity}, which is below what is proved: this test could not have contradicted the proof."
    return f"{found} {capacity}. A better attack may find more."
