"""Progress on the curator's terminal: stage names, step counts and time, never a loss, a count or a batch size."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

__all__ = ["Bar", "Reporter", "SilentReporter", "TerminalReporter", "one_line"]

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
    def __init__(self, progress: Progress, name: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(name, total=total)

    def advance_to(self, done: int) -> None:
        self._progress.update(self._task, completed=done)


class TerminalReporter:
    """Lines and bars with elapsed and remaining time on standard error."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, soft_wrap=True, highlight=False)

    def say(self, line: str) -> None:
        """Print the line."""
        self._console.print(one_line(line), markup=False)

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Bar]:
        """A rich progress bar that stays when it is done."""
        columns = (
            TextColumn("{task.description:<28}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=self._console) as progress:
            yield _TerminalBar(progress, escape(one_line(name)), total)
