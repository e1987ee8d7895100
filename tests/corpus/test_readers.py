"""What is peculiar to one format, and every error: its exit code, its place, and that it holds no text."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tacit.corpus.readers import field_names, read_records
from tacit.corpus.records import Record
from tacit.corpus.source import Source
from tacit.corpus.turns import Turns
from tacit.errors import DataError, TacitError, UsageError

from .leaks import chain, leaks

SENTINEL = "qsentinelq"
S = SENTINEL.encode()


def texts_of(source: Source) -> list[str]:
    return [record.text for record in read_records(source)]


def parquet_bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return sink.getvalue().to_pybytes()


def strings_of_bytes(*values: bytes) -> pa.Array:
    """A string column over bytes that nobody checked, as a foreign writer may leave it."""
    offsets = pa.array([0, *itertools.accumulate(map(len, values))], pa.int32())
    return pa.StringArray.from_buffers(len(values), offsets.buffers()[1], pa.py_buffer(b"".join(values)))


@dataclass(frozen=True)
class Bad:
    """A malformed file, the options it is read with, and what the error must say."""

    name: str
    content: bytes
    place: str
    says: str
    options: dict[str, Any] = field(default_factory=dict)


def arrow_bytes(*rows: bytes, name: str = "text") -> bytes:
    """A stream with one column of strings, whatever their bytes are."""
    table = pa.table({name: strings_of_bytes(*rows)})
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


ONE_ROW = parquet_bytes(pa.table({"text": [SENTINEL]}))
GOOD_JSON = b'{"text": "fine"}\n'
BAD = {
    "txt bad utf-8": Bad("a.txt", b"fine\n\n" + S + b" \xff\n", ", line 3:", "not valid UTF-8"),
    "jsonl bad utf-8": Bad("a.jsonl", GOOD_JSON + b'{"text": "' + S + b'\xe9"}\n', ", line 2:", "not valid UTF-8"),
    "csv bad utf-8": Bad("a.csv", b"text\nfine\n" + S + b"\x80\n", ", line 3:", "not valid UTF-8"),
    "conll bad utf-8": Bad("a.conll", b"fine\tO\n" + S + b"\x80\tO\n", ", line 2:", "not valid UTF-8"),
    "parquet bad utf-8": Bad(
        "a.parquet",
        parquet_bytes(pa.table({"text": strings_of_bytes(b"fine", S + b"\xff")})),
        ", row 2:",
        "not valid UTF-8",
    ),
    "gzip bad utf-8": Bad("a.txt.gz", gzip.compress(b"fine\n" + S + b"\xff\n"), ", line 2:", "not valid UTF-8"),
    "not json": Bad("a.jsonl", GOOD_JSON + S + b" is no JSON\n", ", line 2:", "not a JSON object"),
    "json cut short": Bad("a.jsonl", b'{"text": "' + S + b"\n", ", line 1:", "not a JSON object"),
    "json list": Bad("a.jsonl", b'["' + S + b'"]\n', ", line 1:", "not a JSON object"),
    "json string": Bad("a.jsonl", b'"' + S + b'"\n', ", line 1:", "not a JSON object"),
    "json too deep": Bad("a.jsonl", b"[" * 200_000 + S + b"\n", ", line 1:", "not a JSON object"),
    "json huge number": Bad(
        "a.jsonl", b'{"text": "' + S + b'", "n": ' + b"9" * 5000 + b"}\n", ", line 1:", "not a JSON object"
    ),
    "json half surrogate": Bad("a.jsonl", b'{"text": "' + S + b'\\ud800"}\n', ", line 1:", "half a surrogate pair"),
    "json half surrogate id": Bad(
        "a.jsonl",
        b'{"text": "", "id": "' + S + b'\\ud800"}\n',
        ", line 1:",
        "half a surrogate pair",
        {"id_field": "id"},
    ),
    "text is null": Bad("a.jsonl", GOOD_JSON + b'{"text": null, "b": "' + S + b'"}\n', ", line 2:", "is not a string"),
    "text is a number": Bad("a.jsonl", b'{"text": 7, "b": "' + S + b'"}\n', ", line 1:", "is not a string"),
    "text is a list": Bad("a.jsonl", b'{"text": ["' + S + b'"]}\n', ", line 1:", "is not a string"),
    "parquet text is null": Bad(
        "a.parquet", parquet_bytes(pa.table({"text": [SENTINEL, None]})), ", row 2:", "is not a string"
    ),
    "parquet text is bytes": Bad("a.parquet", parquet_bytes(pa.table({"text": [S]})), ", row 1:", "is not a string"),
    "no text field": Bad("a.jsonl", b'{"' + S + b'": "' + S + b'"}\n', ", line 1:", "set the option text_field"),
    "no csv column": Bad("a.csv", b"id,note\n1," + S + b"\n", ", line 1:", "set the option text_field"),
    "no parquet column": Bad(
        "a.parquet", parquet_bytes(pa.table({"note": [SENTINEL]})), "a.parquet:", "set the option text_field"
    ),
    "no user field on one line": Bad(
        "a.jsonl",
        b'{"text": "", "u": 1}\n{"text": "' + S + b'"}\n',
        ", line 2:",
        "set the option user_field",
        {"user_field": "u"},
    ),
    "user is null": Bad(
        "a.jsonl", b'{"text": "' + S + b'", "u": null}\n', ", line 1:", "see option user_field", {"user_field": "u"}
    ),
    "user is a float": Bad(
        "a.jsonl", b'{"text": "' + S + b'", "u": 7.0}\n', ", line 1:", "see option user_field", {"user_field": "u"}
    ),
    "user is true": Bad(
        "a.jsonl", b'{"text": "' + S + b'", "u": true}\n', ", line 1:", "see option user_field", {"user_field": "u"}
    ),
    "user is empty": Bad("a.csv", b"text,u\n" + S + b",\n", ", line 2:", "see option user_field", {"user_field": "u"}),
    "txt over the cap": Bad(
        "a.txt", b"fine\n" + S * 10 + b"\n", ", line 2:", "max_record_bytes", {"max_record_bytes": 99}
    ),
    "json over the cap": Bad(
        "a.jsonl", b'{"text": "' + S * 10 + b'"}\n', ", line 1:", "max_record_bytes", {"max_record_bytes": 99}
    ),
    "csv over the cap": Bad(
        "a.csv", b'text\nfine\n"' + (S + b"\n") * 10 + b'"\n', ", line 3:", "max_record_bytes", {"max_record_bytes": 99}
    ),
    "parquet over the cap": Bad(
        "a.parquet",
        parquet_bytes(pa.table({"text": ["fine", SENTINEL * 10]})),
        ", row 2:",
        "max_record_bytes",
        {"max_record_bytes": 99},
    ),
    "conll over the cap": Bad(
        "a.conll", b"fine\tO\n\n" + (S + b"\tO\n") * 10, ", line 3:", "max_record_bytes", {"max_record_bytes": 99}
    ),
    "csv row too short": Bad("a.csv", b"id,text\n1,fine\n" + S + b"\n", ", line 3:", "the row has 1 fields"),
    "csv row too long": Bad("a.csv", b"text\n" + S + b",more\n", ", line 2:", "the row has 2 fields"),
    "csv open quote": Bad("a.csv", b'text\nfine\n"' + S + b"\nand on\n", ", line 3:", "not valid CSV"),
    "csv text after a quote": Bad("a.csv", b'text\n"' + S + b'" more\n', ", line 2:", "not valid CSV"),
    "conll without a tab": Bad("a.conll", b"fine\tO\n" + S + b" O\n", ", line 2:", "not token<TAB>tag"),
    "conll without a token": Bad("a.conll", b"\t" + S + b"\n", ", line 1:", "not token<TAB>tag"),
    "gzip is no gzip": Bad("a.txt.gz", S + b" plain text\n", ", line 1:", "corrupted or cut short"),
    "gzip cut short": Bad("a.txt.gz", gzip.compress(b"fine\n" + S)[:-9], ", line ", "corrupted or cut short"),
    "gzip wrong checksum": Bad(
        "a.jsonl.gz", gzip.compress(GOOD_JSON)[:-8] + bytes(8), ", line ", "corrupted or cut short"
    ),
    "gzip broken inside": Bad(
        "a.txt.gz", gzip.compress(S)[:10] + b"\xff" * 40, ", line 1:", "corrupted or cut short"
    ),
    "parquet is no parquet": Bad("a.parquet", S * 9, "a.parquet:", "not a readable Parquet file"),
    "parquet broken inside": Bad(
        "a.parquet",
        ONE_ROW[:8] + b"\xff" * 60 + ONE_ROW[68:],
        "a.parquet:",
        "not a readable Parquet file",
    ),
    "arrow is no arrow": Bad("a.arrow", S * 9, "a.arrow:", "not a readable Arrow file"),
    "arrow cut short": Bad("a.arrow", arrow_bytes(S)[:-60], "a.arrow:", "not a readable Arrow file"),
    "arrow bad utf-8": Bad("a.arrow", arrow_bytes(b"fine", S + b"\xff"), "a.arrow:", "not a readable Arrow file"),
    "arrow with lengths beyond its end": Bad(
        "a.arrow",
        arrow_bytes(S).replace(len(S).to_bytes(4, "little"), (1 << 20).to_bytes(4, "little")),
        "a.arrow:",
        "not a readable Arrow file",
    ),
    "arrow with a name that is no UTF-8": Bad(
        "a.arrow", arrow_bytes(S, name="text" + "e" * 9).replace(b"texte", b"text\xff"), "a.arrow:", "not a readable Arrow"
    ),
    "no arrow column": Bad("a.arrow", arrow_bytes(S, name="note"), "a.arrow:", "set the option text_field"),
    "zipped arrow": Bad("a.arrow.gz", S, "a.arrow.gz:", "also with .gz"),
    "unknown ending": Bad("a.pdf", S, "a.pdf:", ".txt, .jsonl, .json, .csv, .parquet, .arrow, .conll"),
    "no ending": Bad("notes", S, "notes:", "set the option format"),
    "zipped parquet": Bad("a.parquet.gz", S, "a.parquet.gz:", "all but .parquet and .arrow also with .gz"),
    "array cut short": Bad("a.json", b'[{"text": "fine"}, {"text": "' + S, ", record 2:", "no JSON array of objects"),
    "array without its end": Bad("a.json", b'[{"text": "' + S + b'"}', ", record 2:", "no JSON array of objects"),
    "array of strings": Bad("a.json", b'["' + S + b'"]', ", record 1:", "no JSON array of objects"),
    "array without a comma": Bad("a.json", b'[{"text": "fine"} {"text": "' + S + b'"}]', ", record 2:", "no JSON array"),
    "array with a last comma": Bad("a.json", b'[{"text": "' + S + b'"},]', ", record 2:", "no JSON array of objects"),
    "something after the array": Bad("a.json", b'[{"text": "fine"}] ' + S, ", record 2:", "no JSON array of objects"),
    "object for an array": Bad("a.json", b'{"text": "' + S + b'"}', ", record 1:", "no JSON array of objects"),
    "empty json": Bad("a.json", b"", ", record 1:", "no JSON array of objects"),
    "object with a bracket too many": Bad("a.json", b'[{"text": "' + S + b'"]]', ", record 1:", "not a JSON object"),
    "object of no json": Bad("a.json", b'[{"text": "fine"}, {' + S + b"}]", ", record 2:", "not a JSON object"),
    "object too deep": Bad("a.json", b'[{"a":' + b"[" * 99_999 + b"]" * 99_999 + b"}]", ", record 1:", "not a JSON object"),
    "array bad utf-8": Bad("a.json", b'[{"text": "' + S + b'\xe9"}]', ", record 1:", "not valid UTF-8"),
    "array over the cap": Bad(
        "a.json", b'[{"text": "fine"}, {"text": "' + S * 10 + b'"}]', ", record 2:", "max_record_bytes",
        {"max_record_bytes": 99},
    ),
    "zipped array cut short": Bad("a.json.gz", gzip.compress(b'[{"text": "' + S)[:-9], "a.json.gz:", "cut short"),
    **{f"turns: {name}": Bad("a.jsonl", b'{"turns": [["U", "fine"]]}\n{"turns": ' + turns + b"}\n", place, says,
        {"text_field": "turns", "turns": Turns()})
       for name, (turns, place, says) in {
        "null": (b"null", ", line 2:", "is no list of turns; set the option text_field"),
        "a text": (b'"' + S + b'"', ", line 2:", "is no list of turns"),
        "an object": (b'{"U": "' + S + b'"}', ", line 2:", "is no list of turns"),
        "a turn is a text": (b'[["U", "x"], "' + S + b'"]', ", line 2, turn 2:", "must be a list or an object"),
        "a turn is null": (b'[null, "' + S + b'"]', ", line 2, turn 1:", "must be a list or an object"),
        "a turn too short": (b'[["' + S + b'"]]', ", line 2, turn 1:", "no place 1 (the first is 0); set the option turns.text"),
        "an empty turn": (b'[["U", "' + S + b'"], []]', ", line 2, turn 2:", "set the option turns.text"),
        "an object for a list": (b'[{"' + S + b'": "' + S + b'"}]', ", line 2, turn 1:", "no field 1; set the option turns.text"),
        "text is null": (b'[["' + S + b'", null]]', ", line 2, turn 1:", "what the option turns.text names is not a string"),
        "text is a list": (b'[["U", ["' + S + b'"]]]', ", line 2, turn 1:", "turns.text names is not a string"),
        "speaker is a number": (b'[[7, "' + S + b'"]]', ", line 2, turn 1:", "turns.speaker names is not a string"),
        "half a surrogate": (b'[["U", "' + S + b'\\ud800"]]', ", line 2:", "half a surrogate pair"),
    }.items()},
    "turns are lists and not objects": Bad(
        "a.json", b'[{"turns": [["' + S + b'", "' + S + b'"]]}]', ", record 1, turn 1:", "set the option turns.text to a place",
        {"text_field": "turns", "turns": Turns("utterance", "speaker")},
    ),
    "turns without a speaker": Bad(
        "a.json", b'[{"turns": [{"utterance": "' + S + b'"}]}]', ", record 1, turn 1:",
        "no field 'speaker'; set the option turns.speaker", {"text_field": "turns", "turns": Turns("utterance", "speaker")},
    ),
    "turns over the cap": Bad(
        "a.parquet", parquet_bytes(pa.table({"turns": [[["U", SENTINEL * 9]]]})), ", row 1:", "max_record_bytes",
        {"text_field": "turns", "turns": Turns(), "max_record_bytes": 90},
    ),
    "no turns": Bad(
        "a.jsonl", b'{"text": "' + S + b'"}\n', ", line 1:", "set the option text_field",
        {"text_field": "turns", "turns": Turns()},
    ),
    "blank lines only": Bad("a.txt", b"\n  \n\r\n", "a.txt:", "corpus is empty"),
    "header only": Bad("a.csv", S + b",text\n", "a.csv:", "corpus is empty"),
}  # fmt: skip


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD.keys())
def test_errors_name_the_place_and_hold_no_text(bad: Bad, tmp_path: Path) -> None:
    path = tmp_path / bad.name
    path.write_bytes(bad.content)
    with pytest.raises(DataError) as caught:
        list(read_records(Source(path, **bad.options)))
    message = str(caught.value)
    assert caught.value.exit_code == 4
    assert message.startswith(str(path))
    assert bad.place in message
    assert bad.says in message
    assert "\n" not in message
    assert not leaks(caught.value, SENTINEL)
    assert list(chain(caught.value)) == [caught.value]


def chained_from_json(line: str) -> None:
    try:
        json.loads(line)
    except ValueError as error:
        raise DataError("not JSON") from error


def suppressed_from_json(line: str) -> None:
    try:
        json.loads(line)
    except ValueError:
        raise DataError("not JSON") from None


def chained_from_decode(line: str) -> None:
    try:
        (line.encode() + b"\xff").decode()
    except UnicodeDecodeError as error:
        raise DataError("not UTF-8") from error


def quoted(line: str) -> None:
    raise DataError(f"not JSON: {line}")


@pytest.mark.parametrize("careless", [chained_from_json, suppressed_from_json, chained_from_decode, quoted])
def test_the_leak_check_catches_careless_readers(careless: Callable[[str], None]) -> None:
    with pytest.raises(DataError) as caught:
        careless(f"this is {SENTINEL}")
    assert leaks(caught.value, SENTINEL)


def test_records_do_not_show_their_text() -> None:
    assert SENTINEL not in repr(Record(SENTINEL, SENTINEL, SENTINEL))


def test_missing_file_is_reported_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.txt: there is no such file") as caught:
        read_records(Source(tmp_path / "absent.txt"))
    assert caught.value.exit_code == 4


def test_directory_without_a_known_file(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_text(SENTINEL)
    (tmp_path / "a.txt").write_text(SENTINEL)
    with pytest.raises(DataError, match=re.escape("no file there has one of the endings .csv (all")):
        read_records(Source(tmp_path, format="csv"))
    (tmp_path / "a.txt").unlink()
    with pytest.raises(
        DataError, match=re.escape("endings .txt, .jsonl, .json, .csv, .parquet, .arrow, .conll, .bio, .iob (all")
    ):
        read_records(Source(tmp_path))


@pytest.mark.parametrize(
    "options", [{"limit": 0}, {"max_record_bytes": 0}, {"max_record_bytes": 10**30}, {"format": "pdf"}]
)
def test_sources_refuse_nonsense(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        Source(Path("a.txt"), **options)
    assert caught.value.exit_code == 2


def test_an_error_of_a_directory_names_the_file_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(GOOD_JSON)
    (tmp_path / "b.jsonl").write_bytes(GOOD_JSON + S)
    with pytest.raises(TacitError, match=r"b\.jsonl, line 2: "):
        list(read_records(Source(tmp_path)))


@pytest.mark.parametrize("ending", [b"\n", b"\r\n", b""])
def test_the_cap_is_exact_and_leaves_the_line_ending_out(ending: bytes, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"first" + (ending or b"\n") + "é".encode() * 50 + ending + (ending and b"last"))
    records = list(read_records(Source(path, max_record_bytes=100)))
    expected = [("a.txt:1", "first"), ("a.txt:2", "é" * 50), ("a.txt:3", "last")]
    assert [(record.document_id, record.text) for record in records] == (expected if ending else expected[:2])
    with pytest.raises(DataError, match="longer than 99 bytes"):
        list(read_records(Source(path, max_record_bytes=99)))


def test_txt_keeps_spaces_and_drops_blank_lines_and_the_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbf = Title = \r\n\r\n \t \none\x0btwo\x0cthree\n\nlast")
    assert list(read_records(Source(path))) == [
        Record("a.txt:1", None, " = Title = "),
        Record("a.txt:4", None, "one\x0btwo\x0cthree"),
        Record("a.txt:6", None, "last"),
    ]


def test_jsonl_skips_blank_lines_and_keeps_line_breaks_and_empty_texts(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"text": "one\\ntwo"}\n\n{"text": ""}\r\n')
    assert list(read_records(Source(path))) == [Record("a.jsonl:1", None, "one\ntwo"), Record("a.jsonl:3", None, "")]


def test_csv_lines_are_counted_over_quoted_line_breaks(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'\xef\xbb\xbftext,id\r\n"one\r\ntwo ""x""",1\r\n\r\nthree,2\r\n')
    assert list(read_records(Source(path))) == [
        Record("a.csv:2", None, 'one\r\ntwo "x"'),
        Record("a.csv:5", None, "three"),
    ]


