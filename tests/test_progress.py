"""What a configuration puts into a message does not act on the terminal."""

from __future__ import annotations

import sys
import time
import types
import unicodedata
from pathlib import Path

import pytest

from tacit.progress import LineBar, TerminalReporter, one_line, waiting

from .cli.calling import assert_one_line, caller

HOSTILE = {
    "escape": "\x1b[31mred",
    "carriage return": "done\rtacit: all is well",
    "line feed": "one\ntacit: all is well",
    "bidirectional override": "a\u202egpj.exe",
    "isolate": "a\u2066b\u2069",
    "C1": "a\x9b31m",
    "line separator": "a\u2028b",
    "delete": "a\x7fb",
    "zero width": "a\u200bb",
    "lone surrogate": "a\ud800b",
}


def acts(text: str) -> set[str]:
    """The signs of a text that do more than stand there, but for the line ends."""
    return {sign for sign in text.replace("\n", "") if unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Zl", "Zp")}


@pytest.mark.parametrize("name", HOSTILE)
def test_no_sign_acts(name: str) -> None:
    assert "\n" in HOSTILE[name] or acts(HOSTILE[name])  # the known-wrong version: as it is
    shown = one_line(HOSTILE[name])
    assert not acts(shown)
    assert "\n" not in shown
    shown.encode()


def test_letters_stay() -> None:
    assert one_line("Müller 漢字 [31m] 50 %") == "Müller 漢字 [31m] 50 %"


@pytest.mark.parametrize("name", [name for name in HOSTILE if name != "lone surrogate"])
def test_progress_of_a_hostile_title(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    reporter = TerminalReporter()
    reporter.say(f"Planning {HOSTILE[name]}")
    with reporter.stage(f"Training: [bold]{HOSTILE[name]}", 3) as bar:
        bar.advance_to(3)
    printed = capfd.readouterr().err
    assert not acts(printed)
    assert len([line for line in printed.splitlines() if line.startswith("Planning ")]) == 1
    assert "all is well" not in [line.removeprefix("tacit: ") for line in printed.splitlines()]
    assert "[bold]" in printed


@pytest.mark.parametrize("name", ["escape", "carriage return", "line feed", "bidirectional override", "C1"])
@pytest.mark.parametrize("field", ["plan", "path"])
def test_an_error_about_a_hostile_configuration(
    name: str, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    import yaml

    value = HOSTILE[name]
    values = {
        "title": value,
        "run": str(tmp_path / value),
        "privacy": {"unit": "record", "units": 100, "budget": {"epsilon": 8.0, "delta": 1e-4}},
        "private": {"path": str(tmp_path / value)},
        "vocabulary": {"method": "given", "path": str(tmp_path / value)},
        "phases": [{"name": "p", "plan": value if field == "plan" else "dp", "steps": 2, "expected_batch": 5}],
    }
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(values))
    done = caller(monkeypatch, capfd)("run", config)
    assert done.code in (2, 4)
    assert_one_line(done, done.code)
    assert not acts(done.err + done.out)


# where no bar can move ------------------------------------------------------------------------------------------------


def test_a_log_gets_a_line_with_what_is_left() -> None:
    """A clock that is given: 60 seconds for 50 of 200 steps leave about 3 minutes."""
    clock = iter([0.0, 60.0, 240.0])
    written: list[str] = []
    bar = LineBar("Training: private", 200, written.append, interval=3600, clock=clock.__next__)
    bar.advance_to(1)
    bar.advance_to(50)
    assert bar.line() == "Training: private: 50 of 200 steps in 1:00, about 3:00 left"
    bar.advance_to(200)
    bar.close()
    assert written == ["Training: private: 200 of 200 in 4:00"]


def test_steps_of_an_earlier_start_are_not_counted_as_speed() -> None:
    clock = iter([0.0, 60.0])
    bar = LineBar("Training", 200, lambda line: None, interval=3600, clock=clock.__next__)
    bar.advance_to(101)
    bar.advance_to(151)
    assert bar.line().endswith("about 0:59 left")  # 50 steps a minute, and 49 are left; not 151 a minute


def test_lines_come_while_a_stage_runs_and_stop_with_it() -> None:
    """Also of a stage that no step ends in: nothing is said to the bar."""
    written: list[str] = []
    bar = LineBar("Planning: solving the noise", 1, written.append, interval=0.02)
    deadline = time.monotonic() + 20
    while len(written) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    bar.close()
    assert len(written) >= 4
    assert "so far" in written[0]
    after = len(written)
    time.sleep(0.1)
    assert len(written) == after


def test_a_log_holds_no_codes_of_a_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    reporter = TerminalReporter()
    with reporter.stage("Training", 3) as bar, waiting("Solving the noise"):
        bar.advance_to(3)
    printed = capfd.readouterr().err
    assert printed == "Training: 3 of 3 in 0:00\n"


def test_a_notebook_gets_a_bar_of_letters(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """No widget, which would warn that it is missing: `ipywidgets` is not installed here."""
    monkeypatch.setitem(sys.modules, "ipykernel", types.ModuleType("ipykernel"))
    with TerminalReporter().stage("Training", 10) as bar:
        bar.advance_to(10)
    printed = capfd.readouterr().err
    assert f"[{'#' * 30}] 10/10" in printed
    assert "ipywidgets" not in printed
    assert printed.count("\n") == 1
