"""What every stage of a run keeps; and one that lives in this file alone, which a run walks and the command line knows.

To add one: a `Stage` in a file of its own, and one line in `STAGES`; an attack is a line of `ATTACK_STAGES`. `WORDS` is such a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tacit.attack_stages import ATTACK_STAGES
from tacit.audit.attacks import ATTACKS
from tacit.config import RunConfig, load_config
from tacit.config.base import named
from tacit.errors import UsageError
from tacit.files import read_json, write_json
from tacit.pipeline.opening import open_run
from tacit.pipeline.order import STAGES, in_order, stage_names
from tacit.pipeline.stages import run, run_until, stages
from tacit.pipeline.state import RunState
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder
from tacit.runs.stages import Stage, names_of

from ..cli.calling import Tacit, caller
from ..small import small_values, write_config, write_corpora


def words_file(state: RunState) -> Path:
    return state.folder.private / "words.json"


def count_released(state: RunState) -> None:
    """Counts the words that the vocabulary has released, and how often the stage was made."""
    times = read_json(words_file(state))["times"] if words_file(state).exists() else 0
    released = read_json(state.folder.private / "vocabulary" / "released.json")
    write_json(words_file(state), {"words": len(released), "times": times + 1})


WORDS = Stage(
    "words", lambda config: config.title != "without", lambda state: words_file(state).exists(), count_released
)
NEVER_DONE = Stage("words", lambda config: True, lambda state: False, count_released)


def put(place: str) -> None:
    """Its line, behind that of the vocabulary."""
    rows = list(STAGES.items())
    rows.insert(2, ("words", place))
    STAGES.clear()
    STAGES.update(rows)


@pytest.fixture
def registered() -> Iterator[None]:
    before = dict(STAGES)
    put(f"{__name__}:WORDS")
    yield
    STAGES.clear()
    STAGES.update(before)


@pytest.fixture
def tacit(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Tacit:
    return caller(monkeypatch, capfd)


def config_of(folder: Path, **sections: object) -> RunConfig:
    write_corpora(folder)
    values = small_values(folder, audit=None, vocabulary={"method": "public", "size": 400}, **sections)
    values["phases"][1]["steps"] = 2
    return load_config(write_config(folder / "config.yaml", values))


# what each of them keeps ---------------------------------------------------------------------------------------------


def under_other_names(rows: Mapping[str, str]) -> list[str]:
    """Of rows those whose stage or attack has another name."""
    found = {name: named(place) for name, place in rows.items()}
    own = {name: one.name if isinstance(one, Stage) else one.stage_name for name, one in found.items()}
    return [name for name in rows if own[name] != name]


def test_each_row_is_the_stage_of_its_name() -> None:
    assert (
        under_other_names(STAGES) == under_other_names({name: row.place for name, row in ATTACK_STAGES.items()}) == []
    )
    assert under_other_names({"word": f"{__name__}:WORDS"}) == ["word"]
    assert [attack.stage_name for attack in ATTACKS.values()] == list(ATTACK_STAGES)


def test_names_are_known_without_what_the_stages_do() -> None:
    assert stage_names() == names_of(stages())
    assert len({*stage_names()}) == len(STAGES) + len(ATTACK_STAGES)
    assert in_order({"a": 1, "release": 3, "b": 4}, [2]) == [1, 2, 3, 4]


# the toy -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("registered")
def test_a_run_walks_it_once(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    assert stage_names() == names_of(stages())
    assert stage_names()[:4] == ["screening", "vocabulary", "words", "pretraining"]
    run_until(config, "words")
    folder = RunFolder(tmp_path / "run")
    found = read_json(folder.private / "words.json")
    assert found == {"words": len(read_json(folder.private / "vocabulary" / "released.json")), "times": 1}
    with open_run(config) as state:
        assert [stage.name for stage in stages() if stage.asked(config) and stage.done(state)] == [
            "vocabulary",
            "words",
        ]
    run(config)
    assert read_json(folder.private / "words.json")["times"] == 1
    assert all(check.holds for check in verify_run(folder))


def test_one_that_is_never_seen_to_be_done_is_made_again(tmp_path: Path, registered: None) -> None:
    """Known wrong."""
    STAGES["words"] = f"{__name__}:NEVER_DONE"
    config = config_of(tmp_path)
    for _ in range(2):
        run_until(config, "words")
    assert read_json(tmp_path / "run" / "private" / "words.json")["times"] == 2


@pytest.mark.usefixtures("registered")
def test_a_configuration_without_it_does_not_make_it(tmp_path: Path) -> None:
    run_until(config_of(tmp_path, title="without"), "words")
    assert not (tmp_path / "run" / "private" / "words.json").exists()
    assert (tmp_path / "run" / "private" / "vocabulary" / "tokenizer.json").exists()


@pytest.mark.usefixtures("registered")
def test_the_command_line_knows_it(tmp_path: Path, tacit: Tacit) -> None:
    config_of(tmp_path)
    done = tacit("run", tmp_path / "config.yaml", "--until", "words")
    assert done.code == 0, done.err
    assert "Stopped after words" in done.out
    assert (tmp_path / "run" / "private" / "words.json").exists()


def test_without_its_line_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="there is no stage 'words'; the stages are screening, vocabulary, pretraining"
    ):
        run_until(config_of(tmp_path), "words")
