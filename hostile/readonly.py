"""Folders that cannot be written: one line, nothing changed, and the run goes on when they can be written again."""

from __future__ import annotations

from pathlib import Path

from hostile.attack import Attack, Outcome, Setting
from hostile.children import Child, complaint, start
from hostile.endings import differences, twice_spent
from hostile.kills import kill_at
from hostile.mounts import check_root, read_only
from hostile.starts import Begun, begun, resume

__all__ = ["READONLY"]

_PLACES = ("the parent", "the run folder", "run/private", "run/private/checkpoints", "run/release")
_FINISHED = "a finished run: ledger, verify, run"
_CASES = ("BERT, histogram", "CRT, two rounds", "fine-tuning with DP", "adaptive, strata")


def _place(folder: Path, row: str) -> Path:
    return {
        "the parent": folder,
        "the run folder": folder / "run",
        "run/private": folder / "run" / "private",
        "run/private/checkpoints": folder / "run" / "private" / "checkpoints",
        "run/release": folder / "run" / "release",
    }[row]


def _trial(setting: Setting, row: str, number: int) -> Outcome:
    with setting.trial("readonly", row, number) as place:
        one = begun(setting, _CASES[number % len(_CASES)])
        inside = place.folder / "parent"
        inside.mkdir()
        config = one.copy(inside)
        if row == _FINISHED:
            return _finished(one, config, inside, place.folder)
        child = Child([one.case.command, config], place.folder / "said")
        kill_at(place.rng, child, inside / "run", one.seconds)
        child.end()
        target = _place(inside, row)
        target.mkdir(exist_ok=True)
        with read_only(target):
            ended = start([one.case.command, config], place.folder / "denied")
        said = complaint(ended, codes=(0, 2, 4))
        wrong = [f"{one.name}: {said}"] if said else []
        said = resume(one, config, place.folder)
        found = [said] if said else [*differences(inside / "run", one.end), *twice_spent(inside / "run")]
        wrong += [f"{one.name}, writable again: {'; '.join(found)[:300]}"] if found else []
        return Outcome(1, tuple(wrong[:1]), (f"exit {ended.code}",))


def _finished(one: Begun, config: Path, inside: Path, folder: Path) -> Outcome:
    """What only reads must work; the finished run itself may say that it cannot lock."""
    said = resume(one, config, folder)
    wrong = [said] if said else []
    codes = {"ledger": (0,), "verify": (0,), one.case.command: (0, 2, 4)}
    with read_only(inside):
        for command, allowed in codes.items():
            target = config if command == one.case.command else inside / "run"
            said = complaint(start([command, target], folder / "said"), allowed)
            wrong += [f"{one.name}, {command}: {said}"] if said else []
    found = differences(inside / "run", one.end)
    wrong += [f"{one.name}: changed: {'; '.join(found)[:300]}"] if found else []
    return Outcome(1, tuple(wrong[:1]))


def _control(setting: Setting) -> Outcome:
    """A byte of the release changed while nobody looked: `differences` must say so."""
    with setting.trial("readonly", "control", 0) as place:
        one = begun(setting, "BERT, histogram")
        config = one.copy(place.folder)
        said = resume(one, config, place.folder)
        released = place.folder / "run" / "release" / "README.md"
        released.write_bytes(released.read_bytes() + b" ")
        return Outcome(1, tuple([said] if said else differences(place.folder / "run", one.end)))


READONLY = Attack(
    title="Folders that cannot be written",
    says=(
        "Killed at a random instant; then one start with a folder of the run read-only (a bind mount, which holds for root too), "
        "then writable again. Expected: that start ends with exit code 2 or 4 and one line, or well where it need not write; the "
        "same end; `tacit ledger` and `tacit verify` work on a finished run."
    ),
    rows=(*_PLACES, _FINISHED),
    count=120,
    a_trial=1,
    trial=_trial,
    control_says="one byte more in a released file",
    control=_control,
    check=check_root,
)
