"""Files that appear atomically, written beside their place, synced, then moved there in one step; and files that grow.

What grows has a checkpoint beside it (`tacit.work.resumable`): one process at a time writes, and one that goes on cuts off what
was written after the checkpoint.
"""

from __future__ import annotations

import errno
import json
import os
import re
import shlex
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tacit.errors import DataError, StorageError, TacitError, UsageError

__all__ = [
    "alone_in",
    "atomic_folder",
    "is_utf8",
    "one_line_of_storage",
    "open_truncated",
    "private_folder",
    "quoted",
    "read_json",
    "read_result",
    "real_path",
    "refuse_little_room",
    "refuse_pipe",
    "refuse_pipes",
    "storage_error",
    "sync_file",
    "write_atomically",
    "write_json",
    "write_private_json",
    "write_text",
]

_GO_ON = "and run the same command again: nothing is lost"
_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_CLOSED = {errno.EROFS, errno.EACCES, errno.EPERM}
_SQLITE = {"full": errno.ENOSPC, "readonly": errno.EROFS, "unable to open": errno.EACCES, "disk I/O error": errno.EIO}
_NUMBER_IN_WORDS = re.compile(r"\(os error (\d+)\)\W*$")  # how libraries in Rust end what the system said
_SHORT_WRITE = re.compile(r"\d+ requested and \d+ written")  # what numpy says, without a number
_LEAST_ROOM = 4 * 2**20
"""Beside what is known to be needed: for the ledger, its log, and files of a few pages."""


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let ``write`` fill a temporary file in the same folder, sync it, and move it to ``path``; on an error nothing is left."""
    partial = path.with_name(f".{path.name}.partial")
    try:
        write(partial)
        sync_file(partial)
        os.replace(partial, path)
        _sync_folder(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def sync_file(path: Path) -> None:
    """Bring a file that is closed to the disk."""
    with path.open("rb+" if sys.platform == "win32" else "rb") as file:  # Windows syncs only what is open for writing
        os.fsync(file.fileno())


def write_json(path: Path, values: Any) -> None:
    """Write JSON-ready values atomically."""
    write_text(path, json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write text atomically, in UTF-8."""
    write_atomically(path, lambda partial: _write_text(partial, text))


def read_json(path: Path) -> Any:
    """The values that `write_json` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def read_result(path: Path) -> Any:
    """The values of a JSON file that a stage of a run has left.

    Raises:
        DataError: it is missing or damaged.
    """
    try:
        values = read_json(path)
    except (OSError, ValueError, RecursionError):
        values = None
    if not isinstance(values, dict | list):
        raise DataError(f"{path}: missing or damaged; bring it back, or use another run folder")
    return values


def quoted(path: Path | str) -> str:
    """A path as an argument of a command that somebody is told to run: a shell takes it as one word.

    >>> quoted("runs/notes"), quoted("runs/my notes")
    ('runs/notes', "'runs/my notes'")
    """
    return shlex.quote(str(path))


def real_path(path: Path) -> Path:
    """Where a path leads, links followed; of a link to itself, itself, where ``Path.resolve`` raises."""
    return Path(os.path.realpath(path))


def refuse_pipe(path: Path) -> None:
    """A pipe keeps its reader waiting, perhaps for ever, and gives its bytes once; a device may have no end.

    Raises:
        DataError: it is there, and neither a file nor a folder.
    """
    if path.exists() and not path.is_file() and not path.is_dir():
        raise DataError(f"{path}: this is a pipe or a device, which cannot be read again; write it into a file first")


def refuse_pipes(folder: Path) -> None:
    """`refuse_pipe` of what lies in a folder of a model, and in those within it; where there is no folder nothing is refused."""
    for path in (*folder.glob("*"), *folder.glob("*/*")):
        refuse_pipe(path)


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


def write_private_json(path: Path, values: Any) -> None:
    """`write_json`, for the owner alone (mode 0600), also where the file was there with other permissions."""
    text = json.dumps(values, indent=1, sort_keys=True, allow_nan=False) + "\n"

    def write(partial: Path) -> None:
        partial.touch(mode=0o600)
        partial.chmod(0o600)
        _write_text(partial, text)

    write_atomically(path, write)


def refuse_little_room(folder: Path, needed: int) -> None:
    """Raise `StorageError` where fewer than ``needed`` bytes, and some for small files, are free on the folder's disk."""
    if shutil.disk_usage(folder).free < needed + _LEAST_ROOM:
        raise _refusal(folder, errno.ENOSPC, needed)


