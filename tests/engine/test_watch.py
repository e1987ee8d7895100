"""Ranks that watch each other: real processes that are stopped, busy, or out of reach; and the clock that may stand still."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tacit.engine import watch
from tacit.engine.distributed import Ranks, join
from tacit.engine.watch import Pulses
from tacit.errors import LostError, UsageError

from ..processes import agent_store, free_port, rank_environment

BEAT, PATIENCE = 0.25, 1.5  # seconds
CLOCK = 3.0
Silent = Callable[[Mapping[int, int], float], int | None]


# the clock -----------------------------------------------------------------------------------------------------------


def seen_by(silent: Silent, beats: list[tuple[float, dict[int, int]]]) -> list[int | None]:
    return [silent(found, now) for now, found in beats]


def check_pulses(make: Callable[[], Silent]) -> None:
    """Who beats is there; who does not is lost after the patience, not before; and a look that comes late proves nothing."""
    steady = [(float(now), {0: now, 1: now}) for now in range(20)]
    assert seen_by(make(), steady) == [None] * 20
    still = [(float(now), {0: now, 1: min(now, 5)}) for now in range(11)]
    assert seen_by(make(), still) == [None] * 9 + [1, 1]
    late = [(0.0, {1: 4}), (1.0, {1: 5}), (600.0, {1: 5}), (601.0, {1: 6})]  # all were stopped together
    assert seen_by(make(), late) == [None] * 4
    after = [*late[:3], *((600.0 + more, {1: 5}) for more in range(1, 6))]  # and one of them did not go on
    assert seen_by(make(), after)[-1] == 1


def test_pulses() -> None:
    check_pulses(lambda: Pulses(CLOCK).silent)


class NoStanding(Pulses):
    """Known wrong: a process that was stopped itself takes the others for silent."""

    def silent(self, beats: Mapping[int, int], now: float) -> int | None:
        self._looked = now
        return super().silent(beats, now)


class NoMemory(Pulses):
    """Known wrong: silence is counted from the first beat on."""

    def silent(self, beats: Mapping[int, int], now: float) -> int | None:
        return super().silent(dict.fromkeys(beats, 0), now)


@pytest.mark.parametrize("wrong", [NoStanding, NoMemory])
def test_the_check_of_pulses_catches(wrong: type[Pulses]) -> None:
    with pytest.raises(AssertionError):
        check_pulses(lambda: wrong(CLOCK).silent)


# processes -----------------------------------------------------------------------------------------------------------


class Forked:
    """``work`` in forked processes with torchrun's environment: what each prints, and how and when it ends."""

    def __init__(self, world: int, work: Callable[[Ranks], None], folder: Path) -> None:
        self.begun = time.monotonic()
        self.folder = folder
        port = free_port()
        self.pids = [self._fork(rank, world, port, work) for rank in range(world)]
        self.store = agent_store(port)

    def _fork(self, rank: int, world: int, port: int, work: Callable[[Ranks], None]) -> int:
        pid = os.fork()
        if pid:
            return pid
        os.dup2(os.open(self.folder / f"{rank}", os.O_WRONLY | os.O_CREAT, 0o600), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1)
        os.environ |= rank_environment(rank, world, port)
        code = 0
        try:
            watch._BEAT = BEAT
            with join(silence_seconds=PATIENCE) as ranks:
                work(ranks)
        except LostError as error:
            code = error.exit_code
            (self.folder / f"raised-{rank}").write_text(str(error))
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            code = 2
        os._exit(code)

    def printed(self, rank: int) -> str:
        return (self.folder / f"{rank}").read_text()

    def raised(self, rank: int) -> str:
        path = self.folder / f"raised-{rank}"
        return path.read_text() if path.exists() else ""

    def ended(self, rank: int, limit: float = 30.0) -> int | None:
        """The exit code; None when it has not ended by then, and is killed."""
        deadline = time.monotonic() + limit
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pids[rank], os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.05)
        self.kill(rank)
        return None

    def kill(self, rank: int) -> None:
        os.kill(self.pids[rank], signal.SIGKILL)
        os.waitpid(self.pids[rank], 0)


