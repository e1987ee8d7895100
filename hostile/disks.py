"""A disk that is full at every step: one line and exit code 4 each time; with room again the end is bit for bit as if nothing was."""

from __future__ import annotations

from pathlib import Path

from hostile.attack import Attack, Outcome, Setting
from hostile.cases import CASES
from hostile.children import Child, complaint, start
from hostile.endings import differences, twice_spent
from hostile.mounts import check_root, leave_free, small_disk
from hostile.starts import begun, resume

__all__ = ["DISKS"]

_STEPS = 12
"""Starts of a trial, each with more room than the one before: from none to about what the run takes."""

_FULL = 4  # the exit code of a full disk
_CRASHES = "a full disk is a traceback"


def kilobytes_of(run: Path) -> int:
    """Of all files of a run, in blocks."""
    return sum((path.stat().st_size + 8191) // 4096 * 4 for path in run.rglob("*"))


def _trial(setting: Setting, row: str, number: int) -> Outcome:
    with setting.trial("disks", row, number) as place:
        one = begun(setting, row)
        needed = kilobytes_of(one.end) - kilobytes_of(one.run)
        with small_disk(place.folder / "disk", 4 * kilobytes_of(one.end) + 4096) as disk:
            config = one.copy(disk)
            wrong, codes = [], []
            for step in range(_STEPS):
                room = int(needed * (step + place.rng.random()) / _STEPS)
                leave_free(disk, room)
                ended = start([one.case.command, config], place.folder / "said")
                codes.append(ended.code)
                said = complaint(ended, codes=(0, _FULL))
                wrong += [f"{room} KB free: {said}"] if said else []
                if ended.code == 0:
                    break
            leave_free(disk, None)
            said = resume(one, config, place.folder)
            wrong += [f"with room again: {said}"] if said else _unlike(disk / "run", one.end)
        return Outcome(len(codes), tuple(wrong), tuple(f"exit {code}" for code in codes))


def _unlike(run: Path, end: Path) -> list[str]:
    found = [*differences(run, end), *twice_spent(run)]
    return [f"with room again: {'; '.join(found)[:300]}"] if found else []


def _crash_when_full() -> None:
    """A known-wrong `tacit`: a write that fails says so as Python does."""
    import tacit.runs.beginning as beginning

    def wrong(path: Path, values: object) -> None:
        raise ValueError("a traceback, on purpose")

    beginning.write_private_json = wrong


def _control(setting: Setting) -> Outcome:
    """Its end is caught by `complaint`, the same that judges every start of this module."""
    with setting.trial("disks", "control", 0) as place:
        one = begun(setting, "LSTM")
        child = Child(["run", one.copy(place.folder)], place.folder / "said", prepare=_crash_when_full)
        said = complaint(child.end(), codes=(0, _FULL))
        return Outcome(1, (said,) if said else ())


DISKS = Attack(
    title="A full disk",
    says=(
        "The run folder's file system is filled but for some kilobytes: up to twelve starts with ever more room, then one with "
        "enough. Expected: each ends well or with exit code 4 and one line; at last the same end. Rows "
        "count starts."
    ),
    rows=tuple(CASES),
    count=600,
    a_trial=10,
    trial=_trial,
    control_says="a write that fails ends in a traceback",
    control=_control,
    check=check_root,
)
