"""What every trial on damaged input has in common: a start with a cap on memory and time, and what its end is judged by."""

from __future__ import annotations

import pickle
import re
import resource
from collections.abc import Sequence
from pathlib import Path

from hostile.children import CODES, Child, Ended, complaint
from hostile.search import found_in, needles_of

__all__ = ["EXECUTED", "Payload", "judged", "pickled", "try_input"]

_SECONDS = 120.0
_MOST = 6 << 30
"""Bytes of address space that a start may take above what it has: damaged input must not take the machine."""

EXECUTED = "EXECUTED"
"""The file that planted code would make in the trial's folder."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Payload:
    """An object that makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self._path = str(path)

    def __reduce__(self) -> tuple[object, ...]:
        return open, (self._path, "w")


def pickled(path: Path) -> bytes:
    """What makes this file when it is unpickled."""
    return pickle.dumps(Payload(path))


def _capped() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + _MOST
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def try_input(arguments: Sequence[str | Path], folder: Path) -> Ended:
    """Start the command in a folder, with its words beside it."""
    return Child(arguments, folder / "said", prepare=_capped).end(_SECONDS)


def judged(ended: Ended, folder: Path, sentinels: Sequence[str], codes: Sequence[int] = CODES) -> str:
    """What is wrong with the end of a start on damaged input: words, a leak, planted code that ran; empty when all is right."""
    said = complaint(ended, codes)
    if (folder / EXECUTED).exists():
        return "planted code was executed"
    if _CONTROL.search(ended.err) or _CONTROL.search(ended.out):
        return "a control character in its words"
    if any(word in (ended.out + ended.err).lower() for word in sentinels):
        return "private text in its words"
    leaks = found_in(folder / "run", needles_of(sentinels), leave_out=("private",)) if (folder / "run").exists() else []
    return said or (f"private text in {leaks[0]}" if leaks else "")
