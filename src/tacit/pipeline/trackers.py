"""How far a run is, in a tracker: TensorBoard, MLflow or Weights & Biases, from run/private/events.jsonl and from nothing else.

A tracker runs in a process of its own (`tacit track`), never in that of a run: libraries that collect what they find (the host's
name, the command line, what is printed, the code's commit, memory in use) are not near private text. What they may get is the share
of a stage's steps that is done, and the epsilon spent. Times are left out, since the time of a step shows how many units were drawn
(docs/sharp-edges.md), and what has the time of its arrival on it is sent when it can show nothing: all lines at once, in one go.
Within a stage the file has a line every 30 seconds, so how many lines there are, and how far each came, is a time too: a server gets
the beginnings and ends of stages alone.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit.errors import DataError, UsageError
from tacit.files import private_folder
from tacit.pipeline.event_file import FILE_NAME, check_values
from tacit.runs.folder import RunFolder

__all__ = ["TRACKERS", "Tracker", "points", "read_events", "track"]

Send = Callable[[str, float, int], None]
"""Takes the name of a curve, a value, and the number of its line."""

_PROJECT = "tacit"
_LAST = "report"  # the stage that every run ends with
_LOOK_SECONDS = 2.0


@dataclass(frozen=True)
class Tracker:
    """One tracker.

    Args:
        open: imports its library and gives, as a context, what takes the points. It is told the run's private folder, and ``--into``.
        package: to install.
        is_local: whether it writes files here alone, which nobody else sees grow; else a run cannot be followed, and no line within
            a stage is sent.
    """

    open: Callable[[Path, str | None], AbstractContextManager[Send]]
    package: str
    is_local: bool


def track(run: Path, name: str, into: str | None = None, follow: bool = False) -> int:
    """Send what a run's `events.jsonl` holds to a tracker.

    Args:
        into: where to, in the tracker's own terms; None: its default.
        follow: go on with the lines that are still to come, until the run has ended.

    Returns:
        how many lines were sent.

    Raises:
        UsageError: no such tracker, it is not installed, or it cannot follow.
        DataError: there is no such file, or it holds anything but the public numbers of `event_file.ALLOWED`.
    """
    if name not in TRACKERS:
        raise UsageError(f"--with {name}: there is no such tracker; known: {', '.join(TRACKERS)}")
    tracker = TRACKERS[name]
    if follow and not tracker.is_local:
        raise UsageError(
            f"--follow: {name} keeps the time at which each line comes, which shows how many units a step drew; run it without, "
            "at the end or now and then"
        )
    private = RunFolder(run).private
    lines = read_events(
        private / FILE_NAME
    )  # before the library is asked: nothing is begun for a run that is not there
    if not tracker.is_local:
        lines = _ends(lines)
    if follow:
        lines = _followed(private / FILE_NAME, time.sleep)
    sent = 0
    try:
        with tracker.open(private, into) as send:
            for number, line in enumerate(lines):
                for curve, value in points(line).items():
                    send(curve, value, number)
                sent += 1
    except ImportError:
        raise UsageError(f"--with {name} needs {tracker.package}: pip install {tracker.package}") from None
    return sent


def _ends(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines at which a stage ends, or, where it has one step, begins: how many there are between, and at 0, is time."""
    ends = [line for line in lines if line["step"] == line["steps"] or line["steps"] == 1]
    again = (
        points(line) == points(before) for before, line in itertools.pairwise(ends)
    )  # the last step, once more after a while
    return [*ends[:1], *(line for line, repeats in zip(ends[1:], again, strict=True) if not repeats)]


def points(line: Mapping[str, Any]) -> dict[str, float]:
    """What a tracker gets of a line: never its seconds.

    >>> points({"stage": "training", "step": 3, "steps": 4, "seconds": 7.5, "epsilon": 1.5})
    {'done/training': 0.75, 'epsilon': 1.5}
    """
    found = {f"done/{line['stage']}": line["step"] / max(line["steps"], 1)}
    return found if line["epsilon"] in (None, "infinity") else {**found, "epsilon": line["epsilon"]}


