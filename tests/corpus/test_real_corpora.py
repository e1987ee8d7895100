from __future__ import annotations

from pathlib import Path

from tacit.corpus.readers import Source, read_records
from tacit.corpus.units import UnitKind, group_units


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
