"""Many small experiments in a few processes: each leaves a file with its result, so the same command goes on after a stop."""

from __future__ import annotations

import functools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tacit.errors import UsageError
from tacit.files import write_json
from tacit.progress import Reporter
from tacit.work.processes import follow_parent, worker_context

__all__ = ["Task", "run_jobs"]


@dataclass(frozen=True)
class Task:
    """One experiment.

    Args:
        name: of its file, ``<name>.json``; unique.
        work: makes the JSON-ready result; it can be sent to another process (`functools.partial` of a module's function).
        after: names of the tasks before it in the list whose results it needs.
    """

    name: str
    work: Callable[[], dict[str, Any]]
    after: tuple[str, ...] = ()


def run_jobs(tasks: Sequence[Task], folder: Path, workers: int, reporter: Reporter, title: str) -> None:
    """Do the tasks that have no result in ``folder`` yet, ``workers`` at a time: always the first that awaits nothing.

    Raises:
        UsageError: a process was killed; what is done stays done.
    """
    known: set[str] = set()
    for task in tasks:
        assert known.issuperset(task.after), f"{task.name} comes before what it needs"
        known.add(task.name)
    folder.mkdir(parents=True, exist_ok=True)
    left = [task for task in tasks if not (folder / f"{task.name}.json").exists()]
    with reporter.stage(title, len(tasks)) as bar:
        bar.advance_to(len(tasks) - len(left))
        if workers == 1:
            for done, task in enumerate(left, start=len(tasks) - len(left) + 1):
                write_json(folder / f"{task.name}.json", task.work())
                bar.advance_to(done)
        elif left:
            _in_processes(left, folder, workers, lambda done: bar.advance_to(len(tasks) - len(left) + done))


def _in_processes(tasks: Sequence[Task], folder: Path, workers: int, on_done: Callable[[int], None]) -> None:
    """A process a task: what torch and its allocator keep of one experiment does not stay for the next."""
    context = worker_context(_module_of(tasks[0].work))
    waiting, undone = list(tasks), {task.name for task in tasks}
    running: dict[Connection, tuple[Task, BaseProcess]] = {}
    try:
        while waiting or running:
            while len(running) < workers and (task := _first_ready(waiting, undone)) is not None:
                waiting.remove(task)
                here, there = context.Pipe(duplex=False)
                process = context.Process(target=_work, args=(task, folder, there), daemon=True)
                process.start()
                there.close()  # else its end would not be seen
                running[here] = task, process
            for ready in wait(list(running)):
                assert isinstance(ready, Connection)
                task, process = running.pop(ready)
                process.join()
                _raise_if_failed(ready)
                undone.remove(task.name)
                on_done(len(tasks) - len(undone))
    finally:
        for _, process in running.values():
            process.terminate()


def _module_of(work: Callable[[], object]) -> str:
    return _module_of(work.func) if isinstance(work, functools.partial) else work.__module__


def _first_ready(waiting: Sequence[Task], undone: set[str]) -> Task | None:
    return next((task for task in waiting if undone.isdisjoint(task.after)), None)


def _raise_if_failed(ended: Connection) -> None:
    try:
        error = ended.recv()
    except EOFError:
        raise UsageError(
            "an experiment's process ended early, perhaps because memory ran out; run the same command with fewer workers"
        ) from None
    if error is not None:
        raise error


def _work(task: Task, folder: Path, to: Connection) -> None:
    follow_parent()
    try:
        write_json(folder / f"{task.name}.json", task.work())
        to.send(None)
    except Exception as error:
        error.add_note(f"in {task.name}:\n{traceback.format_exc()}")  # its own traceback does not travel
        to.send(error)
