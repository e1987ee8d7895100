"""A job that goes on where it stopped: after a kill, or a loss of power, between any two of its file operations."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import IO, Any

import pytest

from tacit.errors import DataError, UsageError
from tacit.files import write_atomically
from tacit.work.resumable import CheckpointClock, JobKind, Resumable

from ..crashes import killed

KIND = JobKind("counting", "options", ("even", "odd"), unfinished="seen-*", outgrown=frozenset({"version"}))
IDENTITY = {"step": 1, "version": "1.0"}
LAST = 6


def do(job: Resumable) -> None:
    """Count, with a checkpoint after every second number, and files of its own: one while it runs, one that stays."""
    done = job.finished(lambda receipt: int(receipt["done"])) or 0
    if done:
        return

    def restore(state: dict[str, Any]) -> None:
        nonlocal done
        done = int(state["done"])
        assert (job.partial / f"seen-{done}").read_text() == str(done)

    with job.open(restore):
        for number in range(done, LAST):
            job.write(("even", "odd")[number % 2], f"{number}\n".encode())
            if number % 2:
                write_atomically(job.partial / f"seen-{number + 1}", lambda path, n=number + 1: _put(path, str(n)))
                job.save({"done": number + 1})
        _put(job.partial / "plot.txt", "01" * 40)
        job.finish({"done": LAST})


def _put(path: Path, text: str) -> None:
    path.write_text(text)


def job_in(folder: Path, make: type[Resumable] = Resumable, corpus: str = "c", **changed: Any) -> Resumable:
    return make(KIND, folder / "new" / "job", IDENTITY | changed, corpus)


def contents(folder: Path) -> dict[str, bytes]:
    """All files but the lock, which holds nothing and which a process that is killed leaves behind."""
    found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    locks = {name for name in found if name.endswith(".lock")}
    assert {found[name] for name in locks} <= {b""}
    return {name: found[name] for name in found.keys() - locks}


# Crashes --------------------------------------------------------------------------------------------------------------

OPERATIONS = {
    *("open", "write", "flush", "truncate", "fsync", "replace", "rename", "unlink", "rmdir", "mkdir", "chmod"),
    *("touch", "close", "flock", "scandir"),
}
CREATING = {"open", "mkdir", "touch"}
"""What gives a number of the file system to something new."""


def crash_at(operation: int, work: Callable[[], None], folder: Path, *, power: bool) -> bool:
    """Do the work in a process that dies before its so-manieth file operation; whether it did.

    Args:
        power: as at a loss of power, the bytes of a file that were not synced are lost, while every new name is kept.
    """

    def child() -> None:
        left, synced, fsync = operation, dict[int, int](), os.fsync

        def remember(descriptor: int) -> None:
            fsync(descriptor)
            found = os.fstat(descriptor)
            synced[found.st_ino] = found.st_size

        def watch(frame: FrameType, event: str, called: Any) -> None:
            nonlocal left
            if event == "c_call" and called.__name__ in OPERATIONS:
                if power and synced and called.__name__ in CREATING:
                    there = {path.stat().st_ino for path in folder.rglob("*")}
                    for gone in synced.keys() - there:  # the new file may get its number
                        del synced[gone]
                left -= 1
                if left == 0:
                    sys.setprofile(None)
                    if power:
                        _lose(folder, synced)
                    os.kill(os.getpid(), signal.SIGKILL)

        os.fsync = remember
        sys.setprofile(watch)
        work()
        sys.setprofile(None)

    return killed(child)


def _lose(folder: Path, synced: dict[int, int]) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            found = path.stat()
            os.truncate(path, min(found.st_size, synced.get(found.st_ino, 0)))


def other_ends(folder: Path, make: type[Resumable], *, power: bool) -> Iterator[int]:
    """Before which file operations a crash changes what the next start ends with, an error included."""
    do(job_in(folder / "whole"))
    expected = contents(folder / "whole")
    operation = 1
    while crash_at(operation, lambda: do(job_in(place, make)), place := folder / str(operation), power=power):
        try:
            do(job_in(place, make))
            same = contents(place) == expected
        except (DataError, AssertionError):
            same = False
        if not same:
            yield operation
        operation += 1
    assert operation > 50, "the operations are no longer seen"


class NotSynced(Resumable):
    """Its files reach the system before the checkpoint does, but not the disk."""

    def _synced(self) -> dict[str, int]:
        for file in self._files.values():
            file.flush()
        return {name: file.tell() for name, file in self._files.items()}


class NotFlushed(Resumable):
    """Its checkpoint counts on lines that are still in its memory."""

    def _synced(self) -> dict[str, int]:
        return {name: file.tell() for name, file in self._files.items()}


class NotCut(Resumable):
    """What was written after the checkpoint stays, and is written again."""

    def _opened(self, name: str, size: int) -> IO[bytes]:
        path = self.partial / f"{name}.jsonl"
        path.touch()
        return path.open("ab", buffering=0)


class ReceiptFirst(Resumable):
    """It says that it is done before its own files are on the disk."""

    def finish(self, receipt: Any) -> None:
        self._synced()
        self._write_state("receipt.json", receipt)
        self._name()


WRONG = (NotFlushed, NotCut, NotSynced, ReceiptFirst)
_FOUND = """
import sys
from pathlib import Path
from tests.work.test_resumable import WRONG, Resumable, other_ends
make = {made.__name__: made for made in (Resumable, *WRONG)}[sys.argv[2]]
for operation in other_ends(Path(sys.argv[1]), make, power=sys.argv[3] == "True"):
    print(operation)
    if make is not Resumable:
        break
