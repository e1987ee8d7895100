"""Bad input of redacted training, as a user meets it: one clear line, exit code 4, and nothing written."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tacit.cli.main import main

from ..small import tacit, write_config

SECRET = "Zqvornak Wolkenstein"
PUBLIC, PRIVATE = "Good morning, how are you?", f"I am {SECRET}, call 415-555-2671."
TURNS = [["U", PUBLIC], ["S", "Thank you."], ["U", PRIVATE]]


def write_dialogues(folder: Path, dialogues: Sequence[Any]) -> None:
    lines = [json.dumps({"id": f"d{number}", "turns": turns}) for number, turns in enumerate(dialogues)]
    (folder / "dialogues.jsonl").write_text("\n".join(lines) + "\n")


def config_in(folder: Path, **screening: Any) -> Path:
    """A configuration that can be run, beside its dialogues; keyword arguments are options of its screening."""
    phase = {"steps": 2, "learning_rate": 1e-3}
    values: dict[str, Any] = {
        "run": str(folder / "run"),
        "privacy": {"unit": "record", "units": 100, "relation": "replace", "budget": {"epsilon": 8.0, "delta": 1e-5}},
        "private": {
            "path": str(folder / "dialogues.jsonl"), "text_field": "turns", "id_field": "id",
            "turns": {},
        },
        "screening": {"data_point": "line", "gamma": 0.1, "delta2": 1e-6, **screening},
        "vocabulary": {"method": "public", "size": 400},
        "model": {"kind": "lstm", "layers": 1, "width": 16, "length": 24},
        "phases": [
            {**phase, "name": "open", "plan": "plain", "stream": "screened", "batch_size": 4},
            {
                **phase, "name": "closed", "plan": "dp", "stream": "private", "expected_batch": 4, "clip_norm": 1.0,
                "noise_multiplier": 2.0,
            },
        ],
        "evaluation": {"held_out": 0.0},
        "compute": {"workers": 1, "threads": 1},
    }  # fmt: skip
    return write_config(folder / "config.yaml", values)


Refused = Callable[..., None]


@pytest.fixture
def assert_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Refused:
    """That `tacit` with these arguments, called as the console script calls it, refuses and writes nothing."""

    def call(*arguments: str | Path, says: Sequence[str]) -> None:
        monkeypatch.setattr("sys.argv", ["tacit", *map(str, arguments)])
        monkeypatch.chdir(tmp_path)
        before = contents(tmp_path)
        capfd.readouterr()
        with pytest.raises(SystemExit) as stop:
            main()
        out, err = capfd.readouterr()
        assert (stop.value.code, str(out)) == (4, ""), err
        check_line(str(err), says)
        assert contents(tmp_path) == before

    return call


def check_line(err: str, says: Sequence[str]) -> None:
    lines = [line for line in err.splitlines() if line.startswith("tacit: ")]
    assert lines == [err.splitlines()[-1]]
    assert "Traceback" not in err
    for part in says:
        assert part in lines[0]
    for word in (*SECRET.split(), "555-2671", "Good morning"):
        assert word not in err


def contents(folder: Path) -> dict[str, bytes | None]:
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


commands = pytest.mark.parametrize("command", ["screen", "run"])


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        ([[5, 60, "name"]], "line 2, span 1: it lies outside the text"),
        ([[25, 5, "name"]], "line 2, span 1: it lies outside the text (0 to 45 code points), or is empty"),
        ([[5, 25, "name"], [24, 30, "other"]], "line 2: two spans overlap"),
        ([["5", 25, "name"]], "line 2, span 1: a span is [start, end, label]"),
        ("none", "line 2: a gold record is"),
    ],
)
def test_gold_that_does_not_match_its_text(tmp_path: Path, assert_refused: Refused, spans: Any, says: str) -> None:
    records = [{"text": PRIVATE, "spans": [[5, 25, "name"]]}, {"text": PRIVATE, "spans": spans}]
    (tmp_path / "gold.jsonl").write_text("\n".join(map(json.dumps, records)))
    assert_refused("screen", "--measure", "gold.jsonl", says=["gold.jsonl", says])
    assert_refused("screen", "--measure", "gold.jsonl", "--json", says=["gold.jsonl", says])


PATTERNS = {
    "look-ahead": (r"(?=secret)\w+", "RE2 does not accept this pattern"),
    "back-reference": (r"(\w+) \1", "RE2 does not accept this pattern"),
    "too large": (r"((a{100}){100}){100}", "RE2 does not accept this pattern"),
    "empty": (r"\d*", "matches the empty text"),
}


def write_policy(folder: Path, pattern: str) -> str:
    policy = {"name": "mine", "least_score": 0.3, "patterns": [{"label": "badge", "pattern": pattern}]}
    (folder / "mine.yaml").write_text(json.dumps(policy))
    return str(folder / "mine.yaml")


@pytest.mark.parametrize("name", PATTERNS)
def test_an_unsafe_pattern_in_a_measurement(tmp_path: Path, assert_refused: Refused, name: str) -> None:
    pattern, says = PATTERNS[name]
    (tmp_path / "gold.jsonl").write_text(json.dumps({"text": PRIVATE, "spans": [[5, 25, "name"]]}))
    policy = write_policy(tmp_path, pattern)
    assert_refused("screen", "--measure", "gold.jsonl", "--conservative", policy, says=["mine.yaml", says])


@commands
@pytest.mark.parametrize("role", ["balanced", "conservative"])
def test_an_unsafe_pattern_in_a_run(tmp_path: Path, assert_refused: Refused, command: str, role: str) -> None:
    write_dialogues(tmp_path, [TURNS])
    config = config_in(tmp_path, **{role: write_policy(tmp_path, PATTERNS["look-ahead"][0])})
    assert_refused(command, config, says=["mine.yaml", "patterns, item 1 (badge)", "RE2"])


@commands
def test_no_data_point_is_public(tmp_path: Path, assert_refused: Refused, command: str) -> None:
    """That none is private is no mistake: one secret may decide it (attacks_on_certificates/test_existence_of_a_release.py)."""
    write_dialogues(tmp_path, [TURNS[2:]])
    assert_refused(command, config_in(tmp_path), says=["no data point is public, and the run needs some"])


@commands
def test_a_group_with_more_members_than_claimed(tmp_path: Path, assert_refused: Refused, command: str) -> None:
    write_dialogues(tmp_path, [TURNS[:2], TURNS])
    config = config_in(tmp_path, group={"by": "document", "most": 2})
    assert_refused(command, config, says=["record 2 of the corpus", "screening.group.most", "claim more"])
    done = tacit("screen", config_in(tmp_path, group={"by": "document", "most": 3}))
    assert done.returncode == 0, done.stderr


@commands
@pytest.mark.parametrize("turns", [None, PRIVATE, [PRIVATE], [[PRIVATE]], [["U", None], ["U", PRIVATE]]])
def test_turns_of_another_form(tmp_path: Path, assert_refused: Refused, command: str, turns: Any) -> None:
    write_dialogues(tmp_path, [TURNS, turns])
    assert_refused(command, config_in(tmp_path), says=["dialogues.jsonl, line 2", "set"])


@commands
def test_a_huge_record(tmp_path: Path, assert_refused: Refused, command: str) -> None:
    write_dialogues(tmp_path, [TURNS, [["U", PRIVATE * 30_000]]])
    assert_refused(command, config_in(tmp_path), says=["dialogues.jsonl, line 2", "max_record_bytes"])


def test_what_was_there_stays(tmp_path: Path, assert_refused: Refused) -> None:
    """A folder that the refused start did not make, and a screening that was begun before."""
    write_dialogues(tmp_path, [TURNS])
    assert tacit("screen", config_in(tmp_path)).returncode == 0
    before = contents(tmp_path / "run")
    write_dialogues(tmp_path, [TURNS, [PRIVATE]])
    assert_refused("screen", config_in(tmp_path), says=["line 2, turn 1"])
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_a_configuration_that_is_nested_too_deep_is_one_line(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("[" * depth + "]" * depth)
    done = tacit("plan", path)
    assert done.returncode in (2, 4)
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
