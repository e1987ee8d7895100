"""run/private/events.jsonl: how far a run is, for machines. Public numbers alone, by an allow-list; a loss has no place in it.

A line is a JSON object with exactly these keys:

    stage     of the run, or the phase that it trains
    step      steps that are done; of screening and tokenising the share of the text, which with the seconds shows its size
    steps     steps that there are
    seconds   since the stage began
    epsilon   spent by then, from the ledger ("infinity": no guarantee); null where it was not computed

It is appended to, and a later start goes on in it. The file is a convenience: a full disk costs lines and never a run.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tacit.errors import UsageError
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.ledger import Ledger
from tacit.progress import Bar, Reporter

__all__ = ["FILE_NAME", "EventFile", "RecordingReporter", "check_values", "spent_epsilon"]

FILE_NAME = "events.jsonl"

_STAGE = re.compile(r"[A-Za-z][A-Za-z0-9 :_-]{0,99}")
"""No dot, so that no number can be part of a name."""

Value = str | int | float | None


def _is_count(value: Value) -> bool:
    return type(value) is int and value >= 0


def _is_time(value: Value) -> bool:
    return type(value) is float and math.isfinite(value) and value >= 0


ALLOWED: Mapping[str, Callable[[Value], bool]] = {
    "stage": lambda value: isinstance(value, str) and _STAGE.fullmatch(value) is not None,
    "step": _is_count,
    "steps": _is_count,
    "seconds": _is_time,
    "epsilon": lambda value: value is None or value == "infinity" or _is_time(value),
}
"""What a line holds, whole, and what each value may be."""


def check_values(values: Mapping[str, Value]) -> None:
    """What a line holds, checked against `ALLOWED`.

    Raises:
        UsageError: a key that is not allowed or is missing, or a value that is not such a number.
    """
    if values.keys() != ALLOWED.keys():
        raise UsageError(f"{FILE_NAME} holds {', '.join(ALLOWED)} and nothing else")
    for name, value in values.items():
        if not ALLOWED[name](value):
            raise UsageError(f"{FILE_NAME}: this is no value of {name!r}")


class EventFile:
    """Appends lines to the file; each is checked against `ALLOWED` first."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, values: Mapping[str, Value]) -> None:
        """One line. Raises as `check_values`."""
        check_values(values)
        line = json.dumps(values, allow_nan=False) + "\n"
        no_link = 0 if sys.platform == "win32" else os.O_NOFOLLOW
        with contextlib.suppress(OSError):
            place = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | no_link, 0o600)
            try:
                os.write(place, line.encode())  # one write, so that a killed run leaves no two halves in one line
            finally:
                os.close(place)

    def reached(self, stage: str, step: int, steps: int, seconds: float, epsilon: float | None = None) -> None:
        """So many steps of a stage are done."""
        spent = "infinity" if epsilon is not None and math.isinf(epsilon) else epsilon
        self.write({"stage": stage, "step": step, "steps": steps, "seconds": round(seconds, 3), "epsilon": spent})


def spent_epsilon(ledger: Ledger) -> float:
    """The joint epsilon of what the ledger says is spent, at the budget's delta."""
    return float(joint_epsilon(ledger.spends(), ledger.header.delta, ledger.header.relation))


class RecordingReporter:
    """Another reporter, whose bars also leave a line in the file every ``interval`` seconds, and at their ends."""

    def __init__(self, inner: Reporter, file: EventFile, interval: float = 30.0) -> None:
        self._inner, self._file, self._interval = inner, file, interval

    def say(self, line: str) -> None:
        """Let the other reporter say it: what is said is for people, and no part of the file."""
        self._inner.say(line)

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Bar]:
        """The other one's bar, recorded."""
        with self._inner.stage(name, total) as bar:
            recorded = _RecordedBar(bar, name, total, self._file, self._interval)
            yield recorded
            recorded.record()


class _RecordedBar:
    def __init__(self, bar: Bar, name: str, total: int, file: EventFile, interval: float) -> None:
        self._bar, self._name, self._total, self._file, self._interval = bar, name, total, file, interval
        self._begun = self._written = time.monotonic()
        self._done = 0

    def advance_to(self, done: int) -> None:
        self._bar.advance_to(done)
        self._done = done
        if time.monotonic() - self._written >= self._interval:
            self.record()

    def record(self) -> None:
        """A line of where the bar stands."""
        self._written = time.monotonic()
        self._file.reached(self._name, self._done, self._total, self._written - self._begun)
