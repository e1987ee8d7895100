"""Child processes that end with the process that started them, however that one ends, and work shared among them."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import ModuleType, TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

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
    items: Iterable[T], payload_of: Callable[[T], P], work: Callable[[P], R], workers: int
) -> Generator[tuple[T, R], None, None]:
    """Each item, in order, with what ``work`` makes of its payload in one of so many processes; a few items are read ahead.

    Processes change the speed alone. What they cannot do is done here: where none can be started, one was killed, or ``work`` raises
    there. So whether there is a result hangs on no limit that only so much text, with so many processes, would meet (TACIT-46). They
    are started before the first item is read, however many there are: by other settings of torch, or another library on the path,
    another process may compute other last bits, and then the number of items would decide what becomes of each (TACIT-47).

    Args:
        payload_of: what of an item is sent to a worker.
        work: is pickled once; what it makes on its first call may stay in it.
    """
    left = iter(items)
    ahead: deque[tuple[T, _Job[P, R]]] = deque()
    with _Crew(work, workers) as crew:
        while True:
            for item in left:
                ahead.append((item, crew.take(payload_of(item))))
                if len(ahead) > _AHEAD * workers:
                    break
            if not ahead:
                return
            item, job = ahead.popleft()
            crew.finish(job)
            yield item, job.result[0]


@dataclass(eq=False)
class _Job(Generic[P, R]):
    """A payload, and what was made of it: nothing yet, or one result.

    Args:
        is_left: to this process, since another one could not do it.
    """

    payload: P
    result: list[R] = field(default_factory=list)
    is_left: bool = False


class _Crew(Generic[P, R]):
    """Processes that do jobs, and this one, which does what they do not. It has no thread and no lock of the system."""

    def __init__(self, work: Callable[[P], R], workers: int) -> None:
        self._work = work
        self._waiting: deque[_Job[P, R]] = deque()
        self._busy: dict[Connection, _Job[P, R]] = {}
        self._processes: dict[Connection, BaseProcess] = {}
        # Spawned: a forked worker would hold the pipes by which the others notice that this process has died, and a server that forks
        # finds modules in the working folder before those that this process has.
        context = multiprocessing.get_context("spawn")
        pickled = pickle.dumps(work)
        for _ in range(workers):
            try:
                here, there = context.Pipe()
            except OSError:
                return
            with there:  # closed here, else its end would not be seen
                process = context.Process(target=_serve, args=(pickled, there), daemon=True)
                # Limits of memory, files or processes; a process that may have no children; no interpreter.
                try:
                    with _without_main():
                        process.start()
                except Exception:
                    here.close()
                    return
            self._processes[here] = process

    def __enter__(self) -> _Crew[P, R]:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pipe in list(self._processes):
            self._lose(pipe)

    def take(self, payload: P) -> _Job[P, R]:
        """A job for whoever is free, in the order in which they are taken."""
        job = _Job[P, R](payload)
        self._waiting.append(job)
        self._hear(wait(list(self._busy), timeout=0))
        self._hand_out()
        return job

    def finish(self, job: _Job[P, R]) -> None:
        """Come back when this one is done.

        Raises:
            Exception: what its work raises, in this process.
        """
        while not job.result:
            self._hand_out()
            if job in self._waiting and not self._busy:
                self._waiting.remove(job)
                job.is_left = True
            if job.is_left:
                job.result.append(self._work(job.payload))
            else:
                self._hear(wait(list(self._busy)))

    def _hand_out(self) -> None:
        for pipe in [one for one in self._processes if one not in self._busy]:
            if not self._waiting:
                return
            try:
                pipe.send(self._waiting[0].payload)
            except OSError:
                self._lose(pipe)
            else:
                self._busy[pipe] = self._waiting.popleft()

    def _hear(self, answered: Sequence[object]) -> None:
        for pipe in answered:
            assert isinstance(pipe, Connection)
            job = self._busy.pop(pipe)
            try:
                is_done, result = pipe.recv()
            except (OSError, EOFError):  # it was killed
                self._lose(pipe)
                self._waiting.appendleft(job)
                continue
            if is_done:
                job.result.append(result)
            else:
                job.is_left = True

    def _lose(self, pipe: Connection) -> None:
        process = self._processes.pop(pipe)
        pipe.close()
        process.terminate()
        process.join()


@contextmanager
def _without_main() -> Iterator[None]:
    """A process that is started here runs nothing of the program that calls tacit: a script that calls it without asking for its own
    name would begin again in each."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _serve(pickled: bytes, pipe: Connection) -> None:
    """What a worker does: of each payload, whether it could be done, and the result. It ends when nobody asks or hears it any more.

    It prints nothing: an error may quote a text.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C too, and ends the others
    warnings.simplefilter("ignore")
    # Nobody asks any more; or memory ends while a payload or an answer is copied, which is then done elsewhere, as after a kill.
    with suppress(OSError, EOFError, MemoryError):
        work = _unpickled(pickled)
        while True:
            payload = pipe.recv()
            try:
                answer = True, work(payload)
            except Exception:
                answer = False, None
            pipe.send(answer)


def _unpickled(pickled: bytes) -> Callable[[Any], Any]:
    """The work; where its module cannot be imported, one that fails, so that all is done elsewhere."""
    try:
        return pickle.loads(pickled)
    except Exception as error:
        failed = error

        def fails(payload: Any) -> Any:
            raise failed

        return fails
