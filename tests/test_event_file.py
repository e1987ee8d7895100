"""run/private/events.jsonl holds the allowed public numbers and nothing else; who writes a loss is refused."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tacit.errors import UsageError
from tacit.pipeline.event_file import ALLOWED, FILE_NAME, EventFile, RecordingReporter, spent_epsilon
from tacit.privacy.ledger import Ledger
from tacit.progress import Bar, SilentReporter
from tacit.runs.folder import RunFolder

from .small import small_values, tacit, write_config, write_corpora

GOOD = {"stage": "Training: private", "step": 3, "steps": 12, "seconds": 0.5, "epsilon": None}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def private_values(found: list[dict[str, Any]]) -> list[str]:
    """What a file holds beside the five public values."""
    return [name for line in found for name in line if name not in ("stage", "step", "steps", "seconds", "epsilon")]


WRONG: dict[str, Mapping[str, Any]] = {
    "a loss": {**GOOD, "loss": 2.31},
    "a count of drawn units": {**GOOD, "batch": 37},
    "a loss in place of a step": {**GOOD, "step": 2.31},
    "a loss in the name": {**GOOD, "stage": "Training: loss 2.31"},
    "text in the name": {**GOOD, "stage": "Zoë was seen on Friday"},
    "a list of losses": {**GOOD, "seconds": [2.31]},
    "not a number": {**GOOD, "seconds": float("nan")},
    "true": {**GOOD, "step": True},
    "an epsilon in words": {**GOOD, "epsilon": "about 8"},
    "one that is missing": {name: value for name, value in GOOD.items() if name != "step"},
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_not_allowed_is_refused_and_leaves_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    with pytest.raises(UsageError, match=FILE_NAME) as refused:
        EventFile(path).write(WRONG[name])
    assert not path.exists()
    assert "2.31" not in str(refused.value)
    assert "Friday" not in str(refused.value)
    EventFile(path).write(GOOD)
    assert lines(path) == [GOOD]


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    EventFile(tmp_path / FILE_NAME).write(GOOD)
    assert stat.S_IMODE((tmp_path / FILE_NAME).stat().st_mode) == 0o600


def test_a_full_disk_or_a_link_stops_no_run(tmp_path: Path) -> None:
    EventFile(tmp_path / "no such folder" / FILE_NAME).write(GOOD)
    (tmp_path / FILE_NAME).symlink_to(tmp_path / "elsewhere")
    EventFile(tmp_path / FILE_NAME).write(GOOD)
    assert not (tmp_path / "elsewhere").exists()


class Talkative(SilentReporter):
    """Says a private number; what is said must not get into the file."""

    @contextmanager
    def stage(self, name: str, total: int) -> Iterator[Bar]:
        self.say("loss 2.31")
        with super().stage(name, total) as bar:
            yield bar


def test_bars_are_recorded_and_what_is_said_is_not(tmp_path: Path) -> None:
    reporter = RecordingReporter(Talkative(), EventFile(tmp_path / FILE_NAME), interval=0.0)
    reporter.say("loss 2.31")
    with reporter.stage("Training: private", 3) as bar:
        for step in (1, 2, 3):
            bar.advance_to(step)
    assert [(line["step"], line["steps"]) for line in lines(tmp_path / FILE_NAME)] == [(1, 3), (2, 3), (3, 3), (3, 3)]
    assert "2.31" not in (tmp_path / FILE_NAME).read_text()
    quiet = RecordingReporter(SilentReporter(), EventFile(tmp_path / "quiet.jsonl"))
    with quiet.stage("Training: private", 3) as bar:
        for step in (1, 2, 3):
            bar.advance_to(step)
    assert len(lines(tmp_path / "quiet.jsonl")) == 1


class _WithLoss(EventFile):
    """The known-wrong writer: it checks nothing."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._place = path

    def write(self, values: Mapping[str, Any]) -> None:
        with self._place.open("a") as file:
            file.write(json.dumps({**values, "loss": 2.31}) + "\n")


def test_the_wrong_writer_is_found(tmp_path: Path) -> None:
    right, wrong = tmp_path / "right.jsonl", tmp_path / "wrong.jsonl"
    EventFile(right).reached("control", 1, 1, 0.1)
    _WithLoss(wrong).reached("control", 1, 1, 0.1)
    assert private_values(lines(right)) == []
    assert private_values(lines(wrong)) == ["loss"]


@pytest.mark.slow
def test_a_run_leaves_its_stages_and_what_they_spent(tmp_path: Path) -> None:
    write_corpora(tmp_path)
    config = write_config(tmp_path / "config.yaml", small_values(tmp_path))
    done = tacit("run", config)
    assert done.returncode == 0, done.stderr
    folder = RunFolder(tmp_path / "run")
    path = folder.private / FILE_NAME
    found = lines(path)
    assert private_values(found) == []
    assert {name for line in found for name in line} == set(ALLOWED)
    ended = [line["stage"] for line in found if line["epsilon"] is not None]
    assert ended == ["vocabulary", "pretraining", "training", "control", "evaluation", "audit", "release", "report"]
    epsilons = [line["epsilon"] for line in found if line["epsilon"] is not None]
    assert epsilons == sorted(epsilons)
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        assert epsilons[-1] == pytest.approx(spent_epsilon(ledger))
    assert ("Training: private", 12) in [(line["stage"], line["step"]) for line in found]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not list(folder.release.rglob(FILE_NAME))
    before = path.read_bytes()
    assert tacit("run", config).returncode == 0  # a finished run is left as it is
    assert path.read_bytes() == before
