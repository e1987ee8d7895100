"""On Spark a corpus is the same as on one machine: units, held-out sides, fingerprint, counts of words, rows of token ids."""

from __future__ import annotations

import base64
import dataclasses
import gzip
import json
import random
from pathlib import Path

import numpy as np
import pytest

from tacit.corpus.places import place
from tacit.corpus.readers import read_records
from tacit.corpus.records import Record
from tacit.corpus.source import Source
from tacit.corpus.unit_store import UnitStore, open_units
from tacit.corpus.unit_writing import Part, write_units
from tacit.corpus.units import Unit, UnitKind, is_held_out
from tacit.errors import DataError
from tacit.randomness import KeyedRandomness
from tacit.screening.corpus import ScreenPlan, screen_corpus
from tacit.spark import runner
from tacit.spark.corpus import CorpusPart, SparkCorpus
from tacit.spark.screening import SparkScreening
from tacit.spark.units import RecordCorpus
from tacit.training.sequences import SequenceStream
from tacit.training.tokenising import Tokenising
from tacit.vocabulary.count import ContributionBound, sorted_word_counts
from tacit.vocabulary.special import OWN_NAMES
from tacit.vocabulary.tally import Spill, spill_folder
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, build_tokenizer

from ..object_store import open_store
from .conftest import Opened

KEY = bytes(range(32))
STREAMS = KeyedRandomness(KEY)
OPTIONS = TokenizerOptions()
SENTINEL = "zqsentinelword"
HELD_OUT = 0.2


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    """Notes in three files, one of them zipped in a sub-folder, whose documents and users are spread over all of them."""
    folder, rng = tmp_path_factory.mktemp("notes"), random.Random(0)
    (folder / "day=2").mkdir()
    words = [f"{SENTINEL}{number}" for number in range(40)] + ["naïve", "10²", "ﬁn", "x" * 200, "😀"]
    ids = ["a", "a!", "a#", "a#0", "é", "b" * 50, *(f"d{number}" for number in range(40))]
    for number in range(3):
        lines = [
            {"id": rng.choice(ids), "user": f"u{rng.randrange(30)}é", "text": " ".join(rng.choices(words, k=12))}
            for _ in range(60)
        ]
        content = "".join(json.dumps(line) + "\n" for line in lines).encode()
        zipped = number == 1
        name = folder / ("day=2" if zipped else "") / (f"notes-{number}.jsonl" + ".gz" * zipped)
        name.write_bytes(gzip.compress(content) if zipped else content)
    return Source(folder, id_field="id", user_field="user")


def here(folder: Path, source: Source, kind: UnitKind, prefix: str = "") -> UnitStore:
    write_units(folder, [Part(read_records(source), kind, prefix)], _is_held_out, STREAMS)
    return open_units(folder)


def _is_held_out(unit_id: str) -> bool:
    return is_held_out(unit_id, HELD_OUT, STREAMS)


def there(spark: Opened, folder: Path, part: CorpusPart) -> tuple[SparkCorpus, UnitStore]:
    corpus = SparkCorpus(lambda: spark.runner, [part], HELD_OUT, STREAMS)
    corpus.write(folder)
    corpus.bind(folder)
    return corpus, open_units(folder)


