from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tacit.spark.runner import Runner
from tacit.spark.session import open_session

from ..object_store import CREDENTIALS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Opened:
    """A session of the tests' own, as a user may have one, which writes event logs.

    Args:
        runner: on the session.
        logs: folder of its event logs.
        before: what Java said on its standard error before the session was given to tacit.
        said: file of all that Java says there.
    """

    runner: Runner
    logs: Path
    before: str
    said: Path


_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Of Java processes that live for seconds, whose second compiler and threads of garbage collection cost more than they save."""


@pytest.fixture(scope="session")
def java() -> Iterator[None]:
    """Java, which Spark needs."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        reason = os.environ.get("TACIT_NO_JAVA", "")
        if os.environ.get("CI") and not reason:
            pytest.fail("CI has to have Java: apt-get install openjdk-17-jre-headless")
        pytest.skip(reason or "no Java here: apt-get install openjdk-17-jre-headless")
    with pytest.MonkeyPatch.context() as patch:  # also for the processes that a test starts
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        patch.setenv("JAVA_TOOL_OPTIONS", f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} {_SHORT_LIVED}".strip())
        yield


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    place = tmp_path_factory.mktemp("spark")
    said = place / "err"
    (place / "logs").mkdir()
    settings = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.maxResultSize": "0",
        "spark.eventLog.dir": f"file://{place / 'logs'}",
        "spark.eventLog.compress": "false",
        "spark.eventLog.enabled": "true",
        "spark.local.dir": str(place / "local"),
        "spark.sql.shuffle.partitions": "5",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "true",
    }
    builder = SparkSession.builder.appName("a user's own")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _standard_error_in(said):
        session = builder.getOrCreate()
    slow_parts(session).count()  # the bar of a session that is not yet tacit's
    before = said.read_text()
    assert open_session(place / "unused", 1) is session  # a session that is there is taken
    yield Opened(Runner(session), place / "logs", before, said)
    session.stop()


def slow_parts(session: SparkSession) -> DataFrame:
    """A table that takes longer to compute than a bar takes to be shown."""
    return session.range(0, 2, 1, 2).mapInArrow(_slowly, "id long")


def _slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    time.sleep(1.5)
    yield from batches


@contextmanager
def _standard_error_in(path: Path) -> Iterator[None]:
    """Processes that are started in the block have this file as their standard error."""
    kept = os.dup(2)
    with path.open("wb") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
