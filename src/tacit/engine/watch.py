"""Ranks that watch each other: when one fails, ends or falls silent, all end, and one of them says why.

A collective notices a process that has died, but not one that is stopped or whose machine hangs, and only when it is called. So a
thread of each rank beats once a second in the store through which torchrun's processes find each other, for however long the rank
itself is busy. The first rank looks at all others and they at it; the first that fails, or finds a silent one, writes why into
the store, and the others end with its exit code. Where the store itself is silent nobody can ask who speaks, and every rank does.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from tacit.errors import LostError, OtherRankError, TacitError
from tacit.progress import one_line

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

__all__ = ["Failure", "Pulses", "Watch"]

_BEAT = 1.0
"""Seconds between two looks at the others."""

_LEAVING = 10.0
"""Seconds in which a rank that has failed has to end by itself."""

_SAYING = 2.0
"""Seconds in which the first one that fails says why, before others end: then torchrun ends it too."""

_FAILED = "failed"


@dataclass(frozen=True)
class Failure:
    """Why all ranks end: what the first of them says, with its exit code."""

    rank: int
    message: str
    exit_code: int


class Pulses:
    """Who has not moved for too long, by a clock that may itself have stood still.

    A process that was stopped, or not given the processor, has not looked either: for it everybody's time begins anew.

    Args:
        patience: seconds.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._looked: float | None = None
        self._moved: dict[int, tuple[int, float]] = {}

    def silent(self, beats: Mapping[int, int], now: float) -> int | None:
        """The first whose number is what it was ``patience`` seconds ago; None where all have moved, or were not seen then.

        >>> pulses = Pulses(2.0)
        >>> [pulses.silent({1: beat, 2: 7}, now) for now, beat in enumerate([4, 5, 6, 7])]
        [None, None, None, 2]
        """
        stood_still = self._looked is not None and now - self._looked > self._patience / 2
        self._looked = now
        for who, beat in beats.items():
            known = self._moved.get(who)
            if stood_still or known is None or known[0] != beat:
                self._moved[who] = (beat, now)
        return next((who for who in beats if now - self._moved[who][1] > self._patience), None)


class Watch:
    """The threads of one rank that beat and look; `start` them, and `end` them when the rank is done.

    Args:
        connect: a connection of its own to the store; called again when one breaks.
        rank: of this process, from 0 to world - 1.
        world: number of processes.
        patience: seconds of silence after which a rank is given up.
    """

    def __init__(self, connect: Callable[[], Store], rank: int, world: int, patience: float) -> None:
        self._connect = connect
        self._store: Store | None = None
        self._rank = rank
        self._world = world
        self._patience = patience
        self._rounds = 0
        self._beating = threading.Thread(target=self._beat, name="tacit-beat", daemon=True)
        self._stopped = threading.Event()
        self._ended = threading.Event()
        self._left: float | None = None

    def start(self) -> None:
        """Begin to beat, and to look at who has begun. Who meets this rank afterwards will miss it when it stops."""
        self._reach().add(_beats(self._rank), 1)
        self._beating.start()
        threading.Thread(target=self._guard, name="tacit-guard", daemon=True).start()

    def end(self) -> None:
        """The rank is done: its silence means nothing any more."""
        self._stop_beating()
        self._ended.set()
        try:
            self._reach().set(_done(self._rank), "1")
        except RuntimeError:
            return  # a store that is gone has nobody to tell

    def fail(self, error: BaseException) -> TacitError | None:
        """Let all ranks end, for this one does so with ``error``.

        Returns:
            None where this rank is the first and says its own error; else what to raise in its place.
        """
        self._left = time.monotonic()
        self._stop_beating()
        code, message = _described(error)
        try:
            first = self._first(self._reach(), Failure(self._rank, message, code))
        except RuntimeError:
            return None  # nobody can be asked
        if first.rank == self._rank:
            return None
        time.sleep(_SAYING)
        return OtherRankError(first.message, first.exit_code)

    def _stop_beating(self) -> None:
        """A thread inside the store's code would not survive the end of the interpreter."""
        self._stopped.set()
        self._beating.join(_BEAT)

    def _reach(self) -> Store:
        if self._store is None:
            self._store = self._connect()
        return self._store

    def _first(self, store: Store, own: Failure) -> Failure:
        """The failure that was written first, this one where there was none."""
        return Failure(**json.loads(store.compare_set(_FAILED, "", json.dumps(asdict(own)))))

    def _beat(self) -> None:
        pulses = Pulses(self._patience)
        while not self._stopped.wait(_BEAT):
            try:
                self._look(self._reach(), pulses)
                self._rounds += 1
            except RuntimeError:  # of a store that does not answer; `_guard` counts for how long
                self._store = None

    def _look(self, store: Store, pulses: Pulses) -> None:
        """One beat, and one look at the others."""
        store.add(_beats(self._rank), 1)
        if self._left is None and store.check([_FAILED]):
            first = Failure(**json.loads(store.get(_FAILED)))
            if first.rank != self._rank:
                self._left = time.monotonic()
                time.sleep(_SAYING)
                _leave(first.exit_code)
        others = range(1, self._world) if self._rank == 0 else (0,)
        beats = {other: store.add(_beats(other), 0) for other in others}
        begun = {other: beat for other, beat in beats.items() if beat and not store.check([_done(other)])}
        lost = pulses.silent(begun, time.monotonic())
        if lost is not None and self._left is None:
            message = (
                f"process {lost} of {self._world} has been silent for {self._patience:.0f} seconds: it was stopped, or its machine "
                "hangs; end it, then run the same command again to continue"
            )
            first = self._first(store, Failure(self._rank, message, LostError.exit_code))
            _leave(first.exit_code, message if first.rank == self._rank else None)

    def _guard(self) -> None:
        """End a rank whose store is silent, also when a call to it never returns, and one that does not end by itself."""
        pulses = Pulses(self._patience)
        while not self._ended.wait(_BEAT):
            now = time.monotonic()
            if self._left is not None:  # it is about to end, and another one says why
                if now - self._left > _LEAVING:
                    _leave(LostError.exit_code)
            elif pulses.silent({self._rank: self._rounds}, now) is not None:
                _leave(
                    LostError.exit_code,
                    f"process {self._rank} of {self._world} has not reached the others for {self._patience:.0f} seconds: torchrun, "
                    "or the machine that it began on, ended; run the same command again to continue",
                )


def _described(error: BaseException) -> tuple[int, str]:
    """Exit code and message; what a library says may quote the text, and is not sent."""
    if isinstance(error, TacitError):
        return error.exit_code, str(error)
    if isinstance(error, KeyboardInterrupt):
        return 130, "interrupted"
    return 1, f"another process ended with {type(error).__name__}; see its message"


def _beats(rank: int) -> str:
    return f"beats/{rank}"


def _done(rank: int) -> str:
    return f"done/{rank}"


def _leave(exit_code: int, message: str | None = None) -> None:
    """End this process, whatever its main thread waits for: as when it is killed, from which every stage goes on."""
    if message is not None:
        print(one_line(f"tacit: {message}"), file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(exit_code)
