"""A process that is killed while it works. Nothing large is imported here: a process of a few megabytes forks in a millisecond."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable

__all__ = ["killed"]


def killed(work: Callable[[], object], seconds: float = 120.0) -> bool:
    """Do the work in a forked process; whether it was killed, which the work itself sees to."""

    def child() -> None:
        torch = sys.modules.get("torch")
        if torch is not None:
            torch.set_num_threads(1)
        work()
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    process.join(seconds)
    assert process.exitcode in (0, -signal.SIGKILL)
    return process.exitcode != 0
