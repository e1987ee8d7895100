"""One checkpoint a phase: weights, optimizer state and the next step, replaced atomically.

There is nothing else to save: sampling, masks and noise are functions of (key, step), and the ledger knows what was paid.
Loading uses torch's weights-only reader, so a checkpoint cannot run code.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from tacit.errors import DataError
from tacit.files import write_atomically

__all__ = ["finished_steps", "load_checkpoint", "load_weights", "save_checkpoint"]


def save_checkpoint(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, next_step: int) -> None:
    """Write the state after step ``next_step - 1``."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "next_step": next_step}
    write_atomically(path, lambda partial: torch.save(state, partial))


def load_checkpoint(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the state in place and return the next step; 0 when there is no checkpoint."""
    if not path.exists():
        return 0
    state = _read(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["next_step"])


def load_weights(path: Path, model: torch.nn.Module) -> None:
    """Load only the weights, in place."""
    model.load_state_dict(_read(path)["model"])


def finished_steps(path: Path) -> int:
    """How many steps the checkpoint holds; 0 when there is none."""
    return int(_read(path, mmap=True)["next_step"]) if path.exists() else 0


def _read(path: Path, mmap: bool = False) -> dict[str, Any]:
    try:
        return torch.load(path, weights_only=True, mmap=mmap)
    except (RuntimeError, EOFError, pickle.UnpicklingError):
        raise DataError(f"{path}: damaged checkpoint; delete it, and its phase is done again at no cost") from None
