"""Whole runs with ``runner: spark`` come to what was recorded of one machine; and a cluster that loses executors to the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hostile.cases import CASES

import tacit
from tacit.corpus.readers import read_records
from tacit.corpus.source import Source
from tacit.corpus.unit_store import Part, open_units, write_units
from tacit.corpus.units import UnitKind, is_held_out
from tacit.randomness import KeyedRandomness
from tacit.spark.corpus import CorpusPart, SparkCorpus
from tacit.spark.runner import Runner
from tacit.spark.session import open_session
from tacit.vocabulary.count import ContributionBound, sorted_word_counts
from tacit.vocabulary.tally import Spill, spill_folder
from tacit.vocabulary.tokenizer import TokenizerOptions

from ..goldens import differences, fingerprint, outcome, recorded
from ..small import SENTINEL, write_corpora
from ..started import start

STREAMS = KeyedRandomness(bytes(32))
OPTIONS = TokenizerOptions()
BOUND = ContributionBound(9, STREAMS)


@pytest.mark.slow
@pytest.mark.usefixtures("java")
@pytest.mark.parametrize("name", ["BERT, histogram", "CRT, two rounds"])
def test_a_run_comes_to_what_was_recorded_of_one_machine(name: str, tmp_path: Path):
    golden = recorded()[name]
    compute = {**CASES[name].values(tmp_path)["compute"], "runner": "spark"}
    found = outcome(name, tmp_path, golden["noise"], changed={"compute": compute})
    assert differences(golden, found, fingerprint()) == []


def spark_units(folder: Path, result: Path) -> None:
    """In a process of its own: units and counts of the notes in a folder, on a cluster of two workers on this machine."""
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
    corpus = SparkCorpus(lambda: runner, [CorpusPart(_source(folder), UnitKind("user"))], 0.2, STREAMS)
    (result / "begun").touch()
    corpus.write(result / "store")
    corpus.bind(result / "store")
    with spill_folder(result / "spill") as place:
        counts = list(corpus.counts(BOUND, OPTIONS, [], Spill(place, 64)))
    (result / "counts").write_text(repr(counts))
    session.stop()


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
    killed: list[int] = []
    ended = threading.Event()

    def kill() -> None:
        """The first executor when it works, and another one later."""
        for seconds in (1.5, 4.0):
            while not (executors := _executors(process.pid or 0)) or not (result / "begun").exists():
                if ended.wait(0.1):
                    return
            if ended.wait(seconds):
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
    assert killed, "no executor was lost, so nothing was tested"

    own = result / "expected"
    part = Part(read_records(_source(folder)), UnitKind("user"))
    write_units(own, [part], lambda unit_id: is_held_out(unit_id, 0.2, STREAMS), STREAMS)
    expected, found = open_units(own), open_units(result / "store")
    assert found.fingerprint == expected.fingerprint
    units = ((unit.unit_id, unit.texts) for unit in expected.training)
    with spill_folder(result / "spill") as place:
        counts = list(sorted_word_counts(units, BOUND, OPTIONS, Spill(place, 64), ids_differ=True))
    assert (result / "counts").read_text() == repr(counts)
    assert any(word.startswith(SENTINEL) for word, _ in counts)


def _executors(driver: int) -> list[int]:
    """The processes of a driver's executors, which are children of its Java process."""
    found = subprocess.run(["ps", "-wweo", "pid,ppid,args"], capture_output=True, text=True, check=True).stdout
    lines = [line.split(None, 2) for line in found.splitlines()[1:]]
    java = {pid for pid, parent, _ in lines if parent == str(driver)}
    return [int(pid) for pid, parent, args in lines if parent in java and "CoarseGrainedExecutorBackend" in args]
