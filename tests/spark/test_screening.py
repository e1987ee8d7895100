"""Screening on Spark leaves the files that one machine leaves, also where it was stopped in the middle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tacit.corpus.records import Record
from tacit.corpus.source import Source
from tacit.errors import UsageError
from tacit.pipeline.records import Corpus
from tacit.randomness import KeyedRandomness
from tacit.screening.corpus import ScreenPlan, screen_corpus
from tacit.screening.policy import load_policy_options
from tacit.screening.workers import ScreenerOptions
from tacit.spark import screening
from tacit.spark.screening import SparkScreening

from ..dialogues import write_dialogues
from .conftest import Opened

STREAMS = KeyedRandomness(bytes(32))
PLANTED = [
    Record("p", None, "my code is 1234 5678"),
    Record("q", "u", "my code is 1234 5678"),
    Record("r", None, "Hi!"),
]
PLANS = [
    ScreenPlan("line", held_out=0.1, deduplicate="exact", normalisation="casefold"),
    ScreenPlan("line", missed=0.3, deduplicate="unmasked"),
    ScreenPlan(),
]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    folder = tmp_path_factory.mktemp("dialogues")
    write_dialogues(folder)
    return Source(folder / "dialogues.jsonl", id_field="id")


def contents(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {path.name: path.read_bytes() for path in folder.glob("*.jsonl")}
    receipt = json.loads((folder / "receipt.json").read_text())
    return found | {name: value for name, value in receipt.items() if name not in ("seconds", "megabytes_per_second")}


@pytest.mark.slow
@pytest.mark.parametrize("plan", PLANS, ids=["exact", "unmasked", "none"])
def test_files_and_receipt_are_those_of_one_machine(spark: Opened, source: Source, tmp_path: Path, plan: ScreenPlan):
    screen_corpus(Corpus(source, PLANTED), plan, tmp_path / "here", STREAMS)
    on_spark = SparkScreening(spark.runner, source, PLANTED, plan, STREAMS)
    receipt = screen_corpus(on_spark.records, plan, tmp_path / "there", STREAMS, elsewhere=on_spark)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    if plan.deduplicate != "none":
        assert receipt.counts.duplicates > 10


class StoppedError(Exception):
    pass


@pytest.mark.slow
def test_a_screening_that_was_stopped_goes_on_to_the_same_end(
    spark: Opened, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("tacit.spark.screening._CHUNK_RECORDS", 5)  # so that there are checkpoints before the stop
    plan = PLANS[0]
    screen_corpus(Corpus(source, PLANTED), plan, tmp_path / "here", STREAMS)

    def stop(done: int, size: int) -> None:
        if 0.6 * size < done:
            raise StoppedError

    first = SparkScreening(spark.runner, source, PLANTED, plan, STREAMS)
    with pytest.raises(StoppedError):
        screen_corpus(first.records, plan, tmp_path / "there", STREAMS, stop, elsewhere=first, checkpoint_seconds=0.0)
    assert not (tmp_path / "there").exists()
    checkpoint = json.loads((tmp_path / "there.partial" / "checkpoint.json").read_text())
    assert 0 < checkpoint["counts"]["records"] < len(list(Corpus(source, PLANTED)))
    on_spark = SparkScreening(spark.runner, source, PLANTED, plan, STREAMS)
    screen_corpus(on_spark.records, plan, tmp_path / "there", STREAMS, elsewhere=on_spark)
    assert contents(tmp_path / "there") == contents(tmp_path / "here")


def test_copies_in_another_order_would_be_other_files(source: Source, tmp_path: Path):
    """What the place in the corpus decides: read backwards, another copy is the first."""
    records = list(Corpus(source, PLANTED))
    for name, order in (("forwards", records), ("backwards", records[::-1])):
        screen_corpus(order, PLANS[1], tmp_path / name, STREAMS)
    forwards, backwards = ((tmp_path / name / "private.jsonl").read_text() for name in ("forwards", "backwards"))
    assert sorted(forwards.splitlines()) != sorted(backwards.splitlines())


@pytest.mark.slow
def test_an_executor_with_another_model_is_refused(
    spark: Opened, source: Source, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Detectors name a path: an executor with other files there would mark others' text by another model."""
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: two\nleast_score: 0.5\nmark: spans\ndetectors:\n- kind: presidio\n")
    plan = ScreenPlan("line", balanced=policy, conservative=policy)
    monkeypatch.setattr("tacit.spark.screening.contents_digest", lambda _: "the driver's")
    monkeypatch.setattr("tacit.spark.screening._digested", {})
    on_spark = SparkScreening(spark.runner, source, [], plan, STREAMS)
    with pytest.raises(UsageError, match="differ between driver and executor"):
        screen_corpus(on_spark.records, plan, tmp_path / "there", STREAMS, elsewhere=on_spark)


def test_two_models_that_are_named_alike_are_two(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each beside its policy: known wrong is to tell them by the options' text."""
    policies: list[Path] = []
    for name in ("one", "other"):
        folder = tmp_path / name
        (folder / "model").mkdir(parents=True)
        (folder / "model" / "weights").write_text(name)
        policies.append(folder / "policy.yaml")
        policies[-1].write_text(
            "name: two\nleast_score: 0.5\nmark: spans\ndetectors:\n- {kind: huggingface, folder: model}\n"
        )
    monkeypatch.setattr(screening, "_digested", {})
    options = ScreenerOptions(*map(load_policy_options, policies), "line")
    before = screening._contents_of(options)
    assert len(set(before)) == 2
    (tmp_path / "one" / "model" / "weights").write_text("changed")
    monkeypatch.setattr(screening, "_digested", {})
    assert screening._contents_of(options) != before
