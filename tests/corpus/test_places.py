"""Corpora in an object store are read as files here are: by pyarrow's own client, from a store of S3's protocol on this machine."""

from __future__ import annotations

import gzip
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tacit.config import parse_config
from tacit.corpus.places import RemotePath, files_below, place
from tacit.corpus.readers import field_names, read_records
from tacit.corpus.records import Record
from tacit.corpus.source import Source, files_of
from tacit.errors import DataError, RefusedError, UsageError
from tacit.pipeline.stores import look_of
from tacit.planning.origins import provenance_of
from tacit.privacy.ledger import Ledger

from ..keys import begin_with_key
from ..object_store import ObjectStore, open_store
from ..small import SENTINEL, small_values, tacit, write_config, write_corpora
from .test_readers_contract import TEXTS, WRITERS

SAVED = Path(__file__).parent / "saved"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    folder = tmp_path / "stored"
    folder.mkdir()
    with open_store(folder, monkeypatch) as found:
        yield found


def records(where: Path | str, **options: object) -> list[Record]:
    return list(read_records(Source(place(where), **options)))  # pyright: ignore[reportArgumentType]


# reading -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", WRITERS)
def test_every_format_is_read_as_from_a_file(store: ObjectStore, format_: str) -> None:
    path = store.folder / "a folder" / f"é 1.{format_}"
    path.parent.mkdir()
    WRITERS[format_](path, TEXTS[:4])
    local = records(path)
    assert len(local) == 4
    assert records(store.uri("a folder/é 1." + format_)) == local
    assert records(store.uri("a folder")) == records(path.parent)
    assert field_names(Source(place(store.uri(f"a folder/é 1.{format_}")))) == field_names(Source(path))
    assert set(store.fetched) == {f"a folder/é 1.{format_}"}


def test_a_packed_file_is_unpacked(store: ObjectStore) -> None:
    with gzip.open(store.folder / "notes.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": text}) + "\n" for text in TEXTS)
    assert [record.text for record in records(store.uri("notes.jsonl.gz"))] == list(TEXTS)


def test_a_folder_and_a_pattern_are_the_files_that_they_are_here(store: ObjectStore) -> None:
    for name in ("b.txt", "a1.txt", "a2.txt", ".hidden.txt", "a3.pdf", "within/c.txt"):
        (store.folder / name).parent.mkdir(exist_ok=True)
        (store.folder / name).write_text(f"{name}\n")
    assert records(store.uri("")) == records(store.folder)
    assert [record.text for record in records(store.uri("a*.txt"))] == ["a1.txt", "a2.txt"]
    assert [record.document_id for record in records(store.uri("within"))] == ["c.txt:1"]
    assert files_below(RemotePath(store.uri("none"))) == []


TABLE = {
    "date=2026-02-01/part-0.csv": "second",
    "date=2026-01-31/part-0.csv": "first",
    "date=2026-01-31/late/part-0.csv": "before it by its path",
    "part-9.csv": "last",
    "date=2026-02-01/_temporary/0/part-0.csv": "not ended",
    "date=2026-02-01/.part-0.csv.crc": "a sum",
    ".staging/part-0.csv": "hidden",
    "_SUCCESS": "",
}
"""As Spark writes a table in parts, and what it leaves beside them while it writes."""


READ = ["before it by its path", "first", "second", "last"]


def write_table(folder: Path) -> None:
    for name, text in TABLE.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"text\n{text}\n")


def test_sub_folders_are_read_and_their_files_have_names_of_their_own(store: ObjectStore) -> None:
    """Known-wrong: ids by the name alone, under which the three files of one name would be one document a line."""
    write_table(store.folder / "table")
    found = records(store.folder / "table")
    assert [record.text for record in found] == READ
    assert [record.document_id for record in found] == [
        "date=2026-01-31/late/part-0.csv:2",
        "date=2026-01-31/part-0.csv:2",
        "date=2026-02-01/part-0.csv:2",
        "part-9.csv:2",
    ]
    assert records(store.uri("table")) == records(store.folder / "table")
    assert records(store.uri("table/")) == records(store.folder / "table")
    assert [record.document_id for record in records(store.folder / "table" / "date=2026-02-01")] == ["part-0.csv:2"]


def test_a_link_to_a_folder_is_not_followed(tmp_path: Path) -> None:
    write_table(tmp_path / "table")
    expected = records(tmp_path / "table")
    (tmp_path / "table" / "again").symlink_to(tmp_path / "table", target_is_directory=True)
    assert records(tmp_path / "table") == expected


@pytest.mark.parametrize("place_of_run", ["", "runs/a/"])
def test_a_run_reads_none_of_its_own_files(tmp_path: Path, place_of_run: str) -> None:
    """Known-wrong: a run that goes on has another corpus than it began with, since its own folder lies in it."""
    write_table(tmp_path)
    for name in ("private/screened/private.csv", "release/words.csv"):
        (tmp_path / place_of_run / name).parent.mkdir(parents=True)
        (tmp_path / place_of_run / name).write_text("text\nof a run\n")
    (tmp_path / place_of_run / "ledger.sqlite").symlink_to(
        "/nowhere/ledger.sqlite"
    )  # as while a run works on a shared folder
    assert [record.text for record in records(tmp_path)] == READ[-1:] if place_of_run == "" else READ


