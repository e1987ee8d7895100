"""How a session is opened: each process in a folder of its own, and one line where Java or pyspark is missing."""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

import pytest

from tacit.errors import UsageError
from tacit.spark.session import _own_folder, open_session

from ..started import called
from .conftest import Opened, slow_parts


def test_a_folder_of_its_own_beside_those_of_living_processes(tmp_path: Path) -> None:
    """Another rank's session is at work in its folder; a killed one's is removed, and another machine's is left alone."""
    machine = socket.gethostname()
    number = next(number for number in range(2**22 - 1, 1, -1) if not Path(f"/proc/{number}").exists())
    names = {"living": f"{machine}-{os.getppid()}", "dead": f"{machine}-{number}", "elsewhere": f"other-{number}"}
    names["alike"] = f"{machine}-1-{number}"  # of the machine called so
    names["other"] = f"{machine}-of-somebody"
    for name in names.values():
        (tmp_path / name).mkdir()
        (tmp_path / name / "block").touch()
    own = _own_folder(tmp_path)
    assert own.stat().st_mode & 0o777 == 0o700
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {names["living"], names["elsewhere"], names["alike"], names["other"], own.name}
    assert (tmp_path / names["living"] / "block").exists()


def open_without(what: str, folder: Path) -> None:
    """In a process of its own."""
    if what == "java":
        os.environ["JAVA_HOME"] = str(folder / "nowhere")
    else:
        sys.modules["pyspark"] = None  # pyright: ignore[reportArgumentType] - as if it were not installed
    try:
        open_session(folder / "spark", 1)
    except UsageError as error:
        print(f"said: {error}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "said"), [("java", "needs Java 17 or newer"), ("pyspark", "pip install 'tacit[spark]'")]
)
def test_what_is_missing_is_said_in_one_line(what: str, said: str, tmp_path: Path) -> None:
    done = called(open_without, what, tmp_path)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("said: ")]
    assert len(lines) == 1
    assert said in lines[0]


def test_a_session_that_tacit_uses_shows_no_bar(spark: Opened) -> None:
    """As many parts as there is text. Known wrong: the user's own session, whose bar shows them. 28th attack, TACIT-47."""
    session = spark.runner.numbers(1).sparkSession
    assert "[Stage" in spark.before
    assert slow_parts(session).count() == 2
    assert "[Stage" not in spark.said.read_text()[len(spark.before) :]
