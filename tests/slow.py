"""Slow tests that a slow machine does not begin: ``TACIT_SLOW_TESTS_UNTIL`` seconds after the suite began, which CI sets.

Machines differ threefold. Where the variable is set, the fast tests come first in each worker's share, and a slow test whose
turn comes too late is left out and named at the end. The slow ones begin with another file each time, so that none is left out
for ever. Without the variable (on your own machine) all of them run, in the order of the files.
"""

from __future__ import annotations

import os
import time

import pytest

__all__ = ["REASON", "SlowTests", "in_shares", "slow_tests"]

_UNTIL = "TACIT_SLOW_TESTS_UNTIL"
_BEGAN = "TACIT_TESTS_BEGAN"
REASON = "a slow test, and this machine had no time left for it"


class SlowTests:
    """The plugin; workers have the start from the process that starts them.

    Args:
        until: seconds after the start at which no slow test begins any more.
    """

    def __init__(self, until: float) -> None:
        self._until = until
        self._began = float(os.environ.setdefault(_BEGAN, str(time.time())))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
        items[:] = in_shares(items, workers, int(self._began))  # the same at all workers

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        if item.get_closest_marker("slow") is not None and time.time() - self._began > self._until:
            pytest.skip(REASON)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        skipped = terminalreporter.stats.get("skipped", [])
        late = [report.nodeid for report in skipped if REASON in str(report.longrepr)]
        terminalreporter.write_line(
            f"{len(late)} slow tests were left out: {self._until:.0f} seconds were over ({_UNTIL})"
        )
        for name in late:
            terminalreporter.write_line(f"  {name}")


def in_shares(items: list[pytest.Item], workers: int, first: int) -> list[pytest.Item]:
    """The items so that each of ``workers`` equal parts has its slow ones at its end; what others take from a part is taken there.

    Args:
        first: which of the slow ones comes first, counted on from the last to the first: with all of its file, what follows them in
            the order of the files, and behind that what stands before them.
    """
    fast = [item for item in items if item.get_closest_marker("slow") is None]
    slow = [item for item in items if item.get_closest_marker("slow") is not None]
    begin = next(place for place, item in enumerate(slow) if item.path == slow[first % len(slow)].path) if slow else 0
    slow = slow[begin:] + slow[:begin]
    parts = ((of[len(of) * n // workers : len(of) * (n + 1) // workers] for of in (fast, slow)) for n in range(workers))
    return [item for part in parts for of in part for item in of]


def slow_tests() -> SlowTests | None:
    """The plugin, where the variable is set."""
    return SlowTests(float(os.environ[_UNTIL])) if _UNTIL in os.environ else None
