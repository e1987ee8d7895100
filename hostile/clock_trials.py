"""A clock that is set back or far ahead between two starts of a run: the end is the same, and so is the day on its report."""

from __future__ import annotations

import datetime

from hostile.attack import Attack, Outcome, Setting
from hostile.children import NOON, Child, complaint
from hostile.endings import differences, twice_spent
from hostile.kills import kill_at
from hostile.starts import begun, resume

__all__ = ["CLOCKS"]

_YEAR = 31_556_952
_SHOWN: dict[str, tuple[float, ...]] = {
    "set back an hour at each start": (NOON - 3600, NOON - 7200, NOON - 10800),
    "set back to 1970": (NOON, 0.0, 1.0),
    "before 1970": (NOON, -_YEAR, -20 * _YEAR),
    "a hundred years ahead, then back": (NOON + 100 * _YEAR, NOON, NOON + 100 * _YEAR),
    "the last year of the calendar": (NOON, NOON + 7900 * _YEAR, NOON),
}
"""What the clock shows at each start after the beginning but the last one, which sees the time of the run that was left alone."""

_CASES = ("BERT, histogram", "CRT, two rounds", "fine-tuning with DP", "adaptive, strata")


def _trial(setting: Setting, row: str, number: int) -> Outcome:
    with setting.trial("clocks", row, number) as place:
        one = begun(setting, _CASES[number % len(_CASES)])
        config, wrong = one.copy(place.folder), []
        for at in _SHOWN[row]:
            child = Child([one.case.command, config], place.folder / "said", at=at)
            kill_at(place.rng, child, place.folder / "run", one.seconds)
            ended = child.end()
            if not ended.killed:
                said = complaint(ended, codes=(0,))
                wrong += [f"{one.name}: {said}"] if said else []
        said = resume(one, config, place.folder, at=NOON)
        run = place.folder / "run"
        wrong += [said] if said else [*differences(run, one.end), *twice_spent(run)]
        return Outcome(1, tuple(wrong[:1]))


def _control(setting: Setting) -> Outcome:
    """A card with the day on which it was written, as an earlier version had it: that must be found to differ."""
    with setting.trial("clocks", "control", 0) as place:
        one = begun(setting, "BERT, histogram")
        config = one.copy(place.folder)
        said = resume(one, config, place.folder, at=NOON + _YEAR)
        card = place.folder / "run" / "release" / "README.md"
        card.write_text(card.read_text().replace(_day(NOON), _day(NOON + _YEAR)))
        return Outcome(1, tuple([said] if said else differences(place.folder / "run", one.end)))


def _day(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).date().isoformat()


CLOCKS = Attack(
    title="A clock that is set",
    says=(
        "Killed three times; each start sees another time of day, the last one that of the run left alone. Expected: the same "
        "end (a run that ended before keeps its report's date)."
    ),
    rows=tuple(_SHOWN),
    count=60,
    a_trial=1,
    trial=_trial,
    control_says="a card that shows another day",
    control=_control,
)
