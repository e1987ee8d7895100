"""Real processes on this machine, with the environment that torchrun gives them; forked, so that they start at once."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

import torch
from torch.distributed import TCPStore

from tacit.engine.distributed import Ranks, join

from .crashes import killed as killed

LIMIT = 60.0
"""Seconds after which processes count as hanging."""


@dataclass(frozen=True)
class Ended:
    """How a process ended: its value, or the kind and text of its error, or nothing when it was killed."""

    exit_code: int | None
    seconds: float
    value: Any = None
    error: str = ""


def in_processes(world: int, work: Callable[[Ranks], Any], timeout_seconds: float = 30.0) -> list[Ended]:
    """Run ``work`` in ``world`` processes that have joined; one rank after another in the answer."""
    context = multiprocessing.get_context("fork")
    port = free_port()
    begun = time.monotonic()
    running = []
    for rank in range(world):
        ours, theirs = context.Pipe(duplex=False)
        process = context.Process(target=_child, args=(rank, world, port, work, timeout_seconds, theirs))
        process.start()
        theirs.close()
        running.append((process, ours))
    store = agent_store(port)
    ended = []
    for process, ours in running:
        value, error = _answer(ours, begun + LIMIT - time.monotonic())
        process.join(max(0.0, begun + LIMIT - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
            error = f"hangs: killed after {LIMIT} seconds"
        ended.append(Ended(process.exitcode, time.monotonic() - begun, value, error))
    del store
    return ended


def agent_store(port: int) -> TCPStore:
    """The store by which the processes find each other: in this process, as torchrun keeps it, so that it outlives any of them."""
    return TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)


def rank_environment(rank: int, world: int, port: int) -> dict[str, str]:
    """What torchrun sets in the environment of one of ``world`` processes on this machine."""
    return {
        "TORCHELASTIC_RUN_ID": "test",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }


def values_of(ended: list[Ended]) -> list[Any]:
    """The values of processes that all ended well."""
    assert [process.error for process in ended] == [""] * len(ended)
    assert [process.exit_code for process in ended] == [0] * len(ended)
    return [process.value for process in ended]


def check_one_says(ended: list[Ended], error: str) -> None:
    """One process raises this error; the others are told and raise it too, or are ended in silence before they come to it."""
    own = [process for process in ended if not process.error.startswith("OtherRankError: ") and process.error]
    assert [error in process.error for process in own] == [True]
    said = own[0].error.split(": ", 1)[1]
    for process in ended:
        assert process in own or process.error in ("", f"OtherRankError: {said}")
        assert process.exit_code != 0


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


def _answer(connection: Connection, seconds: float) -> tuple[Any, str]:
    try:
        return pickle.loads(connection.recv_bytes()) if connection.poll(max(0.0, seconds)) else (None, "")
    except EOFError:
        return None, ""


def _child(
    rank: int, world: int, port: int, work: Callable[[Ranks], Any], timeout_seconds: float, answer: Connection
) -> None:
    os.environ |= rank_environment(rank, world, port)
    torch.set_num_threads(1)
    code, found = 0, (None, "")
    try:
        with join(timeout_seconds=timeout_seconds) as ranks:
            found = (work(ranks), "")
    except BaseException as error:
        code, found = 1, (None, f"{type(error).__name__}: {error}")
    answer.send_bytes(pickle.dumps(found))
    answer.close()
    os._exit(code)  # nothing of the test's own is to be torn down here
