"""`tacit` called in this process, as the console script calls it, and what every mistake has in common: one line and an exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tacit.cli.main import main


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


Tacit = Callable[..., Done]


def caller(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tacit:
    """A function that calls `tacit` with its arguments."""

    def call(*arguments: str | Path | float) -> Done:
        monkeypatch.setattr("sys.argv", ["tacit", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        capfd.readouterr()
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        return Done(code, *map(str, capfd.readouterr()))

    return call


def assert_one_line(done: Done, code: int, *parts: str) -> None:
    """The exit code, and as the last words on standard error one line that holds the parts."""
    assert done.code == code, done.err
    assert "Traceback" not in done.err
    lines = done.err.rstrip("\n").split("\n")
    mistakes = [line for line in lines if line.startswith("tacit: ")]
    assert mistakes == [lines[-1]]
    for part in parts:
        assert part in lines[-1]
