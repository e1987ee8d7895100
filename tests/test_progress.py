"""What a configuration puts into a message does not act on the terminal."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from tacit.progress import TerminalReporter, one_line

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
