"""One checkpoint a phase: weights, optimizer state and the next step, replaced atomically.

There is nothing else to save: sampling, masks and noise are functions of (key, step), and the ledger knows what was paid.
Loading uses torch's weights-only reader, so a checkpoint cannot run code.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from tacit.files import write_atomically

__all__ = ["load_checkpoint", "load_weights", "save_checkpoint"]


def save_checkpoint(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer, next_step: int) -> None:
    """Write the state after step ``next_step - 1``."""
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "next_step": next_step}
    write_atomically(path, lambda partial: torch.save(state, partial))


def load_checkpoint(path: Path, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the state in place and return the next step; 0 when there is no checkpoint."""
    if not path.exists():
        return 0
    state: dict[str, Any] = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["next_step"])


def load_weights(path: Path, model: torch.nn.Module) -> None:
    """Load only the weights, in place."""
    model.load_state_dict(torch.load(path, weights_only=True)["model"])
