"""Small and read-only file systems, which need root: a tmpfs that is nearly full, and a folder that is bound to itself read-only."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hostile.attack import Unavailable

__all__ = ["check_root", "leave_free", "read_only", "small_disk"]

_NO_ROOT = "mounting needs root; run `sudo make hostile`"
_BLOCK = 4096


def _call(*command: str | Path) -> str:
    """What the command complains of; empty when it does not."""
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip() or f"{command[0]} ended with {done.returncode}"


def check_root() -> None:
    """Raises `Unavailable` where nothing can be mounted."""
    if os.geteuid() != 0:
        raise Unavailable(_NO_ROOT)
    with tempfile.TemporaryDirectory() as folder:
        said = _call("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder)
        if said:
            raise Unavailable(f"no file system can be mounted here ({said.splitlines()[0]})")
        _call("umount", folder)


@contextmanager
def small_disk(folder: Path, kilobytes: int) -> Iterator[Path]:
    """A file system of its own in a new folder, of so many KB."""
    folder.mkdir()
    said = _call("mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", folder)
    if said:
        raise Unavailable(said)
    try:
        yield folder
    finally:
        _call("umount", "-l", folder)


def leave_free(disk: Path, kilobytes: int | None) -> None:
    """Fill a small disk but for so many KB; None: empty it again of the filling."""
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    if kilobytes is None:
        return
    state = os.statvfs(disk)
    room = state.f_bavail * state.f_frsize - 1024 * kilobytes
    if room >= _BLOCK:
        descriptor = os.open(filler, os.O_WRONLY | os.O_CREAT)
        os.posix_fallocate(descriptor, 0, room // _BLOCK * _BLOCK)
        os.close(descriptor)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing below this folder can be written, by anyone, until the block ends."""
    said = _call("mount", "--bind", folder, folder) or _call("mount", "-o", "remount,bind,ro", folder)
    if said:
        _call("umount", "-l", folder)
        raise Unavailable(said)
    try:
        yield
    finally:
        _call("umount", "-l", folder)
