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
from tacit.engine.sharding import has_shards, is_sharded, shard_of
from tacit.errors import DataError
from tacit.files import write_atomically
from tacit.training import sharded_checkpoint
from tacit.training.averaging import IterateAverage
from tacit.training.sharding import cut

__all__ = [
    "Progress",
    "checkpoint_bytes",
    "finished_steps",
    "gradients",
    "load_checkpoint",
    "load_optimizer",
    "load_weights",
    "save_checkpoint",
    "save_shards",
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
        noise: of the last steps, the newest first, of each trainable parameter, where the next step's depends on it.
    """

    step: int = 0
    drawn: int = 0
    sums: tuple[Tensor, ...] = field(default=(), repr=False, compare=False)
    noise: Sequence[Sequence[Tensor]] = field(default=(), repr=False, compare=False)


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
    if progress.noise:
        state["noise"] = [list(of_step) for of_step in progress.noise]
    if average is not None:
        state["average"] = average.mean
    if products_U is not None:
        state["watched"] = torch.from_numpy(products_U)
    sharded_checkpoint.clear_partial(path)
    write_atomically(path, lambda partial: _save_in_place_of(path, state, partial))
    sharded_checkpoint.clear_old(path)


def save_shards(
    path: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    progress: Progress,
    sums: Sequence[Tensor],
    average: IterateAverage | None,
    ranks: Ranks,
) -> None:
    """`save_checkpoint` at every rank, each its part; ``sums`` are its own, inside a step.

    The sum of a sharded parameter is that of all ranks already; of another one each rank has its own.
    """
    optimizer_state = optimizer.state_dict()
    tensors = {f"model.{name}": tensor for name, tensor in _trained_state(model).items()}
    counts: dict[int, dict[str, Any]] = {}
    for number, values in optimizer_state["state"].items():
        for name, value in values.items():
            if isinstance(value, Tensor) and value.dim() > 0:
                tensors[f"optimizer.{number}.{name}"] = value
            else:
                counts.setdefault(number, {})[name] = value
    for number, total in enumerate(sums):
        whose = "all" if is_sharded(total) else ranks.rank
        tensors[f"sums.{whose}.{number}"] = total.double()
    if average is not None:
        tensors |= {f"average.{number}": tensor for number, tensor in enumerate(average.mean)}
    rest = {
        "next_step": progress.step,
        "drawn": progress.drawn,
        "ranks": ranks.world,
        "counts": counts,
        "param_groups": optimizer_state["param_groups"],
    }
    sharded_checkpoint.write(path, tensors, rest, ranks)


def _trained_state(model: nn.Module) -> dict[str, Tensor]:
    """All of the model's state but what is frozen: that is as the folder has it which the model starts from."""
    frozen = {name for name, parameter in model.named_parameters(remove_duplicate=False) if not parameter.requires_grad}
    return {name: tensor for name, tensor in model.state_dict().items() if name not in frozen}


def _load_trained(model: nn.Module, state: dict[str, Tensor]) -> None:
    """Load the trained state in place; of what a rank holds a part of, that part.

    Raises:
        RuntimeError: it is of another model.
    """
    wanted = _trained_state(model)
    if wanted.keys() != state.keys():
        raise RuntimeError(f"the checkpoint is of another model: {min(wanted.keys() ^ state.keys())}")
    state = {name: shard_of(own, state[name]) if is_sharded(own) else state[name] for name, own in wanted.items()}
    model.load_state_dict(state, strict=False)


def _save_in_place_of(path: Path, state: dict[str, Any], partial: Path) -> None:
    """What is there is set aside only when the new one is whole, where a file cannot replace it in one step."""
    _save(state, partial)
    if path.is_dir():
        sharded_checkpoint.clear_place(path)


def _save(state: dict[str, Any], path: Path) -> None:
    """Through Python's file, whose error says that the disk is full; torch's own says "unexpected pos"."""
    with path.open("wb") as file:
        torch.save(state, file)


def checkpoint_bytes(model: nn.Module, ranks: int, averaged: bool, remembered: int = 0) -> int:
    """An upper bound of what a checkpoint takes on disk: weights, AdamW's two moments, partial sums in float64, the average, and the
    noise of ``remembered`` steps in float64.
    """
    weights = sum(tensor.numel() * tensor.element_size() for tensor in _trained_state(model).values())
    trained = sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)
    return weights + (2 + 2 * ranks + averaged + 2 * remembered) * trained


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
    if path.is_dir():
        return _load_shards(path, model, optimizer, ranks, average)
    state = _read(path)
    _load_trained(model, state["model"])
    _restore(optimizer, copy.deepcopy(state["optimizer"]))  # out of the mapped file
    if average is not None:
        average.restore(state["average"])
    noise = state.get("noise", ())
    if "partial" not in state:
        return Progress(int(state["next_step"]), noise=noise)
    of_ranks = state["partial"]["sums"]
    sums = _dealt_out(model, of_ranks[ranks.rank :: ranks.world])
    if has_shards(model):  # what is sharded is the sum of all ranks
        whole = _dealt_out(model, of_ranks)
        both = zip(_trainable(model), sums, whole, strict=True)
        sums = tuple(shard_of(p, total) if is_sharded(p) else own for p, own, total in both)
    return Progress(int(state["next_step"]), int(state["partial"]["drawn"]), sums, noise)


