"""The bounds, by name: `BOUNDS`. A new one is one file and one line."""

from __future__ import annotations

from typing import Any

from tacit.audit.bounds.bound import Bound
from tacit.audit.bounds.clopper_pearson import ClopperPearson
from tacit.audit.bounds.gaussian import GaussianDp
from tacit.audit.bounds.guessing_game import GuessingGame
from tacit.audit.bounds.one_run import OneRun
from tacit.audit.bounds.one_run_fdp import OneRunFdp

__all__ = ["BOUNDS"]

BOUNDS: dict[str, type[Bound[Any]]] = {
    "one-run": OneRun,
    "clopper-pearson": ClopperPearson,
    "one-run-f-dp": OneRunFdp,
    "gaussian-dp": GaussianDp,
    "guessing-game": GuessingGame,
}
"""From the fewest assumptions to the most, and the one that reads ranks."""
