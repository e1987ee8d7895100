"""Two and three processes on one run at once: one works, the others say so in one line, and the end is that of one alone."""

from __future__ import annotations

from pathlib import Path

from hostile.attack import Attack, Outcome, Setting
from hostile.cases import CASES
from hostile.children import Child, Ended, complaint, start
from hostile.endings import differences, twice_spent
from hostile.starts import Begun, begun

__all__ = ["RIVALS"]

_EMPTY = "three, from an empty folder"
_ROWS = ("two", "three", "three, the first one killed", _EMPTY)


def _judged(ended: list[Ended], killed: int) -> list[str]:
    """One at least ends well; the others end well, after it, or with exit code 2 and one line."""
    wrong = [said for each in ended if not each.killed for said in [complaint(each, codes=(0, 2))] if said]
    if not killed and not any(each.code == 0 for each in ended):
        wrong.append("nobody ended well")
    return wrong


def _race(one: Begun, setting: Setting, config: Path, folder: Path, row: str, number: int) -> list[str]:
    rng = setting.rng("rivals", "race", row, number)
    many = 2 if row == "two" else 3
    children = []
    for place in range(many):
        children.append(Child([one.case.command, config], folder / f"said-{place}"))
        if rng.random() < 0.5:
            children[-1].over(rng.uniform(0.0, 0.3))
    killed = 0
    if "killed" in row:
        children[0].over(rng.uniform(0.0, one.seconds))
        children[0].kill()
        killed = 1
    return _judged([child.end() for child in children], killed)


def _trial(setting: Setting, row: str, number: int) -> Outcome:
    with setting.trial("rivals", row, number) as place:
        names = tuple(CASES)
        one = begun(setting, names[number % len(names)])
        config = one.configured(place.folder) if row == _EMPTY else one.copy(place.folder)
        wrong = _race(one, setting, config, place.folder, row, number)
        last = complaint(start([one.case.command, config], place.folder / "last"), codes=(0,))
        wrong += [f"afterwards: {last}"] if last else []
        run = place.folder / "run"
        if row == _EMPTY:
            said = complaint(start(["verify", run], place.folder / "verified"), codes=(0,))
            wrong += [f"verify: {said}"] if said else []
        elif not last:
            wrong += differences(run, one.end)
        wrong += [] if last else twice_spent(run)
        return Outcome(1, (f"{one.name}: {'; '.join(wrong)[:500]}",) if wrong else ())


def _no_lock() -> None:
    """A known-wrong `tacit`: everybody may enter the run folder."""
    import contextlib

    from tacit.runs.folder import RunFolder

    RunFolder.alone = lambda self: contextlib.nullcontext()  # pyright: ignore[reportAttributeAccessIssue]


def _control(setting: Setting) -> Outcome:
    """Without the lock, processes meet in the ledger or tread on each other's files."""
    with setting.trial("rivals", "control", 0) as place:
        one = begun(setting, "BERT, histogram")
        config = one.copy(place.folder)
        children = [Child(["run", config], place.folder / f"said-{number}", prepare=_no_lock) for number in range(3)]
        ended = [child.end() for child in children]
        return Outcome(1, tuple(_judged(ended, 0)[:1]))


RIVALS = Attack(
    title="Several processes on one run",
    says=(
        "Two or three processes start on one run folder at once or a few tenths of a second apart; in one row the first is "
        "killed. Expected: one works, the others end with exit code 2 and one line (or well, after it); the same end; "
        "from an empty folder, with a key of its own, `tacit verify` agrees."
    ),
    rows=_ROWS,
    count=120,
    a_trial=1,
    trial=_trial,
    control_says="no lock on the run folder",
    control=_control,
)