def test_csv_leaves_the_modules_cap_as_it_was(tmp_path: Path) -> None:
    before = csv.field_size_limit()
    path = tmp_path / "a.csv"
    path.write_text(f"text\nfine\n{'x' * 200}\n")
    records = read_records(Source(path, max_record_bytes=100))
    next(records)
    assert csv.field_size_limit() == before
    with pytest.raises(DataError):
        next(records)
    assert csv.field_size_limit() == before


def test_parquet_reads_large_and_dictionary_strings_over_row_groups(tmp_path: Path) -> None:
    texts = [f"text {i % 7}" for i in range(1000)]
    for kind in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"text": pa.array(texts).cast(kind), "n": list(range(1000))})
        pq.write_table(table, tmp_path / "a.parquet", row_group_size=300)
        records = list(read_records(Source(tmp_path / "a.parquet", id_field="n")))
        assert [(r.document_id, r.text) for r in records] == [(str(i), text) for i, text in enumerate(texts)]


def test_arrow_reads_large_and_dictionary_strings_in_both_formats(tmp_path: Path) -> None:
    texts = [f"text {i % 7}" for i in range(1000)]
    for kind in (pa.string(), pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())):
        table = pa.table({"n": list(range(1000)), "text": pa.array(texts).cast(kind)})
        for new in (pa.ipc.new_stream, pa.ipc.new_file):
            with new(tmp_path / "a.arrow", table.schema) as writer:
                writer.write_table(table, max_chunksize=300)
            records = list(read_records(Source(tmp_path / "a.arrow", id_field="n")))
            assert [(r.document_id, r.text) for r in records] == [(str(i), text) for i, text in enumerate(texts)]


