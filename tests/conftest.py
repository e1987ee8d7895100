from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# Before torch is imported, here and in every process that a test starts: two workers whose threads wait for one another on two
# cores are ten times slower, and models this small only lose by a second thread.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Where the second thread is the point, it sleeps while it has nothing to do: one that waits awake takes the core of the other worker.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from .draws import from_the_system, install
from .slow import slow_tests

_ROOM = 4 << 30  # bytes; the suite writes a quarter of that


def pytest_configure(config: pytest.Config) -> None:
    """No test draws from the operating system unless it says why (`tests.draws`), or finds what an earlier session has solved."""
    install()
    atexit.register(
        gc.unfreeze
    )  # or libraries in C++ complain of what they see left; any sooner, and pytest looks at it all once more
    if "PYTEST_XDIST_WORKER" not in os.environ:  # workers have both from who starts them
        os.environ["TMPDIR"] = tempfile.tempdir = _place_of_files()
        os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="tacit-tests-")
    limited = slow_tests()
    if limited is not None:
        config.pluginmanager.register(limited)


def _place_of_files() -> str:
    """In memory, where there is room: runs write through to the disk hundreds of times, and tests would wait a quarter of their time.

    What a killed process leaves behind is the same there: only a machine that loses its power could tell the difference.
    """
    memory = Path("/dev/shm")
    if "TMPDIR" in os.environ or not os.access(memory, os.W_OK) or shutil.disk_usage(memory).free < _ROOM:
        return tempfile.gettempdir()
    return str(memory)


def pytest_unconfigure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" not in os.environ:
        shutil.rmtree(os.environ["XDG_CACHE_HOME"], ignore_errors=True)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """The collector of garbage walks through none of the modules and tests that stay to the end: not now, and not later.

    They are millions of objects, which took it half of the time of collecting the tests, half a second at a time while these ran,
    and a page of memory for each one that it looked at in a process forked from this one. What tests make is collected, but less
    often: a model's graph and a configuration are thousands of objects, and looking at them again and again took a fifteenth of all.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(50_000, 20, 20)
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Torch has one thread in each test: a run sets their number for its process, and an earlier one would make this one slow."""
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _draws(request: pytest.FixtureRequest) -> Iterator[None]:
    marker = request.node.get_closest_marker("os_randomness")
    from_the_system(None if marker is None else str(marker.args[0]))
    yield
    from_the_system(None)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real corpora: ``TACIT_DATA``, or the one beside the repository."""
    default = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("TACIT_DATA", default))
    if not folder.is_dir():
        reason = f"no real corpora at {folder}; set TACIT_DATA to their folder"
        print(reason)
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)
    return folder
