"""Trackers get shares of steps and epsilon, from events.jsonl alone: no time, no loss, and nothing of the machine.

TensorBoard is asked for real. MLflow and W&B are large, and stand here as third-party modules that write down what they are told;
the calls are those of mlflow 3.17 and wandb 0.31.
"""

from __future__ import annotations

import doctest
import json
import os
import sys
import threading
import tomllib
import types
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import DataError, UsageError
from tacit.pipeline import trackers
from tacit.pipeline.event_file import FILE_NAME, EventFile, RecordingReporter
from tacit.pipeline.trackers import TRACKERS, points, track
from tacit.progress import SilentReporter

from .calling import Tacit, assert_one_line

SECONDS = 123.456
CURVES = {
    "done/vocabulary": [(0, 0.0), (1, 1.0)],
    "epsilon": [(1, 1.25)],
    "done/Training: private": [(2, 0.25)],
    "done/report": [(3, 1.0)],
}
"""What a tracker has of `write_events`: (number of the line, value)."""


def write_events(run: Path) -> Path:
    """The run folder, with a file of events."""
    (run / "private").mkdir(parents=True)
    file = EventFile(run / "private" / FILE_NAME)
    file.reached("vocabulary", 0, 1, 0.0)
    file.reached("vocabulary", 1, 1, SECONDS, 1.25)
    file.reached("Training: private", 3, 12, SECONDS)
    file.reached("report", 1, 1, SECONDS, float("inf"))
    return run


ENDS = {name: points for name, points in CURVES.items() if name != "done/Training: private"} | {
    "done/report": [(2, 1.0)]
}
"""What a server has of them: no line within a stage, of which there is one every 30 seconds."""


class Recorder:
    """What a third-party module is told."""

    def __init__(self) -> None:
        self.curves: dict[str, list[tuple[int, float]]] = {}
        self.told: list[Any] = []

    def add(self, curve: str, value: float, step: int) -> None:
        self.curves.setdefault(curve, []).append((step, value))


def like_mlflow(recorder: Recorder) -> types.ModuleType:
    class MlflowClient:
        def __init__(self, tracking_uri: str | None) -> None:
            recorder.told.append(tracking_uri)

        def get_experiment_by_name(self, name: str) -> None:
            return None

        def create_experiment(self, name: str) -> str:
            return "1"

        def create_run(self, experiment_id: str, run_name: str) -> Any:
            recorder.told.append(run_name)
            return types.SimpleNamespace(info=types.SimpleNamespace(run_id="r"))

        def log_metric(self, run_id: str, key: str, value: float, timestamp: int, step: int) -> None:
            assert timestamp == step  # no time of day
            recorder.add(key, value, step)

        def set_terminated(self, run_id: str) -> None:
            recorder.told.append("finished")

    module = types.ModuleType("mlflow")
    vars(module)["MlflowClient"] = MlflowClient
    return module


def like_wandb(recorder: Recorder) -> types.ModuleType:
    class Run:
        def log(self, values: dict[str, float], step: int) -> None:
            for curve, value in values.items():
                recorder.add(curve, value, step)

        def finish(self) -> None:
            recorder.told.append("finished")

    def init(project: str, name: str, dir: str, settings: dict[str, Any]) -> Run:
        recorder.told += [project, name, settings]
        return Run()

    module = types.ModuleType("wandb")
    vars(module).update(Settings=dict, init=init)
    return module


