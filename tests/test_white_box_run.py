"""Updates that are watched in a run: the release stays as it is, and the curator sees a bound that a broken engine is above."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tacit.audit.attack import CONTROL_WITHOUT_NOISE, RELEASED
from tacit.files import read_json
from tacit.privacy.ledger import Ledger
from tacit.runs.folder import RunFolder

from .small import tacit
from .started import command
from .test_coins_run import bound_coins, run_of, values, without_noise, write_texts

pytestmark = pytest.mark.slow

AUDIT = {"canaries": 2, "copies": 2, "digits": 2, "coins": {"examples": 100}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("white-box")
    write_texts(made)
    return made


def run_in(folder: Path, name: str, work: Any = command, **audit: Any) -> tuple[RunFolder, Any]:
    (phase,) = values(folder)["phases"]
    return run_of(folder, work, name, phases=[{**phase, "steps": 20}], audit={**AUDIT, **audit})


@pytest.fixture(scope="module")
def watched(folder: Path) -> RunFolder:
    run, done = run_in(folder, "watched", white_box=True, control="without-noise")
    assert done.returncode == 0, done.stderr
    return run


def test_nothing_that_is_released_or_paid_hangs_on_it(folder: Path, watched: RunFolder) -> None:
    plain, done = run_in(folder, "plain")
    assert done.returncode == 0, done.stderr
    for name in ("model.safetensors", "tokenizer.json"):
        assert (plain.release / "model" / name).read_bytes() == (watched.release / "model" / name).read_bytes()
    for file in ("coins.json", "evaluation.json"):
        assert read_json(plain.private / file).get(RELEASED) == read_json(watched.private / file).get(RELEASED)
    spends = []
    for run in (plain, watched):
        with Ledger.open(run.ledger, readonly=True) as ledger:
            spends.append([(row.body, row.first, row.count) for row in ledger.rows if row.kind == "spend"])
    assert spends[0] == spends[1]
    _, without = bound_coins(plain)
    assert bound_coins(watched)[1] == {**without, "white_box": True}


def test_what_is_found_is_the_curators(watched: RunFolder) -> None:
    found = read_json(watched.private / "white-box.json")
    released, control = found[RELEASED]["bounds"][0], found[CONTROL_WITHOUT_NOISE]["bounds"][0]
    assert released["epsilon"] <= found[RELEASED]["proven"] <= 1.0 < control["epsilon"]
    (facts,) = [
        one for one in read_json(watched.private / "report" / "report.json")["attacks"] if one["name"] == "white-box"
    ]
    assert any(row["parameters"].get("verdict") == "not contradicted" for row in facts["rows"])
    for path in watched.release.rglob("*"):
        if path.is_file():
            content = path.read_bytes().lower()
            assert b"noisy update" not in content, path
    assert tacit("verify", watched.root).returncode == 0


def test_an_engine_without_noise_is_contradicted_in_the_curators_eyes(folder: Path) -> None:
    run, done = run_in(folder, "without-noise", without_noise, white_box=True)
    found = read_json(run.private / "white-box.json")[RELEASED]
    assert found["bounds"][0]["epsilon"] > found["proven"]
    assert "VIOLATED" in (run.private / "report" / "report.html").read_text()
    public = read_json(run.private / "coins.json")[RELEASED]["bounds"][0]["epsilon"]
    assert done.returncode == (6 if public > 1.0 else 0)  # as without it
    audited = tacit("audit", run.root)
    assert audited.returncode == done.returncode
    assert "noisy updates" in audited.stdout
    assert "violated" in audited.stdout
