"""How many audit examples show how much, as the table of docs/audit-bounds.md: ``python -m tacit.audit.bounds.table`` prints it."""

from __future__ import annotations

from typing import Any

from tacit.audit.bounds.bound import Bound
from tacit.audit.bounds.clopper_pearson import ClopperPearson
from tacit.audit.bounds.gaussian import GaussianDp
from tacit.audit.bounds.guessing_game import GuessingGame
from tacit.audit.bounds.one_run import OneRun
from tacit.audit.bounds.one_run_fdp import OneRunFdp

__all__ = ["capacity_table"]

_SIZES = (10, 100, 1000, 10_000)
_EPSILONS = (1.0, 4.0, 8.0)
_DELTA = 1e-5
_ROWS: dict[str, Bound[Any]] = {
    "one-run, all guessed": OneRun(shares=(1.0,)),
    "one-run": OneRun(),
    "clopper-pearson": ClopperPearson(),
    "one-run-f-dp": OneRunFdp(),
    "gaussian-dp": GaussianDp(),
    "guessing-game, 1,000 candidates": GuessingGame(candidates=1000),
}


def capacity_table() -> str:
    """Capacity by number of examples, and examples needed by epsilon, at 95 % and delta 1e-5, as Markdown."""
    sizes, epsilons = (f"{size:,}" for size in _SIZES), (f"for {epsilon:g}" for epsilon in _EPSILONS)
    lines = ["| " + " | ".join(["bound", *sizes, *epsilons]) + " |", "|" + "---|" * (1 + len(_SIZES) + len(_EPSILONS))]
    for name, bound in _ROWS.items():
        shown = [f"{bound.capacity(size, _DELTA):.2f}" for size in _SIZES]
        needed = [f"{bound.coins_needed(epsilon, _DELTA):,}" for epsilon in _EPSILONS]
        lines.append("| " + " | ".join([name, *shown, *needed]) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(capacity_table())
