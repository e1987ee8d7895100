"""One long job on disk that goes on where it stopped: files that grow in ``<folder>.partial`` (0700) beside a checkpoint.

The checkpoint says how large each file was and what the job knew at that moment. A job that is started again cuts off what was
written later and goes on from there, so a job whose lines depend on its input alone ends with the same bytes however often it was
killed. When all is done, a receipt takes the checkpoint's place and the folder gets its name in one step.

Order matters: the files are on the disk before the checkpoint that counts on them is, and everything is on the disk before the
receipt is. So a loss of power is no worse than a kill.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

from tacit.errors import DataError, UsageError
from tacit.files import alone_in, open_truncated, private_folder, read_json, sync_file, write_private_json

__all__ = ["RECEIPT", "CheckpointClock", "JobKind", "Resumable"]

_T = TypeVar("_T")

RECEIPT = "receipt.json"
"""Stands in a folder whose job is done."""
_CHECKPOINT = "checkpoint.json"
_SHARE = 20  # a checkpoint that took a second is followed by the next after 20 seconds at the earliest


@dataclass(frozen=True)
class JobKind:
    """What all jobs of a kind have in common.

    Args:
        noun: what such a job is called in errors, such as ``screening``.
        identity: under which name the identity stands in the checkpoint and in the receipt.
        files: names of the files that grow, without their ending ``.jsonl``.
        unfinished: pattern of other files that only a job that is not done needs; they go when it is done.
        outgrown: names in the identity that no longer matter when the job is done, such as the program's version.
    """

    noun: str
    identity: str
    files: tuple[str, ...]
    unfinished: str | None = None
    outgrown: frozenset[str] = frozenset()


class Resumable:
    """One job on disk.

    Args:
        kind: which job it is.
        folder: what it leaves when it is done; it is for the owner alone.
        identity: everything but the records that its bytes depend on, as JSON-ready values.
        corpus: a digest of the records.
    """

    def __init__(self, kind: JobKind, folder: Path, identity: Mapping[str, Any], corpus: str) -> None:
        self._kind, self._folder = kind, folder
        self._identity, self._corpus = dict(identity), corpus
        self._files: dict[str, IO[bytes]] = {}

    @property
    def partial(self) -> Path:
        """Where it grows; the job may keep other files there."""
        return self._folder.with_name(f"{self._folder.name}.partial")

    def finished(self, parse: Callable[[dict[str, Any]], _T]) -> _T | None:
        """What ``parse`` makes of the receipt; None where the job is not done. A kill just before the end is made good.

        Raises:
            UsageError: the folder holds a job with another identity, or something else, or another process is at work.
            DataError: it is of another corpus, or the receipt is damaged (``parse`` may raise ValueError, TypeError, KeyError).
        """
        for folder in (self._folder, self.partial):
            if (folder / RECEIPT).exists():
                found = self._read(folder / RECEIPT, parse, self._kind.outgrown)
                if folder == self.partial:
                    with self._alone():
                        self._name()
                return found
        if self._folder.exists() and (not self._folder.is_dir() or any(self._folder.iterdir())):
            raise UsageError(
                f"{self._folder}: there are files that are no finished {self._kind.noun}; use another folder"
            )
        return None

    @contextmanager
    def open(self, restore: Callable[[dict[str, Any]], object]) -> Iterator[None]:
        """Go on from the checkpoint, or begin; an error before the first checkpoint leaves nothing behind.

        Args:
            restore: takes the state that `save` was given, where there is a checkpoint.

        Raises:
            UsageError: the checkpoint is of another identity, or another process is at work.
            DataError: it is of another corpus, or damaged (``restore`` may raise ValueError, TypeError, KeyError).
        """
        made = [path for path in self.partial.parents if not path.exists()]
        private_folder(self.partial)
        try:
            with self._alone(), ExitStack() as held:
                try:
                    sizes = self._restored(restore)
                    for name in self._kind.files:
                        self._files[name] = held.enter_context(self._opened(name, sizes.get(name, 0)))
                    yield
                except BaseException:
                    if not (self.partial / _CHECKPOINT).exists():
                        shutil.rmtree(self.partial, ignore_errors=True)
                    raise
        except BaseException:
            _remove_empty(made)  # when the lock, which lies beside the folder, has gone
            raise

    def write(self, name: str, content: bytes) -> None:
        """Let the file grow."""
        self._files[name].write(content)

    def save(self, state: Mapping[str, Any]) -> None:
        """Write the checkpoint; the old one counts until the new one is whole.

        Args:
            state: what the job must know to go on, as JSON-ready values.
        """
        self._write_state(_CHECKPOINT, {**state, "sizes": self._synced()})

    def finish(self, receipt: Mapping[str, Any]) -> None:
        """Write the receipt and give the folder its name.

        Args:
            receipt: what else it says, as JSON-ready values.
        """
        self._synced()
        for path in self.partial.iterdir():  # also what the job itself has put there
            sync_file(path)
        self._write_state(RECEIPT, receipt)
        self._name()

    def abandon(self) -> None:
        """Remove what there is, so that the next start begins anew."""
        shutil.rmtree(self.partial)

    def _alone(self) -> Any:
        return alone_in(
            self.partial, f"{self.partial}: another process is {self._kind.noun} into this folder; wait for it"
        )

    def _opened(self, name: str, size: int) -> IO[bytes]:
        return open_truncated(self.partial / f"{name}.jsonl", size)

    def _synced(self) -> dict[str, int]:
        """Bring the files to the disk; their sizes."""
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: file.tell() for name, file in self._files.items()}

    def _write_state(self, name: str, state: Mapping[str, Any]) -> None:
        whose = {self._kind.identity: self._identity, "corpus": self._corpus}
        write_private_json(self.partial / name, {**whose, **state})

    def _restored(self, restore: Callable[[dict[str, Any]], object]) -> dict[str, int]:
        """Hand the checkpoint's state on, where there is one; the sizes of the files then."""

        def sizes(state: dict[str, Any]) -> dict[str, int]:
            restore(state)
            # A scoring that was begun before screening and scoring shared this module has the size of its one file.
            known: dict[str, Any] = state["sizes"] if "sizes" in state else {self._kind.files[0]: state["size"]}
            return {name: int(known[name]) for name in self._kind.files}

        path = self.partial / _CHECKPOINT
        return self._read(path, sizes) if path.exists() else {}

    def _read(self, path: Path, parse: Callable[[dict[str, Any]], _T], outgrown: frozenset[str] = frozenset()) -> _T:
        try:
            state = read_json(path)
            old, corpus = dict(state[self._kind.identity]), str(state["corpus"])
        except (ValueError, TypeError, KeyError, OSError):
            raise _damaged(path) from None
        self._check_same(path.parent, old, corpus, outgrown)
        try:
            return parse(state)
        except (ValueError, TypeError, KeyError):
            raise _damaged(path) from None

    def _check_same(self, folder: Path, old: dict[str, Any], corpus: str, outgrown: frozenset[str]) -> None:
        differences = [
            f"{name}: {_short(old.get(name))} -> {_short(new)}"
            for name, new in self._identity.items()
            if old.get(name) != new and name not in outgrown
        ]
        if differences:
            raise UsageError(
                f"{folder}: this {self._kind.noun} was started with other options ({'; '.join(differences)}); "
                "use the old ones, or remove the folder to start again"
            )
        if corpus != self._corpus:
            raise DataError(
                f"{folder}: the corpus is not the one that this {self._kind.noun} was started on; bring that one back, "
                "or remove the folder to start again"
            )

    def _name(self) -> None:
        (self.partial / _CHECKPOINT).unlink(missing_ok=True)
        for path in [] if self._kind.unfinished is None else self.partial.glob(self._kind.unfinished):
            path.unlink(missing_ok=True)
        os.replace(self.partial, self._folder)


class CheckpointClock:
    """When a checkpoint is due: after so many seconds, and later where checkpoints take long.

    Args:
        seconds: shortest time between two checkpoints.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._due = time.monotonic() + seconds

    def when_due(self, save: Callable[[], None]) -> None:
        """Save, if it is time."""
        if (begun := time.monotonic()) >= self._due:
            save()
            now = time.monotonic()
            self._due = now + max(self._seconds, _SHARE * (now - begun))


def _remove_empty(folders: list[Path]) -> None:
    """Remove folders, the innermost first, up to one in which there is something."""
    with suppress(OSError):
        for path in folders:
            path.rmdir()


def _damaged(path: Path) -> DataError:
    return DataError(f"{path}: the file is damaged; remove the folder to start again")


def _short(value: Any) -> str:
    """A value for one line; of a digest the first digits, of a file its name and digest."""
    if isinstance(value, dict):
        return f"{value.get('name')} {_short(value.get('digest'))}"
    text = str(value)
    return text[:8] if len(text) == 64 else text