@contextmanager
def one_line_of_storage(folder: Path, needed: Callable[[], int] = lambda: 0) -> Iterator[None]:
    """What any library says inside of a disk that is full, or cannot be written, becomes a `StorageError`.

    Args:
        folder: what is written there.
        needed: gives the bytes that should be free, as far as is known.
    """
    try:
        yield
    except TacitError:
        raise
    except Exception as error:
        refusal = storage_error(error, folder, needed())
        if refusal is None:
            raise
        raise refusal from None


def storage_error(error: BaseException, folder: Path | None = None, needed: int = 0) -> StorageError | None:
    """One line where an error, or one that it came from, means a disk that is full or cannot be written; else None.

    torch, safetensors, tokenizers and SQLite each have errors of their own for it; torch's hides the system's in its context.

    Args:
        folder: what was written; None: the file that the error names.
        needed: bytes that should be free, as far as is known.
    """
    known: BaseException | None = error
    while known is not None:
        number = _number_of(known)
        if number in _FULL or number in _CLOSED or number == errno.EIO:
            named = known.filename if isinstance(known, OSError) else None
            file = Path(named) if isinstance(named, str) else None
            places = (file, folder) if number in _CLOSED else (folder, file)  # one file may be closed, a disk is full
            return _refusal(next((place for place in places if place is not None), Path(".")), number, needed)
        known = known.__cause__ or known.__context__
    return None


def _number_of(error: BaseException) -> int:
    """The system's number of an error; 0 where it has none."""
    text = str(error)
    if isinstance(error, OSError):
        return errno.ENOSPC if error.errno is None and _SHORT_WRITE.search(text) else error.errno or 0
    if isinstance(error, sqlite3.OperationalError):
        return next((number for words, number in _SQLITE.items() if words in text), 0)
    found = _NUMBER_IN_WORDS.search(text)
    return int(found[1]) if found else 0


def _refusal(place: Path, number: int, needed: int) -> StorageError:
    there = next((folder for folder in (place, *place.parents) if folder.is_dir()), Path("."))
    free = shutil.disk_usage(there).free
    closed = number == errno.EROFS or _is_read_only(there)
    # SQLite says that it cannot open a file, or that the disk fails, where it finds no room for its log's index.
    if number not in _FULL and (closed or free > _LEAST_ROOM):
        if number == errno.EIO:
            said = f"the disk fails, or the file is damaged ({os.strerror(number)}); repair it"
        else:
            said = f"it cannot be opened or written ({os.strerror(number)}); allow it"
        return StorageError(f"{place}: {said} {_GO_ON}")
    least = -(-(needed + _LEAST_ROOM) // 10**6)
    return StorageError(
        f"{place}: the disk is full ({free // 1000:,} KB free); free at least {least:,} MB {_GO_ON}", full=True
    )


def _is_read_only(folder: Path) -> bool:
    """Whether its file system is; Windows does not say, and there the error's number decides."""
    return sys.platform != "win32" and bool(os.statvfs(folder).f_flag & os.ST_RDONLY)


def private_folder(path: Path) -> Path:
    """Create a folder that only its owner can enter (mode 0700), also when it existed with other permissions."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


@contextmanager
def alone_in(folder: Path, refusal: str) -> Iterator[None]:
    """Keep other processes out of the folder; the lock ends with this process, however it ends.

    It is a lock of the operating system on a file ``.NAME.lock`` beside the folder, which may so be renamed meanwhile. The file goes
    at the end; one that a killed process has left locks nobody out. Where a file system has no locks, the error of the system comes
    through: a file's mere existence is no lock, since a killed process could not take it back.

    Args:
        refusal: what the error says.

    Raises:
        UsageError: another process is in it.
    """
    from filelock import FileLock, Timeout

    path = folder.with_name(f".{folder.name}.lock")
    lock = FileLock(path, mode=0o600, fallback_to_soft=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise UsageError(refusal) from None
    ours = path.stat()
    try:
        yield
    finally:
        # Removed while it is held: whoever opened it before sees that it has no name any more, and opens a new one. Where the folder
        # above was removed meanwhile, the file of that name may be another process's.
        with suppress(OSError):  # Windows keeps a file that is open
            if os.path.samestat(ours, path.stat()):
                path.unlink()
        lock.release()


def open_truncated(path: Path, size: int) -> IO[bytes]:
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
    if sys.platform == "win32":  # cannot open a folder, and writes its entries with the file
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_utf8(text: str) -> bool:
    """Whether a text can be written in UTF-8: a file's name may hold bytes that are none, as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
