"""One of two processes of tests/engine/test_sharding.py: writes what it found as tensors. Not a test itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.fsdp import fully_shard

from tacit.engine import PerExampleClipper, PerLayerClipping, add_noise_
from tacit.errors import RefusedError
from tacit.randomness import KeyedRandomness

from . import cases

CLIP_NORM, NOISE = 0.5, 2.0
BLOCKS: dict[str, Callable[[nn.Module], list[nn.Module]]] = {
    "bert-tied": lambda model: list(model.get_submodule("bert.encoder.layer").children()),
    "gpt2-tied-gram": lambda model: list(model.get_submodule("transformer.h").children()),
    "llama": lambda model: list(model.get_submodule("model.layers").children()),
    "linear-3d": lambda model: [module for module in model.children() if isinstance(module, nn.Linear)],
}


def sharded(name: str, device: str | torch.device = "cpu") -> nn.Module:
    model = cases.CASES[name].model().to(device)
    for block in BLOCKS[name](model):
        fully_shard(block)
    return fully_shard(model)


def full_gradients(model: nn.Module) -> dict[str, Tensor]:
    return {name: parameter.grad.full_tensor() for name, parameter in model.named_parameters()}


def clipped(name: str, rank: int, clipper_options: dict[str, Any]) -> dict[str, Any]:
    """Two micro-batches: rows 0, 1 and 2, 3 on ranks 0 and 1; then rows 4, 5 on rank 0 while rank 1 has blank rows."""
    case, model = cases.CASES[name], sharded(name)
    batch = case.batch(6, 3)
    clipper = PerExampleClipper(model, CLIP_NORM, **clipper_options)
    norms = []
    for rows in ([2 * rank, 2 * rank + 1], [4, 5]):
        own = cases.take(batch, rows)
        if rows == [4, 5] and rank == 1:
            own["weight"] = torch.zeros(2, dtype=torch.float64)
        with clipper:
            case.losses(model, own).sum().backward()
        norms.append(clipper.norms)
    found = {"norms": torch.stack(norms), "sums": full_gradients(model)}
    add_noise_(model.named_parameters(), NOISE, KeyedRandomness(bytes(32)), 3, None)
    found["noisy"] = full_gradients(model)
    clipper.close()
    return found


def outside_use(rank: int) -> str:
    """A table that is also read by hand: FSDP2 would add its ordinary gradient to the shards."""
    torch.manual_seed(0)
    model = fully_shard(cases.BorrowedTable().double())
    clipper = PerExampleClipper(model, CLIP_NORM)
    try:
        with clipper:
            model(torch.tensor([[1, 2]])).sum().backward()
    except RefusedError as error:
        return str(error)
    return "not refused"


def fallback_refusal() -> str:
    try:
        PerExampleClipper(fully_shard(cases.CASES["fallback"].model()), CLIP_NORM)
    except RefusedError as error:
        return str(error)
    return "not refused"


def work(rank: int, world: int, store: Path, output: Path) -> None:
    """Everything that rank ``rank`` does; the processes meet at the file ``store``."""
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    found: dict[str, Any] = {name: clipped(name, rank, {}) for name in BLOCKS}
    found["per-layer"] = clipped("gpt2-tied-gram", rank, {"clipping": PerLayerClipping()})
    found["outside"], found["fallback"] = outside_use(rank), fallback_refusal()
    torch.save(found, output)
    distributed.destroy_process_group()
