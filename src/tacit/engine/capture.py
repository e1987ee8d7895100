"""What one clipping context records: for each call of a layer, the factors of its parameters' per-unit gradients.

``_Tap`` is the identity on a layer's output. Its backward hands (input, output gradient) to the context's ``Capture``,
which makes the factors at once: what is materialised is in the cache, and frees both tensors for the rest of the backward.
The input is kept by ``save_for_backward``: changing it in place is an error, and activation checkpointing recomputes it.

All of this takes row i of every layer's output to be example i's. No shape can show that: a model may permute its rows,
put positions first, or index what examples share. So at times the backward is *probed*: from the first layer that it
reaches, it is run down with the gradient of one unit alone, which must not touch the rows of another one.

Legend: B rows of the batch, U units, UR (unit, position). A unit's positions are those of its rows, one after another.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.autograd.graph import GradientEdge, get_gradient_edge

from tacit.engine.combining import Gathered
from tacit.engine.factors import Factor, Outer
from tacit.engine.places import engine_at_work
from tacit.engine.positions import WIDE, may_lack_positions, with_gradient
from tacit.engine.precision import full_precision
from tacit.engine.sites import Site
from tacit.engine.workspace import Workspace
from tacit.errors import RefusedError, UsageError

__all__ = [
    "Capture",
    "Record",
    "Shapes",
    "activated",
    "current_capture",
    "per_unit",
    "refuse_second_order",
]


Shapes = tuple[torch.Size, ...]


class Record(Protocol):
    """One call of a layer."""

    @property
    def has_private_shapes(self) -> bool:
        """Whether units' numbers decide the shapes in which their gradients are computed."""
        ...

    def factors(self, units: int) -> Iterable[tuple[str, Factor]]:
        """The per-unit gradients of each trainable parameter, by its name in the model."""
        ...


