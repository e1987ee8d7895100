"""The ways to make one training step that are compared: forward, backward, and the optimizer (AdamW).

The private ones clip to ``CLIP_NORM`` and divide by the batch; none of them adds noise, which is paid once a logical
batch and has rows of its own. After a step ``p.grad`` is what the optimizer was given, so that ``clipping_error`` can
compare it with a loop over single rows.

Opacus is used as its documentation says, with noise multiplier 0: `GradSampleModule` and `DPOptimizer` (every row's
gradient in memory), or their FastGradientClipping forms (norms first, then a second backward). It gets what it can
clip: position indices of shape (B, T), DPLSTM for the LSTM, and, where it cannot clip tied weights, an untied model, whose
own ordinary step it is then compared with.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial

import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.optimizers import DPOptimizer, DPOptimizerFastGradientClipping
from opacus.utils.fast_gradient_clipping_utils import DPLossFastGradientClipping
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from engine_parts.cases import (
    OWN,
    UNTIED,
    Batch,
    Case,
    build,
    chunked_head_losses,
    make_batch,
    masked_head_losses,
    mean_loss,
    row_losses,
)
from tacit.engine import PerExampleClipper, cross_entropy

__all__ = ["CLIP_NORM", "METHODS", "Method", "Step", "clipping_error", "loop_gradient", "reference_of", "variant_of"]

CLIP_NORM = 0.01  # below the norms of random models: every row is clipped
VMAP_BYTES = 4 * 2**30  # rows are taken in chunks whose gradients fit in this


@dataclass(frozen=True)
class Step:
    """One step when called; ``parameters`` are those it trains."""

    run: Callable[[], None]
    model: nn.Module
    parameters: list[nn.Parameter]
    optimizer: torch.optim.Optimizer


@dataclass(frozen=True)
class Method:
    """``make`` sets a step up on a model and a batch of the case. ``peer``: another library's."""

    title: str
    make: Callable[[Case, nn.Module, Batch], Step]
    clips: bool = True
    peer: bool = False