@pytest.mark.parametrize(
    "log",
    [
        "_delta_log/00000000000000000000.json",
        "metadata/snap-1.avro",
        ".hoodie/hoodie.properties",
        "visits/_delta_log/00000000000000000000.json",
    ],
)
def test_a_table_whose_files_hold_deleted_rows_is_refused(store: ObjectStore, log: str) -> None:
    write_table(store.folder / "table")
    (store.folder / "table" / log).parent.mkdir(parents=True)
    (store.folder / "table" / log).write_text("{}")
    for where in (store.folder / "table", store.uri("table")):
        with pytest.raises(DataError, match="rows that were deleted or replaced") as told:
            records(where)
        assert ("table/visits" in str(told.value)) == log.startswith("visits")


def test_no_document_is_taken_for_a_table_by_its_name(tmp_path: Path) -> None:
    """Known-wrong: Iceberg's ``v1.metadata.json``, as one unit's document may be called, ends the run of all."""
    write_table(tmp_path)
    (tmp_path / "metadata").mkdir()
    (tmp_path / "metadata" / "v1.metadata.json").write_text('[{"text": "of one unit"}]')
    assert [record.text for record in records(tmp_path)] == [*READ[:3], "of one unit", READ[3]]


def test_a_folder_that_cannot_be_listed_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_table(tmp_path)

    def refused(folder: str) -> Iterator[object]:
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr("os.scandir", refused)  # root, who runs tests in a container, may list everything
    with pytest.raises(DataError, match="cannot be listed; check who may read it"):
        records(tmp_path)


def test_a_dataset_that_is_saved_in_a_sub_folder_is_read_by_what_it_names(store: ObjectStore) -> None:
    shutil.copytree(SAVED, store.folder / "all" / "2026")
    (store.folder / "all" / "2026" / "data-00002-of-00002.arrow").write_text("of another dataset")
    (store.folder / "all" / "more.jsonl").write_text('{"note": "one more"}\n')
    expected = [*(record.text for record in records(SAVED, text_field="note")), "one more"]
    for where in (store.folder / "all", store.uri("all")):
        assert [record.text for record in records(where, text_field="note")] == expected


def test_a_saved_dataset_is_read_by_what_it_names(store: ObjectStore) -> None:
    shutil.copytree(SAVED, store.folder / "saved")
    (store.folder / "saved" / "data-00002-of-00002.arrow").write_text("of another dataset")
    assert records(store.uri("saved"), text_field="note") == records(SAVED, text_field="note")
    (store.folder / "saved" / "data-00000-of-00002.arrow").unlink()
    with pytest.raises(DataError, match="names files that are not in this folder"):
        records(store.uri("saved"), text_field="note")


def test_what_is_read_of_a_large_file_is_no_more_than_is_asked_for(store: ObjectStore) -> None:
    (store.folder / "notes.txt").write_text("a line of a note\n" * 200_000)
    assert len(records(store.uri("notes.txt"), limit=5)) == 5


def test_another_file_under_the_same_name_is_another_look(store: ObjectStore) -> None:
    path = store.folder / "notes.txt"
    path.write_text("one\n")
    source = Source(place(store.uri("notes.txt")))
    before = look_of(source)
    assert look_of(source) == before
    path.write_text("other\n")
    assert look_of(source) != before


# mistakes ----------------------------------------------------------------------------------------------------------------


def test_what_is_not_there_is_told_in_one_line(store: ObjectStore) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        records(store.uri("none.txt"))
    (store.folder / "notes.txt").write_text("one\n")
    with pytest.raises(DataError, match="no file there has one of the endings"):
        files_of(Source(place(store.uri("")), format="csv"))


def test_a_damaged_file_is_told_without_its_text(store: ObjectStore) -> None:
    (store.folder / "notes.parquet").write_text(SENTINEL)
    with pytest.raises(DataError, match=r"notes\.parquet.*not a readable Parquet") as told:
        records(store.uri("notes.parquet"))
    assert SENTINEL not in repr(told.value)
    assert told.value.__context__ is None


@pytest.mark.slow
def test_a_store_that_does_not_answer_is_told_in_one_line(store: ObjectStore) -> None:
    refusing = ObjectStore(store.folder, port=1)
    with pytest.raises(DataError, match="the store does not answer"):
        records(refusing.uri("notes.txt"))


@pytest.mark.parametrize(
    "address",
    [
        "s3://key:secret@notes/a.txt",
        "s3://key@notes/a.txt",
        "gs://someone:secret@notes/a.txt",
        "abfss://container:secret@account.dfs.core.windows.net/a.txt",
        "hdfs://someone:secret@host/a.txt",
        "abfss://container@account.dfs.core.windows.net/a.txt?tenant_id=t&client_secret=secret",
        "abfss://container@account.dfs.core.windows.net/a.txt?sv=2026&sig=secret",
        "https://host/a.txt",
        "file://host/a.txt",
    ],
)
def test_addresses_with_a_secret_or_of_no_store_are_refused_without_quoting_it(address: str) -> None:
    with pytest.raises(UsageError) as told:
        place(address)
    assert "secret@" not in str(told.value)
    assert "=secret" not in str(told.value)


