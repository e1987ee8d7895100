"""`tacit screen CONFIG`: what it leaves, what it prints, and one line for every mistake."""

from __future__ import annotations

import functools
import json
import os
import pty
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tacit.config import load_config
from tacit.pipeline.screening import screened
from tacit.progress import SilentReporter
from tacit.randomness import KeyedRandomness, load_or_create_key
from tacit.runs.folder import RunFolder
from tacit.screen_plan import streams_needed
from tacit.screening.receipt import Receipt

from ..small import write_config
from .calling import Tacit

TEXTS = ["Good morning, how are you?", "I am Jennifer Lopez.", "Call 415-555-2671 now.", "Thank you.", "Thank you."]
SENTINELS = ("Jennifer", "Lopez", "415-555-2671", "2671")


@pytest.fixture
def run(tacit: Tacit) -> Tacit:
    """`tacit screen` in this process."""
    return functools.partial(tacit, "screen")


def write_notes(folder: Path, texts: list[str]) -> None:
    notes = [{"note": f"n{number}", "text": text} for number, text in enumerate(texts)]
    (folder / "notes.jsonl").write_text("".join(json.dumps(note) + "\n" for note in notes))


def config_in(folder: Path, **sections: Any) -> Path:
    """A configuration beside its corpus; keyword arguments replace whole sections."""
    plain = {"name": "open", "plan": "plain", "stream": "screened", "steps": 2, "batch_size": 4, "learning_rate": 1e-3}
    private = {
        "name": "closed", "plan": "dp", "stream": "private", "steps": 2, "expected_batch": 4, "clip_norm": 1.0,
        "learning_rate": 1e-3, "noise_multiplier": 2.0,
    }  # fmt: skip
    values: dict[str, Any] = {
        "run": str(folder / "run"),
        "privacy": {"unit": "record", "units": 100, "relation": "replace", "budget": {"epsilon": 8.0, "delta": 1e-5}},
        "private": {"path": str(folder / "notes.jsonl"), "id_field": "note"},
        "screening": {"deduplicate": "exact"},
        "vocabulary": {"method": "public", "size": 400},
        "phases": [plain, private],
        "evaluation": {"held_out": 0.0},
    }
    return write_config(folder / "config.yaml", {**values, **sections})


@pytest.fixture
def config(tmp_path: Path) -> Path:
    write_notes(tmp_path, TEXTS)
    return config_in(tmp_path)


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# screening -----------------------------------------------------------------------------------------------------------


def test_it_screens_into_the_runs_private_folder(run: Tacit, config: Path) -> None:
    code, out, err = run(config)
    folder = config.parent / "run" / "private" / "screened"
    assert (code, out) == (0, f"{folder}: done; the counts are in receipt.json, and they are private\n"), err
    assert stat.S_IMODE(folder.parent.stat().st_mode) == stat.S_IMODE(folder.stat().st_mode) == 0o700
    public, private = (
        [json.loads(line) for line in (folder / name).read_text().splitlines()]
        for name in ("public.jsonl", "private.jsonl")
    )
    assert public == [
        {"id": "n0#0", "document": "n0", "text": TEXTS[0]},
        {"id": "n3#0", "document": "n3", "text": TEXTS[3]},
    ]
    assert [(line["id"], line["text"]) for line in private] == [
        ("n1#0", "I am <MASK>."),
        ("n2#0", "Call <MASK> now."),
        ("n4#0", "<MASK>"),
    ]
    assert (folder / "held_out.jsonl").read_text() == ""


def test_nothing_it_says_or_leaves_holds_what_is_masked(run: Tacit, config: Path) -> None:
    _, out, err = run(config, "--json")
    _, again, progress = run(config)
    written = "".join(content.decode("latin-1") for content in files_in(config.parent / "run").values())
    # But for the digits of measured times, which are a clock's and may be any.
    said, left = (re.sub(r"\d+\.\d{4,}(e-?\d+)?", "", text) for text in (out + err + again + progress, written))
    for sentinel in (*SENTINELS, "Good morning"):
        assert sentinel not in said
    for sentinel in SENTINELS:
        assert sentinel not in left
    assert str(sum(map(len, TEXTS))) not in err + progress  # the bar is a share: sizes are private


def test_json_is_the_receipt(run: Tacit, config: Path) -> None:
    code, out, _ = run(config, "--json")
    assert code == 0
    path = config.parent / "run" / "private" / "screened" / "receipt.json"
    receipt = Receipt.from_dict(json.loads(out))
    assert receipt == Receipt.from_dict(json.loads(path.read_text()))
    assert (receipt.counts.public, receipt.counts.private, receipt.counts.duplicates) == (2, 3, 1)


