"""`tacit overlap CONFIG`: which public records repeat private text, and nothing of the text itself."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ..small import SENTINEL, small_values, write_config, write_corpora
from .calling import Tacit, assert_one_line


def config_in(folder: Path, played: list[str], **sections: Any) -> Path:
    """Beside the usual public corpus one of these texts, which may repeat a note."""
    write_corpora(folder, patients=20, records=30)
    rows = [json.dumps({"id": f"played-{number}", "text": text}) for number, text in enumerate(played)]
    (folder / "played.jsonl").write_text("\n".join(rows))
    public = [{"path": str(folder / "public.jsonl")}, {"path": str(folder / "played.jsonl"), "id_field": "id"}]
    return write_config(folder / "config.yaml", small_values(folder, public=public, **sections))


def notes_of(folder: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (folder / "notes.jsonl").read_text().splitlines()]


OTHER = " ".join(f"word{number}" for number in range(60))


@pytest.fixture
def note(tmp_path: Path) -> str:
    write_corpora(tmp_path, patients=20, records=30)
    return notes_of(tmp_path)[0]


def test_a_public_record_that_repeats_a_note_is_named_and_not_quoted(tmp_path: Path, note: str, tacit: Tacit) -> None:
    half = " ".join(note.upper().split()[: len(note.split()) // 2])
    done = tacit("overlap", config_in(tmp_path, [OTHER, f"{half} {OTHER}"]))
    assert_one_line(done, 4, "public records that share text with a private one: 1", "take them out")
    assert "'played-1'" in done.out
    assert "played-0" not in done.out
    assert f"{tmp_path}/public.jsonl (text): records that share text with a private one: none" in done.out
    assert SENTINEL not in (done.out + done.err).lower()
    assert not (tmp_path / "run").exists()


def test_what_is_shared_can_be_asked_for_more_or_less(tmp_path: Path, note: str, tacit: Tacit) -> None:
    eight = " ".join(re.findall(r"\w+", note)[:8])  # three runs of six words
    config = config_in(tmp_path, [f"{OTHER} {eight}", f"{OTHER} {note}"])
    done = tacit("overlap", config, "--json")
    assert done.code == 4
    (own,) = [row["shared"] for row in json.loads(done.out) if row["corpus"].endswith("played.jsonl")]
    assert [row["id"] for row in own] == ["played-1"]
    assert own[0]["share"] > 0.9
    assert tacit("overlap", config, "--runs", 1000).code == 0
    fewer = tacit("overlap", config, "--runs", 3, "--share", 0.0, "--json")
    assert {row["id"]: row["runs"] for corpus in json.loads(fewer.out) for row in corpus["shared"]}["played-0"] == 3
    for share in ("1.5", "nan"):
        assert tacit("overlap", config, "--share", share).code == 2


def test_other_text_is_not_found(tmp_path: Path, tacit: Tacit) -> None:
    done = tacit("overlap", config_in(tmp_path, [OTHER]))
    assert done.code == 0, done.err
    assert done.out.count("private one: none") == 2


def test_an_identifier_cannot_command_the_terminal(tmp_path: Path, note: str, tacit: Tacit) -> None:
    config = config_in(tmp_path, [OTHER])
    (tmp_path / "played.jsonl").write_text(json.dumps({"id": "\x1b[2Jgone", "text": note}))
    done = tacit("overlap", config)
    assert done.code == 4
    assert "\x1b[2J" not in done.out


def test_without_a_public_corpus_there_is_nothing_to_compare(tmp_path: Path, tacit: Tacit) -> None:
    plain = {"name": "open", "plan": "plain", "stream": "screened", "steps": 2, "batch_size": 4, "learning_rate": 1e-3}
    values = {
        "run": str(tmp_path / "run"),
        "privacy": {"unit": "record", "units": 100, "relation": "replace", "budget": {"epsilon": 8.0, "delta": 1e-5}},
        "private": {"path": str(tmp_path / "notes.jsonl")},
        "screening": {},
        "vocabulary": {"method": "public", "size": 400},
        "phases": [plain, {**small_values(tmp_path)["phases"][1], "expected_batch": 4}],
        "evaluation": {"held_out": 0.0},
    }
    assert_one_line(
        tacit("overlap", write_config(tmp_path / "config.yaml", values)), 2, "there is no public corpus to compare"
    )
