"""What the tests let tacit draw from the operating system: nothing, but for what a test marks with ``os_randomness``.

A run draws its key with ``secrets.token_bytes``. Under a drawn key a test's outcome may differ from machine to machine, so here
tacit gets other bytes: a function of who asks, which is the functions of the tests that are being called and how often they have
asked. The same bytes come in any order of the tests and in any process; no file is placed, and a run that begins so is an
ordinary one. `tests.small.tacit` starts its processes through ``tests/started.py``, which does the same there.

OpenDP draws the vocabulary's noise from the operating system by itself, and nothing here reaches it: a test that it matters to must
hold with a probability of 1 - 1e-6 whatever is drawn, and say why.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["drawing", "drawn_bytes", "from_the_system", "install", "who_asks"]

_TESTS = Path(__file__).parent
_OURS = {"draws.py", "started.py", "conftest.py"}
_SYSTEM = secrets.token_bytes
_asked: Counter[str] = Counter()
_stated: list[str] = []
"""Of a process that a test has started: who asks there."""
_next: list[bytes] = []
"""What the next draw is to be."""
_open: list[str] = []
"""Reasons of tests that are running and may draw."""


def install(stated: str | None = None) -> None:
    """From now on tacit draws these bytes; nobody else is concerned.

    Args:
        stated: who asks, in a process that a test has started.
    """
    if stated is not None:
        _stated.append(stated)
    secrets.token_bytes = _token_bytes


def from_the_system(reason: str | None) -> None:
    """Let the test that runs draw from the operating system, for this reason; None: no longer."""
    _open[:] = [] if reason is None else [reason]


def drawn_bytes(address: str, size: int) -> bytes:
    """What is drawn at an address."""
    return hashlib.blake2b(address.encode(), digest_size=size).digest()


def who_asks() -> str:
    """The functions of the tests on the stack, with the parameters of a test that is among them, and how often they asked."""
    names: list[str] = []
    frame = sys._getframe(1)
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if _TESTS in path.parents and path.name not in _OURS:
            names.append(f"{path.relative_to(_TESTS)}:{frame.f_code.co_name}")
        frame = frame.f_back
    if any(":test_" in name for name in names):
        names.append(os.environ.get("PYTEST_CURRENT_TEST", "").rsplit(" (")[0].split("::")[-1])
    address = " < ".join([*_stated, *names])
    _asked[address] += 1
    return f"{address} {_asked[address]}"


@contextmanager
def drawing(value: bytes) -> Iterator[None]:
    """The first draw inside is this value."""
    _next[:] = [value]
    try:
        yield
    finally:
        _next.clear()


def _token_bytes(nbytes: int | None = None) -> bytes:
    asking = sys._getframe(1).f_globals.get("__name__", "")
    if _open or not asking.startswith("tacit."):
        return _SYSTEM(nbytes)
    if _next:
        return _next.pop()
    return drawn_bytes(who_asks(), 32 if nbytes is None else nbytes)