def _restore(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load whole tensors, of which a rank with shards keeps its parts."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    own = {number: cut(parameters[number], values) for number, values in state["state"].items()}
    optimizer.load_state_dict({**state, "state": own})


def _load_shards(
    path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, ranks: Ranks, average: IterateAverage | None
) -> Progress:
    """`load_checkpoint` of what `save_shards` left, whole or into shards."""
    rest, known = sharded_checkpoint.read_rest(path), sharded_checkpoint.keys_of(path)
    load_weights(path, model)
    load_optimizer(path, optimizer)
    if average is not None:
        sharded_checkpoint.read_into(path, {f"average.{number}": mean for number, mean in enumerate(average.mean)})
    if not rest["drawn"]:
        return Progress(int(rest["next_step"]))
    sums = []
    for number, parameter in enumerate(_trainable(model)):
        total = torch.zeros_like(parameter, dtype=torch.float64)
        if f"sums.all.{number}" in known:
            if is_sharded(parameter) or ranks.first:  # whole, it counts at one rank
                sharded_checkpoint.read_into(path, {f"sums.all.{number}": total})
        else:
            for rank in range(int(rest["ranks"])):
                if is_sharded(parameter) or rank % ranks.world == ranks.rank:
                    part = torch.zeros_like(total)
                    sharded_checkpoint.read_into(path, {f"sums.{rank}.{number}": part})
                    total += part
        sums.append(total)
    return Progress(int(rest["next_step"]), int(rest["drawn"]), tuple(sums))


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _dealt_out(model: nn.Module, sums: Sequence[list[Tensor]]) -> tuple[Tensor, ...]:
    """The sum of the sums of several ranks, of each trainable parameter; of none it is zero."""
    if not sums:
        return tuple(torch.zeros(parameter.shape, dtype=parameter.dtype) for parameter in _trainable(model))
    if len(sums) == 1:
        return tuple(sums[0])
    return tuple(torch.stack([part.double() for part in parts]).sum(0) for parts in zip(*sums, strict=True))


def load_weights(path: Path, model: nn.Module) -> None:
    """Load only the weights, in place."""
    if not path.is_dir():
        _load_trained(model, _read(path)["model"])
        return
    wanted = {f"model.{name}": tensor for name, tensor in _trained_state(model).items()}
    known = {key for key in sharded_checkpoint.keys_of(path) if key.startswith("model.")}
    if wanted.keys() != known:
        raise RuntimeError(f"the checkpoint is of another model: {min(wanted.keys() ^ known)}")
    sharded_checkpoint.read_into(path, wanted)


def load_optimizer(path: Path, optimizer: torch.optim.Optimizer) -> None:
    """Load only the optimizer's state, in place."""
    if not path.is_dir():
        _restore(optimizer, copy.deepcopy(_read(path)["optimizer"]))
        return
    rest = sharded_checkpoint.read_rest(path)
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    state: dict[int, dict[str, Any]] = {number: dict(values) for number, values in rest["counts"].items()}
    wanted = {}
    for key in sorted(key for key in sharded_checkpoint.keys_of(path) if key.startswith("optimizer.")):
        number, name = int(key.split(".")[1]), key.split(".")[2]
        state.setdefault(number, {})[name] = wanted[key] = torch.zeros_like(parameters[number])
    sharded_checkpoint.read_into(path, wanted)
    optimizer.load_state_dict({"state": state, "param_groups": rest["param_groups"]})


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
    if not path.exists():
        return 0
    return int((sharded_checkpoint.read_rest(path) if path.is_dir() else _read(path))["next_step"])


def _read(path: Path) -> dict[str, Any]:
    """The file mapped into memory, so that only what is used is read."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (RuntimeError, EOFError, pickle.UnpicklingError):
        raise DataError(
            f"{path}: damaged checkpoint; delete it, and its phase is done again at no cost, with the same compute options if "
            "a later phase has begun"
        ) from None
