"""What a worker process is in a test, in a module that imports little: a process that is started imports it first."""

from __future__ import annotations

import os


class Told:
    """In the place of what a worker does: it says which process has scored. The ln PPL of a record is 1 if another one did."""

    def __init__(self, options: object, rows: object) -> None:
        self.made_by = os.getpid()

    def __call__(self, texts: list[str]) -> list[float]:
        return [float(os.getpid() != self.made_by)] * len(texts)
