"""What an attack is: rows of trials with an expected end, and a control: a known-wrong `tacit` that the same check must catch."""

from __future__ import annotations

import hashlib
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Attack", "Outcome", "Place", "Setting", "Unavailable"]


class Unavailable(Exception):
    """This machine cannot be attacked in this way; says why."""


@dataclass(frozen=True)
class Outcome:
    """What a trial came to.

    Args:
        tried: how many attacks it was: kills, starts or inputs.
        failures: what was not as expected, one line each; empty when all was.
        notes: how each of them ended, in few words that are counted over all trials.
    """

    tried: int
    failures: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where one trial works, and what it draws from."""

    folder: Path
    rng: random.Random


@dataclass(frozen=True)
class Setting:
    """Where all trials work.

    Args:
        root: a scratch folder, kept between two starts of the driver.
        seed: of every choice that the harness makes; `tacit`'s own randomness is its own.
    """

    root: Path
    seed: int

    def rng(self, *address: str | int) -> random.Random:
        """Choices at this address, the same in every start."""
        text = "/".join(map(str, (self.seed, *address)))
        return random.Random(hashlib.sha256(text.encode()).digest())

    @contextmanager
    def trial(self, attack: str, row: str, number: int) -> Iterator[Place]:
        """An empty folder of its own, removed afterwards."""
        name = hashlib.sha256(f"{attack}/{row}/{number}".encode()).hexdigest()[:12]
        folder = self.root / "trials" / f"{attack}-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            yield Place(folder, self.rng(attack, row, number))
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Attack:
    """One family of trials.

    Args:
        title: of its table.
        says: what is done and what has to come of it, in a few sentences.
        rows: names of what is attacked; trials go round them.
        count: attacks in `make hostile`; the sum of the rows' ``tried`` is about this.
        a_trial: attacks of one trial.
        trial: what one of a row comes to.
        control_says: the known-wrong version.
        control: its outcome, which must have a failure.
        check: raises `Unavailable` where the machine cannot do it.
    """

    title: str
    says: str
    rows: Sequence[str]
    count: int
    a_trial: int
    trial: Callable[[Setting, str, int], Outcome]
    control_says: str
    control: Callable[[Setting], Outcome]
    check: Callable[[], None] = lambda: None