def read_events(path: Path) -> list[dict[str, Any]]:
    """The whole lines of the file, each checked; the end of one that is being written is left out.

    Raises:
        DataError: there is no such file, or a line holds anything but what is allowed. Nothing of it is shown.
    """
    if not path.is_file():
        raise DataError(f"{path}: there is no such file; name the folder of a run that has begun")
    return [_checked(line, path, number) for number, line in enumerate(_whole_lines(path), start=1)]


def _whole_lines(path: Path) -> list[bytes]:
    return path.read_bytes().split(b"\n")[:-1]


def _checked(line: bytes, path: Path, number: int) -> dict[str, Any]:
    try:
        values = json.loads(line)
        check_values(values if isinstance(values, dict) else {})
    except (ValueError, UsageError):
        raise DataError(f"{path}, line {number}: it is no line of a run, and nothing is sent") from None
    return values


def _followed(path: Path, wait: Callable[[float], None]) -> Iterator[dict[str, Any]]:
    """The lines that are there, and those to come, up to the end of the last stage."""
    number = 0
    while True:
        for line in _whole_lines(path)[number:]:
            number += 1
            values = _checked(line, path, number)
            yield values
            if values["stage"] == _LAST and values["step"] == values["steps"]:
                return
        wait(_LOOK_SECONDS)


# the trackers --------------------------------------------------------------------------------------------------------


@contextmanager
def _tensorboard(private: Path, into: str | None) -> Iterator[Send]:
    """Event files in ``run/private/tensorboard``, or in the folder ``into``; the number of a line stands for its time."""
    from tensorboard.compat.proto.event_pb2 import Event  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]
    from tensorboard.compat.proto.summary_pb2 import Summary  # pyright: ignore[reportMissingImports, reportAttributeAccessIssue]
    from tensorboard.summary.writer.event_file_writer import EventFileWriter  # pyright: ignore[reportMissingImports]

    folder = private / "tensorboard" if into is None else Path(into)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder}: there is something in it already; remove it, or name another folder with --into")
    private_folder(folder)
    writer = EventFileWriter(str(folder))

    def send(curve: str, value: float, number: int) -> None:
        point = Summary(value=[Summary.Value(tag=curve, simple_value=value)])
        writer.add_event(Event(wall_time=float(number), step=number, summary=point))
        writer.flush()

    try:
        yield send
    finally:
        writer.close()


@contextmanager
def _mlflow(private: Path, into: str | None) -> Iterator[Send]:
    """A run of the experiment ``tacit`` at the address ``into``, or at MLFLOW_TRACKING_URI; without tags of user, code or machine."""
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    client = MlflowClient(tracking_uri=into)
    found = client.get_experiment_by_name(_PROJECT)
    experiment = client.create_experiment(_PROJECT) if found is None else found.experiment_id
    run = client.create_run(experiment, run_name=_PROJECT).info.run_id

    def send(curve: str, value: float, number: int) -> None:
        client.log_metric(run, curve, value, timestamp=number, step=number)

    try:
        yield send
    finally:
        client.set_terminated(run)


@contextmanager
def _wandb(private: Path, into: str | None) -> Iterator[Send]:
    """A run of the project ``into``, or ``tacit``, with all that is collected by itself switched off; WANDB_MODE as always."""
    import wandb  # pyright: ignore[reportMissingImports]

    settings = wandb.Settings(
        console="off",
        disable_code=True,
        disable_git=True,
        disable_job_creation=True,
        host=_PROJECT,
        program=_PROJECT,
        silent=True,
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
    private_folder(private / "wandb")
    run = wandb.init(project=into or _PROJECT, name=_PROJECT, dir=str(private / "wandb"), settings=settings)

    def send(curve: str, value: float, number: int) -> None:
        run.log({curve: value}, step=number)

    try:
        yield send
    finally:
        run.finish()


TRACKERS: dict[str, Tracker] = {
    "tensorboard": Tracker(_tensorboard, "tensorboard", is_local=True),
    "mlflow": Tracker(_mlflow, "mlflow", is_local=False),
    "wandb": Tracker(_wandb, "wandb", is_local=False),
}
"""By the name that ``--with`` takes. A new one is a function and a line here."""
