"""Whole runs with ``runner: spark`` come to what was recorded of one machine; and a cluster that loses executors to the same."""

from __future__ import annotations

import os
import signal
import string
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hostile.cases import CASES

import tacit
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.corpus.unit_store import open_units
from tacit.corpus.unit_writing import Part, write_units
from tacit.corpus.units import UnitKind, is_held_out
from tacit.randomness import KeyedRandomness
from tacit.screening.corpus import ScreenPlan, screen_corpus
from tacit.spark import runner as transport
from tacit.spark.corpus import CorpusPart, SparkCorpus
from tacit.spark.runner import Runner
from tacit.spark.screening import SparkScreening
from tacit.spark.session import open_session
from tacit.training.sequences import SequenceStream
from tacit.training.tokenising import Tokenising
from tacit.vocabulary.count import ContributionBound, sorted_word_counts
from tacit.vocabulary.special import OWN_NAMES
from tacit.vocabulary.tally import Spill, spill_folder
from tacit.vocabulary.tokenizer import SPECIAL_TOKENS, TokenizerOptions, build_tokenizer

from ..goldens import differences, fingerprint, outcome, recorded
from ..small import SENTINEL, write_corpora
from ..started import start

STREAMS = KeyedRandomness(bytes(32))
OPTIONS = TokenizerOptions()
BOUND = ContributionBound(9, STREAMS)
PIECES = [*string.ascii_lowercase, *(f"##{letter}" for letter in string.ascii_lowercase)]
HOW = Tokenising(
    build_tokenizer([*SPECIAL_TOKENS, *PIECES], OPTIONS).to_str(),
    OWN_NAMES,
    16,
    STREAMS,
    ("", "a test"),
    False,
)
PARTS = ("units begun", "rows begun", "screening begun")
PLAN = ScreenPlan("line", held_out=0.1, missed=0.3, deduplicate="exact")


@pytest.mark.slow
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize(
    "name",
    ["BERT, histogram", "BERT, SIPS and public words", "CRT, two rounds", "S-DP, two rounds", "adaptive, strata"],
)
def test_a_run_comes_to_what_was_recorded_of_one_machine(name: str, tmp_path: Path):
    """To the bit: where nothing was recorded of this kind of processor, of a run without Spark."""
    golden, mark = recorded()[name], fingerprint()
    alone, on_spark = tmp_path / "alone", tmp_path / "on spark"
    for folder in (alone, on_spark):
        folder.mkdir()
    if mark not in golden["digests"]:
        golden["digests"][mark] = outcome(name, alone, golden["noise"])["digests"]
    compute = {**CASES[name].values(on_spark)["compute"], "runner": "spark"}
    found = outcome(name, on_spark, golden["noise"], changed={"compute": compute})
    assert differences(golden, found, mark) == []


