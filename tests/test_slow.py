"""A slow test is left out, and named, where the time is over; a fast one never, and nothing where no time is set."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .slow import in_shares

_ROOT = Path(__file__).parents[1]
_CONFTEST = """
from tests.slow import slow_tests

def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes long")
    limited = slow_tests()
    if limited is not None:
        config.pluginmanager.register(limited)
"""
_TESTS = """
import pytest

@pytest.mark.slow
def test_one():
    pass

def test_two():
    pass

@pytest.mark.slow
def test_three():
    assert False
"""


def ran(folder: Path, **until: str) -> subprocess.CompletedProcess[str]:
    (folder / "conftest.py").write_text(_CONFTEST)
    (folder / "test_them.py").write_text(_TESTS)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TACIT_", "PYTEST_"))}
    environment = {**kept, "PYTHONPATH": str(_ROOT), **until}
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-v",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "--rootdir",
        str(folder),
        str(folder),
    ]
    return subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, timeout=120)


def outcomes(printed: str) -> list[tuple[str, str]]:
    """Tests in the order in which they ran, and how each ended."""
    lines = [line.split() for line in printed.splitlines() if "::" in line and "[" in line]
    return [(words[0].rpartition("test_")[2], words[1]) for words in lines]


def test_without_a_limit_all_run_in_their_order(tmp_path: Path) -> None:
    done = ran(tmp_path)
    assert done.returncode == 1
    assert outcomes(done.stdout) == [("one", "PASSED"), ("two", "PASSED"), ("three", "FAILED")]
    assert "left out" not in done.stdout


def test_with_time_left_all_run_the_fast_ones_first_and_a_slow_one_may_fail(tmp_path: Path) -> None:
    done = ran(tmp_path, TACIT_SLOW_TESTS_UNTIL="1000")
    assert done.returncode == 1
    assert outcomes(done.stdout) == [("two", "PASSED"), ("one", "PASSED"), ("three", "FAILED")]
    assert "0 slow tests were left out" in done.stdout


def test_without_time_the_slow_ones_are_left_out_and_named(tmp_path: Path) -> None:
    done = ran(tmp_path, TACIT_SLOW_TESTS_UNTIL="-1")
    assert done.returncode == 0
    assert outcomes(done.stdout) == [("two", "PASSED"), ("one", "SKIPPED"), ("three", "SKIPPED")]
    assert "2 slow tests were left out: -1 seconds were over" in done.stdout
    assert "  test_them.py::test_three" in done.stdout


def test_each_share_has_its_slow_ones_at_its_end(request: pytest.FixtureRequest) -> None:
    """On this session's own tests: none is lost, and those of one worker stand together."""
    items = list(request.session.items)
    for first in (0, 1, 1000):
        ordered = in_shares(items, 3, first)
        assert sorted(map(id, ordered)) == sorted(map(id, items))
        slow = [item.get_closest_marker("slow") is not None for item in ordered]
        changes = sum(before and not after for before, after in itertools.pairwise(slow))
        assert changes <= 2


_FILES = "\n".join(f"@pytest.mark.slow\ndef test_{name}():\n    pass\n" for name in ("a", "b", "c"))


@pytest.mark.parametrize(("began", "files"), [("0", "123"), ("2", "123"), ("3", "231"), ("8", "312"), ("10", "123")])
def test_the_slow_ones_begin_with_another_file_each_time(tmp_path: Path, began: str, files: str) -> None:
    """Of nine slow tests in three files, by the second in which the suite began; those of a file stay together and in order."""
    for name in "123":
        (tmp_path / f"test_{name}.py").write_text(f"import pytest\n{_FILES}")
    done = ran(tmp_path, TACIT_SLOW_TESTS_UNTIL="1e12", TACIT_TESTS_BEGAN=began)
    order = [
        line.split("::")[0].removeprefix("test_").removesuffix(".py")
        for line in done.stdout.splitlines()
        if "PASSED" in line
    ]
    order = [name for name in order if name in "123"]
    assert "".join(order) == "".join(name * 3 for name in files)
    assert [name for name, _ in outcomes(done.stdout) if name in "abc"] == ["a", "b", "c"] * 3
