"""Layers without a rule: their per-unit gradients by running the layer again, one unit at a time, under ``torch.func.vmap``.

A layer is taken where that is exact: it must give one unit alone the same output as it gave the unit within the batch. This
is checked at every call, so a layer that mixes examples, or draws random numbers, is refused by name. The cost is one more
forward and backward of the layer and a gradient a unit of its own parameters. Layers inside it that have rules keep them. Where a
unit's place would decide how its gradient is added up, which the shapes tell (`PlaceWatch`), each unit is computed by itself.

Where autocast computed the layer in a lower precision, rounding would hide much of what is mixed. So there the check is made of two
more forwards in the parameters' precision: of the batch, and of the units alone. The gradients are those of the lower precision.

Legend: B rows of the batch, U units, k rows a unit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad_and_value, vmap
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from tacit.engine.capture import Capture, refuse_second_order
from tacit.engine.factors import Dense, Factor
from tacit.engine.places import PlaceWatch
from tacit.engine.sites import Site
from tacit.errors import RefusedError

__all__ = ["tap_call"]

# Room for another order of the same sums, in units of the output's epsilon and relative to its largest value.
_TOLERANCE = 1000.0


def tap_call(capture: Capture, site: Site, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> Any:
    """The call's output, whose floating-point tensors report their gradients to the capture.

    Raises:
        RefusedError: ``parameter-without-rule``, if an output has no row for each example.
    """
    leaves, form = tree_flatten(output)
    places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor) and leaf.is_floating_point()]
    outputs = [leaves[place] for place in places]
    if any(isinstance(leaf, Tensor) and leaf.is_complex() for leaf in leaves):
        raise _refusal(site, "gives a complex output")
    if not outputs or any(leaf.dim() == 0 or leaf.shape[0] != capture.rows for leaf in outputs):
        raise _refusal(site, "gives an output that has not one row an example")
    inputs, input_form = tree_flatten((args, kwargs))
    call = _Call(capture, site, input_form, tuple(places), _autocast_dtype(outputs[0].device.type))
    detached = [leaf.detach() if isinstance(leaf, Tensor) else leaf for leaf in inputs]
    for place, tapped in zip(
        places, _TapCall.apply(call, capture.anchor, len(outputs), *outputs, *detached), strict=True
    ):
        leaves[place] = tapped
    return tree_unflatten(leaves, form)


@dataclass(frozen=True)
class _Call:
    """What is known of a call before its backward; ``places``: which leaves of the output are floating-point tensors."""

    capture: Capture
    site: Site
    input_form: TreeSpec
    places: tuple[int, ...]
    autocast: torch.dtype | None


@dataclass(frozen=True)
class _CallRecord:
    call: _Call
    inputs: tuple[Any, ...]
    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...]
    has_private_shapes = False

    def factors(self, units: int) -> Iterator[tuple[str, Factor]]:
        site = self.call.site
        try:
            gradients, again = self._run_again(units)
            is_same = all(map(partial(_same, lower=self.call.autocast), again, self.outputs))
            if self.call.autocast is not None:
                is_same = is_same and all(map(_same, self._in_full(units), self._in_full(1)))
        except RuntimeError as error:
            raise _refusal(
                site, "cannot run one example at a time under vmap (dropout, or other code that it forbids)"
            ) from error
        if not is_same:
            raise _refusal(
                site, "gives an example another output alone than within the batch (it mixes examples or is random)"
            )
        for name, name_in_model in site.names.items():
            yield name_in_model, Dense(gradients[name])

    def _run_again(self, units: int) -> tuple[dict[str, Tensor], tuple[Tensor, ...]]:
        """Per-unit gradients by the parameter's name in the layer, and the outputs of this run as (U, k, ...)."""
        inputs, dims = self._cut_inputs(units)

        def weighted(parameters: dict[str, Tensor], inputs: tuple[Any, ...], gradients: tuple[Tensor, ...]) -> Any:
            outputs = self._forward(parameters, inputs)
            products = [_product(o, g) for o, g in zip(outputs, gradients, strict=True)]
            return torch.stack(products).sum(), outputs

        gradients = tuple(_cut(gradient, units) for gradient in self.gradients)
        run = vmap(grad_and_value(weighted, has_aux=True), in_dims=(None, dims, 0), randomness="error")
        parameters, device = self._parameters(), self.outputs[0].device.type
        with torch.autocast(device, dtype=self.call.autocast, enabled=self.call.autocast is not None):
            with PlaceWatch(max(units, 1)) as watch:
                found, (_, outputs) = run(parameters, inputs, gradients)
            if not watch.differing or units < 2:
                return found, outputs
            alone = [run(parameters, *_alone(inputs, dims, gradients, unit)) for unit in range(units)]
        return (
            {name: torch.cat([one[0][name] for one in alone]) for name in found},
            tuple(torch.cat(parts) for parts in zip(*(one[1][1] for one in alone), strict=True)),
        )

    def _in_full(self, units: int) -> tuple[Tensor, ...]:
        """The outputs (U, k, ...) in the parameters' precision, of so many units one at a time."""
        parameters = self._parameters()
        dtype = next(iter(parameters.values())).dtype
        inputs, dims = self._cut_inputs(units)
        inputs = tuple(_raised(leaf, dtype) for leaf in inputs)
        return vmap(self._forward, in_dims=(None, dims), randomness="error")(parameters, inputs)

    def _parameters(self) -> dict[str, Tensor]:
        module = self.call.site.module
        return {name: module.get_parameter(name).detach() for name in self.call.site.names}

    def _cut_inputs(self, units: int) -> tuple[tuple[Any, ...], tuple[int | None, ...]]:
        """The inputs as (U, k, ...) where they are per example, and vmap's dimension of each."""
        rows = self.call.capture.rows
        per_unit = [isinstance(leaf, Tensor) and leaf.dim() > 0 and leaf.shape[0] == rows for leaf in self.inputs]
        inputs = tuple(_cut(leaf, units) if cut else leaf for leaf, cut in zip(self.inputs, per_unit, strict=True))
        return inputs, tuple(0 if cut else None for cut in per_unit)

    def _forward(self, parameters: dict[str, Tensor], inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """The layer's outputs of which gradients were recorded."""
        args, kwargs = tree_unflatten(list(inputs), self.call.input_form)
        leaves, _ = tree_flatten(functional_call(self.call.site.module, parameters, args, kwargs, tie_weights=False))
        return tuple(leaves[place] for place in self.call.places)


def _alone(
    inputs: tuple[Any, ...], dims: tuple[int | None, ...], gradients: tuple[Tensor, ...], unit: int
) -> tuple[tuple[Any, ...], tuple[Tensor, ...]]:
    """The inputs and gradients of one unit, in memory of their own: its place in a batch would decide how they are added up."""
    own = slice(unit, unit + 1)
    taken = (leaf if dim is None else leaf[own].clone() for leaf, dim in zip(inputs, dims, strict=True))
    return tuple(taken), tuple(gradient[own].clone() for gradient in gradients)


def _cut(x_B: Tensor, units: int) -> Tensor:
    return x_B.reshape(units, len(x_B) // max(units, 1), *x_B.shape[1:])


def _raised(leaf: Any, dtype: torch.dtype) -> Any:
    """Numbers in a precision that is higher than theirs; anything else as it is."""
    is_lower = isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.dtype.itemsize < dtype.itemsize
    return leaf.to(dtype) if is_lower else leaf


def _product(x: Tensor, y: Tensor) -> Tensor:
    """Sum of x * y, in float32 at least."""
    dtype = torch.promote_types(x.dtype, torch.float32)
    return (x.to(dtype) * y.to(dtype)).sum()


def _same(again: Tensor, before: Tensor, lower: torch.dtype | None = None) -> bool:
    """Equal but for rounding. The room is that of a middling entry of the unit: one huge value must not hide the others.

    Args:
        lower: the precision of autocast, in which the layer's products were rounded whatever the output's own is.
    """
    if again.numel() != before.numel():
        return False
    if again.numel() == 0:
        return True
    before_Un = before.reshape(len(again), -1)
    again_Un = again.reshape(len(again), -1)
    room = _TOLERANCE * max(torch.finfo(dtype).eps for dtype in (before.dtype, lower or before.dtype))
    # the lower median; torch's own, with indices, is refused on a GPU where all is to be deterministic
    sorted_Un = before_Un.abs().nan_to_num(0.0).float().sort(1).values
    middling_U = sorted_Un[:, (sorted_Un.shape[1] - 1) // 2, None]
    difference = (again_Un - before_Un).abs()
    close = difference <= room * (before_Un.abs() + middling_U)
    return bool((close | (again_Un == before_Un) | (again_Un.isnan() & before_Un.isnan())).all())


def _autocast_dtype(device: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def _refusal(site: Site, reason: str) -> RefusedError:
    return RefusedError(
        "parameter-without-rule",
        f"parameter {next(iter(site.names))!r} of {site.describe()} has no per-example rule, and the layer {reason}; freeze "
        "it with requires_grad_(False), or add the layer to tacit.engine.rules.RULES",
    )


class _TapCall(torch.autograd.Function):
    """The identity on a call's outputs; the inputs are saved beside them."""

    @staticmethod
    def forward(ctx: Any, call: _Call, anchor: Tensor, outputs: int, *tensors: Any) -> tuple[Tensor, ...]:
        ctx.call, ctx.count = call, outputs
        ctx.others = [None if isinstance(leaf, Tensor) else leaf for leaf in tensors]
        ctx.is_tensor = [isinstance(leaf, Tensor) for leaf in tensors]
        given = tuple(tensor.detach() for tensor in tensors[:outputs])
        kept = [tensor.clone() for tensor in given]  # the caller may change the output in place
        ctx.save_for_backward(*kept, *(leaf for leaf in tensors[outputs:] if isinstance(leaf, Tensor)))
        return given

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        refuse_second_order()
        saved = iter(ctx.saved_tensors)
        leaves = [next(saved) if tensor else other for tensor, other in zip(ctx.is_tensor, ctx.others, strict=True)]
        outputs, inputs = leaves[: ctx.count], leaves[ctx.count :]
        record = _CallRecord(ctx.call, tuple(inputs), tuple(outputs), gradients)
        ctx.call.capture.add(record, ctx.call.site.describe(), *gradients, later=True)
        return None, None, None, *gradients, *(None for _ in inputs)
