"""Screening many texts, here or in worker processes: chunks go in and come out in order, whoever screens them."""

from __future__ import annotations

import multiprocessing
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import TypeVar

from tacit.errors import UsageError
from tacit.processes import follow_parent
from tacit.screening.missed import ForgetfulPolicy, Missed
from tacit.screening.policy import Policy, PolicyOptions
from tacit.screening.split import DataPoint, Point, Screener, Tally

__all__ = ["Screened", "ScreenerOptions", "screen_chunks"]

_AHEAD = 3  # chunks a worker that wait to be screened or taken

Screened = tuple[list[list[Point]], Tally]
"""What `Screener.screen` gives."""

Chunk = TypeVar("Chunk")


def screen_chunks(
    chunks: Iterable[Chunk], texts_of: Callable[[Chunk], list[str]], make: ScreenerOptions, workers: int
) -> Generator[tuple[Chunk, Screened], None, None]:
    """Each chunk, in order, with what is screened of its texts; ``workers`` processes do it, 1 means this one.

    Raises:
        UsageError: a worker was killed.
    """
    if workers == 1:
        screener = make.screener()
        for chunk in chunks:
            yield chunk, screener.screen(texts_of(chunk))
        return
    # Spawned, not forked: a forked worker would hold the pipes by which the others notice that this process has died.
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start_worker, (make,))
    ahead: deque[tuple[Chunk, Future[Screened]]] = deque()
    try:
        for chunk in chunks:
            ahead.append((chunk, executor.submit(_screen_in_worker, texts_of(chunk))))
            if len(ahead) > _AHEAD * workers:
                chunk, future = ahead.popleft()
                yield chunk, future.result()
        while ahead:
            chunk, future = ahead.popleft()
            yield chunk, future.result()
    except BrokenProcessPool:
        raise UsageError("a screening process ended early, perhaps for want of memory; try fewer workers") from None
    finally:
        executor.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class ScreenerOptions:
    """What a `Screener` is made of; unlike it, it can be sent to another process."""

    balanced: PolicyOptions
    conservative: PolicyOptions
    kind: DataPoint
    missed: Missed | None = None

    def screener(self) -> Screener:
        """The screener."""
        balanced = Policy(self.balanced)
        pi = balanced if self.missed is None else ForgetfulPolicy(balanced, self.missed)
        return Screener(pi, Policy(self.conservative), self.kind)


_worker: list[Screener] = []


def _start_worker(options: ScreenerOptions) -> None:
    follow_parent()
    _worker[:] = [options.screener()]


def _screen_in_worker(texts: list[str]) -> Screened:
    return _worker[0].screen(texts)
