from __future__ import annotations

import gzip
import json
from pathlib import Path

from tacit.corpus.readers import read_records
from tacit.corpus.records import Record
from tacit.corpus.source import Source
from tacit.corpus.turns import Turns
from tacit.corpus.units import UnitKind, group_units
from tacit.screening.split import data_points


def test_clinical_notes_are_documents_under_their_own_ids(data_dir: Path) -> None:
    records = list(read_records(Source(data_dir / "mtsamples" / "mtsamples.jsonl.gz", id_field="note_id")))
    assert len({record.document_id for record in records}) == len(records) == 2357
    assert len(group_units(records, UnitKind("document"))) == 2357


def test_clinical_notes_cut_into_tuples_as_a_count_by_hand_says(data_dir: Path) -> None:
    source = Source(data_dir / "mtsamples" / "mtsamples.jsonl.gz", id_field="note_id")
    expected = sum(-(-len(record.text.split()) // 256) for record in read_records(source))
    units = group_units(read_records(source), UnitKind("tuple", 256))
    assert len(units) == expected
    assert max(len(unit.texts[0].split()) for unit in units) == 256


def test_questions_and_answers_by_their_text_field(data_dir: Path) -> None:
    source = Source(data_dir / "medquad" / "medquad.jsonl.gz", text_field="answer", id_field="id")
    assert sum(1 for _ in read_records(source)) == 16_407


def test_a_directory_of_annotated_notes(data_dir: Path) -> None:
    notes = data_dir / "mtsamples-ner" / "notes"
    records = list(read_records(Source(notes)))
    assert len(records) == 117
    tokens = sum(bool(line.strip()) for path in notes.iterdir() for line in path.read_text().splitlines())
    assert sum(len(record.text.split(" ")) for record in records) == tokens
    assert records[0].document_id == f"{sorted(notes.iterdir())[0].name}:1"


def test_sentences_of_a_single_annotated_file(data_dir: Path) -> None:
    source = Source(data_dir / "bio-ner" / "NCBI-disease-IOB" / "devel.tsv.gz", format="conll")
    assert sum(1 for _ in read_records(source)) == 923


def test_quoted_multi_line_csv(data_dir: Path) -> None:
    path = data_dir / "clinical-dialog" / "mts-dialog" / "MTS-Dialog-TrainingSet.csv.gz"
    records = list(read_records(Source(path, text_field="dialogue", id_field="ID")))
    assert [record.document_id for record in records] == [str(i) for i in range(len(records))]
    assert all("\n" in record.text for record in records[:10])


def dialogues(data: Path, path: str, turns: Turns) -> list[Record]:
    return list(read_records(Source(data / path, text_field="turns", id_field="id", turns=turns)))


def test_schema_guided_dialogues(data_dir: Path) -> None:
    records = dialogues(data_dir, "sgd/sgd.dev.jsonl.gz", Turns())
    assert records[0].document_id == "1_00000"
    assert records[0].text.startswith(
        "USR: I want to make a restaurant reservation for 2 people at half past 11 in the "
    )
    with gzip.open(data_dir / "sgd" / "sgd.dev.jsonl.gz", "rt", encoding="utf-8") as file:
        turns = [turn for line in file for turn in json.loads(line)["turns"] if turn[1].strip()]
    lines = [line for record in records for line in data_points(record.text, "line")]
    assert len(lines) == len(turns)
    assert {line[:5] for line in lines} == {"USR: ", "SYS: "}


def test_multiwoz_of_four_kinds(data_dir: Path) -> None:
    """The part that is trained on, by one pattern; turns with a line break inside are one line."""
    train = dialogues(data_dir, "multiwoz/multiwoz*[1l].*jsonl.gz", Turns())
    assert len(train) == 512 + 999
    assert any("SYS: Booking was successful . Reference number is : BMUKPTG6 . " in record.text for record in train)
    bio = dialogues(data_dir, "multiwoz/multiwoz22.dev.bio.jsonl.gz", Turns(speaker=None))
    assert bio[0].text.startswith(
        "I'm looking for a local place to dine in the centre that serves chinese food.\nI have "
    )


def test_customer_service_chats(data_dir: Path) -> None:
    records = dialogues(data_dir, "abcd/abcd.valid.jsonl.gz", Turns())
    assert len(records) == 1004
    assert records[0].text.split("\n")[3:6] == [
        "USR: David Williams",
        "USR: davidw33@email.com",
        "ACT: Account has been pulled up for David Williams.",
    ]


def test_the_published_layout_of_multiwoz(tmp_path: Path) -> None:
    """data/MultiWOZ_2.2/train: arrays of dialogues, with a schema beside them that a pattern leaves out."""
    turns = [
        {"frames": [{"service": "hotel", "slots": []}], "speaker": "USER", "turn_id": "0", "utterance": "Hi."},
        {"frames": [], "speaker": "SYSTEM", "turn_id": "1", "utterance": "Hello.\nHow can I help?"},
    ]
    for number in (1, 2):
        content = [{"dialogue_id": f"PMUL000{number}.json", "services": ["hotel"], "turns": turns}]
        (tmp_path / f"dialogues_00{number}.json").write_text(json.dumps(content, indent=2))
    (tmp_path / "schema.json").write_text(json.dumps([{"service_name": "hotel"}]))
    source = Source(
        tmp_path / "dialogues_*.json", text_field="turns", id_field="dialogue_id", turns=Turns("utterance", "speaker")
    )
    text = "USER: Hi.\nSYSTEM: Hello. How can I help?"
    assert list(read_records(source)) == [Record(f"PMUL000{number}.json", None, text) for number in (1, 2)]