SAVED = Path(__file__).parent / "saved"
"""What `datasets` 5.2.0 has saved: four of five rows in two files."""


def test_a_folder_that_datasets_has_saved_is_read(tmp_path: Path) -> None:
    source = Source(SAVED, text_field="note", user_field="patient")
    assert [(record.document_id, record.user_id, record.text) for record in read_records(source)] == [
        ("data-00000-of-00002.arrow:1", "p0", "the note 0"),
        ("data-00000-of-00002.arrow:2", "p0", "the note 1"),
        ("data-00001-of-00002.arrow:1", "p1", "the note 2"),
        ("data-00001-of-00002.arrow:2", "p2", "the note 4"),
    ]
    assert field_names(source) == ["note", "patient", "talk", "label"]
    talks = [record.text for record in read_records(Source(SAVED, messages_field="talk"))]
    assert "ask 4" in talks[3]
    folder = tmp_path / "train"
    shutil.copytree(SAVED, folder)
    shutil.copy(folder / "data-00000-of-00002.arrow", folder / "data-left-over.arrow")
    assert len(list(read_records(Source(folder, text_field="note")))) == 4  # the files that it names, and no other
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train"]}')
    with pytest.raises(DataError, match="name the folder of one, such as"):
        read_records(Source(tmp_path, text_field="note"))


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ({"_data_files": [{"filename": "../secret.arrow"}]}, "not in this folder"),
        ({"_data_files": [{"filename": "absent.arrow"}]}, "not in this folder"),
        ({"_data_files": [{"name": SENTINEL}]}, "not in this folder"),
        ({"_data_files": []}, "not in this folder"),
        ({"_data_files": [{"filename": "a.arrow"}], "_indices_data_files": [{"filename": "i"}]}, "save it again"),
    ],
)
def test_a_saved_folder_is_what_its_state_says(tmp_path: Path, state: dict[str, object], says: str) -> None:
    folder = tmp_path / "saved"
    folder.mkdir()
    for place in (folder / "a.arrow", tmp_path / "secret.arrow"):
        place.write_bytes(arrow_bytes(S))
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match=says) as caught:
        read_records(Source(folder))
    assert SENTINEL not in str(caught.value)


