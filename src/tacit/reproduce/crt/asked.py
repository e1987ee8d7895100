"""What a claim of Zhao et al. 2022 is: a question to each panel that has what it needs, and what that panel says on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tacit.reproduce.crt.panel import Arms, PanelResults
from tacit.reproduce.crt.scale import UTILITY_GAMMA
from tacit.reproduce.writing import Claim

__all__ = ["CRT", "NOT_RUN", "TRUNK", "Found", "Question", "claim_of"]

NOT_RUN = "not run yet"
CRT = Arms("crt", UTILITY_GAMMA)
TRUNK = Arms("trunk")


@dataclass(frozen=True)
class Found:
    """What a panel says on a claim."""

    holds: bool | None
    numbers: str
    passed_by: str = ""


@dataclass(frozen=True)
class Question:
    """A claim of one panel.

    Args:
        find: None where its trainings were not run.
        arm: a training that it needs.
        misses: whether it needs that at a gamma above 0, or at 0; None: at any.
        attacks: whether it needs that membership was tried.
    """

    text: str
    find: Callable[[PanelResults, float], Found | None]
    arm: str = "crt"
    misses: bool | None = None
    attacks: bool = False

    def is_of(self, panel: PanelResults) -> bool:
        """Whether the panel's scale has what it needs."""
        gammas = panel.plans(self.arm)
        wanted = gammas if self.misses is None else [gamma for gamma in gammas if (gamma > 0) == self.misses]
        return bool(wanted) and (panel.attacked or not self.attacks)

    def claims(self, panels: Sequence[PanelResults], level: float) -> list[Claim]:
        """A row a panel, or one where no panel has what it needs."""
        own = [panel for panel in panels if self.is_of(panel)]
        found = [(panel.name, self.find(panel, level)) for panel in own]
        return [claim_of(self.text, name, one) for name, one in found or [("", None)]]


def claim_of(text: str, panel: str, found: Found | None) -> Claim:
    """The row of a panel; one that says so where nothing was run."""
    if found is None:
        return Claim(text, panel, None, NOT_RUN)
    return Claim(text, panel, found.holds, found.numbers, passed_by=found.passed_by)