def test_what_is_no_address_is_a_path() -> None:
    assert place("file:///a%20b/c.txt") == Path("/a b/c.txt")
    assert place("notes/s3:/a.txt") == Path("notes/s3:/a.txt")
    assert place(Path("s3://notes/a")) == Path("s3:/notes/a")
    assert place("C://notes/a.txt") == Path("C://notes/a.txt")


# runs ----------------------------------------------------------------------------------------------------------------------


def in_store(values: dict, store: ObjectStore) -> dict:
    """The same run with both corpora in the store."""
    for corpus in (values["private"], *values["public"]):
        corpus["path"] = store.uri(Path(corpus["path"]).name)
    return values


@pytest.mark.slow
def test_a_run_reads_both_corpora_there_and_binds_the_same_text(store: ObjectStore, tmp_path: Path) -> None:
    write_corpora(store.folder, patients=60, records=200)
    local = small_values(store.folder, run=str(tmp_path / "local"))
    remote = in_store(small_values(store.folder, run=str(tmp_path / "remote")), store)
    bound = []
    for name, values in (("local", local), ("remote", remote)):
        begin_with_key(values, bytes(range(32)))
        done = tacit("run", write_config(tmp_path / f"{name}.yaml", values))
        assert done.returncode == 0, done.stderr
        assert tacit("verify", tmp_path / name).returncode == 0
        assert SENTINEL not in done.stdout + done.stderr
        with Ledger.open(tmp_path / name / "ledger.sqlite", readonly=True) as ledger:
            bound.append({row.body["name"]: row.body["value"] for row in ledger.rows if row.kind == "bind"})
    assert {"notes.jsonl", "public.jsonl"} <= set(store.fetched)
    assert bound[0]["the private corpus"] == bound[1]["the private corpus"]
    assert b"s3://" not in b"".join(path.read_bytes() for path in (tmp_path / "remote" / "release").rglob("*.*"))


def test_one_object_cannot_be_private_and_public(store: ObjectStore) -> None:
    write_corpora(store.folder, patients=20, records=100)
    values = in_store(small_values(store.folder), store)
    assert provenance_of(parse_config(values)).given[0].role == "public corpus 1"
    twin = values["private"]["path"].replace("s3://notes/", "s3a://notes//")
    with pytest.raises(UsageError, match="is the private corpus"):
        provenance_of(parse_config({**values, "public": [{"path": twin}]}))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://notes/a/n.txt", "s3a://notes//a/n.txt?region=us-east-1"),
        ("gs://notes/n.txt", "gcs://anonymous@notes/%6e.txt"),
        ("abfs://acc.blob.core.windows.net/c/a/n.txt", "abfss://c@acc.dfs.core.windows.net/a/n.txt"),
        ("abfs://acc@c/a/n.txt", "abfss://c@acc.dfs.core.windows.net/a/n.txt"),
        ("abfs://acc@127.0.0.1:10000/c/a/n.txt", "abfs://acc@c/a/n.txt"),
        ("hdfs://host/a/n.txt", "hdfs://someone@host:8020/b/../a/n.txt"),
        ("hdfs:///a/n.txt", "hdfs://host/a/n.txt"),
    ],
)
def test_one_place_is_one_however_its_address_is_written(one: str, other: str) -> None:
    assert RemotePath(one).identity == RemotePath(other).identity
    assert RemotePath(one).identity != RemotePath(one.replace("n.txt", "m.txt")).identity


@pytest.mark.parametrize("mark", ["certificate.json", "ledger.sqlite", "public/2026/certificate.json"])
def test_a_public_corpus_inside_a_run_or_around_it_is_refused(store: ObjectStore, mark: str) -> None:
    write_corpora(store.folder, patients=20, records=100)
    values = in_store(small_values(store.folder), store)
    if mark.startswith("public/"):
        shutil.copytree(store.folder, store.folder / "public")
        values["public"] = [{"path": store.uri("public")}]
    (store.folder / mark).parent.mkdir(exist_ok=True)
    (store.folder / mark).write_text("{}")
    with pytest.raises(RefusedError, match="lies in a run or a release"):
        provenance_of(parse_config(values))


@pytest.mark.parametrize("section", ["run", "model", "vocabulary"])
def test_nothing_but_a_corpus_may_lie_there(tmp_path: Path, section: str) -> None:
    write_corpora(tmp_path, patients=20, records=100)
    values = small_values(tmp_path)
    values |= {
        "run": {"run": "s3://notes/run"},
        "model": {"model": {"folder": "s3://notes/model", "length": 24}},
        "vocabulary": {"vocabulary": {"max_words": 16, "size": 500, "public_words": ["s3://notes/words.txt"]}},
    }[section]
    done = tacit("run", write_config(tmp_path / "run.yaml", values))
    assert done.returncode == 2
    assert "only private and public corpora may lie in an object store" in done.stderr