def test_another_state_json_makes_no_saved_folder(tmp_path: Path) -> None:
    (tmp_path / "state.json").write_text('[{"text": "a record"}]')
    (tmp_path / "b.jsonl").write_bytes(GOOD_JSON)
    assert [record.text for record in read_records(Source(tmp_path))][-1] == "a record"
    assert len(list(read_records(Source(tmp_path, format="jsonl")))) == GOOD_JSON.count(b"\n")


ODD_COLUMNS: dict[str, pa.Array] = {
    "odd nanoseconds": pa.array([1_000_001], type=pa.timestamp("ns")),
    "a time zone that is not there": pa.array([1], type=pa.timestamp("s", tz="Mars/Phobos")),
    "a time after the last year": pa.array([2**60], type=pa.timestamp("ms")),
    "a long duration": pa.array([2**62], type=pa.duration("s")),
    "a time of day in nanoseconds": pa.array([1], type=pa.time64("ns")),
    "a struct with one name twice": pa.StructArray.from_arrays(
        [pa.array([SENTINEL]), pa.array(["b"])], names=["t", "t"]
    ),
}


@pytest.mark.parametrize("kind", ODD_COLUMNS)
def test_odd_parquet_is_one_line(tmp_path: Path, kind: str) -> None:
    """Of values that Python has no type for pyarrow raises almost anything, with the value in its words."""
    column = ODD_COLUMNS[kind]
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["fine"], "user": column}), path)
    with pytest.raises(DataError) as caught:
        list(read_records(Source(path, user_field="user")))
    assert str(caught.value).startswith(f"{path}, row 1: ")
    assert caught.value.__context__ is None
    assert [record.text for record in read_records(Source(path))] == ["fine"]


