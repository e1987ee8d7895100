"""Begun runs: a key, a ledger in which nothing is spent, and the vocabulary's noise. Every copy of one must end alike.

Vocabulary noise comes from OpenDP and the operating system. It is drawn once and kept on disk, so a begun run holds all of it; what
one start drew and did not keep, another may draw anew. The key is drawn by `tacit`: a start is killed as soon as its
ledger is planned.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hostile.attack import Setting
from hostile.cases import CASES, Case, config_in
from hostile.children import Child, complaint, start
from tacit.privacy.ledger import Ledger

__all__ = ["Begun", "begun", "resume", "spends"]

_TRIES = 20


@dataclass(frozen=True)
class Begun:
    """A begun run.

    Args:
        corpora: the folder of what it reads.
        run: the run folder as it was begun, to be copied.
        end: a copy that was left alone until it ended.
        seconds: that this took.
    """

    name: str
    case: Case
    corpora: Path
    run: Path
    end: Path
    seconds: float

    def copy(self, folder: Path) -> Path:
        """A run that begins here, in ``folder/run``; its configuration, in ``folder/config.yaml``."""
        shutil.copytree(self.run, folder / "run")
        return self.configured(folder)

    def configured(self, folder: Path, run: Path | None = None) -> Path:
        """The configuration for the run folder ``folder/run``, or another one."""
        return config_in(folder, self.case.values(self.corpora), folder / "run" if run is None else run)


def begun(setting: Setting, name: str) -> Begun:
    """The begun run of a case, made when it is first asked for, by one process."""
    folder = setting.root / "begun" / "".join(letter if letter.isalnum() else "-" for letter in name)
    folder.mkdir(parents=True, exist_ok=True)
    case = CASES[name]
    with _alone(folder):
        if not (folder / "seconds").exists():
            _make(case, folder)
    seconds = float((folder / "seconds").read_text())
    return Begun(name, case, folder / "corpora", folder / "start" / "run", folder / "end" / "run", seconds)


def _make(case: Case, folder: Path) -> None:
    for made in folder.iterdir():
        if made.is_dir():
            shutil.rmtree(made)
    corpora, first, end = (folder / part for part in ("corpora", "start", "end"))
    for place in (corpora, first, end):
        place.mkdir()
    case.write(corpora)
    values = case.values(corpora)
    _begin(case.command, config_in(first, values, first / "run"), first)
    if case.os_noise:
        _place_noise(values, first / "run", folder / "words", case.os_noise)
    shutil.copytree(first / "run", end / "run")
    ended = start([case.command, config_in(end, values, end / "run")], end / "said")
    if ended.code:
        raise RuntimeError(f"the undisturbed run of {folder.name} ended with {ended.code}: {ended.err[-500:]}")
    (folder / "seconds").write_text(str(ended.seconds))


def _begin(command: str, config: Path, folder: Path) -> None:
    """The one place where a harness's run gets its key: from a start that is killed when all is planned, and nothing spent."""
    run = folder / "run"
    for _ in range(_TRIES):
        child = Child([command, config], folder / "said")
        while not (run / "private" / "checkpoints").exists() and not child.over(
            0.001
        ):  # made when the ledger has all plans
            pass
        child.kill()
        ended = child.end()
        if not ended.killed:
            raise RuntimeError(f"{config}: ended with {ended.code} before it could be killed: {ended.err[-500:]}")
        if not spends(run):
            return
        shutil.rmtree(run)
    raise RuntimeError(f"{config}: no start could be killed before it spent something")


def _place_noise(values: dict[str, object], run: Path, folder: Path, releases: int) -> None:
    """Draw the vocabulary's noise in a copy that goes on to its vocabulary, and keep only the noise."""
    folder.mkdir()
    shutil.copytree(run, folder / "run")
    ended = start(["run", config_in(folder, dict(values), folder / "run"), "--until", "vocabulary"], folder / "said")
    noises = list((folder / "run" / "private" / "vocabulary").glob("noise*.npy"))
    if ended.code or len(noises) != releases:
        raise RuntimeError(f"{folder}: {len(noises)} files of noise, {releases} expected: {ended.err[-500:]}")
    place = run / "private" / "vocabulary"
    place.mkdir(mode=0o700, exist_ok=True)
    for noise in noises:
        shutil.copy2(noise, place / noise.name)


def spends(run: Path) -> dict[str, int]:
    """What the ledger of a run says was paid, by stage."""
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        return {stage: ledger.spent(stage) for stage in ledger.plans if ledger.spent(stage)}


def resume(begun: Begun, config: Path, folder: Path, at: float | None = None) -> str:
    """Start the command until it ends; what is wrong with that, or nothing."""
    command = [begun.case.command, config]
    ended = start(command, folder / "last") if at is None else start(command, folder / "last", at=at)
    return complaint(ended, codes=(0,))


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        os.close(descriptor)
