"""Trials on disk, one JSON line each: what is done is not done again, and a line that a stop cut is done again."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import tacit
from hostile.attack import Outcome

__all__ = ["CONTROL", "Results", "Sum", "Trial", "about"]

CONTROL = "control"
"""The row of an attack's control."""


@dataclass(frozen=True)
class Trial:
    """One trial as stored; ``number`` counts within its row."""

    attack: str
    row: str
    number: int
    seed: int
    tried: int
    failures: tuple[str, ...]
    notes: tuple[str, ...] = ()
    unavailable: str = ""


@dataclass(frozen=True)
class Sum:
    """A row of a table: attacks, and those of trials without a failure."""

    row: str
    tried: int
    expected: int
    failed: tuple[Trial, ...]
    notes: tuple[str, ...]


def about() -> dict[str, str]:
    """What was attacked, and where: versions, digest of tacit's source, cores."""
    root = Path(tacit.__file__).parent
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes())
    names = ("torch", "transformers", "tokenizers", "numpy", "pyarrow", "opendp")
    return {
        "tacit": f"{tacit.__version__}, source {digest.hexdigest()[:12]}",
        "versions": ", ".join(f"{name} {version(name)}" for name in names),
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.release().split('-')[0]}",
        "cores": str(os.cpu_count()),
    }


class Results:
    """All trials of a folder.

    Args:
        folder: made when it is missing.
        job: of several processes that write here, which one this is.
    """

    def __init__(self, folder: Path, job: int = 0) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._own = folder / f"trials-{job}.jsonl"
        self._done = {(trial.attack, trial.row, trial.number, trial.seed) for trial in self.trials()}

    def trials(self) -> Iterator[Trial]:
        """All that are stored whole."""
        for path in sorted(self._folder.glob("trials-*.jsonl")):
            for line in path.read_text().splitlines():
                try:
                    values = json.loads(line)
                except ValueError:  # cut by a stop
                    continue
                yield Trial(**{**values, "failures": tuple(values["failures"]), "notes": tuple(values["notes"])})

    def has(self, attack: str, row: str, number: int, seed: int) -> bool:
        """Whether this trial is done."""
        return (attack, row, number, seed) in self._done

    def add(self, attack: str, row: str, number: int, seed: int, outcome: Outcome, unavailable: str = "") -> None:
        """Store one; it is on disk when this returns."""
        trial = Trial(attack, row, number, seed, outcome.tried, outcome.failures, outcome.notes, unavailable)
        with self._own.open("a+b") as file:
            whole = file.tell() == 0 or self._own.read_bytes().endswith(b"\n")
            file.write(("" if whole else "\n").encode() + json.dumps(trial.__dict__).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._done.add((attack, row, number, seed))

    def sums(self, attack: str, order: Sequence[str] = ()) -> list[Sum]:
        """Its rows, in this order and then in that in which they were first tried."""
        rows: dict[str, list[Trial]] = {row: [] for row in order}
        for trial in self.trials():
            if trial.attack == attack and not trial.unavailable:
                rows.setdefault(trial.row, []).append(trial)
        return [self._sum(row, trials) for row, trials in rows.items() if trials]

    def tried(self, attack: str, seed: int) -> int:
        """How many attacks, without the control."""
        return sum(
            trial.tried
            for trial in self.trials()
            if trial.attack == attack and trial.seed == seed and trial.row != CONTROL
        )

    def unavailable(self, attack: str) -> str:
        """Why it could not be tried here; empty when it could."""
        return next((trial.unavailable for trial in self.trials() if trial.attack == attack and trial.unavailable), "")

    @staticmethod
    def _sum(row: str, trials: list[Trial]) -> Sum:
        failed = tuple(trial for trial in trials if trial.failures)
        wrong = sum(min(trial.tried, len(trial.failures)) for trial in failed)
        tried = sum(trial.tried for trial in trials)
        return Sum(row, tried, tried - wrong, failed, tuple(note for trial in trials for note in trial.notes))
