"""What any clipping engine must satisfy, as functions of the engine: wrong ones must fail the very same checks.

The oracle is a loop: one unit at a time through the model alone, plain autograd, clip, add.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tacit.engine import Clipping, FlatClipping, PerExampleClipper

from .cases import Batch, Case, Losses, take

Gradients = dict[str, Tensor]


@dataclass(frozen=True)
class Result:
    norms: Tensor
    sums: Gradients

    def vector(self) -> Tensor:
        return torch.cat([self.sums[name].flatten() for name in sorted(self.sums)])


Engine = Callable[[nn.Module, Batch, Losses, float], Result]


def trainable(model: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


FLAT = FlatClipping()
FOUR = torch.arange(12.0).view(4, 3)


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def step(clipper: PerExampleClipper, model: nn.Module, x: Tensor = FOUR) -> None:
    with clipper:
        model(x).square().sum().backward()


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x


def rows_of(batch: Batch) -> int:
    return len(next(iter(batch.values())))


def our_engine(
    model: nn.Module,
    batch: Batch,
    losses: Losses,
    clip_norm: float,
    sequences_per_unit: int = 1,
    clipping: Clipping = FLAT,
) -> Result:
    model.zero_grad()
    clipper = PerExampleClipper(model, clip_norm, sequences_per_unit, clipping)
    with clipper:
        losses(model, batch).sum().backward()
    clipper.close()
    sums = {name: parameter.grad for name, parameter in trainable(model).items() if parameter.grad is not None}
    return Result(clipper.norms, sums)


def autograd(loss: Tensor, model: nn.Module, retain_graph: bool = False) -> Gradients:
    named = trainable(model)
    found = torch.autograd.grad(loss, list(named.values()), retain_graph=retain_graph, allow_unused=True)
    pairs = zip(named.items(), found, strict=True)
    return {name: torch.zeros_like(p) if gradient is None else gradient for (name, p), gradient in pairs}


def norm_of(gradients: Gradients) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()


def clip_and_add(gradients: list[Gradients], norms: list[Tensor], clip_norm: float) -> Result:
    scales = [min(1.0, clip_norm / norm.item()) if norm > 0 else 1.0 for norm in norms]
    names = gradients[0]
    return Result(
        torch.stack(norms),
        {name: sum((s * g[name] for s, g in zip(scales, gradients, strict=True)), torch.tensor(0.0)) for name in names},
    )


def loop_engine(
    model: nn.Module, batch: Batch, losses: Losses, clip_norm: float, sequences_per_unit: int = 1
) -> Result:
    """The oracle."""
    k = sequences_per_unit
    units = [list(range(start, start + k)) for start in range(0, rows_of(batch), k)]
    gradients = [autograd(losses(model, take(batch, rows)).sum(), model) for rows in units]
    return clip_and_add(gradients, [norm_of(gradient) for gradient in gradients], clip_norm)


def assert_close(actual: Result, expected: Result, tolerance: float = 1e-9, scale: float = 0.0) -> None:
    """Norms unit by unit, and each parameter's sum, relative to the largest sum of all (or ``scale``, if that is more)."""
    largest = expected.norms.max().item()
    torch.testing.assert_close(
        actual.norms.double(), expected.norms.double(), rtol=tolerance, atol=1e-3 * tolerance * largest
    )
    assert actual.sums.keys() == expected.sums.keys()
    scale = max(scale, *(value.abs().max().item() for value in expected.sums.values()))
    for name, value in expected.sums.items():
        error = (actual.sums[name].double() - value.double()).abs().max().item()
        assert error <= tolerance * scale, f"{name}: {error / scale:.2e} of the largest sum"


def median_norm(case: Case, batch: Batch) -> float:
    """A clip norm that clips about half of the batch."""
    return loop_engine(case.model(), batch, case.losses, 1.0).norms.median().item()


def check_agreement(engine: Engine, case: Case, rows: int = 5, tolerance: float = 1e-9) -> None:
    batch = case.batch(rows, 3)
    clip_norm = median_norm(case, batch)
    expected = loop_engine(case.model(), batch, case.losses, clip_norm)
    assert_close(engine(case.model(), batch, case.losses, clip_norm), expected, tolerance)


def check_influence(engine: Engine, model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> None:
    """Taking any one row away moves the sum by at most C; putting another row in its place, by at most 2C."""
    rows = list(range(rows_of(batch)))
    whole = engine(model, batch, losses, clip_norm).vector()
    for row in rows:
        others = [i for i in rows if i != row]
        without = engine(model, take(batch, others), losses, clip_norm).vector()
        replaced = engine(
            model, take(batch, [rows[row - 1] if i == row else i for i in rows]), losses, clip_norm
        ).vector()
        slack = 1e-9 * (whole.norm() + clip_norm)
        assert (whole - without).norm() <= clip_norm + slack, f"removing row {row}"
        assert (whole - replaced).norm() <= 2 * clip_norm + slack, f"replacing row {row}"
