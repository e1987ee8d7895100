"""One suite that every member of READERS must pass."""

from __future__ import annotations

import csv
import gzip
import json
import string
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tacit.config import CorpusOptions
from tacit.corpus.formats import READERS
from tacit.corpus.readers import read_records
from tacit.corpus.records import Record
from tacit.corpus.source import Source
from tacit.corpus.turns import Turns
from tacit.errors import DataError, UsageError

TEXTS = (
    "a plain line of text",
    "a plain line of text",  # the same text twice is two records
    'quotes " and, commas; {braces} [brackets] \\ back\\slash',
    "Zürich, 東京 and 🩺",
    "a NUL \x00 inside",
    "a line separator\u2028inside",
    "x",
)


def write_txt(path: Path, texts: Sequence[str]) -> None:
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def write_jsonl(path: Path, texts: Sequence[str]) -> None:
    rows = [{"id": i, "who": f"u{i % 2}", "text": text} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


def write_json(path: Path, texts: Sequence[str]) -> None:
    rows = [{"id": i, "who": f"u{i % 2}", "text": text} for i, text in enumerate(texts)]
    path.write_text(json.dumps(rows, ensure_ascii=False, indent=1), encoding="utf-8")


def write_csv(path: Path, texts: Sequence[str]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_ALL)
        writer.writerows([("id", "who", "text"), *((i, f"u{i % 2}", text) for i, text in enumerate(texts))])


def write_parquet(path: Path, texts: Sequence[str]) -> None:
    numbers = list(range(len(texts)))
    columns = {"id": pa.array(numbers, pa.int64()), "who": [f"u{i % 2}" for i in numbers], "text": list(texts)}
    pq.write_table(
        pa.table(columns, schema=pa.schema({"id": pa.int64(), "who": pa.string(), "text": pa.string()})), path
    )


def write_arrow(path: Path, texts: Sequence[str]) -> None:
    """As `datasets` does: a stream, here in batches of two rows."""
    rows = [{"id": i, "who": f"u{i % 2}", "text": text} for i, text in enumerate(texts)]
    table = pa.Table.from_pylist(rows, pa.schema({"id": pa.int64(), "who": pa.string(), "text": pa.string()}))
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


def write_conll(path: Path, texts: Sequence[str]) -> None:
    lines = ["".join(f"{token}\tO\n" for token in text.split(" ")) for text in texts]
    path.write_text("\n".join(lines), encoding="utf-8")


WRITERS: dict[str, Callable[[Path, Sequence[str]], None]] = {
    "txt": write_txt,
    "jsonl": write_jsonl,
    "json": write_json,
    "csv": write_csv,
    "parquet": write_parquet,
    "arrow": write_arrow,
    "conll": write_conll,
}
WITH_FIELDS = ("jsonl", "json", "csv", "parquet", "arrow")
WITH_TURNS = ("jsonl", "json", "parquet", "arrow")
ZIPPED = tuple(name for name in WRITERS if name not in ("parquet", "arrow"))

every_format = pytest.mark.parametrize("name", READERS)
every_zipped_format = pytest.mark.parametrize("name", ZIPPED)
every_format_with_fields = pytest.mark.parametrize("name", WITH_FIELDS)


def corpus(folder: Path, name: str, texts: Sequence[str] = TEXTS, stem: str = "corpus") -> Path:
    path = folder / f"{stem}.{name}"
    WRITERS[name](path, texts)
    return path


def zipped(path: Path) -> Path:
    target = path.with_name(f"{path.name}.gz")
    target.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return target


def texts_of(source: Source) -> list[str]:
    return [record.text for record in read_records(source)]


def test_every_member_has_a_writer() -> None:
    assert list(WRITERS) == list(READERS)


@every_format
def test_same_content_gives_the_same_texts(name: str, tmp_path: Path) -> None:
    assert texts_of(Source(corpus(tmp_path, name))) == list(TEXTS)


@every_format
@settings(max_examples=25, deadline=None)
@given(texts=st.lists(st.lists(st.text(string.printable[:94] + "é語🩺\x00", min_size=1), min_size=1), min_size=1))
def test_any_text_survives(name: str, texts: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> None:
    lines = [" ".join(tokens) for tokens in texts]
    assert texts_of(Source(corpus(tmp_path_factory.mktemp("any"), name, lines))) == lines


@every_zipped_format
def test_gzip_and_plain_agree(name: str, tmp_path: Path) -> None:
    path = corpus(tmp_path, name)
    plain = list(read_records(Source(path)))
    (tmp_path / "zipped").mkdir()
    path = zipped(corpus(tmp_path / "zipped", name))
    assert [(r.document_id.replace(".gz", ""), r.text) for r in read_records(Source(path))] == [
        (r.document_id, r.text) for r in plain
    ]


@every_format
def test_the_format_can_be_named_where_the_ending_says_nothing(name: str, tmp_path: Path) -> None:
    path = corpus(tmp_path, name).rename(tmp_path / "corpus.dat")
    assert texts_of(Source(path, format=name)) == list(TEXTS)


@every_format
def test_default_ids_are_file_and_line_and_distinct(name: str, tmp_path: Path) -> None:
    ids = [record.document_id for record in read_records(Source(corpus(tmp_path, name)))]
    lines = [int(document_id.removeprefix(f"corpus.{name}:")) for document_id in ids]
    assert lines == sorted(set(lines))
    assert lines[0] == (2 if name == "csv" else 1)  # line 1 of a CSV file is its header


@every_format
def test_limit_stops_after_that_many_records(name: str, tmp_path: Path) -> None:
    corpus(tmp_path, name, TEXTS[:4], "a")
    corpus(tmp_path, name, TEXTS[4:], "b")
    everything = list(read_records(Source(tmp_path)))
    for limit in range(1, len(everything) + 3):
        assert list(read_records(Source(tmp_path, limit=limit))) == everything[:limit]


@every_format
def test_a_directory_is_its_files_by_name(name: str, tmp_path: Path) -> None:
    corpus(tmp_path, name, TEXTS[4:], "b")
    corpus(tmp_path, name, TEXTS[:4], "a")
    (tmp_path / "README.md").write_text("not a record")
    (tmp_path / f".hidden.{name}").write_text("not a record")
    (tmp_path / f"folder.{name}").mkdir()
    joined = [" ".join(TEXTS[:4]), " ".join(TEXTS[4:])]
    assert texts_of(Source(tmp_path)) == (joined if name == "conll" else list(TEXTS))


@every_format
def test_a_named_format_keeps_the_other_files_of_a_directory_out(name: str, tmp_path: Path) -> None:
    for other in WRITERS:
        corpus(tmp_path, other, [f"from {other}"])
    assert texts_of(Source(tmp_path, format=name)) == [f"from {name}"]
    assert sorted(texts_of(Source(tmp_path))) == sorted(f"from {other}" for other in WRITERS)


@every_format
def test_no_record_at_all_is_an_error(name: str, tmp_path: Path) -> None:
    path = corpus(tmp_path, name, [])
    with pytest.raises(DataError, match="corpus is empty") as caught:
        list(read_records(Source(path)))
    assert str(path) in str(caught.value)


@every_format
def test_one_empty_file_among_others_is_not_an_error(name: str, tmp_path: Path) -> None:
    corpus(tmp_path, name, [], "a")
    corpus(tmp_path, name, ["here"], "b")
    assert texts_of(Source(tmp_path)) == ["here"]


@every_format
def test_cap_counts_bytes_and_names_its_option(name: str, tmp_path: Path) -> None:
    long = "é" * 500  # 1,000 bytes
    path = corpus(tmp_path, name, ["short", long])
    assert texts_of(Source(path, max_record_bytes=1100)) == ["short", long]
    records = read_records(Source(path, max_record_bytes=999))
    assert next(records).text == "short"
    with pytest.raises(DataError, match="longer than 999 bytes; split it, or raise max_record_bytes"):
        next(records)


@every_format
def test_a_record_larger_than_the_csv_modules_own_cap(name: str, tmp_path: Path) -> None:
    long = "word" * 100_000
    assert texts_of(Source(corpus(tmp_path, name, [long]))) == [long]


@pytest.mark.parametrize("name", ["txt", "jsonl", "json", "csv", "conll"])
@pytest.mark.parametrize("squeeze", [False, True], ids=["plain", "gzip"])
def test_an_endless_line_is_refused_before_it_fills_the_memory(name: str, squeeze: bool, tmp_path: Path) -> None:
    path = tmp_path / f"endless.{name}"
    path.write_bytes((b'[{"text": "' if name == "json" else b"") + b"a" * 20_000_000)
    path = zipped(path) if squeeze else path
    tracemalloc.start()
    with pytest.raises(DataError, match="max_record_bytes"):
        list(read_records(Source(path, max_record_bytes=1000)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_000_000


@pytest.mark.parametrize("name", ["txt", "jsonl", "json", "csv", "conll"])
def test_records_stream_before_the_file_is_read(name: str, tmp_path: Path) -> None:
    path = corpus(tmp_path, name)
    with path.open("ab") as file:
        file.write(b"\n\xff\xfe\n")
    records = read_records(Source(path))
    assert [next(records).text for _ in TEXTS] == list(TEXTS)
    with pytest.raises(DataError, match="no JSON array" if name == "json" else "UTF-8"):
        next(records)


@every_format_with_fields
def test_ids_and_users_come_from_their_fields_as_strings(name: str, tmp_path: Path) -> None:
    source = Source(corpus(tmp_path, name), id_field="id", user_field="who")
    expected = [Record(str(i), f"u{i % 2}", text) for i, text in enumerate(TEXTS)]
    assert list(read_records(source)) == expected


@every_format_with_fields
def test_one_field_may_serve_twice(name: str, tmp_path: Path) -> None:
    source = Source(corpus(tmp_path, name), id_field="who", user_field="who")
    assert {(r.document_id, r.user_id) for r in read_records(source)} == {("u0", "u0"), ("u1", "u1")}


@every_format_with_fields
def test_a_text_field_of_another_name(name: str, tmp_path: Path) -> None:
    assert texts_of(Source(corpus(tmp_path, name), text_field="who")) == [f"u{i % 2}" for i in range(len(TEXTS))]


@every_format_with_fields
@pytest.mark.parametrize("option", ["text_field", "id_field", "user_field"])
def test_a_missing_field_names_the_field_and_the_option(name: str, option: str, tmp_path: Path) -> None:
    path = corpus(tmp_path, name)
    with pytest.raises(DataError) as caught:
        list(read_records(Source(path, **{option: "absent"})))
    message = str(caught.value)
    assert message.startswith(str(path))
    assert "'absent'" in message
    assert f"option {option}" in message
    assert message.endswith("a field that is there: id, who, text")  # all records have these, so they are no one's text


def test_a_key_of_one_record_is_not_named(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"id": number, "who": "u"} for number in range(6)]
    path = tmp_path / "a.jsonl"
    for own in range(6):
        changed = [row | ({"secretname": 1} if number == own else {}) for number, row in enumerate(rows)]
        path.write_text("".join(json.dumps(row) + "\n" for row in changed))
        with pytest.raises(DataError) as caught:
            list(read_records(Source(path)))
        assert str(caught.value).endswith("a field that is there: id, who")
    path.write_text("".join(json.dumps(row | {"secretname": 1}) + "\n" for row in rows[:4]))  # too few to tell
    with pytest.raises(DataError) as caught:
        list(read_records(Source(path)))
    assert str(caught.value).endswith("to a field that is there")


@pytest.mark.parametrize("name", [name for name in READERS if name not in WITH_FIELDS])
@pytest.mark.parametrize("option", ["id_field", "user_field"])
def test_formats_without_fields_refuse_a_field(name: str, option: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"leave out the option {option}"):
        list(read_records(Source(corpus(tmp_path, name), **{option: "id"})))


# dialogues -----------------------------------------------------------------------------------------------------------

DIALOGUES = ([("U", "Hello."), ("S", "Zürich,\r\n 東京?")], [("U", "x")], [])
AS_LINES = ["USR: Hello.\nSYS: Zürich, 東京?", "USR: x", ""]


def dialogues(path: Path, name: str, objects: bool) -> Source:
    """The dialogues in a file, each turn as a list or as an object."""
    rows = [
        {"id": i, "turns": [{"who": who, "what": what} if objects else [who, what] for who, what in turns]}
        for i, turns in enumerate(DIALOGUES)
    ]
    path = path / f"dialogues.{name}"
    if name == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif name == "arrow":
        table = pa.Table.from_pylist(rows)
        with pa.ipc.new_stream(path, table.schema) as writer:
            writer.write_table(table)
    else:
        path.write_text(json.dumps(rows) if name == "json" else "".join(json.dumps(row) + "\n" for row in rows))
    return Source(path, text_field="turns", id_field="id", turns=Turns("what", "who") if objects else Turns())


@pytest.mark.parametrize("name", WITH_TURNS)
@pytest.mark.parametrize("objects", [False, True], ids=["lists", "objects"])
def test_a_list_of_turns_is_a_text_with_a_line_for_each(name: str, objects: bool, tmp_path: Path) -> None:
    records = list(read_records(dialogues(tmp_path, name, objects)))
    assert [(record.document_id, record.text) for record in records] == [
        (str(i), line) for i, line in enumerate(AS_LINES)
    ]


@pytest.mark.parametrize("name", [name for name in READERS if name not in WITH_TURNS])
def test_formats_without_lists_refuse_turns(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="leave out the option turns"):
        list(read_records(Source(corpus(tmp_path, name), turns=Turns())))


@pytest.mark.parametrize("name", WITH_TURNS)
def test_a_field_of_text_is_no_list_of_turns_and_the_other_way_round(name: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="leave out turns"):
        list(read_records(Source(corpus(tmp_path, name), turns=Turns())))
    source = dialogues(tmp_path, name, objects=False)
    with pytest.raises(DataError, match="or turns for a list of turns"):
        list(read_records(Source(source.path, text_field="turns")))


@every_format
def test_a_pattern_is_some_files_of_a_directory(name: str, tmp_path: Path) -> None:
    for stem in ("train-1", "train-2", "test-1"):
        corpus(tmp_path, name, [f"in {stem}"], stem)
    assert texts_of(Source(tmp_path / "train-*")) == ["in train-1", "in train-2"]
    assert texts_of(Source(tmp_path / f"*-1.{name}", format=name)) == ["in test-1", "in train-1"]
    with pytest.raises(DataError, match="there is no such file"):
        read_records(Source(tmp_path / "valid-*"))


def test_a_reader_of_this_file_needs_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is an option of the configuration and an ending; without the line both are refused."""

    def shouted(path: Path, source: Source) -> Iterator[Record]:
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            yield Record(f"{path.name}:{number}", None, line.upper())

    path = tmp_path / "corpus.shout"
    path.write_text("one\ntwo\n")
    with pytest.raises(pydantic.ValidationError, match=r"Input should be 'auto', 'chat', 'txt', .*'arrow' or 'conll'"):
        CorpusOptions(path=str(path), format="shout")
    with pytest.raises(DataError, match="this ending is not known"):
        read_records(Source(path))
    monkeypatch.setitem(READERS, "shout", shouted)
    options = CorpusOptions(path=str(path), format="shout")
    assert texts_of(Source(options.resolved_path, options.format)) == ["ONE", "TWO"]
    assert texts_of(Source(path)) == ["ONE", "TWO"]
