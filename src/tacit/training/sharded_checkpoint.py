"""Checkpoints that all ranks write, each its part (``torch.distributed.checkpoint``); any number of ranks reads them.

A checkpoint is a folder in the place of the file that one process writes:

    model.NAME             weights
    optimizer.NUMBER.NAME  AdamW's moments of the trainable parameters, by their order
    average.NUMBER         the mean of the iterates
    sums.all.NUMBER        inside a step: the sum over all ranks, of a sharded parameter
    sums.RANK.NUMBER       inside a step: the sum of one rank, of another parameter
    rest.pt                numbers: step, place in the draw, the optimizer's options and counts, ranks

What one process reads it puts into tensors that are there: whole ones or parts.
"""

from __future__ import annotations

import os
import shutil
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tacit.engine.distributed import Ranks
from tacit.files import sync_file

__all__ = ["clear_place", "keys_of", "read_into", "read_rest", "write"]

_REST = "rest.pt"


def write(path: Path, tensors: Mapping[str, Tensor], rest: dict[str, Any], ranks: Ranks) -> None:
    """Write a checkpoint, at every rank: its parts of sharded tensors, and the others under names of its own or once.

    The old one is there until the new one is whole.
    """
    from torch.distributed.checkpoint.state_dict_saver import save

    partial = _partial(path)
    if ranks.first:
        clear_partial(path)
        partial.mkdir()
    ranks.decide(True)  # the folder is there
    save(dict(tensors), checkpoint_id=partial)
    if ranks.first:
        torch.save(rest, partial / _REST)
        sync_file(partial / _REST)
        clear_place(path)
        os.replace(partial, path)
        clear_old(path)


def clear_partial(path: Path) -> None:
    """Remove what was begun and is not whole: a rank that was killed leaves a folder, which no file can be written over."""
    _remove(_partial(path))


def clear_place(path: Path) -> None:
    """Set what is at ``path`` aside where it is of the other kind, or a folder, which nothing can replace in one step."""
    _remove(_old(path))
    if path.exists():
        os.replace(path, _old(path))


def clear_old(path: Path) -> None:
    """Remove what `clear_place` set aside; it may hold sums without noise."""
    _remove(_old(path))


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.partial")


def _old(path: Path) -> Path:
    return path.with_name(f".{path.name}.old")


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def read_rest(path: Path) -> dict[str, Any]:
    """The numbers."""
    return torch.load(path / _REST, map_location="cpu", weights_only=True)


def keys_of(path: Path) -> set[str]:
    """The names of the tensors that it holds."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader

    return set(FileSystemReader(path).read_metadata().state_dict_metadata)


def read_into(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Fill these tensors, each process by itself."""
    from torch.distributed.checkpoint.state_dict_loader import load

    if tensors:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it assumes what is said here: no_dist
            load(dict(tensors), checkpoint_id=path, no_dist=True)
