"""What one clipping context records: for each call of a layer, its input and the gradient at its output.

``_Tap`` is the identity on a layer's output. Its backward hands (input, output gradient) to the context's ``Capture``. The input
is kept by ``save_for_backward``, so an in-place change of it is an error and activation checkpointing recomputes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tacit.engine.factors import Factor
from tacit.engine.sites import Site
from tacit.errors import RefusedError, UsageError

__all__ = ["Capture"]


@dataclass(frozen=True)
class _Record:
    site: Site
    input: Tensor
    gradient: Tensor


class Capture:
    """The records of one context; ``batch_size`` is learned from the first module of the model that is called."""

    def __init__(self, sequences_per_unit: int) -> None:
        self.batch_size: int | None = None
        self._sequences_per_unit = sequences_per_unit
        self._model_inputs: list[Tensor] = []
        self._records: list[_Record] = []
        self._open = True
        # An embedding's output, or the first layer's, has no graph of its own: this gives the tap one.
        self._anchor = torch.zeros((), requires_grad=True)

    def learn_batch_size(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the batch size from the inputs of the first module called: the first tensor's leading dimension.

        Raises:
            UsageError: other tensors lead with another size (1 is allowed), or units do not divide the batch.
        """
        tensors = [tensor for tensor in _tensors_in((args, kwargs)) if tensor.dim() > 0]
        if self.batch_size is not None or not tensors:
            return
        batch = tensors[0].shape[0]
        if any(tensor.shape[0] not in (1, batch) for tensor in tensors):
            sizes = [tensor.shape[0] for tensor in tensors]
            raise UsageError(
                f"the model's tensor inputs lead with different sizes {sizes}; dimension 0 must be the batch"
            )
        if batch % self._sequences_per_unit:
            raise UsageError(f"a batch of {batch} rows is no multiple of sequences_per_unit={self._sequences_per_unit}")
        self.batch_size, self._model_inputs = batch, tensors

    def tap(self, site: Site, input: Tensor, output: Tensor) -> Tensor:
        """The layer's output, one row an example, that reports its gradient here.

        A layer whose input leads with 1, such as position indices of shape (1, T), has its output expanded to the batch.
        """
        self._check_rows(site, input)
        if input.shape[0] != self.batch_size:
            output = output.expand(self.batch_size, *output.shape[1:])
        tapped = _Tap.apply(output, self._anchor, input.detach(), self, site)
        assert isinstance(tapped, Tensor)
        return tapped

    def _check_rows(self, site: Site, input: Tensor) -> None:
        if self.batch_size is None:
            raise UsageError(f"{site.describe()} was called before any module of the model had seen a tensor input")
        leading = input.shape[: input.dim() - site.rule.input_features(site.module)]
        if len(leading) == 0 or leading[0] not in (1, self.batch_size):
            raise UsageError(
                f"{site.describe()} got an input of shape {tuple(input.shape)} in a batch of {self.batch_size}: it "
                "flattens or drops the batch; dimension 0 must be the example (or 1, to be shared by all)"
            )
        if len(leading) == 1 and leading[0] > 1 and self._may_be_positions(input):
            raise RefusedError(
                "ambiguous-batch-dimension",
                f"{site.describe()} got {leading[0]} rows without a position dimension, and the batch is as long as its "
                "sequences: give position indices the shape (1, positions), or use another batch size",
            )

    def _may_be_positions(self, input: Tensor) -> bool:
        """Whether rows that come from no layer could be positions shared by all examples: the batch is as long as wide."""
        if input.requires_grad or any(input is tensor for tensor in self._model_inputs):
            return False
        return any(tensor.dim() > 1 and tensor.shape[1] == self.batch_size for tensor in self._model_inputs)

    def add(self, site: Site, input: Tensor, gradient: Tensor) -> None:
        """Called by the backward.

        Raises:
            UsageError: the context has ended.
        """
        if not self._open:
            raise UsageError("backward ran after its clipping context; call losses.sum().backward() inside the context")
        self._records.append(_Record(site, input, gradient))

    def close(self) -> None:
        self._open = False
        self._model_inputs = []

    def take_factors(self) -> dict[nn.Parameter, list[Factor]]:
        """The factors of every parameter that the backward reached, and forget the records.

        Raises:
            UsageError: the backward reached no layer.
        """
        if not self._records or self.batch_size is None:
            raise UsageError(
                "nothing was recorded: call the model and losses.sum().backward() inside the clipping context"
            )
        units = self.batch_size // self._sequences_per_unit
        factors: dict[nn.Parameter, list[Factor]] = {}
        for record in self._records:
            for parameter, factor in _record_factors(record, units):
                factors.setdefault(parameter, []).append(factor)
        self._records = []
        return factors


def _record_factors(record: _Record, units: int) -> Iterator[tuple[nn.Parameter, Factor]]:
    rule, module = record.site.rule, record.site.module
    input = record.input.expand(record.gradient.shape[0], *record.input.shape[1:])
    for name, parameter in record.site.parameters.items():
        input_UR = _per_unit(input, units, rule.input_features(module), parameter.dtype)
        gradient_UR = _per_unit(record.gradient, units, rule.output_features(module), parameter.dtype)
        yield parameter, rule.factors[name](module, input_UR, gradient_UR)


def _per_unit(x_B: Tensor, units: int, feature_dims: int, dtype: torch.dtype) -> Tensor:
    """(B, ..., features) as (unit, position, features); floating point in the parameter's own precision.

    Two rows a unit: (4, 5, 3) becomes (2, 10, 3), the rows of a unit one after another.
    """
    features = x_B.shape[x_B.dim() - feature_dims :]
    positions = x_B.shape[: x_B.dim() - feature_dims].numel() // units if units else 0
    x_UR = x_B.reshape(units, positions, *features)
    return x_UR.to(dtype) if x_UR.is_floating_point() else x_UR


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)


class _Tap(torch.autograd.Function):
    """The identity; ``detach`` shares the memory and the version counter without being a view, so in-place use is fine."""

    @staticmethod
    def forward(ctx: Any, output: Tensor, anchor: Tensor, input: Tensor, capture: Capture, site: Site) -> Tensor:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(input)
        ctx.capture, ctx.site = capture, site
        return output.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, None, None, None, None]:
        (gradient,) = gradients
        if gradient is not None:
            ctx.capture.add(ctx.site, *ctx.saved_tensors, gradient)
        return gradient, None, None, None, None
