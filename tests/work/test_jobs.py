"""Experiments leave their results one by one, and what is done is not done again."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import UsageError
from tacit.progress import SilentReporter
from tacit.work.jobs import Task, run_jobs

from ..started import serve

pytestmark = pytest.mark.usefixtures("_served")


@pytest.fixture(scope="module")
def _served() -> None:
    serve()


def note(folder: Path, name: str) -> dict[str, Any]:
    """A result, and a trace that it was made."""
    with (folder / "made.txt").open("a") as file:
        file.write(f"{name}\n")
    return {"name": name, "process": os.getpid()}


def fail(folder: Path, name: str) -> dict[str, Any]:
    """Ends when the others are done: what still runs beside an error is stopped, and so is made again."""
    for other in ("a", "b"):
        await_result(folder, other)
    raise ValueError(name)


def await_result(folder: Path, name: str) -> None:
    began = time.monotonic()
    while not (folder / "results" / f"{name}.json").exists():
        assert time.monotonic() < began + 60, f"{name} did not run beside this one"
        time.sleep(0.02)


def die(folder: Path, name: str) -> dict[str, Any]:
    os.kill(os.getpid(), signal.SIGKILL)
    return {}


def tasks(folder: Path, **work: Any) -> list[Task]:
    return [Task(name, functools.partial(work.get(name, note), folder, name)) for name in ("a", "b", "c")]


def made(folder: Path) -> list[str]:
    return (folder / "made.txt").read_text().split()


@pytest.mark.parametrize("workers", [1, 2])
def test_each_is_done_once(tmp_path: Path, workers: int) -> None:
    results = tmp_path / "results"
    for _ in range(2):
        run_jobs(tasks(tmp_path), results, workers, SilentReporter(), "all")
    assert sorted(made(tmp_path)) == ["a", "b", "c"]
    found = [json.loads((results / f"{name}.json").read_text()) for name in "abc"]
    assert [one["name"] for one in found] == ["a", "b", "c"]
    own = {one["process"] for one in found}
    assert own == {os.getpid()} if workers == 1 else len(own) == 3


def last(folder: Path, name: str) -> dict[str, Any]:
    """Ends when the task that needs nothing is done, which runs beside it."""
    await_result(folder, "c")
    return note(folder, name)


def needs(folder: Path, name: str) -> dict[str, Any]:
    assert (folder / "results" / "a.json").exists(), "the task began before what it needs was done"
    return note(folder, name)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_task_waits_for_what_it_needs_and_others_go_before(tmp_path: Path, workers: int) -> None:
    """The second time what it needs was done by an earlier call."""
    work = {"a": last if workers == 2 else note, "b": needs, "c": note}
    own = [
        Task(name, functools.partial(work[name], tmp_path, name), after=("a",) if name == "b" else ()) for name in work
    ]
    run_jobs(own, tmp_path / "results", workers, SilentReporter(), "all")
    assert made(tmp_path) == (["a", "b", "c"] if workers == 1 else ["c", "a", "b"])
    (tmp_path / "results" / "b.json").unlink()
    run_jobs(own, tmp_path / "results", workers, SilentReporter(), "all")
    assert made(tmp_path)[3:] == ["b"]
    with pytest.raises(AssertionError, match="b comes before what it needs"):
        run_jobs(own[1:], tmp_path / "results", workers, SilentReporter(), "all")


@pytest.mark.parametrize("workers", [1, 2])
def test_what_was_done_before_an_error_stays_done(tmp_path: Path, workers: int) -> None:
    results = tmp_path / "results"
    with pytest.raises(ValueError, match="c"):
        run_jobs(tasks(tmp_path, c=fail), results, workers, SilentReporter(), "all")
    assert not (results / "c.json").exists()
    run_jobs(tasks(tmp_path), results, workers, SilentReporter(), "all")
    assert sorted(made(tmp_path)) == ["a", "b", "c"]


def test_a_killed_experiment_is_told_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="ended early"):
        run_jobs(tasks(tmp_path, c=die), tmp_path / "results", 2, SilentReporter(), "all")
    run_jobs(tasks(tmp_path), tmp_path / "results", 2, SilentReporter(), "all")
    assert sorted(set(made(tmp_path))) == ["a", "b", "c"]
