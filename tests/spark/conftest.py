from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tacit.spark.runner import Runner
from tacit.spark.session import open_session

from ..object_store import CREDENTIALS


@dataclass(frozen=True)
class Opened:
    """A session of the tests' own, as a user may have one, which writes event logs."""

    runner: Runner
    logs: Path


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
    }
    builder = SparkSession.builder.appName("a user's own")
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    assert open_session(place / "unused", 1) is session  # a session that is there is taken
    yield Opened(Runner(session), place / "logs")
    session.stop()
