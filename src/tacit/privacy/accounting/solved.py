"""Solved noise, kept in the user's cache folder: solving it takes from seconds to half a minute, and looking that up none.

What is stored is a proposal. Whoever takes it certifies it anew, as the last step of solving does, so that a damaged or foreign file
costs time or utility and never a guarantee. It holds numbers that every certificate shows, and nothing of any text.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from tacit.errors import TacitError
from tacit.files import write_json
from tacit.privacy.accounting.memory import let_go
from tacit.version import VERSION

__all__ = ["cache_folder", "kept"]

T = TypeVar("T")

_MOST_BYTES = 1 << 16


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/tacit/solved``, or that below ``~/.cache``. It may be deleted at any time."""
    stated = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(stated) if os.path.isabs(stated) else Path(os.path.expanduser("~")) / ".cache"
    return root / "tacit" / "solved"


def kept(question: str, solve: Callable[[], T], to_json: Callable[[T], Any], certified: Callable[[Any], T | None]) -> T:
    """What solves a question: as it was stored, or solved now and stored.

    Args:
        question: everything that the answer depends on.
        solve: finds the answer.
        to_json: of an answer.
        certified: the answer of what was stored, when it still holds; None, or any of the usual errors, when it does not.
    """
    name = hashlib.sha256("\n".join([VERSION, version("dp-accounting"), question]).encode()).hexdigest()
    path = cache_folder() / f"{name[:32]}.json"
    with contextlib.suppress(
        OSError, ValueError, TypeError, LookupError, ArithmeticError, MemoryError, RecursionError, TacitError
    ):
        if path.is_file() and path.stat().st_size <= _MOST_BYTES:
            found = certified(json.loads(path.read_text(encoding="utf-8")))
            if found is not None:
                return found
    answer = solve()
    let_go()
    with contextlib.suppress(OSError):  # no home, no room, no right to write: then it is solved again
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, to_json(answer))
    return answer
