"""A small disk of its own for a test, which can be filled, made larger and closed: a tmpfs, which only root may mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

__all__ = ["SmallDisk", "small_disk"]


class SmallDisk:
    """A mounted tmpfs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def remount(self, options: str) -> None:
        """Such as ``size=2m`` or ``ro``."""
        subprocess.run(["mount", "-o", f"remount,{options}", str(self.folder)], check=True)

    def leave(self, free: int) -> None:
        """Fill it but for so many bytes (whole pages)."""
        at = os.statvfs(self.folder)
        with (self.folder / "filling").open("wb") as file:
            file.write(bytes(max(0, at.f_bavail * at.f_frsize - free)))

    def empty(self) -> None:
        """Take the filling away."""
        (self.folder / "filling").unlink()


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[SmallDisk]:
    """Mounted at ``folder``, with a size as ``mount`` knows it; the test is skipped where that is not allowed."""
    folder.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        reason = f"no small disk can be mounted here: {done.stderr.strip()}"
        print(reason)
        pytest.skip(reason)
    try:
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)
