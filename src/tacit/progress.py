"""Progress on the curator's terminal: stage names, step counts and time, never a loss, a count or a batch size."""

from __future__ import annotations

import sys
import threading
import time
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Protocol

from rich.markup import escape

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress

__all__ = [
    "Bar",
    "LineBar",
    "Reporter",
    "SilentReporter",
    "TerminalReporter",
    "hours",
    "in_notebook",
    "one_line",
    "waiting",
    "without_warnings",
]


@contextmanager
def without_warnings() -> Iterator[None]:
    """Where private text is read nothing is printed but what is said on purpose: a warning, of an infinite loss or of a word that a
    library does not know, would tell of one unit (TACIT-47).
    """
    import numpy as np

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        yield


_NOT_SHOWN = {"Cc", "Cf", "Cs", "Zl", "Zp"}


def one_line(text: str) -> str:
    """The text as a terminal may show it: what would move the cursor, colour, reorder or break the line is spelled out.

    A path or a title comes from a configuration, and that may come from anybody.

    >>> one_line("a\\x1b[31m\\u202eb")
    'a\\\\x1b[31m\\\\u202eb'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        sign.encode("unicode_escape").decode() if unicodedata.category(sign) in _NOT_SHOWN else sign for sign in text
    )


class Bar(Protocol):
    """A running stage."""

    def advance_to(self, done: int) -> None:
        """``done`` of the total is done."""
        ...


class Reporter(Protocol):
    """What the pipeline tells its user."""

    def say(self, line: str) -> None:
        """One public line."""
        ...

    def stage(self, name: str, total: int) -> AbstractContextManager[Bar]:
        """A stage of ``total`` public steps, as a context that gives its `Bar`."""
        ...


class _SilentBar:
    def advance_to(self, done: int) -> None:
        """Nothing."""


class SilentReporter:
    """Says nothing: for library use and tests."""

    def say(self, line: str) -> None:
        """Nothing."""

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Bar]:
        """A bar that is not shown."""
        yield _SilentBar()


class _TerminalBar:
    def __init__(self, progress: RichProgress, name: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total)

    def advance_to(self, done: int) -> None:
        self._progress.update(self._task, completed=done)


class LineBar:
    """A stage where no bar can move, as in a log: a line every ``interval`` seconds, with what is left, and one at the end.

    Args:
        write: takes a line.
        clock: seconds, from any moment.
    """

    def __init__(
        self,
        name: str,
        total: int,
        write: Callable[[str], None],
        interval: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._name, self._total, self._write, self._clock = name, total, write, clock
        self._begun = clock()
        self._done = self._first = 0
        self._interval = interval
        self._over = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)
        self._ticker.start()

    def advance_to(self, done: int) -> None:
        """Steps that an earlier start has done tell nothing of this one's speed."""
        if self._done == 0 and done > 1:
            self._first = done
        self._done = done

    def line(self) -> str:
        """How far the stage is, and how long the rest takes at the speed so far.

        >>> bar = LineBar("Training", 200, print, clock=iter([0.0, 60.0]).__next__)
        >>> bar.advance_to(1), bar.advance_to(50)
        (None, None)
        >>> bar.line()
        'Training: 50 of 200 steps in 1:00, about 3:00 left'
        """
        seconds = self._clock() - self._begun
        made = self._done - self._first
        told = f"{self._name}: {self._done} of {self._total} steps in {hours(seconds)}" if self._total > 1 else (
            f"{self._name}: {hours(seconds)} so far"
        )  # fmt: skip
        if made <= 0 or self._done >= self._total:
            return told
        return f"{told}, about {hours(seconds / made * (self._total - self._done))} left"

    def close(self) -> None:
        """The last line."""
        self._over.set()
        self._ticker.join()
        seconds = hours(self._clock() - self._begun)
        self._write(f"{self._name}: {self._done} of {self._total} in {seconds}")

    def _tick(self) -> None:
        while not self._over.wait(self._interval):
            self._write(self.line())


class _NotebookBar:
    """A bar of letters on one line, which a notebook shows without any widget."""

    def __init__(self, name: str, total: int) -> None:
        self._name, self._total, self._begun, self._shown = name, total, time.monotonic(), 0.0

    def advance_to(self, done: int) -> None:
        now = time.monotonic()
        if done < self._total and now - self._shown < 0.5:
            return
        self._shown = now
        seconds = now - self._begun
        left = f", about {hours(seconds / done * (self._total - done))} left" if 0 < done < self._total else ""
        full = 30 * done // self._total
        bar = "#" * full + "." * (30 - full)
        line = f"{self._name}: [{bar}] {done}/{self._total} in {hours(seconds)}{left}"
        sys.stderr.write(f"\r{line:<110}")
        sys.stderr.flush()


def hours(seconds: float) -> str:
    """A time as clocks show it.

    >>> hours(59.6), hours(3725)
    ('1:00', '1:02:05')
    """
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}" if minutes < 60 else f"{minutes // 60}:{minutes % 60:02}:{rest:02}"


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    return "ipykernel" in sys.modules


class TerminalReporter:
    """Lines and bars with elapsed and remaining time on standard error; where that is no terminal, a line every 30 seconds."""

    def __init__(self) -> None:
        self._console = _console()

    def say(self, line: str) -> None:
        """Print the line."""
        self._console.print(one_line(line), markup=False)

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Bar]:
        """A rich progress bar that stays when it is done; in a notebook one of letters, and in a log lines."""
        name = one_line(name)
        if in_notebook():
            bar = _NotebookBar(name, total)
            bar.advance_to(0)
            try:
                yield bar
            finally:
                sys.stderr.write("\n")
        elif self._console.is_terminal:
            with _rich_progress(self._console) as progress:
                yield _TerminalBar(progress, escape(name), total)
        else:
            lines = LineBar(name, total, self.say)
            try:
                yield lines
            finally:
                lines.close()


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """A spinner on standard error while something takes long, on a terminal alone."""
    console = _console()
    if in_notebook() or not console.is_terminal:
        yield
        return
    with console.status(escape(one_line(what))):
        yield


def _console() -> Console:
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False, force_jupyter=False)


def _rich_progress(console: Console) -> RichProgress:
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description:<28}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
    )