@pytest.mark.parametrize("kind", ODD_COLUMNS)
@pytest.mark.parametrize("as_list", [pa.list_, pa.large_list, lambda type_: pa.list_(type_, 2)])
def test_a_field_of_a_turn_that_nobody_asked_for_stops_nothing(
    tmp_path: Path, kind: str, as_list: Callable[[pa.DataType], pa.DataType]
) -> None:
    """The time of one turn decided whether there was a release, in a traceback that shows it."""
    column = pa.concat_arrays([ODD_COLUMNS[kind]] * 2)
    turns = pa.StructArray.from_arrays([pa.array(["Hello.", "Bye."]), column], names=["said", "when"])
    lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), turns).cast(as_list(turns.type))
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": lists}), path)
    source = Source(path, turns=Turns(text="said", speaker=None))
    assert [record.text for record in read_records(source)] == ["Hello.\nBye."]


@pytest.mark.parametrize("name", ["a.csv", "a.parquet"])
def test_of_two_columns_with_one_name_nobody_knows_who_the_person_is(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.csv":
        path.write_text("user,text,user,n,n\n1,a,2,3,4\n")
    else:
        names = ["user", "text", "user", "n", "n"]
        pq.write_table(pa.Table.from_arrays([pa.array([x]) for x in "1a234"], names=names), path)
    with pytest.raises(DataError, match=r"there are 2 columns 'user' \(user_field\); rename all but one"):
        list(read_records(Source(path, user_field="user")))
    assert [record.text for record in read_records(Source(path))] == ["a"]  # what is not read may be there twice


def test_conll_is_sentences_in_a_file_and_documents_in_a_directory(tmp_path: Path) -> None:
    content = "\n\nNo\tO\nfever\tB-problem\textra\n \nnor\tO\nrash\tB-problem\n\n"
    (tmp_path / "b.bio").write_text(content)
    assert list(read_records(Source(tmp_path / "b.bio"))) == [
        Record("b.bio:3", None, "No fever"),
        Record("b.bio:6", None, "nor rash"),
    ]
    (tmp_path / "a.conll").write_text("one\tO\n")
    assert list(read_records(Source(tmp_path))) == [
        Record("a.conll:1", None, "one"),
        Record("b.bio:1", None, "No fever nor rash"),
    ]
