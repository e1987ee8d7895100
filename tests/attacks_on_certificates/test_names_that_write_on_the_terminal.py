"""What is printed of a file's name, of a run's or of a unit never writes on the terminal by itself.

What was wrong: `tacit verify` printed names of files as they are on disk. A file of a release whose name has a carriage return and an
escape sequence wrote "ok" over the line that said FAIL.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tacit.cli.options import table
from tacit.cli.verify import _show
from tacit.errors import LedgerError
from tacit.privacy.certificate_checks import Check, _check_files, some_names

from ..cli.calling import caller
from .test_one_release_told_twice import made

EVIL = "x\rok    released files: 3 files as certified\x1b[K"


def assert_harmless(text: str) -> None:
    assert text
    assert all(sign.isprintable() or sign == "\n" for sign in text), ascii(text)


def test_verify_shows_a_name_that_would_write_over_its_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / EVIL).write_text("evil")
    check = _check_files({}, tmp_path)
    assert_harmless(check.detail)  # whoever prints it
    beside = Check(f"a name{EVIL}\n", True, f"user{EVIL}\nok    signature: by the owner")  # of a forged ledger's unit
    with pytest.raises(LedgerError):
        _show(tmp_path, [check, beside], False, [])
    lines = capfd.readouterr().out.rstrip("\n").split("\n")
    assert len(lines) == 2
    assert lines[0] == r"FAIL  released files: model/x\rok    released files: 3 files as certified\x1b[K"
    for line in lines:
        assert_harmless(line)


def test_a_run_whose_folder_or_unit_would_write_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    release = made(tmp_path / f"a{EVIL}")
    stated = json.loads((release / "certificate.json").read_text())
    (release / "certificate.json").write_text(json.dumps({**stated, "unit": f"user{EVIL}\nepsilon 0"}))
    tacit = caller(monkeypatch, capfd)
    for done in (
        tacit("tradeoff", release),
        tacit("verify", release / "certificate.json"),
        tacit("ledger", release.parent),
    ):
        assert_harmless(done.out)
        assert "\nepsilon 0" not in done.out


def test_names_are_spelled_out_in_tables_and_lists() -> None:
    assert_harmless(table(["record", EVIL], [[f"{EVIL}\n1", "2"]]))
    assert len(table(["record", "n"], [[f"{EVIL}\n1", "2"]]).split("\n")) == 3
    assert some_names([EVIL] * 7).endswith(" and 2 more")
    assert_harmless(some_names([EVIL, "\u202e", "\n"]))