def of_tensorboard(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """The curves in a folder of event files; the time of each point is the number of its line."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(folder))
    found.Reload()
    curves: dict[str, list[tuple[int, float]]] = {}
    for tag in found.Tags()["scalars"]:
        for event in found.Scalars(tag):
            assert event.wall_time == event.step
            curves.setdefault(tag, []).append((event.step, event.value))
    return curves


def ask_for_tensorboard() -> None:
    if not os.environ.get("CI"):  # where the test extra is always there
        pytest.importorskip("tensorboard")


def test_tensorboard_has_the_curves_and_nothing_else(tmp_path: Path, tacit: Tacit) -> None:
    ask_for_tensorboard()
    run = write_events(tmp_path / "run")
    done = tacit("track", str(run))
    assert done.code == 0, done.err
    assert "4 lines sent to tensorboard" in done.out
    folder = run / "private" / "tensorboard"
    assert of_tensorboard(folder) == CURVES
    assert folder.stat().st_mode & 0o777 == 0o700
    assert_one_line(tacit("track", str(run)), 2, "there is something in it already")
    assert tacit("track", str(run), "--into", str(tmp_path / "other")).code == 0
    assert of_tensorboard(tmp_path / "other") == CURVES


def test_a_run_is_followed_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask_for_tensorboard()
    monkeypatch.setattr(trackers, "_LOOK_SECONDS", 0.01)
    run = write_events(tmp_path / "run")
    path = run / "private" / FILE_NAME
    whole = path.read_bytes()
    cut = whole.index(b"report") - 5  # in the midst of a line
    path.write_bytes(whole[:cut])
    follower = threading.Thread(target=track, args=(run, "tensorboard", None, True))
    follower.start()
    path.open("ab").write(whole[cut:])
    follower.join(timeout=20)
    assert not follower.is_alive()
    assert of_tensorboard(run / "private" / "tensorboard") == CURVES


@pytest.mark.parametrize(("name", "module"), [("mlflow", like_mlflow), ("wandb", like_wandb)])
def test_servers_get_the_same_and_nothing_of_the_machine(
    name: str, module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, name, module(recorder))
    run = write_events(tmp_path / "a telling name")
    assert track(run, name, into="place") == 3
    assert recorder.curves == ENDS
    assert "place" in recorder.told
    assert str(SECONDS) not in str(recorder.told)
    assert "telling" not in str(recorder.told)
    if name == "wandb":
        settings = next(one for one in recorder.told if isinstance(one, dict))
        assert settings["console"] == "off"
        assert {"disable_git", "disable_code", "x_disable_meta", "x_disable_stats", "x_disable_machine_info"} <= {
            option for option, value in settings.items() if value is True
        }


def test_what_keeps_the_time_of_its_lines_cannot_follow(tmp_path: Path) -> None:
    run = write_events(tmp_path / "run")
    for name in TRACKERS:
        if not TRACKERS[name].is_local:
            with pytest.raises(UsageError, match="how many units a step drew"):
                track(run, name, follow=True)


def test_a_server_cannot_count_the_lines_of_a_stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that differ in how long their steps took send the same."""
    sent = []
    for run, lines in (("slow", (2, 5, 7)), ("fast", (6,))):
        recorder = Recorder()
        monkeypatch.setitem(sys.modules, "mlflow", like_mlflow(recorder))
        (tmp_path / run / "private").mkdir(parents=True)
        file = EventFile(tmp_path / run / "private" / FILE_NAME)
        for step in (0, *lines, 12):
            file.reached("Training: private", step, 12, SECONDS)
        track(tmp_path / run, "mlflow")
        sent.append(recorder.curves)
    assert sent[0] == sent[1] == {"done/Training: private": [(0, 1.0)]}


def test_a_stage_whose_last_step_is_told_twice_ends_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bar writes a line after 30 seconds, also at the last step, and one at its end: what a server got of the stages behind it
    stood at other numbers.
    """
    sent = []
    for run, interval in (("slow", 0.0), ("fast", 1e9)):
        recorder = Recorder()
        monkeypatch.setitem(sys.modules, "mlflow", like_mlflow(recorder))
        (tmp_path / run / "private").mkdir(parents=True)
        reporter = RecordingReporter(SilentReporter(), EventFile(tmp_path / run / "private" / FILE_NAME), interval)
        for stage in ("Training: private", "Evaluation"):
            with reporter.stage(stage, 3) as bar:
                for done in (1, 2, 3):
                    bar.advance_to(done)
        track(tmp_path / run, "mlflow")
        sent.append(recorder.curves)
    assert sent[0] == sent[1] == {"done/Training: private": [(0, 1.0)], "done/Evaluation": [(1, 1.0)]}


def test_seconds_are_no_point() -> None:
    line = {"stage": "a", "step": 1, "steps": 0, "seconds": SECONDS, "epsilon": 2.0}
    assert points(line) == {"done/a": 1.0, "epsilon": 2.0}
    assert SECONDS not in {**points(line), "known wrong": SECONDS / 2}.values()
    assert doctest.testmod(trackers).failed == 0


WRONG = {
    "a loss": {"stage": "a", "step": 1, "steps": 1, "seconds": 0.5, "epsilon": None, "loss": 2.31},
    "text": {"stage": "Zoë was seen on Friday", "step": 1, "steps": 1, "seconds": 0.5, "epsilon": None},
    "a list": [2.31],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_line_that_is_not_allowed_stops_all(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's own script wrote into the file: nothing is sent, not even the lines before."""
    recorder = Recorder()
    monkeypatch.setitem(sys.modules, "mlflow", like_mlflow(recorder))
    run = write_events(tmp_path / "run")
    with (run / "private" / FILE_NAME).open("a") as file:
        file.write(json.dumps(WRONG[name]) + "\n")
    with pytest.raises(DataError, match="line 5: it is no line of a run") as caught:
        track(run, "mlflow")
    assert (recorder.curves, recorder.told) == ({}, [])
    assert "Friday" not in str(caught.value)
    assert "2.31" not in str(caught.value)


def test_errors_are_one_line(tmp_path: Path, tacit: Tacit, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_events(tmp_path / "run")
    assert_one_line(tacit("track", str(run), "--with", "comet"), 2, "known: tensorboard, mlflow, wandb")
    assert_one_line(tacit("track", str(tmp_path / "none")), 4, "the folder of a run that has begun")
    for name, tracker in TRACKERS.items():
        for module in [name, *(one for one in sys.modules if one.startswith(f"{name}."))]:
            monkeypatch.setitem(sys.modules, module, None)  # as if it was not installed
        assert_one_line(tacit("track", str(run), "--with", name), 2, f"pip install {tracker.package}")
    assert sorted(path.name for path in (run / "private").iterdir()) == [FILE_NAME]


def test_the_extra_brings_the_tracker_that_needs_no_server() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = [line.split(">")[0].removesuffix("-skinny") for line in project["optional-dependencies"]["trackers"]]
    assert names == ["tensorboard"]  # the others are used where they are installed
    assert sorted(TRACKERS) == ["mlflow", "tensorboard", "wandb"]
