"""Files that appear atomically, written beside their place, synced, then moved there in one step; and files that grow.

What grows has a checkpoint beside it (`tacit.screening.work`, `tacit.adaptive.scores`): one process at a time writes, and one that
goes on cuts off what was written after the checkpoint.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tacit.errors import DataError, UsageError

__all__ = ["alone_in", "atomic_folder", "open_cut", "private_folder", "read_json", "write_atomically", "write_json"]


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file in the same folder, sync it, and move it to ``path``; on an error nothing is left."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        os.replace(partial, path)
        _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_json(path: Path, values: Any) -> None:
    """Write JSON-ready values atomically."""
    text = json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n"
    write_atomically(path, lambda partial: _write_text(partial, text))


def read_json(path: Path) -> Any:
    """The values that `write_json` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


@contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that replaces ``path`` as a whole when the block ends; on an error nothing is left."""
    partial = path.with_name(f".{path.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        yield partial
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        os.replace(path, old)
    os.replace(partial, path)
    _sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def private_folder(path: Path) -> Path:
    """Create a folder that only its owner can enter (mode 0700), also when it existed with other permissions."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


@contextmanager
def alone_in(folder: Path, refusal: str) -> Iterator[None]:
    """Keep other processes out of the folder; the lock ends with this process, however it ends.

    Args:
        refusal: what the error says.

    Raises:
        UsageError: another process is in it.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise UsageError(refusal) from None
        yield
    finally:
        os.close(descriptor)


def open_cut(path: Path, size: int) -> IO[bytes]:
    """The file (made with mode 0600), open at its end, without what was written after so many bytes.

    Raises:
        DataError: it is shorter.
    """
    path.touch(mode=0o600)
    file = path.open("ab")
    if file.tell() < size:
        file.close()
        raise DataError(f"{path}: the file is shorter than the checkpoint says; remove the folder to start again")
    file.truncate(size)
    return file


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
