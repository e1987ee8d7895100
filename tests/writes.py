"""What this process writes: files that it opens for writing, and all that it renames, links, makes, changes or removes.

What a library writes in native code, or a child process, is not heard: compare digests too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

__all__ = ["Write", "written_meanwhile"]

_CHANGES = {
    **dict.fromkeys(("os.rename", "os.link", "os.symlink"), (0, 1)),
    **dict.fromkeys(("os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.chmod", "os.utime"), (0,)),
}
"""Audit events (https://docs.python.org/3/library/audit_events.html), and which of their arguments are paths."""


@dataclass(frozen=True)
class Write:
    """One write, and the source files of the functions that asked for it, the innermost first."""

    path: Path
    asked_by: tuple[str, ...]


_heard: list[Write] | None = None


def _for_writing(mode: object, flags: object) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR) != 0


def _files(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back


def _hear(event: str, arguments: tuple[object, ...]) -> None:
    if _heard is None:
        return
    if event == "open":
        paths = arguments[:1] if _for_writing(arguments[1], arguments[2]) else ()
    else:
        paths = tuple(arguments[place] for place in _CHANGES.get(event, ()))
    for path in paths:
        if isinstance(path, str | bytes | os.PathLike):
            _heard.append(Write(Path(os.fsdecode(path)), tuple(_files(sys._getframe(1)))))


sys.addaudithook(_hear)  # it stays for the life of the process, and is silent but inside `written_meanwhile`


@contextmanager
def written_meanwhile() -> Iterator[list[Write]]:
    """The list that grows while the block runs."""
    global _heard
    _heard = found = []
    try:
        yield found
    finally:
        _heard = None
