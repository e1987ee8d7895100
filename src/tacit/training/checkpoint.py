"""One checkpoint a phase: weights, optimizer state and how far training is, replaced atomically.

Inside a step it also holds the sum of the clipped gradients so far, one for each rank: functions of the private text
*without noise*, until the step is done and the file is replaced. There is nothing else to save: sampling, masks, dropout
and noise are functions of (key, step, place in the draw), and the ledger knows what was paid.

Loading uses torch's weights-only reader, so a checkpoint cannot run code.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit.engine.distributed import ALONE, Ranks
from tacit.errors import DataError
from tacit.files import write_atomically
from tacit.training.averaging import IterateAverage

__all__ = [
    "Progress",
    "checkpoint_bytes",
    "finished_steps",
    "gradients",
    "load_checkpoint",
    "load_optimizer",
    "load_weights",
    "save_checkpoint",
    "watched_products",
]


@dataclass(frozen=True)
class Progress:
    """How far a phase is.

    Args:
        step: the step to do next, counted from 0.
        drawn: how many entries of this step's draw, from its beginning, are already in the sums. Not a number of
            micro-batches: their size may change between two starts, and no unit may count twice.
        sums: of each trainable parameter, when it is inside a step.
    """

    step: int = 0
    drawn: int = 0
    sums: tuple[Tensor, ...] = field(default=(), repr=False, compare=False)


def gradients(model: nn.Module) -> list[Tensor]:
    """``p.grad`` of every trainable parameter; zeros are created where it is None."""
    found: list[Tensor] = []
    for parameter in model.parameters():
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            found.append(parameter.grad)
    return found


def save_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    sums: Sequence[list[Tensor]] = (),
    average: IterateAverage | None = None,
    products_U: np.ndarray | None = None,
) -> None:
    """Write the state after step ``progress.step - 1``; inside a step with the sums of each rank.

    Args:
        products_U: of watched units (`tacit.training.watching`), after the same step.
    """
    state: dict[str, Any] = {
        "model": _trained_state(model),
        "optimizer": optimizer.state_dict(),
        "next_step": progress.step,
    }
    if progress.drawn:
        state["partial"] = {"drawn": progress.drawn, "sums": list(sums)}
    if average is not None:
        state["average"] = average.mean
    if products_U is not None:
        state["watched"] = torch.from_numpy(products_U)
    write_atomically(path, lambda partial: _save(state, partial))


def _trained_state(model: nn.Module) -> dict[str, Tensor]:
    """All of the model's state but what is frozen: that is as the folder has it which the model starts from."""
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in frozen}


def _load_trained(model: nn.Module, state: dict[str, Tensor]) -> None:
    """The same, in place.

    Raises:
        RuntimeError: it is of another model.
    """
    wanted = _trained_state(model).keys()
    if wanted != state.keys():
        raise RuntimeError(f"the checkpoint is of another model: {min(wanted ^ state.keys())}")
    model.load_state_dict(state, strict=False)


def _save(state: dict[str, Any], path: Path) -> None:
    """Through Python's file, whose error says that the disk is full; torch's own says "unexpected pos"."""
    with path.open("wb") as file:
        torch.save(state, file)


def checkpoint_bytes(model: nn.Module, ranks: int, averaged: bool) -> int:
    """An upper bound of what a checkpoint takes on disk: weights, AdamW's two moments, partial sums in float64 and the average."""
    weights = sum(tensor.numel() * tensor.element_size() for tensor in _trained_state(model).values())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return weights + (2 + 2 * ranks + averaged) * trained


def load_checkpoint(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    ranks: Ranks = ALONE,
    average: IterateAverage | None = None,
) -> Progress:
    """Load the state in place; ``Progress()`` when there is no checkpoint.

    Partial sums are dealt out over the ranks, also when there are more or fewer of these now than when it was written.
    """
    if not path.exists():
        return Progress()
    state = _read(path)
    _load_trained(model, state["model"])
    optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))  # out of the mapped file
    if average is not None:
        average.restore(state["average"])
    if "partial" not in state:
        return Progress(int(state["next_step"]))
    sums = _dealt_out(model, state["partial"]["sums"][ranks.rank :: ranks.world])
    return Progress(int(state["next_step"]), int(state["partial"]["drawn"]), sums)


def _dealt_out(model: nn.Module, sums: Sequence[list[Tensor]]) -> tuple[Tensor, ...]:
    """The sum of the sums of several ranks, of each trainable parameter; of none it is zero."""
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not sums:
        return tuple(torch.zeros_like(parameter) for parameter in trainable)
    if len(sums) == 1:
        return tuple(sums[0])
    return tuple(torch.stack([part.double() for part in parts]).sum(0) for parts in zip(*sums, strict=True))


def load_weights(path: Path, model: nn.Module) -> None:
    """Load only the weights, in place."""
    _load_trained(model, _read(path)["model"])


def load_optimizer(path: Path, optimizer: torch.optim.Optimizer) -> None:
    """Load only the optimizer's state, in place."""
    optimizer.load_state_dict(copy.deepcopy(_read(path)["optimizer"]))


def watched_products(path: Path) -> np.ndarray:
    """What a phase that was watched noted of each unit, float64 (U,).

    Raises:
        DataError: it was not watched.
    """
    state = _read(path)
    if "watched" not in state:
        raise DataError(
            f"{path}: no unit was watched in this phase; audit.white_box belongs to a run from its beginning"
        )
    return state["watched"].numpy().copy()


def finished_steps(path: Path) -> int:
    """How many steps the checkpoint holds; 0 when there is none."""
    return int(_read(path)["next_step"]) if path.exists() else 0


def _read(path: Path) -> dict[str, Any]:
    """The file mapped into memory, so that only what is used is read."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError):
        raise DataError(f"{path}: damaged checkpoint; delete it, and its phase is done again at no cost") from None