def test_the_pipelines_function_gives_the_same_receipt(run: Tacit, config: Path) -> None:
    run(config)
    before = files_in(config.parent / "run")
    options = load_config(config)
    folder = RunFolder(Path(options.run))
    receipt = screened(options, folder, KeyedRandomness(load_or_create_key(folder.private / "key")), SilentReporter())
    assert receipt.counts.data_points == 5
    assert files_in(config.parent / "run") == before


def test_lines_and_a_users_policy(run: Tacit, tmp_path: Path) -> None:
    write_notes(tmp_path, ["Good morning.\n\nThe code is blue.", "Thank you."])
    (tmp_path / "mine.yaml").write_text("{name: mine, least_score: 0.3, patterns: [{label: colour, pattern: blue}]}")
    screening = {"data_point": "line", "balanced": str(tmp_path / "mine.yaml")}
    code, out, err = run(config_in(tmp_path, screening=screening), "--json")
    assert code == 0, err
    found = json.loads(out)
    assert found["plan"]["balanced"]["name"] == "mine"
    assert found["counts"]["masked_spans"] == {"colour": 1}
    assert (found["counts"]["public"], found["counts"]["private"], found["deduplication"]) == (2, 1, None)


def test_without_torch(config: Path) -> None:
    code = (
        "import sys\nfrom tacit.cli.main import app\n"
        f"try:\n    app(['screen', {str(config)!r}])\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "assert not {'torch', 'transformers', 'dp_accounting'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_streams_that_are_needed(tmp_path: Path) -> None:
    """Never the private one: whether it is empty may hang on one secret."""
    phases = load_config(config_in(tmp_path)).model_dump()["phases"]
    public = [{"path": "p.jsonl"}]
    assert streams_needed(load_config(config_in(tmp_path))) == {"public"}
    assert streams_needed(load_config(config_in(tmp_path, public=public))) == {"public"}
    assert streams_needed(load_config(config_in(tmp_path, public=public, phases=phases[1:]))) == set()
    assert streams_needed(load_config(config_in(tmp_path, phases=phases[1:]))) == {"public"}  # the vocabulary


# mistakes ------------------------------------------------------------------------------------------------------------


def assert_one_line(found: tuple[int, str, str], code: int, *parts: str) -> None:
    assert found[:2] == (code, ""), found
    lines = [line for line in found[2].splitlines() if line.startswith("tacit: ")]
    assert lines == [found[2].splitlines()[-1]]
    for part in parts:
        assert part in lines[0]
    assert not any(sentinel in found[2] for sentinel in SENTINELS)


def test_exactly_one_of_both_ways(run: Tacit, config: Path) -> None:
    for arguments in ((), (config, "--measure", config)):
        assert_one_line(run(*arguments), 2, "either a configuration", "--measure GOLD")
    assert_one_line(run(config, "--balanced", config), 2, "--balanced", "screening.balanced")
    assert_one_line(run("--measure", config, "--preview", "2"), 2, "--preview", "give a configuration")
    assert not (config.parent / "run").exists()


def test_a_configuration_without_screening(run: Tacit, tmp_path: Path) -> None:
    write_notes(tmp_path, TEXTS)
    values = {"screening": None, "public": [{"path": "p.jsonl"}], "phases": [
        {"name": "open", "plan": "plain", "stream": "public", "steps": 2, "batch_size": 4, "learning_rate": 1e-3}
    ]}  # fmt: skip
    assert_one_line(run(config_in(tmp_path, **values)), 2, "screening")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "notes.jsonl"]


@pytest.mark.parametrize(
    ("texts", "part"),
    [
        (TEXTS[1:3], "no data point is public"),
        ([], "notes.jsonl: the corpus is"),
    ],
)
def test_streams_without_data_points(run: Tacit, tmp_path: Path, texts: list[str], part: str) -> None:
    write_notes(tmp_path, texts)
    config = config_in(tmp_path, screening={})
    assert_one_line(run(config), 4, part)
    assert not (tmp_path / "run").exists()


def test_a_bad_corpus_and_bad_policies(run: Tacit, tmp_path: Path) -> None:
    write_notes(tmp_path, TEXTS)
    with (tmp_path / "notes.jsonl").open("a") as file:
        file.write('{"note": "n9", "text": "Jennifer\n')
    assert_one_line(run(config_in(tmp_path)), 4, "notes.jsonl, line 6")
    (tmp_path / "bad.yaml").write_text("{name: x, least_score: 2}")
    assert_one_line(run(config_in(tmp_path, screening={"conservative": str(tmp_path / "bad.yaml")})), 2, "bad.yaml")
    assert_one_line(run(config_in(tmp_path, screening={"balanced": str(tmp_path / "no.yaml")})), 4, "no.yaml")
    assert_one_line(run(config_in(tmp_path, screening={"data_point": "word"})), 2, "screening.data_point")
    assert not (tmp_path / "run").exists()


def test_another_plan_or_corpus_is_refused(run: Tacit, config: Path) -> None:
    assert run(config)[0] == 0
    before = files_in(config.parent / "run")
    changed = config_in(config.parent, screening={"deduplicate": "none"})
    assert_one_line(run(changed), 2, "deduplicate: exact -> none", "another `run:` folder")
    write_notes(config.parent, [*TEXTS, "Jennifer"])
    assert_one_line(run(config_in(config.parent)), 4, "the corpus is not the one")
    assert files_in(config.parent / "run") == before


# the preview ---------------------------------------------------------------------------------------------------------


def on_a_terminal(*arguments: str | Path) -> tuple[int, str]:
    """`tacit screen` with a terminal as its standard output; exit code and what the terminal shows."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "tacit.cli.main", "screen", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "200", "TERM": "xterm"}
    process = subprocess.Popen(command, stdout=theirs, stderr=theirs, stdin=theirs, env=environment)
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:  # how Linux says that the other end is closed
        pass
    os.close(ours)
    return process.wait(), shown.decode()


def test_a_preview_is_for_terminals_only(run: Tacit, config: Path) -> None:
    assert_one_line(run(config, "--preview", "2"), 2, "must be a terminal", "--preview-file")
    assert_one_line(run(config, "--preview-file", config.parent / "run" / "private" / "p.txt"), 2, "--preview N")
    assert_one_line(run(config, "--preview", "2", "--json"), 2, "no JSON")
    assert not (config.parent / "run").exists()


def test_a_preview_on_a_terminal_highlights_and_writes_nothing(tmp_path: Path) -> None:
    write_notes(tmp_path, [*TEXTS, "A \x1b[31mzorblax\x07."])
    config = config_in(tmp_path)
    code, shown = on_a_terminal(config, "--preview", "9")
    assert code == 0, shown
    assert "\x1b[1;7m[Jennifer Lopez]\x1b[0m" in shown
    assert "after   I am <MASK>." in shown
    assert "public: known to be safe" in shown
    assert "private: copy of an earlier one" in shown
    assert r"before  A \x1b[" in shown  # text that cannot command the terminal
    assert r"\x07." in shown
    assert "\x07" not in shown
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.yaml", "notes.jsonl"]
    assert "Jennifer" not in on_a_terminal(config, "--preview", "1")[1]


def test_a_preview_file_lies_in_the_private_folder_and_is_new(run: Tacit, config: Path) -> None:
    private = config.parent / "run" / "private"
    for place in (config.parent / "p.txt", private / ".." / "p.txt", private / "no" / "p.txt"):
        assert_one_line(run(config, "--preview", "2", "--preview-file", place), 2, "--preview-file")
    code, out, err = run(config, "--preview", "2", "--preview-file", private / "p.txt")
    assert (code, err) == (0, "")
    assert "Jennifer" not in out
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    assert "before  I am [Jennifer Lopez]." in (private / "p.txt").read_text()
    assert_one_line(run(config, "--preview", "2", "--preview-file", private / "p.txt"), 2, "name a new file")


def test_a_measurement_is_written_once_and_holds_no_text(run: Tacit, tmp_path: Path) -> None:
    gold = tmp_path / "gold.jsonl"
    gold.write_text(json.dumps({"text": "I am Jennifer Lopez.", "spans": [[5, 19, "name"]]}) + "\n")
    out = tmp_path / "measurement.json"
    code, _, err = run("--measure", gold, "--out", out)
    assert code == 0, err
    found = json.loads(out.read_text())
    assert (found["secrets"], found["confidence"]) == (1, 0.95)
    assert found["gamma_upper"] >= 0.95  # one label says next to nothing
    assert "Jennifer" not in out.read_text()
    assert_one_line(run("--measure", gold, "--out", out), 2, "--out", "new file")
    assert_one_line(
        run(config_in(tmp_path), "--out", tmp_path / "other.json"), 2, "--out and --data-point go with --measure"
    )
    assert_one_line(run(config_in(tmp_path), "--data-point", "line"), 2, "--out and --data-point go with --measure")
