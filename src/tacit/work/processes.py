"""Child processes that end with the process that started them, however that one ends, and work shared among them."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import TYPE_CHECKING, Any, TypeVar

from tacit.errors import UsageError

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext  # Windows has no ForkServerContext

__all__ = ["follow_parent", "map_in_order", "worker_context"]

T = TypeVar("T")
P = TypeVar("P")
R = TypeVar("R")

_AHEAD = 3  # items a worker that wait to be worked on or taken


def worker_context(module: str) -> ForkServerContext | SpawnContext:
    """How processes are started that all import one module which takes long: forked by a server that has imported it.

    torch and transformers take seconds; so they are paid once, and not once a process. Nothing is forked from this process itself: a
    worker would hold the pipes by which others notice that it has died. The server, and so its workers, have the environment of this
    process as it was at the first call, and run nothing before their own work. Where there are no such servers, each process is an
    interpreter of its own.

    Args:
        module: its name; where it cannot be imported a worker says so.
    """
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([module])
    return context


def follow_parent() -> None:
    """Call it first in a worker process: Ctrl-C is for the parent, and the parent's end is the end of this process too.

    A process that is killed cannot end its children, and they would wait, or work, for ever.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C too, and ends the others
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def map_in_order(
    items: Iterable[T],
    payload_of: Callable[[T], P],
    work: Callable[[P], R],
    workers: int,
    noun: str,
    imports: str | None = None,
) -> Generator[tuple[T, R], None, None]:
    """Each item, in order, with what ``work`` makes of its payload in one of so many processes; a few items are read ahead.

    Args:
        payload_of: what of an item is sent to a worker.
        work: is pickled once a worker; what it makes on its first call may stay in it.
        noun: what the processes do, for the error.
        imports: the module of ``work``, where its imports take long (`worker_context`).

    Raises:
        UsageError: a worker was killed.
    """
    # Spawned, not forked: a forked worker would hold the pipes by which the others notice that this process has died.
    context = multiprocessing.get_context("spawn") if imports is None else worker_context(imports)
    executor = ProcessPoolExecutor(workers, context, _start_worker, (work,))
    ahead: deque[tuple[T, Future[R]]] = deque()
    try:
        for item in items:
            ahead.append((item, executor.submit(_work_in_worker, payload_of(item))))
            if len(ahead) > _AHEAD * workers:
                item, future = ahead.popleft()
                yield item, future.result()
        while ahead:
            item, future = ahead.popleft()
            yield item, future.result()
    except BrokenProcessPool:
        raise UsageError(f"a {noun} process ended early, perhaps because memory ran out; try fewer workers") from None
    finally:
        executor.shutdown(cancel_futures=True)


_work: list[Callable[[Any], Any]] = []


def _start_worker(work: Callable[[Any], Any]) -> None:
    follow_parent()
    _work[:] = [work]


def _work_in_worker(payload: Any) -> Any:
    return _work[0](payload)