print("end")
"""


def found_ends(folder: Path, make: type[Resumable], power: bool) -> list[int]:
    """`other_ends`, of a wrong job only the first; from its own interpreter, since this one is large and forked hundreds of times."""
    done = subprocess.run(
        [sys.executable, "-c", _FOUND, str(folder), make.__name__, str(power)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    *found, end = done.stdout.split()
    assert (done.returncode, end) == (0, "end"), done.stderr
    return [int(operation) for operation in found]


@pytest.mark.slow
@pytest.mark.parametrize("power", [False, True])
def test_a_crash_between_any_two_file_operations_changes_nothing(tmp_path: Path, power: bool) -> None:
    assert found_ends(tmp_path, Resumable, power) == []


@pytest.mark.parametrize(("wrong", "power"), list(zip(WRONG, (False, False, True, True), strict=True)))
def test_wrong_jobs_are_caught(tmp_path: Path, wrong: type[Resumable], power: bool) -> None:
    (first,) = found_ends(tmp_path, wrong, power)
    assert first > 0


def test_one_crash_after_another(tmp_path: Path) -> None:
    """Each start gets a little further, whenever it reaches the next checkpoint."""
    do(job_in(tmp_path / "whole"))
    crashes = 0
    while crash_at(60, lambda: do(job_in(tmp_path / "killed")), tmp_path / "killed", power=True):
        crashes += 1
        assert crashes < 20
    assert crashes > 1
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


# What it leaves, and what it refuses ----------------------------------------------------------------------------------


def stopped(folder: Path) -> Resumable:
    """A job with a checkpoint at two numbers, and a third that the checkpoint does not know of."""
    job = job_in(folder)

    def begin() -> None:
        for number in range(3):
            job.write(("even", "odd")[number % 2], f"{number}\n".encode())
            if number == 1:
                _put(job.partial / "seen-2", "2")
                job.save({"done": 2})

    stop(job, begin)
    return job


def stop(job: Resumable, act: Callable[[], object]) -> None:
    """Do something in an open job, and stop it."""

    def stopping() -> None:
        with job.open(lambda state: None):
            act()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopping()


def test_what_is_done_is_for_the_owner_alone(tmp_path: Path) -> None:
    do(job_in(tmp_path))
    folder = tmp_path / "new" / "job"
    assert sorted(path.name for path in folder.iterdir()) == ["even.jsonl", "odd.jsonl", "plot.txt", "receipt.json"]
    assert (folder / "even.jsonl").read_text() == "0\n2\n4\n"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("even.jsonl", "odd.jsonl", "receipt.json"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    expected = {"options": IDENTITY, "corpus": "c", "done": LAST}
    assert json.loads((folder / "receipt.json").read_text()) == expected


def test_a_checkpoint_says_the_sizes(tmp_path: Path) -> None:
    job = stopped(tmp_path)
    expected = {"options": IDENTITY, "corpus": "c", "done": 2, "sizes": {"even": 2, "odd": 2}}
    assert json.loads((job.partial / "checkpoint.json").read_text()) == expected


def test_before_the_first_checkpoint_an_error_leaves_nothing(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    stop(job, lambda: job.write("even", b"0\n"))
    assert list(tmp_path.iterdir()) == []


def test_folders_that_others_use_too_stay(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    stop(job, lambda: _put(tmp_path / "new" / "theirs", "x"))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["theirs"]


def test_what_was_given_up_begins_anew(tmp_path: Path) -> None:
    job = stopped(tmp_path)
    stop(job, job.abandon)
    assert not job.partial.exists()


def test_another_identity_or_corpus_is_refused(tmp_path: Path) -> None:
    partial = stopped(tmp_path).partial
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=r"this counting was started with other options \(step: 1 -> 2\)"):
        do(job_in(tmp_path, step=2))
    with pytest.raises(UsageError, match=r"this counting was started with other options \(version: 1\.0 -> 1\.1\)"):
        do(job_in(tmp_path, version="1.1"))
    with pytest.raises(DataError, match="corpus is not the one that this counting was started on"):
        do(job_in(tmp_path, corpus="d"))
    assert contents(tmp_path) == before
    do(job_in(tmp_path))
    do(job_in(tmp_path, version="1.1"))  # it is done, and this does not matter any more
    with pytest.raises(UsageError, match="step: 1 -> 2"):
        do(job_in(tmp_path, step=2))
    assert not partial.exists()


@pytest.mark.parametrize(
    "damage",
    [
        *("{", "[]", "{}", '{"options": 1, "corpus": "c"}'),
        *(json.dumps({"options": IDENTITY, "corpus": "c", "done": 2} | more) for more in ({}, {"sizes": {"even": 2}})),
        json.dumps({"options": IDENTITY, "corpus": "c", "sizes": {"even": 2, "odd": 2}}),
    ],
)
def test_a_damaged_checkpoint_is_one_line(tmp_path: Path, damage: str) -> None:
    (stopped(tmp_path).partial / "checkpoint.json").write_text(damage)
    with pytest.raises(DataError, match=r"checkpoint\.json: the file is damaged; remove the folder to start again"):
        do(job_in(tmp_path))


def test_a_damaged_receipt_is_one_line(tmp_path: Path) -> None:
    do(job_in(tmp_path))
    (tmp_path / "new" / "job" / "receipt.json").write_text(json.dumps({"options": IDENTITY, "corpus": "c"}))
    with pytest.raises(DataError, match=r"receipt\.json: the file is damaged"):
        do(job_in(tmp_path))


def test_a_file_that_lost_bytes_is_refused(tmp_path: Path) -> None:
    job = stopped(tmp_path)
    os.truncate(job.partial / "odd.jsonl", 1)
    with pytest.raises(DataError, match="shorter than the checkpoint says"):
        do(job)


@pytest.mark.parametrize("file", [True, False])
def test_something_else_at_its_place_is_left_alone(tmp_path: Path, file: bool) -> None:
    (tmp_path / "new").mkdir()
    place = tmp_path / "new" / "job"
    if not file:
        place.mkdir()
    _put(place if file else place / "thesis.tex", "x")
    before = contents(tmp_path)
    with pytest.raises(UsageError, match="no finished counting"):
        do(job_in(tmp_path))
    assert contents(tmp_path) == before


def test_two_at_once_are_refused_also_at_the_very_end(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    with job.open(lambda state: None):
        with pytest.raises(UsageError, match="another process is counting into this folder"):
            do(job_in(tmp_path))
        job.save({"done": 0})
        (job.partial / "receipt.json").write_text(json.dumps({"options": IDENTITY, "corpus": "c", "done": 0}))
        with pytest.raises(UsageError, match="another process is counting into this folder"):
            job_in(tmp_path).finished(lambda receipt: receipt)
        assert job.partial.exists()


def test_a_checkpoint_is_due_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the earliest after the seconds; after a slow one, 20 times as long as it took."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    saved: list[float] = []

    def save(takes: float) -> None:
        nonlocal now
        saved.append(now)
        now += takes

    clock = CheckpointClock(10.0)
    for moment, takes in ((109.9, 0.0), (110.0, 1.0), (130.9, 0.0), (131.0, 0.1), (141.0, 0.0), (141.1, 0.0)):
        now = moment
        clock.when_due(lambda takes=takes: save(takes))
    assert saved == [110.0, 131.0, 141.1]
