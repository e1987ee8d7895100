"""The stages of a run: their order, what is done of them, and what is never done again."""

from __future__ import annotations

import functools
import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile.cases import CASES

from tacit.config import RunConfig, parse_config
from tacit.errors import UsageError
from tacit.pipeline.opening import open_run
from tacit.pipeline.order import stage_names
from tacit.pipeline.stages import run, run_until, stages, walk
from tacit.privacy.ledger import Ledger
from tacit.runs.folder import RunFolder
from tacit.runs.stages import Stage, names_of
from tacit.runs.stages import walk as walk_stages

from ..keys import begin_with_key

KINDS = ("LSTM", "CRT, two rounds", "adaptive, strata", "BERT, histogram")
"""Of tiny runs whose randomness is all from the key; together they have every stage."""


def test_a_stage_prints_no_warning() -> None:
    """Known wrong: what one unit's numbers are would be told by a line of numpy's. 28th attack, TACIT-47."""

    def warns(state: object) -> None:
        warnings.warn("of one unit", stacklevel=1)
        assert np.isnan(np.array([np.inf]) - np.inf).all()

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        walk_stages([Stage("one", lambda _: True, lambda _: False, warns)], None, None, "one", lambda _: None)
        assert said == []
        warns(None)
        assert len(said) == 2


def planted(kind: str, folder: Path) -> dict[str, Any]:
    """Its corpora in the folder; its configuration."""
    CASES[kind].write(folder)
    values = CASES[kind].values(folder)
    if kind == "LSTM":
        values["audit"] |= {"membership": {"pairs": 20, "group_size": 2}, "coins": {"examples": 20}}
        values["audit"]["white_box"] = True
    if kind == "BERT, histogram":
        values["vocabulary"] = {"method": "public", "size": 400}  # without noise from the operating system
        values["audit"] = {"canaries": 2, "probability": 0.5, "attacks": {"planted-contexts": {}}}
    return values


def config_of(values: dict[str, Any], run_folder: Path) -> RunConfig:
    """The run in this folder, with one key wherever it is."""
    values = {**values, "run": str(run_folder)}
    begin_with_key(values, bytes(32))
    return parse_config(values)


Whole = tuple[dict[str, Any], Path]
"""The values of a kind, and the folder of its run in one go."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Whole]:
    """The run of a kind in one go, made when it is first asked for, and read only."""

    @functools.cache
    def make(kind: str) -> Whole:
        folder = tmp_path_factory.mktemp("whole")
        values = planted(kind, folder)
        run(config_of(values, folder / "run"))
        return values, folder / "run"

    return make


def done_stages(config: RunConfig) -> list[str]:
    """Those of the run's stages that are seen to be done."""
    with open_run(config) as state:
        return [stage.name for stage in stages() if stage.asked(config) and stage.done(state)]


def left(folder: Path) -> tuple[list[Any], dict[str, bytes]]:
    """The ledger's rows but for the release's (it names a report with a date), and the released model."""
    with Ledger.open(folder / "ledger.sqlite", readonly=True) as ledger:
        rows = [(row.kind, json.dumps(row.body, sort_keys=True), row.first, row.count) for row in ledger.rows]
    model = {path.name: path.read_bytes() for path in (folder / "release" / "model").iterdir()}
    return [row for row in rows if row[0] != "release"], model


def test_the_kinds_have_every_stage_between_them(tmp_path: Path) -> None:
    asked: set[str] = set()
    for number, kind in enumerate(KINDS):
        (tmp_path / str(number)).mkdir()
        config = config_of(planted(kind, tmp_path / str(number)), tmp_path / str(number) / "run")
        asked |= {stage.name for stage in stages() if stage.asked(config)}
    assert asked == set(names_of(stages()))


def test_the_command_line_knows_the_stages() -> None:
    assert stage_names() == names_of(stages())


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_that_is_stopped_after_each_stage_is_the_run_in_one_go(
    kind: str, tmp_path: Path, whole: Callable[[str], Whole]
) -> None:
    """After ``until`` this stage and those before it are done, none after it; and the release is that of one start, bit for bit."""
    values, in_one_go = whole(kind)
    parts = config_of(values, tmp_path / "parts")
    asked = [stage.name for stage in stages() if stage.asked(parts)]
    for number, name in enumerate(asked, start=1):
        run_until(parts, name)
        done = done_stages(parts)
        if name != "scoring":  # it is done when what needs it is
            assert done == asked[:number]
    ours, theirs = left(tmp_path / "parts"), left(in_one_go)
    assert ours[1] == theirs[1]
    assert [row for row in ours[0] if "config" not in row[1]] == [row for row in theirs[0] if "config" not in row[1]]


def test_what_is_released_is_not_made_again(tmp_path: Path, whole: Callable[[str], Whole]) -> None:
    """All that it was made of is deleted; the known-wrong walk, which looks at each stage alone, would train again."""
    values, in_one_go = whole("LSTM")
    shutil.copytree(in_one_go, tmp_path / "run")
    config = parse_config({**values, "run": str(tmp_path / "run")})
    before = left(tmp_path / "run")
    private = RunFolder(tmp_path / "run").private
    for name in ("vocabulary", "checkpoints"):
        shutil.rmtree(private / name)
    (private / "membership.json").unlink(missing_ok=True)
    run(config)
    assert left(tmp_path / "run") == before
    assert not (private / "vocabulary" / "tokenizer.json").exists()


def test_a_stage_that_there_is_not_is_refused(tmp_path: Path) -> None:
    config = config_of(planted("LSTM", tmp_path), tmp_path / "run")
    with pytest.raises(UsageError, match="there is no stage 'nix'; the stages are screening, vocabulary"):
        run_until(config, "nix")
    with open_run(config) as state, pytest.raises(UsageError, match="there is no stage 'nix'"):
        walk(state, "nix")
    assert done_stages(config) == []
