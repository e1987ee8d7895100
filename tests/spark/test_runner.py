"""The three operations, against loops over lists; and what comes back of a task that fails."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkConf
from pyspark.sql import DataFrame
from pyspark.sql.functions import spark_partition_id

import tacit.spark.runner as module
from tacit.errors import DataError, UsageError
from tacit.spark.runner import Runner, Shared
from tacit.spark.session import open_session, refuse_limit, refuse_unencrypted
from tacit.version import installed

from .conftest import Opened

Row = tuple[bytes, int]
SECRET = "zqsecret"


@dataclass(frozen=True)
class Given:
    """Rows of parts, as a table."""

    rows: Shared[list[list[Row]]]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for part in batch["id"].to_pylist():
                keys, values = zip(*self.rows.get()[part], strict=True)
                yield pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary()), "value": pa.array(values)})


def table(runner: Runner, parts: list[list[Row]]) -> DataFrame:
    return runner.map_batches(runner.numbers(len(parts)), Given(runner.share(parts)), "key binary, value long")


def rows_of(runner: Runner, found: DataFrame) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for batch in runner.batches(found) for row in batch.to_pylist()]


def parted(rows: list[Row], parts: int, seed: int) -> list[list[Row]]:
    """The rows in some order, in some parts, none of them empty."""
    rows = random.Random(seed).sample(rows, len(rows))
    return [rows[start::parts] for start in range(parts)]


# Two bytes, and lone surrogates, whose order as characters is another one than as bytes would be if they were signed.
KEYS = [key.encode("utf-8", "surrogatepass") for key in ("", "A", "a", "a!", "a#", "é", "\ud800", "\uffff", "😀", "zz")]
ROWS = [(key, 100 * place + number) for place, key in enumerate(KEYS) for number in range(place + 1)]


@pytest.mark.slow
@pytest.mark.parametrize("parts", [1, 4])
def test_sums_and_firsts_are_those_of_a_loop_whatever_the_parts(spark: Opened, parts: int):
    runner = spark.runner
    sums: Counter[bytes] = Counter()
    for key, value in ROWS:
        sums[key] += value
    given = table(runner, parted(ROWS, parts, seed=parts))
    assert rows_of(runner, runner.sum_by_key(given)) == sorted(sums.items())
    firsts = {key: min(value for other, value in ROWS if other == key) for key in KEYS}
    found = rows_of(runner, runner.first_by_key(given, ["key"], ["value"]))
    assert sorted(found) == sorted((key, value, value == firsts[key]) for key, value in ROWS)
    by_key = rows_of(runner, runner.by_key(given, "key", ["value"]))
    behind_each_other = [key for place, (key, _) in enumerate(by_key) if place == 0 or by_key[place - 1][0] != key]
    assert sorted(behind_each_other) == sorted(KEYS)  # a key that comes in two runs would be there twice
    assert [value for key, value in by_key if key == b"zz"] == sorted(value for key, value in ROWS if key == b"zz")


def test_the_order_of_parts_and_rows_is_kept(spark: Opened):
    parts = parted(ROWS, 4, seed=1)
    assert rows_of(spark.runner, table(spark.runner, parts)) == [row for part in parts for row in part]


@dataclass(frozen=True)
class Batches:
    """Of each part so many rows of a blob each, with a number that goes on."""

    counts: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for part in (number for batch in batches for number in batch["id"].to_pylist()):
            first = sum(self.counts[:part])
            for number in range(first, first + self.counts[part]):
                yield pa.RecordBatch.from_pydict({"number": [number], "text": [bytes(module._BLOB_BYTES)]})


@pytest.mark.parametrize("at_once", [1, 3, 16])
def test_a_large_part_comes_in_pieces_and_in_order(spark: Opened, monkeypatch: pytest.MonkeyPatch, at_once: int):
    """Spark hands over a part as a whole: one of 250 MB got lost on its way to a driver of 3 GB, and the run ended."""
    monkeypatch.setattr(module, "_BLOBS_AT_ONCE", at_once)
    runner, counts = spark.runner, (1, 8, 0, 2)
    made = runner.map_batches(runner.numbers(len(counts)), Batches(counts), "number long, text binary")
    sizes: list[int] = []

    def in_pieces(numbered: DataFrame, blobs: int) -> DataFrame:
        found = whole(numbered, blobs)
        sizes.extend(row["count"] for row in found.groupBy(spark_partition_id()).count().collect())
        return found

    whole = module._in_pieces
    monkeypatch.setattr(module, "_in_pieces", in_pieces)
    assert [number for batch in runner.batches(made) for number in batch["number"].to_pylist()] == list(range(11))
    assert sum(sizes) == 11
    assert max(sizes) <= at_once


def test_what_has_come_is_let_go_of(spark: Opened, monkeypatch: pytest.MonkeyPatch):
    """Spark keeps what the jobs of a query have given until the query ends: 2,000 MB of text ended a run with 3 GB of memory."""
    monkeypatch.setattr(module, "_BLOBS_AT_ONCE", 1)
    runner, blobs = spark.runner, 32
    java: Any = runner.numbers(1).sparkSession.sparkContext._jvm

    def used() -> int:
        java.System.gc()
        memory = java.Runtime.getRuntime()
        return memory.totalMemory() - memory.freeMemory()

    made = runner.map_batches(runner.numbers(1), Batches((blobs,)), "number long, text binary")
    found = [used() for _ in runner.batches(made)]
    assert len(found) == blobs
    assert min(found[-8:]) - min(found[:8]) < blobs * module._BLOB_BYTES / 3  # three quarters of them, if they are kept


def test_pieces_are_in_the_order_of_their_numbers(spark: Opened, monkeypatch: pytest.MonkeyPatch):
    """On a cluster the rows of a piece come together as they arrive; here they are given backwards."""
    monkeypatch.setattr(module, "_BLOBS_AT_ONCE", 3)
    backwards = spark.runner.numbers(4).repartition(1).crossJoin(spark.runner.numbers(5))
    numbered = backwards.toDF("part", "row").selectExpr("19 - (5 * part + row) as at")
    found = module._in_pieces(numbered.repartition(2), 20)
    assert [row["at"] for row in found.toLocalIterator()] == list(range(20))


@dataclass(frozen=True)
class Fails:
    """A function that fails as it is told, with private text in its hands."""

    how: str

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            text = f"{SECRET} {batch.num_rows}"
            try:
                int(text)
            except ValueError as error:
                if self.how == "ours":
                    raise DataError("notes.jsonl, line 7: this is no JSON; repair the line") from None
                if self.how == "chained":
                    raise KeyError(text) from error
                raise
            yield batch


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("ours", "notes.jsonl, line 7: this is no JSON; repair the line"),
        ("chained", "a task on Spark failed (KeyError)"),
        ("theirs", "a task on Spark failed (ValueError)"),
    ],
)
def test_of_a_task_that_fails_one_line_comes_back_without_text(
    spark: Opened, capfd: pytest.CaptureFixture[str], how: str, message: str
):
    runner = spark.runner
    already = len(spark.said.read_text())
    with pytest.raises(DataError) as caught:
        runner.keep(runner.map_batches(runner.numbers(1), Fails(how), "id long"))
    assert str(caught.value) == message
    assert caught.value.__suppress_context__
    printed = capfd.readouterr()
    assert SECRET not in printed.out + printed.err + spark.said.read_text()[already:]


def test_an_executor_with_another_version_is_refused(spark: Opened, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("tacit.spark.runner.installed", lambda: installed().replace("tokenizers ", "tokenizers 9"))
    with pytest.raises(UsageError, match=r"driver and executor differ .* \(tokenizers \d[\d.]*, tokenizers 9[\d.]*\)"):
        spark.runner.keep(table(spark.runner, [ROWS]))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"spark.master": "yarn"}, "spark.io.encryption.enabled and spark.network.crypto.enabled"),
        (
            {"spark.master": "spark://host:7077", "spark.io.encryption.enabled": "true"},
            "set spark.network.crypto.enabled",
        ),
        ({"spark.master": "k8s://host", "spark.network.crypto.enabled": "true"}, "set spark.io.encryption.enabled"),
        ({"spark.master": "local-cluster[2,1,1024]"}, "spark.io.encryption.enabled"),
        ({}, "spark.io.encryption.enabled"),
    ],
)
def test_a_cluster_that_writes_or_sends_text_as_it_is_is_refused(settings: dict[str, str], named: str):
    with pytest.raises(UsageError, match=named):
        refuse_unencrypted(_conf(settings))


def test_an_encrypted_cluster_and_this_machine_are_not_refused():
    both = {"spark.io.encryption.enabled": "true", "spark.network.crypto.enabled": "TRUE"}
    refuse_unencrypted(_conf({"spark.master": "yarn", **both}))
    refuse_unencrypted(_conf({"spark.master": "local[4]"}))
    refuse_unencrypted(_conf({"spark.master": "local"}))


@pytest.mark.parametrize("limit", [None, "1g", "0b"])
def test_a_limit_of_what_comes_to_the_driver_is_refused(limit: str | None):
    """One unit's text may meet it: whether there is a release would tell of that unit (TACIT-46)."""
    with pytest.raises(UsageError, match="maxResultSize"):
        refuse_limit(_conf({} if limit is None else {"spark.driver.maxResultSize": limit}))
    refuse_limit(_conf({"spark.driver.maxResultSize": "0"}))


def test_batches_are_bounded_in_bytes_whatever_a_session_says(spark: Opened, tmp_path: Path):
    """Of 10,000 records of a megabyte, one more would be more than a column of Arrow's holds. 28th attack, TACIT-47."""
    session, name = spark.runner.numbers(1).sparkSession, "spark.sql.execution.arrow.maxBytesPerBatch"
    session.conf.set(name, str(2**31 - 1))
    assert open_session(tmp_path, 1) is session
    assert int(session.conf.get(name).removesuffix("b")) < 2**30


def _conf(settings: dict[str, str]) -> SparkConf:
    conf = SparkConf(loadDefaults=False, _jvm=None)
    for name, value in settings.items():
        conf.set(name, value)
    return conf
