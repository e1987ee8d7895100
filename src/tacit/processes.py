"""Child processes that end with the process that started them, however that one ends."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading

__all__ = ["follow_parent"]


def follow_parent() -> None:
    """Call it first in a spawned process: Ctrl-C is for the parent, and the parent's end is the end of this process too.

    A process that is killed cannot end its children, and they would wait, or work, for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C too, and ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