def stop_at(lost: int) -> Callable[[Ranks], None]:
    """All meet, then one is stopped, and the others wait for it; one says so while the other keeps silent for long."""

    def work(ranks: Ranks) -> None:
        watch._SAYING = 2 * PATIENCE
        ranks.meet()
        if ranks.rank == lost:
            os.kill(os.getpid(), signal.SIGSTOP)
        ranks.decide(True)
        ranks.meet()

    return work


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 2])
def test_a_rank_that_is_stopped_ends_all_others_with_one_line(lost: int, tmp_path: Path) -> None:
    processes = Forked(3, stop_at(lost), tmp_path)
    others = [rank for rank in range(3) if rank != lost]
    try:
        assert [processes.ended(rank) for rank in others] == [LostError.exit_code] * 2
    finally:
        processes.kill(lost)
    said = [line for rank in others for line in processes.printed(rank).splitlines()]
    assert len(said) == 1
    assert said[0].startswith(f"tacit: process {lost} of 3 has been silent for 2 seconds")
    assert time.monotonic() - processes.begun < PATIENCE + 15


@pytest.mark.slow
def test_a_rank_that_is_killed_while_another_works_alone_ends_it(tmp_path: Path) -> None:
    """Nobody calls the dead one, whose sockets would say it: the first rank computes for ever."""

    def work(ranks: Ranks) -> None:
        ranks.meet()
        if not ranks.first:
            os.kill(os.getpid(), signal.SIGKILL)
        while True:
            sum(range(10_000))

    processes = Forked(2, work, tmp_path)
    assert processes.ended(1) == -signal.SIGKILL
    assert processes.ended(0) == LostError.exit_code
    assert processes.printed(0).startswith("tacit: process 1 of 2 has been silent")


@pytest.mark.slow
def test_a_rank_that_works_alone_for_long_ends_nobody(tmp_path: Path) -> None:
    """Three times the patience, in Python without a pause."""

    def work(ranks: Ranks) -> None:
        until = time.monotonic() + 3 * PATIENCE
        while ranks.first and time.monotonic() < until:
            sum(range(10_000))
        ranks.meet()

    processes = Forked(2, work, tmp_path)
    assert [processes.ended(rank) for rank in range(2)] == [0, 0]
    assert [processes.printed(rank) for rank in range(2)] == ["", ""]


@pytest.mark.slow
def test_when_the_launcher_is_gone_the_ranks_end(tmp_path: Path) -> None:
    """Its store is: nobody can be asked who speaks, so each does."""

    def work(ranks: Ranks) -> None:
        ranks.meet()
        (tmp_path / f"met-{ranks.rank}").touch()
        time.sleep(1000)

    processes = Forked(2, work, tmp_path)
    while not all((tmp_path / f"met-{rank}").exists() for rank in range(2)):
        time.sleep(0.05)
    del processes.store
    for rank in range(2):
        assert processes.ended(rank) == LostError.exit_code
        assert "has not reached the others for 2 seconds" in processes.printed(rank)


def test_the_first_error_is_everybodys_and_one_says_it(tmp_path: Path) -> None:
    def work(ranks: Ranks) -> None:
        ranks.meet()
        if ranks.rank == 1:
            raise UsageError("something is wrong here")
        ranks.meet()

    processes = Forked(3, work, tmp_path)
    assert [processes.ended(rank) for rank in range(3)] == [2, 2, 2]
    assert [processes.printed(rank) for rank in range(3)] == ["", "UsageError: something is wrong here\n", ""]


def test_what_a_library_says_stays_where_it_was_raised(tmp_path: Path) -> None:
    """It may quote private text."""

    def work(ranks: Ranks) -> None:
        ranks.meet()
        if ranks.rank == 1:
            raise ValueError("zqsentinel")
        ranks.meet()

    processes = Forked(2, work, tmp_path)
    assert [processes.ended(rank) for rank in range(2)] == [1, 2]
    assert processes.printed(1) == "ValueError: zqsentinel\n"
    assert processes.raised(0) in ("", "another process ended with ValueError; see its message")  # "": ended in silence