def folders(tmp_path: Path) -> tuple[Path, Path]:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    return tmp_path / "here", tmp_path / "there"


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that comes from Spark is cut into pieces, as parts of more than 16 MiB are."""
    monkeypatch.setattr(runner, "_BLOBS_AT_ONCE", 1)


@pytest.mark.slow
@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("kind", [UnitKind("user"), UnitKind("record"), UnitKind("tuple", 7)])
def test_units_and_counts_are_those_of_one_machine(spark: Opened, source: Source, tmp_path: Path, kind: UnitKind):
    own, other = folders(tmp_path)
    expected = here(own, source, kind, "p:")
    corpus, found = there(spark, other, CorpusPart(source, kind, "p:"))
    assert found.fingerprint == expected.fingerprint
    assert list(found.training) == list(expected.training)
    assert list(found.held_out) == list(expected.held_out)
    assert len(found.held_out) > 0
    behind = [Unit("planted", (f"{SENTINEL}1 and neverseen",))]
    for bound in (ContributionBound(5, STREAMS), ContributionBound(9, STREAMS, 1 << 16, frozenset(["naive", "and"]))):
        units = [*expected.training, *behind]
        with spill_folder(tmp_path / "spill") as place:
            one = sorted_word_counts(
                ((unit.unit_id, unit.texts) for unit in units), bound, OPTIONS, Spill(place, 64), ids_differ=True
            )
            wanted = list(one)
        with spill_folder(tmp_path / "spill") as place:
            counted = corpus.counts(bound, OPTIONS, behind, Spill(place, 64))
            assert list(counted) == wanted
            assert len(counted) == len(wanted)


@pytest.mark.slow
def test_a_record_without_a_unit_is_a_record(spark: Opened, tmp_path: Path):
    """One tuple more or less must not decide whether there is a corpus. 29th attack, TACIT-49."""
    path = tmp_path / "notes.jsonl"
    own, other = folders(tmp_path)
    path.write_text('{"text": " "}\n')
    part = CorpusPart(Source(path), UnitKind("tuple", 7))
    expected, (corpus, found) = here(own, part.source, part.kind, part.prefix), there(spark, other, part)
    assert found.fingerprint == expected.fingerprint
    assert (list(found.training), list(found.held_out)) == ([], [])
    with spill_folder(tmp_path / "spill") as place:
        assert list(corpus.counts(ContributionBound(5, STREAMS), OPTIONS, [], Spill(place, 64))) == []
    path.write_text("")
    with pytest.raises(DataError, match="there is no record"):
        there(spark, other, part)


@pytest.mark.slow
@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("is_chat", [False, True])
def test_rows_are_those_of_one_machine(spark: Opened, source: Source, tmp_path: Path, is_chat: bool):
    _, other = folders(tmp_path)
    corpus, store = there(spark, other, CorpusPart(source, UnitKind("user"), is_chat=is_chat, times=2))
    tokenizer = build_tokenizer([*SPECIAL_TOKENS, SENTINEL, "na", "##ive", *map(str, range(10))], OPTIONS)
    how = Tokenising(tokenizer.to_str(), OWN_NAMES, 16, STREAMS, ("{{ messages }}", "a test"), is_chat)
    for held_out, units in ((False, store.training), (True, store.held_out)):
        copies = [copy for unit in units for copy in (unit, Unit(f"{unit.unit_id}:copy 2", unit.texts))]
        expected = how.rows(copies, [is_chat] * len(copies))
        found = joined(list(corpus.rows(how, held_out=held_out)))
        assert found.keys_U == expected.keys_U
        for name in ("ids_ST", "lengths_S", "starts_U1", "counted_ST"):
            assert np.array_equal(getattr(found, name), getattr(expected, name)), name
        assert (found.counted_ST is not None) is is_chat


def joined(parts: list[SequenceStream]) -> SequenceStream:
    starts, rows = [np.zeros(1, np.int64)], 0
    for part in parts:
        starts.append(np.asarray(part.starts_U1)[1:] + rows)
        rows += part.sequences
    counted = [np.asarray(part.counted_ST) for part in parts if part.counted_ST is not None]
    return SequenceStream(
        np.concatenate([np.asarray(part.ids_ST) for part in parts]),
        np.concatenate([np.asarray(part.lengths_S) for part in parts]),
        np.concatenate(starts),
        tuple(key for part in parts for key in part.keys_U),
        counted_ST=np.concatenate(counted) if counted else None,
    )


@pytest.mark.parametrize("limit", [60, 61, 130])
def test_a_limit_counts_records_over_all_files(spark: Opened, source: Source, limit: int):
    limited = dataclasses.replace(source, limit=limit, id_field=None)  # ids are the files' paths and the lines
    assert list(RecordCorpus(spark.runner, limited)) == list(read_records(limited))


def test_tasks_read_an_object_store(
    spark: Opened, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert isinstance(source.path, Path)
    with open_store(source.path, monkeypatch) as store:
        there_too = dataclasses.replace(source, path=place(store.uri("")))
        assert list(RecordCorpus(spark.runner, there_too)) == list(read_records(source))
        assert sorted(set(store.fetched)) == ["day=2/notes-1.jsonl.gz", "notes-0.jsonl", "notes-2.jsonl"]


@pytest.mark.slow
def test_a_malformed_record_and_an_empty_corpus_are_refused_in_the_same_words(spark: Opened, tmp_path: Path):
    bad = tmp_path / "bad.jsonl"
    bad.write_text(json.dumps({"text": "fine"}) + f'\n{{"text": "{SENTINEL}\n')
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    for path in (bad, empty):
        with pytest.raises(DataError) as expected:
            list(read_records(Source(path)))
        with pytest.raises(DataError) as found:
            list(RecordCorpus(spark.runner, Source(path)))
        assert str(found.value) == str(expected.value)
        (folder := tmp_path / f"{path.stem} store").mkdir()
        with pytest.raises(DataError) as stored:
            SparkCorpus(lambda: spark.runner, [CorpusPart(Source(path), UnitKind("record"))], 0.0, STREAMS).write(
                folder
            )
        assert str(stored.value) == str(expected.value)


@pytest.mark.slow
def test_what_is_computed_later_of_other_text_is_refused(spark: Opened, tmp_path: Path):
    _, other = folders(tmp_path)
    path = tmp_path / "notes.jsonl"
    notes = [{"id": f"d{number}", "text": f"note {number}"} for number in range(20)]
    path.write_text("".join(json.dumps(note) + "\n" for note in notes))
    part = CorpusPart(Source(path, id_field="id"), UnitKind("document"))
    there(spark, other, part)
    notes[7]["text"] = "note x"  # one unit is another one: the machines do not see one file, or somebody wrote
    path.write_text("".join(json.dumps(note) + "\n" for note in notes))
    corpus = SparkCorpus(lambda: spark.runner, [part], HELD_OUT, STREAMS)
    corpus.bind(other)
    how = Tokenising(
        build_tokenizer([*SPECIAL_TOKENS, "note"], OPTIONS).to_str(), OWN_NAMES, 16, STREAMS, ("", "a test"), False
    )
    with spill_folder(tmp_path / "spill") as place, pytest.raises(DataError, match="not the one that this run began"):
        corpus.counts(ContributionBound(5, STREAMS), OPTIONS, [], Spill(place, 64))
    with pytest.raises(DataError, match="not the one that this run began"):
        list(corpus.rows(how, held_out=_is_held_out("d7")))


@pytest.mark.slow
def test_neither_text_nor_key_is_in_event_logs_or_plans(spark: Opened, source: Source, tmp_path: Path):
    _, other = folders(tmp_path)
    part = CorpusPart(source, UnitKind("user"))
    corpus, _ = there(spark, other, part)
    with spill_folder(tmp_path / "spill") as place:
        corpus.counts(ContributionBound(5, STREAMS), OPTIONS, [Unit("planted", (SENTINEL,))], Spill(place, 64))
    tokenizer = build_tokenizer([*SPECIAL_TOKENS, SENTINEL], OPTIONS)
    how = Tokenising(tokenizer.to_str(), OWN_NAMES, 16, STREAMS, ("", "a test"), False)
    assert list(corpus.rows(how, held_out=False))
    plan = ScreenPlan("line", held_out=0.1, missed=0.3, deduplicate="exact")
    screening = SparkScreening(spark.runner, source, [Record("planted", None, SENTINEL)], plan, STREAMS)
    receipt = screen_corpus(screening.records, plan, tmp_path / "screened", STREAMS, needed=(), elsewhere=screening)
    assert receipt.counts.duplicates > 0
    logs = b"".join(path.read_bytes() for path in spark.logs.rglob("*") if path.is_file())
    assert b"MapInArrow" in logs  # the jobs are there
    for private in (SENTINEL.encode(), KEY, KEY.hex().encode(), base64.b64encode(KEY)):
        assert private not in logs
    assert str(source.path).encode() not in logs