def _trainable(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _adamw(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(_trainable(model), lr=1e-4)


def _autocast(case: Case) -> AbstractContextManager[None]:
    return torch.autocast(case.device, torch.bfloat16) if case.autocast else nullcontext()


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, gradients: Callable[[], None]) -> Step:
    def run() -> None:
        optimizer.zero_grad(set_to_none=True)
        gradients()
        optimizer.step()

    return Step(run, model, _trainable(model), optimizer)


def _ordinary(loss: Callable[[Case, nn.Module, Batch], Tensor]) -> Callable[[Case, nn.Module, Batch], Step]:
    def make(case: Case, model: nn.Module, batch: Batch) -> Step:
        def gradients() -> None:
            with _autocast(case):
                mean = loss(case, model, batch)
            mean.backward()

        return _step(model, _adamw(model), gradients)

    return make


def _tacit(losses: Callable[[Case, nn.Module, Batch], Tensor]) -> Callable[[Case, nn.Module, Batch], Step]:
    def make(case: Case, model: nn.Module, batch: Batch) -> Step:
        clipper = PerExampleClipper(model, CLIP_NORM)
        parameters = _trainable(model)

        def gradients() -> None:
            with clipper:
                with _autocast(case):
                    total = losses(case, model, batch).sum()
                total.backward()
            for parameter in parameters:
                parameter.grad.div_(case.shape.batch)

        return _step(model, _adamw(model), gradients)

    return make


def _opacus(case: Case, model: nn.Module, batch: Batch) -> Step:
    hooked = GradSampleModule(model, loss_reduction="mean")
    optimizer = DPOptimizer(
        _adamw(model), noise_multiplier=0.0, max_grad_norm=CLIP_NORM, expected_batch_size=case.shape.batch
    )

    def gradients() -> None:
        with _autocast(case):
            mean = mean_loss(case, hooked, batch)
        mean.backward()

    return _step(model, optimizer, gradients)


class _RowLosses(nn.Module):
    """A criterion in Opacus' sense whose input is the rows' losses already."""

    def __init__(self) -> None:
        super().__init__()
        self.reduction = "mean"

    def forward(self, losses_B: Tensor, targets: None) -> Tensor:
        return losses_B


def _opacus_ghost(case: Case, model: nn.Module, batch: Batch) -> Step:
    hooked = GradSampleModuleFastGradientClipping(model, max_grad_norm=CLIP_NORM, loss_reduction="mean")
    optimizer = DPOptimizerFastGradientClipping(
        _adamw(model), noise_multiplier=0.0, max_grad_norm=CLIP_NORM, expected_batch_size=case.shape.batch
    )
    criterion = DPLossFastGradientClipping(hooked, optimizer, _RowLosses(), loss_reduction="mean")

    def gradients() -> None:
        with _autocast(case):
            losses_B = row_losses(case, hooked, batch)
        criterion(losses_B, None).backward()

    return _step(model, optimizer, gradients)


def _vmap(case: Case, model: nn.Module, batch: Batch) -> Step:
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    gradient_bytes = sum(parameter.numel() * parameter.element_size() for parameter in parameters.values())
    rows = max(1, min(case.shape.batch, VMAP_BYTES // gradient_bytes))

    def loss(values: dict[str, Tensor], row: Batch) -> Tensor:
        one = _map(row, lambda tensor: tensor.unsqueeze(0))
        with _autocast(case):
            return row_losses(case, lambda **inputs: functional_call(model, values, kwargs=inputs), one)[0]

    def gradients() -> None:
        detached = {name: parameter.detach() for name, parameter in parameters.items()}
        for start in range(0, case.shape.batch, rows):
            part = _map(batch, lambda tensor, at=start: tensor[at : at + rows])
            per_row = _vmap_gradients(loss, detached, part)
            norms_B = sum(gradient.flatten(1).square().sum(1) for gradient in per_row.values()).sqrt()
            weight_B = CLIP_NORM / norms_B.clamp(min=CLIP_NORM) / case.shape.batch
            for name, gradient in per_row.items():
                share = torch.tensordot(weight_B, gradient, 1)
                parameter = parameters[name]
                parameter.grad = share if parameter.grad is None else parameter.grad.add_(share)

    return _step(model, _adamw(model), gradients)


def _vmap_gradients(
    loss: Callable[[dict[str, Tensor], Batch], Tensor], values: dict[str, Tensor], batch: Batch
) -> dict[str, Tensor]:
    """The gradient of each row's loss, stacked: vmap maps tensors, so the batch goes through it as a tuple."""
    names = list(batch.inputs)

    def of_tensors(values: dict[str, Tensor], labels_T: Tensor, slots_K: Tensor, *inputs: Tensor) -> Tensor:
        return loss(values, Batch(dict(zip(names, inputs, strict=True)), labels_T, slots_K))

    mapped = vmap(grad(of_tensors), in_dims=(None, 0, 0, *[0] * len(names)))
    return mapped(values, batch.labels_BT, batch.slots_BK, *batch.inputs.values())


def _map(batch: Batch, change: Callable[[Tensor], Tensor]) -> Batch:
    inputs = {name: change(tensor) for name, tensor in batch.inputs.items()}
    return Batch(inputs, change(batch.labels_BT), change(batch.slots_BK))


def _full_losses(case: Case, model: nn.Module, batch: Batch) -> Tensor:
    return row_losses(case, model, batch, partial(cross_entropy, overwrite=True))


def _masked_losses(case: Case, model: nn.Module, batch: Batch) -> Tensor:
    return masked_head_losses(model, batch)


def _chunked_losses(case: Case, model: nn.Module, batch: Batch) -> Tensor:
    return chunked_head_losses(model, batch)


METHODS: dict[str, Method] = {
    "ordinary": Method("ordinary", _ordinary(mean_loss), clips=False),
    "tacit": Method("tacit", _tacit(_full_losses)),
    "tacit-torch-loss": Method("tacit, torch's cross-entropy", _tacit(row_losses)),
    "ordinary-masked": Method(
        "ordinary, head at masked positions", _ordinary(lambda *a: _masked_losses(*a).mean()), clips=False
    ),
    "tacit-masked": Method("tacit, head at masked positions", _tacit(_masked_losses)),
    "tacit-chunked": Method("tacit, logits in chunks", _tacit(_chunked_losses)),
    "ordinary-untied": Method("ordinary, untied", _ordinary(mean_loss), clips=False),
    "opacus": Method("Opacus, materialised", _opacus, peer=True),
    "opacus-ghost": Method("Opacus, ghost", _opacus_ghost, peer=True),
    "vmap": Method("vmap(grad)", _vmap, peer=True),
}


def variant_of(case: Case, method: str) -> str:
    """Which form of the model a method gets."""
    return UNTIED if method == "ordinary-untied" else case.family.variants.get(method, OWN)


def reference_of(case: Case, method: str) -> str:
    """The method whose step a method's is divided by: the ordinary one, of the same model where weights are untied."""
    return "ordinary-untied" if variant_of(case, method) == UNTIED else "ordinary"


def set_up(case: Case, method: str) -> Step:
    """The method's step on a model of its own."""
    explicit = method.startswith("opacus") or method == "ordinary-untied"
    return METHODS[method].make(case, build(case, variant_of(case, method)), make_batch(case, explicit))


def loop_gradient(case: Case, variant: str) -> list[Tensor]:
    """The oracle: the mean of the rows' clipped gradients, one row at a time through the bare model by autograd."""
    model, batch = build(case, variant), make_batch(case, explicit_positions=False)
    parameters = _trainable(model)
    sums = [torch.zeros_like(parameter) for parameter in parameters]
    for row in range(case.shape.batch):
        with _autocast(case):
            loss = row_losses(case, model, _map(batch, lambda tensor, at=row: tensor[at : at + 1]))
        found = torch.autograd.grad(loss[0], parameters)
        norm = torch.stack([gradient.square().sum() for gradient in found]).sum().sqrt()
        for total, gradient in zip(sums, found, strict=True):
            total.add_(gradient, alpha=min(1.0, CLIP_NORM / float(norm)) / case.shape.batch)
    return sums


def clipping_error(step: Step, expected: list[Tensor]) -> float:
    """The L2 distance of a step's gradient from the expected one, relative to the latter's norm."""
    found = [torch.zeros_like(p) if p.grad is None else p.grad for p in step.parameters]
    distance = sum(float((f.double() - e.double()).square().sum()) for f, e in zip(found, expected, strict=True))
    size = sum(float(e.double().square().sum()) for e in expected)
    return (distance / size) ** 0.5
