"""Gold from dialogues with slots: the places of the slots, by turn, in both forms of a turn."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tacit.corpus.source import Source
from tacit.errors import DataError
from tacit.screening.dialogue_gold import dialogue_gold
from tacit.screening.measure import GoldRecord, read_gold

from .gold import SECRETS, Part, sgd

TURNS = [
    {"speaker": "USER", "utterance": "Hello.", "frames": [{"service": "x", "slots": [], "state": {}}]},
    {
        "speaker": "SYSTEM",
        "utterance": "Né at 12 High St, 408-247-8880.",
        "frames": [
            {"slots": [{"slot": "phone_number", "start": 18, "exclusive_end": 30}, {"slot": "city", "copy_from": "y"}]},
            {
                "slots": [
                    {"slot": "address", "start": 6, "exclusive_end": 16},
                    {"slot": "street", "start": 9, "exclusive_end": 16},
                ]
            },
        ],
    },
    {"speaker": "USER", "utterance": "Bye."},
]
LISTS = [
    ["U", "Hello.", []],
    [
        "S",
        "Né at 12 High St, 408-247-8880.",
        [[18, 30, "phone_number", "x"], [6, 16, "address", "x"], [9, 16, "street", "x"]],
    ],
]


def source(folder: Path, turns: Any, name: str = "dialogues_001.json") -> Source:
    dialogues = [{"dialogue_id": "1", "turns": turns}]
    content = json.dumps(dialogues) if name.endswith("json") else json.dumps(dialogues[0]) + "\n"
    (folder / name).write_text(content)
    return Source(folder / name, text_field="turns")


@pytest.mark.parametrize(("turns", "name"), [(TURNS, "a.json"), (LISTS, "a.jsonl")])
def test_slots_become_spans(tmp_path: Path, turns: Any, name: str) -> None:
    text = "Né at 12 High St, 408-247-8880."
    files = source(tmp_path, turns, name)
    assert list(dialogue_gold(files)) == [GoldRecord(text, ((6, 16, "address"), (18, 30, "phone_number")))]
    assert list(dialogue_gold(files, {"phone_number"})) == [GoldRecord(text, ((18, 30, "phone_number"),))]
    assert [text[start:end] for start, end, _ in next(dialogue_gold(files)).spans] == ["12 High St", "408-247-8880"]


def test_what_it_gives_is_read_by_the_measurement(tmp_path: Path) -> None:
    found = list(dialogue_gold(source(tmp_path, TURNS)))
    lines = [json.dumps({"text": record.text, "spans": record.spans}) for record in found]
    (tmp_path / "gold.jsonl").write_text("\n".join(lines))
    assert list(read_gold(tmp_path / "gold.jsonl")) == found


def test_as_the_measurement_of_the_policies_reads_sgd(data_dir: Path) -> None:
    """Two readers of one file, of which the tests' own one is for measuring."""
    slots = SECRETS["sgd"]
    files = Source(data_dir / "sgd" / "sgd.train.jsonl.gz", text_field="turns")
    wanted = {
        (text, tuple(span for span in spans if span[2] in slots))
        for part in Part
        for text, spans in islice(sgd(data_dir, part), 20_000)
    }
    found = [(record.text, record.spans) for record in islice(dialogue_gold(files, slots), 500)]
    assert len(found) == 500
    assert set(found) <= wanted


@pytest.mark.parametrize(
    "turn",
    [
        "SENTINEL",
        ["S", "SENTINEL"],
        ["S", "SENTINEL", "x"],
        ["S", "SENTINEL", [[0, 9, "x"]]],
        ["S", "SENTINEL", [[3, 3, "x"]]],
        ["S", "SENTINEL", [[-1, 3, "x"]]],
        ["S", "SENTINEL", [["0", 3, "x"]]],
        ["S", "SENTINEL", [[0, 3]]],
        {"text": "SENTINEL"},
        {"utterance": None},
        {"utterance": "SENTINEL", "frames": 3},
        {"utterance": "SENTINEL", "frames": ["SENTINEL"]},
        {"utterance": "SENTINEL", "frames": [{"slots": [7]}]},
        {"utterance": "SENTINEL", "frames": [{"slots": [{"start": 0}]}]},
        {"utterance": "SENTINEL", "frames": [{"slots": [{"start": 0, "exclusive_end": 9, "slot": "x"}]}]},
    ],
)
def test_what_does_not_match_is_one_line_without_its_text(tmp_path: Path, turn: Any) -> None:
    with pytest.raises(DataError, match=r"json, record 1, turn 2: ") as raised:
        list(dialogue_gold(source(tmp_path, [TURNS[0], turn])))
    assert "\n" not in str(raised.value)
    said = str(raised.value).replace(str(tmp_path), "")
    assert "SENTINEL" not in f"{said}{raised.value.__context__}{raised.value.__cause__}"


@pytest.mark.parametrize("turns", [None, "SENTINEL", {"a": "SENTINEL"}])
def test_no_list_of_turns(tmp_path: Path, turns: Any) -> None:
    with pytest.raises(DataError, match="record 1: there is no list of turns in 'turns'") as raised:
        list(dialogue_gold(source(tmp_path, turns)))
    assert "SENTINEL" not in str(raised.value).replace(str(tmp_path), "")