class Capture:
    """The records of one context. The batch size is learned from the first module of the model that is called.

    Args:
        sites: the model's layers with trainable parameters.
        sequences_per_unit: rows that form one unit.
        probed: shapes of inputs for which the backward was probed in earlier contexts; None: never probe.
        workspace: memory for materialised gradients, free until the context has ended.
    """

    def __init__(
        self,
        sites: Mapping[nn.Module, Site],
        sequences_per_unit: int,
        probed: set[Shapes] | None,
        workspace: Workspace,
    ) -> None:
        self._sites = sites
        self._sequences_per_unit = sequences_per_unit
        self._probed = probed
        self.outer = current_capture()
        self._probe_due = False
        self._alone: slice | None = None
        self._rows: int | None = None
        self._model_inputs: list[Tensor] = []
        self._gathered = Gathered(workspace)
        self._later: list[Record] = []
        self._open = True
        # The output of an embedding, or of the first layer, has no graph of its own: this gives the tap one.
        self.anchor = torch.zeros((), requires_grad=True)

    @property
    def rows(self) -> int:
        """Rows of the batch.

        Raises:
            UsageError: no module of the model has seen a tensor yet.
        """
        if self._rows is None:
            raise UsageError("a layer was called before any module of the model had seen a tensor input")
        return self._rows

    def site_of(self, module: nn.Module) -> Site | None:
        """The site of a layer of the model; None where it has no trainable parameter or is not in the model."""
        return self._sites.get(module)

    def learn_rows(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take the batch size from the inputs of the first module called: the first tensor's leading dimension.

        Raises:
            UsageError: another tensor leads with another size (1 is allowed), or units do not divide the batch.
        """
        if self._rows is not None:
            return
        tensors = [tensor for tensor in _tensors_in((args, kwargs)) if tensor.dim() > 0]
        if not tensors:
            return
        sizes = [tensor.shape[0] for tensor in tensors]
        batch = next((size for size in sizes if size != 1), 1)
        if any(size not in (1, batch) for size in sizes):
            raise UsageError(f"the model's tensor inputs lead with sizes {sizes}; dimension 0 must be the batch in all")
        if batch % self._sequences_per_unit:
            raise UsageError(f"{batch} rows are no multiple of sequences_per_unit={self._sequences_per_unit}")
        self._rows, self._model_inputs = batch, tensors
        self._probe_due = self._should_probe(tuple(tensor.shape for tensor in tensors))

    def _should_probe(self, shapes: Shapes) -> bool:
        """The first batch of several units, and each new shape in which rows may be taken for something else."""
        rows = self.rows
        if self._probed is None or rows <= self._sequences_per_unit or shapes in self._probed:
            return False
        risky = any(size in (1, rows) for shape in shapes for size in shape[1:])
        if self._probed and not risky:
            return False
        self._probed.add(shapes)
        return True

    def tap(self, site: Site, input: Tensor, output: Tensor) -> Tensor:
        """The layer's output with one row an example, which reports its gradient here.

        Where the input leads with 1, such as position indices of shape (1, T), the output is expanded to the batch. Where the layer
        is known to get the positions of all examples as rows, these are put back under their examples first; the probe sees
        whether that is right.
        """
        if site.flattened and input.shape[0] != self.rows and input.shape[0] % self.rows == 0:
            of_example = (self.rows, input.shape[0] // self.rows)
            return self.tap(site, input.unflatten(0, of_example), output.unflatten(0, of_example)).flatten(0, 1)
        self._check_rows(site, input)
        if input.shape[0] != self.rows:
            output = output.expand(self.rows, *output.shape[1:])
        # An edge of the graph, not the tensor: a model's graph need not keep the outputs of layers.
        below = get_gradient_edge(output) if self._probe_due and output.requires_grad else None
        return _Tap.apply(output, self.anchor, input.detach(), self, site, below)

    def _check_rows(self, site: Site, input: Tensor) -> None:
        rows = self.rows
        leading = input.shape[: input.dim() - site.rule.input_features(site.module)]
        if len(leading) == 0 or leading[0] not in (1, rows):
            raise UsageError(
                f"{site.describe()} got an input of shape {tuple(input.shape)} in a batch of {rows}: it flattens the "
                "batch or is not per example; dimension 0 must be the example (or 1, shared by all)"
            )
        if len(leading) == 1 and rows > 1 and self._may_be_positions(input, rows):
            raise RefusedError(
                "ambiguous-batch-dimension",
                f"the {rows} rows that {site.describe()} got may be examples or positions, since the batch is as long "
                "as its sequences; give position indices the shape (1, positions), or use another batch size",
            )

    def _may_be_positions(self, input: Tensor, rows: int) -> bool:
        """Whether rows that come from no layer may be positions that all examples share."""
        if input.shape[0] == 1 or input.requires_grad or any(input is tensor for tensor in self._model_inputs):
            return False
        return any(tensor.dim() > 1 and tensor.shape[1] == rows for tensor in self._model_inputs)

    def add(self, record: Record, layer: str, *gradients_B: Tensor, later: bool = False) -> None:
        """Record one call of a layer; its backward calls this. In a probe nothing is recorded but looked at.

        Args:
            record: what the factors are made from.
            layer: its name, for errors.
            gradients_B: the gradients at its outputs, rows first.
            later: make its factors when the context has ended, since that calls the layer again.

        Raises:
            UsageError: the context has ended.
            RefusedError: ``cross-example-operation``.
        """
        if not self._open:
            raise UsageError("backward ran after its clipping context; call losses.sum().backward() inside the context")
        if self._alone is None and later:
            self._later.append(record)
        elif self._alone is None:
            with torch.autocast(gradients_B[0].device.type, enabled=False), full_precision():
                self._gather(record)
        else:
            for gradient_B in gradients_B:
                self._check_alone(layer, gradient_B, self._alone)

    def _gather(self, record: Record) -> None:
        with engine_at_work() if record.has_private_shapes else nullcontext():
            for name, factor in record.factors(self.rows // self._sequences_per_unit):
                self._gathered.add(name, factor)

    def _check_alone(self, layer: str, gradient_B: Tensor, own: slice) -> None:
        touched_B = ((gradient_B != 0) & gradient_B.isfinite()).flatten(1).any(1)  # NaN may come from 0 * inf
        touched_B[own] = False
        if bool(touched_B.any()):
            raise RefusedError(
                "cross-example-operation",
                f"at {layer} the loss of one example reaches the row of another one; row i must be example i in every layer: "
                "no mixing, no permuting, no indexing of rows, and positions that all share must broadcast over dimension 0",
            )

    def probe(self, run_back: Callable[[slice], object]) -> None:
        """Call ``run_back(rows)`` for the first and the last unit: it runs the gradient of these rows alone, keeping the graph."""
        self._probe_due = False
        rows, k = self.rows, self._sequences_per_unit
        for own in (slice(0, k), slice(rows - k, rows)):
            self._alone = own
            try:
                run_back(own)
            except RuntimeError as error:
                if "use_reentrant" not in str(error):  # reentrant checkpoints cannot be run back twice
                    raise
            finally:
                self._alone = None

    @property
    def is_probing(self) -> bool:
        """Whether the backward that runs is a probe's, after which the graph is needed again."""
        return self._alone is not None

    @property
    def probe_due(self) -> bool:
        """Whether the first layer that the backward reaches should probe what is below it."""
        return self._probe_due and self._alone is None

    def close(self) -> None:
        """No more records: the context has ended."""
        self._open = False
        self._model_inputs = []

    def take_factors(self) -> dict[str, tuple[Factor, ...]]:
        """The combined factors of each parameter that the backward reached; they are forgotten here.

        Raises:
            UsageError: the backward reached no layer, or what a factor refers to was changed in place.
        """
        for record in self._later:
            self._gather(record)
        self._later = []
        if self._gathered.empty():
            raise UsageError("nothing was recorded; call the model and losses.sum().backward() inside the context")
        return self._gathered.take()


_current: ContextVar[Capture | None] = ContextVar("current clipping context", default=None)


def current_capture() -> Capture | None:
    """The clipping context that is active here, the innermost one; None outside any."""
    return _current.get()


@contextmanager
def activated(capture: Capture) -> Iterator[None]:
    """Make a capture the current one."""
    token = _current.set(capture)
    try:
        yield
    finally:
        _current.reset(token)


@dataclass(frozen=True)
class _LayerRecord:
    """A call of a layer that has a rule: its input, as it was in the backward, and the gradient at its output."""

    site: Site
    input: Tensor
    gradient: Tensor

    @property
    def has_private_shapes(self) -> bool:
        features = self.site.rule.output_features(self.site.module)
        return math.prod(self.gradient.shape[self.gradient.dim() - features :]) >= WIDE  # positions may be left out

    def factors(self, units: int) -> Iterator[tuple[str, Factor]]:
        rule, module = self.site.rule, self.site.module
        input_B = self.input.expand(self.gradient.shape[0], *self.input.shape[1:])
        input_UR = per_unit(input_B, units, rule.input_features(module))
        gradient_UR = per_unit(self.gradient, units, rule.output_features(module))
        kept_UR, kept_gradient_UR = with_gradient(input_UR, gradient_UR)
        for name, name_in_model in self.site.names.items():
            dtype, function = getattr(module, name).dtype, rule.factors[name]
            factor = function(module, _as(dtype, kept_UR), _as(dtype, kept_gradient_UR))
            if isinstance(factor, Outer):
                factor = replace(factor, judged_by=gradient_UR.shape[1], may_lack=may_lack_positions(gradient_UR))
            elif kept_gradient_UR is not gradient_UR:
                # Added up at once: which positions are left out must not decide how, since the other units decide that.
                factor = function(module, _as(dtype, input_UR), _as(dtype, gradient_UR))
            yield name_in_model, factor


def per_unit(x_B: Tensor, units: int, feature_dims: int) -> Tensor:
    """(B, ..., features) as (unit, position, features), a unit behind the other. With two rows a unit, (4, 5, 3) becomes (2, 10, 3).

    Where positions come first in memory, torch adds up some units' positions in another order than others'.
    """
    leading, features = x_B.shape[: x_B.dim() - feature_dims], x_B.shape[x_B.dim() - feature_dims :]
    return x_B.reshape(units, leading.numel() // max(units, 1), *features).contiguous()


def _as(dtype: torch.dtype, x: Tensor) -> Tensor:
    """Numbers in the parameter's precision; indices as they are."""
    return x.to(dtype) if x.is_floating_point() else x


def refuse_second_order() -> None:
    """A backward that builds a graph of itself would not be recorded again.

    Raises:
        RefusedError: ``second-order-gradient``.
    """
    if torch.is_grad_enabled():
        raise RefusedError("second-order-gradient", "create_graph=True inside a clipping context; leave it out")


def _tensors_in(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        yield from _tensors_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors_in(item)


class _Tap(torch.autograd.Function):
    """The identity. ``detach`` shares memory and version counter but is no view, so the output may change in place."""

    @staticmethod
    def forward(
        ctx: Any,
        output: Tensor,
        anchor: Tensor,
        input: Tensor,
        capture: Capture,
        site: Site,
        below: GradientEdge | None,
    ) -> Tensor:
        ctx.save_for_backward(input)
        ctx.capture, ctx.site, ctx.below = capture, site, below
        return output.detach()

    @staticmethod
    def backward(ctx: Any, *grad_outputs: Any) -> Any:
        refuse_second_order()
        capture: Capture = ctx.capture
        (input,), (gradient,) = ctx.saved_tensors, grad_outputs
        if capture.probe_due and ctx.below is not None:
            capture.probe(partial(_run_back, ctx.below, capture.anchor, gradient))
        capture.add(_LayerRecord(ctx.site, input, gradient), ctx.site.describe(), gradient)
        return gradient, None, None, None, None, None


def _run_back(below: GradientEdge, anchor: Tensor, gradient_B: Tensor, own: slice) -> None:
    """Run backward from a layer's output down, with the gradient of some rows alone."""
    alone_B = torch.zeros_like(gradient_B)
    alone_B[own] = gradient_B[own]
    torch.autograd.grad((below,), anchor, alone_B, retain_graph=True, allow_unused=True)
