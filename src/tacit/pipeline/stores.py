"""Where a run keeps its corpus and rows on disk: ``run/private/stores``, a folder each, named by what it was made from.

A store is a function of the files that were read, the configuration and the key. So a run that goes on, and the other processes of a
machine, find what was made and read it from the system's page cache; where anything differs, another one is made.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock

from tacit.corpus.places import look_at
from tacit.corpus.source import Source, files_of
from tacit.files import atomic_folder, private_folder
from tacit.pipeline.state import RunState

__all__ = ["look_of", "stored"]

_VERSION = 1
"""Of what a store holds; another one is made anew."""


def stored(state: RunState, name: str, made_from: Any, write: Callable[[Path], None]) -> Path:
    """The folder of a store; where it is not there yet, it is made, by one process of those that want it.

    Args:
        name: of the store within the run. An older one of this name is removed.
        made_from: all that decides what it holds, beside the key; ready for JSON.
        write: fills an empty folder that only its owner can read.
    """
    root = private_folder(state.folder.private / "stores")
    content = json.dumps([_VERSION, made_from], sort_keys=True).encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(content, key=state.streams.derive("stores"), digest_size=16).hexdigest()
    folder = root / f"{name}-{digest}"
    with FileLock(root / f"{name}.lock", mode=0o600, fallback_to_soft=False):
        if not folder.is_dir():
            if state.ranks.first:
                _remove_others(root, name)
            before = os.umask(0o077)
            try:
                with atomic_folder(folder) as partial:
                    write(partial)
            finally:
                os.umask(before)
    return folder


def _remove_others(root: Path, name: str) -> None:
    """Older ones, and what a killed process has left."""
    for path in root.iterdir():
        if path.is_dir() and path.name.removeprefix(".").rpartition("-")[0] == name:
            shutil.rmtree(path, ignore_errors=True)


def look_of(source: Source) -> list[Any]:
    """How a source is read, and of its files the name, size and time of change: whether it is still what was read."""
    files = [(str(path), *look_at(path)) for path in files_of(source)]
    return [repr(source), files]
