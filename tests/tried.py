"""Whether a place decides how an operation is rounded is tried once in a session, and not in every process that a test starts.

It is a function of shapes, device and library alone (`tacit.engine.places`), and trying it anew is a quarter of a small run. What is
found stays in the session's folder of caches. A test of the trial itself runs in its own process, or with nothing known.
"""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any

import torch

from tacit.engine import places

__all__ = ["tried_once"]


@contextmanager
def tried_once() -> Iterator[None]:
    """Within it this process knows what others have tried, and leaves them what it tries."""
    if "PYTEST_VERSION" not in os.environ or "XDG_CACHE_HOME" not in os.environ:
        yield
        return
    path = Path(os.environ["XDG_CACHE_HOME"]) / "places.pickle"
    known, before = _Known(path), places._known
    places._known = known
    try:
        yield
    finally:
        places._known = before
        known.leave()


class _Known(dict[Any, bool]):
    """What was tried, read when it is first asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._read = -1

    def __contains__(self, key: object) -> bool:
        if self._read < 0:
            self.update(_read(self._path))
            self._read = len(self)
        return super().__contains__(key)

    def leave(self) -> None:
        """Write what is new here; another process may do so at the same time, and then one of them is not heard."""
        if self._read < 0 or len(self) == self._read:
            return
        rows = [(str(func), *rest, found) for (func, *rest), found in {**_read(self._path), **self}.items()]
        with tempfile.NamedTemporaryFile(dir=self._path.parent, delete=False) as file:
            pickle.dump(rows, file)
        os.replace(file.name, self._path)


def _read(path: Path) -> dict[Any, bool]:
    if not path.exists():
        return {}
    return {(_named(name), *rest): found for name, *rest, found in pickle.loads(path.read_bytes())}


def _named(name: str) -> Any:
    """The operation of a name such as ``aten.mm.default``."""
    return reduce(getattr, name.split("."), torch.ops)
