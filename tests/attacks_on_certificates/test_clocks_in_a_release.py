"""A release shows no time that hangs on the private text (SOUNDNESS T12, T19).

What was wrong: report.json, report.html and README.md said to the second when they were written. Less a start that somebody knows,
or the start of a like run, that is how long the run took, which the text of one unit decides: with 25 MB more of it a run certified
with 3.91 took 75 to 120 seconds where it took 64 to 74.
"""

from __future__ import annotations

import datetime
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from hostile.cases import CASES, config_in
from hostile.clocks import show_clock

from tacit.config import load_config
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.provenance import BEGUN, MADE_BY
from tacit.report.build import render
from tacit.runs.beginning import begin
from tacit.version import VERSION

from ..draws import install
from ..report.example import example_report_data
from ..started import called, command

WHO = "a run that is finished twice"
LATER = 500.25
"""Days and a part of one: another year, month, day, hour and minute."""


def shift(days: float) -> None:
    """Set the clock of this process so many days ahead."""
    show_clock(time.time() + 86400 * days)


def at(days: float, arguments: list[str]) -> None:
    """`tacit ARGUMENTS...` by a clock that is so many days ahead."""
    shift(days)
    command(arguments, WHO)


def begun_run() -> None:
    """An ordinary run that was stopped when it had begun."""
    install(WHO)
    with begin(load_config(Path("config.yaml"))):
        pass


def run_in(folder: Path, days: float, *arguments: str) -> dict[str, bytes]:
    """All files of the release after a command by a shifted clock."""
    done = called(at, days, list(arguments), cwd=folder)
    assert done.returncode == 0, done.stderr
    release = folder / "run" / "release"
    return {path.relative_to(release).as_posix(): path.read_bytes() for path in release.rglob("*") if path.is_file()}


def test_a_release_does_not_show_when_it_was_made(tmp_path: Path) -> None:
    """One begun run, finished today and, from a copy of what it was when it had begun, more than a year later: the same bytes."""
    CASES["LSTM"].write(tmp_path)
    config_in(tmp_path, CASES["LSTM"].values(Path()), Path("run"))
    done = called(begun_run, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run, kept = tmp_path / "run", tmp_path / "kept"
    shutil.copytree(run, kept)

    soon = run_in(tmp_path, 0.0, "run", "config.yaml")
    again = run_in(tmp_path, LATER, "report", "run")
    assert {name for name in soon if soon[name] != again[name]} == set()
    shutil.rmtree(run)
    kept.rename(run)
    late = run_in(tmp_path, LATER, "run", "config.yaml")
    assert soon.keys() == late.keys()
    assert {name for name in soon if soon[name] != late[name]} == set()

    day = json.loads(late["report.json"])["begun"]
    with Ledger.open(run / "ledger.sqlite", readonly=True) as ledger:
        assert day == ledger.bound(BEGUN)
    assert day.encode() in late["README.md"]
    assert day.encode() in late["report.html"]


def turn_at_the_corpus(started: str) -> None:
    """`tacit run config.yaml` by a clock that jumps when the private text is first opened, as if that took a week."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).endswith("notes.jsonl"):
            Path(started).touch()
            shift(7.0)

    sys.addaudithook(look)
    command(["run", "config.yaml", "--until", "vocabulary"], WHO)


def test_the_day_of_the_beginning_is_taken_before_private_text_is_read(tmp_path: Path) -> None:
    CASES["LSTM"].write(tmp_path)
    config_in(tmp_path, CASES["LSTM"].values(Path()), Path("run"))
    before = datetime.datetime.now(datetime.UTC).date()
    done = called(turn_at_the_corpus, str(tmp_path / "opened"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "opened").exists()
    with Ledger.open(tmp_path / "run" / "ledger.sqlite", readonly=True) as ledger:
        day = ledger.bound(BEGUN)
    assert day in (before.isoformat(), datetime.datetime.now(datetime.UTC).date().isoformat())


def begun_again(folder: Path, bound: dict[str, str]) -> dict[str, str | None]:
    """What is bound in a run that goes on where only its first row and these bindings had been written."""
    CASES["LSTM"].write(folder)
    config = load_config(config_in(folder, CASES["LSTM"].values(folder), folder / "run"))
    with begin(config) as begun:
        header: LedgerHeader = begun.ledger.header
    for path in (folder / "run").glob("ledger.sqlite*"):
        path.unlink()
    with Ledger.create(folder / "run" / "ledger.sqlite", header) as ledger:
        for name, value in bound.items():
            ledger.bind(name, value)
    with begin(config) as begun:
        return {name: begun.ledger.bound(name) for name in (BEGUN, MADE_BY)}


def test_the_day_is_that_of_the_first_start_and_none_is_made_up(tmp_path: Path) -> None:
    assert begun_again(tmp_path, {BEGUN: "2025-03-14"}) == {BEGUN: "2025-03-14", MADE_BY: VERSION}
    assert begun_again(tmp_path, {MADE_BY: VERSION}) == {BEGUN: None, MADE_BY: VERSION}
    assert begun_again(tmp_path, {})[BEGUN] is not None


def test_a_run_without_a_day_shows_none() -> None:
    shown, without = example_report_data(), example_report_data().model_copy(update={"begun": None})
    assert all(str(shown.begun) in text for text in render(shown).values())
    assert not any(
        word in text for text in render(without).values() for word in ("began on", "begun on", str(shown.begun))
    )