def spark_units(folder: Path, result: Path) -> None:
    """In a process of its own: units, counts, rows and screening of the notes in a folder, on a local cluster of two workers."""
    from pyspark.sql import SparkSession

    root = str(Path(tacit.__file__).parents[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.master": "local-cluster[2,1,1024]",
        "spark.authenticate": "true",
        "spark.authenticate.secret": "of a test",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.maxResultSize": "0",
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": root,
        "spark.io.encryption.enabled": "true",
        "spark.local.dir": str(folder / "local"),
        "spark.log.level": "OFF",
        "spark.network.crypto.enabled": "true",
        "spark.speculation": "true",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    runner = Runner(open_session(folder / "unused", 1))
    transport._BLOBS_AT_ONCE = 1  # all comes in pieces, as that of more than 16 MiB does
    corpus = SparkCorpus(lambda: runner, [CorpusPart(_source(folder), UnitKind("user"))], 0.2, STREAMS)
    units, rows, screened = (result / part for part in PARTS)
    units.touch()
    corpus.write(result / "store")
    corpus.bind(result / "store")
    with spill_folder(result / "spill") as place:
        counts = list(corpus.counts(BOUND, OPTIONS, [], Spill(place, 64)))
    (result / "counts").write_text(repr(counts))
    rows.touch()
    for number, part in enumerate(corpus.rows(HOW, held_out=False)):
        _keep_rows(result / f"rows-{number}.npz", part)
    screened.touch()
    screening = SparkScreening(runner, _source(folder), [], PLAN, STREAMS)
    screen_corpus(screening.records, PLAN, result / "screened", STREAMS, needed=(), elsewhere=screening)
    session.stop()


def _keep_rows(path: Path, rows: SequenceStream) -> None:
    np.savez(path, ids=np.asarray(rows.ids_ST), lengths=np.asarray(rows.lengths_S), keys=list(rows.keys_U))


def _source(folder: Path) -> Source:
    return Source(folder / "notes.jsonl", id_field="note_id", user_field="patient_id")


@pytest.mark.slow
@pytest.mark.usefixtures("java")
def test_lost_executors_and_tasks_that_run_twice_change_nothing(tmp_path: Path):
    folder, result = tmp_path / "text", tmp_path / "result"
    folder.mkdir()
    (result / "store").mkdir(parents=True)
    (result / "expected").mkdir()
    write_corpora(folder, patients=120, records=10)
    notes = (folder / "notes.jsonl").read_text().splitlines(keepends=True)
    (folder / "notes.jsonl").write_text("".join([*notes, *notes[::3]]))  # copies, of which screening keeps the first
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        """An executor of each part of the work, a while after that has begun."""
        for part in PARTS:
            while not (result / part).exists():
                if ended.wait(0.1):
                    return
            if ended.wait(1.5):
                return
            while not (executors := _executors(process.pid or 0)):
                if ended.wait(0.1):
                    return
            os.kill(executors[0], signal.SIGKILL)
            killed.append(executors[0])

    process = start(spark_units, folder, result, output=tmp_path)
    killer = threading.Thread(target=kill)
    killer.start()
    process.join(240)
    ended.set()
    killer.join()
    assert process.exitcode == 0, (tmp_path / "err").read_text()[-2000:]
    assert len(killed) >= 2, "too few executors were lost to test anything"  # the last part may be over before its turn

    own = result / "expected"
    part = Part(read_records(_source(folder)), UnitKind("user"))
    write_units(own, [part], lambda unit_id: is_held_out(unit_id, 0.2, STREAMS), STREAMS)
    expected, found = open_units(own), open_units(result / "store")
    assert found.fingerprint == expected.fingerprint
    units = ((unit.unit_id, unit.texts) for unit in expected.training)
    with spill_folder(result / "spill") as place:
        counts = list(sorted_word_counts(units, BOUND, OPTIONS, Spill(place, 64), ids_differ=True))
    assert (result / "counts").read_text() == repr(counts)
    rows = HOW.rows(list(expected.training), [False] * len(expected.training))
    parts = [np.load(result / f"rows-{number}.npz") for number in range(len(list(result.glob("rows-*.npz"))))]
    assert np.array_equal(np.concatenate([part["ids"] for part in parts]), np.asarray(rows.ids_ST))
    assert np.array_equal(np.concatenate([part["lengths"] for part in parts]), np.asarray(rows.lengths_S))
    assert [key for part in parts for key in part["keys"]] == list(rows.keys_U)
    receipt = screen_corpus(list(read_records(_source(folder))), PLAN, result / "screened here", STREAMS, needed=())
    assert receipt.counts.duplicates > 0
    for path in (result / "screened here").glob("*.jsonl"):
        assert (result / "screened" / path.name).read_bytes() == path.read_bytes(), path.name
    assert any(word.startswith(SENTINEL) for word, _ in counts)


def _executors(driver: int) -> list[int]:
    """The processes of a driver's executors, which are children of its Java process."""
    found = subprocess.run(["ps", "-wweo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in found.splitlines()[1:]]
    java = {pid for pid, parent, _ in lines if parent == str(driver)}
    return [int(pid) for pid, parent, args in lines if parent in java and "CoarseGrainedExecutorBackend" in args]
