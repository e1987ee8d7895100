"""Sums over many micro-batches of a sharded model: no unit is forgotten in them, as none is unsharded (TACIT-20)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from tacit.engine import PerExampleClipper, add_noise_
from tacit.engine.distributed import Ranks
from tacit.engine.noise import Grid
from tacit.engine.running_sums import RunningSums
from tacit.randomness import KeyedRandomness

from ..processes import in_processes, values_of

MICRO_BATCHES, CLIP_NORM, STDDEV = 80, 1.0, 3.0
START = 2.0**16
"""A sum of so many clip norms that is there already, as after as many units."""

pytestmark = pytest.mark.slow


def model_of() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 1, bias=False))


def rows(rank: int) -> Tensor:
    return torch.randn(MICRO_BATCHES, 4, generator=torch.Generator().manual_seed(rank))


def exact() -> list[Tensor]:
    """Oracle: each unit by autograd in float64, added in float64."""
    model = model_of().double()
    totals = [torch.full_like(p, START) for p in model.parameters()]
    for rank in range(2):
        for row in rows(rank).double():
            model.zero_grad()
            model(row[None]).square().sum().backward()
            own = [p.grad for p in model.parameters() if p.grad is not None]
            scale = min(1.0, CLIP_NORM / float(torch.cat([g.flatten() for g in own]).norm()))
            for total, gradient in zip(totals, own, strict=True):
                total += scale * gradient
    return totals


def summed_up(ranks: Ranks, model: nn.Module) -> list[Tensor]:
    """What `sums` says after all micro-batches of one unit a rank, and what ``p.grad`` and the rests say together."""
    clipper = PerExampleClipper(model, CLIP_NORM)
    clipper.put_sums([torch.full_like(p, START, dtype=torch.float64) for p in model.parameters()])
    for row in rows(ranks.rank):
        with clipper:
            model(row[None]).square().sum().backward()
    found = [one.full_tensor() for one in clipper.sums() if isinstance(one, DTensor)]
    rests = clipper.take_rests()
    for p in model.parameters():
        assert isinstance(p.grad, DTensor)
        found.append(
            p.grad.full_tensor().double() + rests[p].full_tensor().double() if p in rests else p.grad.full_tensor()
        )
    return found


def check_sums(work: Callable[[Ranks, nn.Module], list[Tensor]]) -> None:
    """As near to the sum of exact gradients as clipping in float32 comes: a hundredth of a clip norm for all units together."""
    for found in values_of(in_processes(2, lambda ranks: work(ranks, fully_shard(model_of())))):
        for own, expected in zip(found, [*exact(), *exact()], strict=True):
            assert float((own - expected).norm()) < 0.01 * CLIP_NORM


def test_no_unit_is_forgotten_in_a_large_sum() -> None:
    check_sums(summed_up)


def test_the_check_catches_a_sum_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_float32(self: RunningSums, parameter: nn.Parameter, value: Tensor) -> None:
        assert parameter.grad is not None
        parameter.grad.add_(value.to(parameter.dtype))

    monkeypatch.setattr(RunningSums, "add_", in_float32)
    with pytest.raises(AssertionError):
        check_sums(summed_up)


@pytest.mark.parametrize("grid", [None, Grid(2.0**-12)])
def test_what_float32_cannot_hold_is_added_behind_the_noise(grid: Grid | None) -> None:
    """As unsharded: a sum is not rounded before its noise; on a grid, before the rounding."""

    def work(ranks: Ranks) -> list[Tensor]:
        model = fully_shard(model_of())
        clipper = PerExampleClipper(model, CLIP_NORM)
        clipper.put_sums([torch.full_like(p, START + 1e-3, dtype=torch.float64) for p in model.parameters()])
        add_noise_(model.named_parameters(), STDDEV, KeyedRandomness(bytes(32)), 0, grid, ranks, clipper.take_rests())
        return [p.grad.full_tensor() for p in model.parameters() if isinstance(p.grad, DTensor)]

    model = model_of()
    clipper = PerExampleClipper(model, CLIP_NORM)
    clipper.put_sums([torch.full_like(p, START + 1e-3, dtype=torch.float64) for p in model.parameters()])
    add_noise_(model.named_parameters(), STDDEV, KeyedRandomness(bytes(32)), 0, grid, rests=clipper.take_rests())
    for found in values_of(in_processes(2, work)):
        for own, parameter in zip(found, model.parameters(), strict=True):
            torch.testing.assert_close(own, parameter.grad, rtol=0, atol=0)
