"""The sum of per-unit gradients, each clipped to a norm, from one forward and one backward.

Module hooks take each layer's parameters out of the graph while the layer runs, so the ordinary backward computes the
inputs' gradients only. What it passes through each layer's output is recorded. At the end of the context come the exact
norms (``factors``), the coefficients, and one weighted product a layer that adds the clipped sum to ``p.grad`` (Bu et
al. 2023, "book-keeping", arXiv 2210.00038; here also for tied weights).

Any other use of a trainable parameter is still in the graph, and a hook on the parameter refuses it by name: no
gradient is ever added unclipped or left out of a norm.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial, reduce
from types import TracebackType
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tacit.clipping import LARGEST, LEAST, Clipping, FlatClipping
from tacit.engine.capture import Capture, Shapes, activated
from tacit.engine.combining import squared_norms
from tacit.engine.factors import Factor
from tacit.engine.fallback import tap_call
from tacit.engine.guards import (
    StateSnapshot,
    check_hooks,
    check_own_parameters,
    check_ready,
    gradient_aside,
    refuse_compiling,
    refuse_outside_use,
)
from tacit.engine.lstm import LstmMode
from tacit.engine.places import at_aligned_places
from tacit.engine.precision import full_precision, refuse_environment
from tacit.engine.probing import LossWatch
from tacit.engine.running_sums import RunningSums
from tacit.engine.sharding import is_sharded, sharding_of, summed, zero_gradient
from tacit.engine.sites import Site, find_sites, trainable_parameters
from tacit.engine.workspace import Workspace
from tacit.errors import UsageError

__all__ = ["PerExampleClipper", "Use"]

_FLAT = FlatClipping()

Use = Literal["untried", "trial", "tried"]

CANCELLING = 64.0
"""Clip norms: where the parts of a unit's clipped gradient add up to more of them, the sum of a context is made in float64.

The rounding of a float32 sum grows with its parts, not with what is left of them, and is another one for every unit more or less.
"""


class PerExampleClipper:
    """Adds ``sum_u min(1, clip_norm / ||g_u||) g_u`` to ``p.grad`` of every trainable parameter of a model.

    (With another ``clipping``, its own coefficients, under the same bound.) ``g_u`` is the gradient of unit u over all
    trainable parameters together, summed over its ``sequences_per_unit`` rows: unit u owns rows u*k to u*k + k - 1 of
    the batch. If ``losses[i]`` depends on row i only, adding or removing one unit changes the sum by at most
    ``clip_norm`` in L2, and replacing one by at most twice that (Abadi et al. 2016, arXiv 1607.00133, algorithm 1).

        clipper = PerExampleClipper(model, clip_norm=1.0)
        with clipper:
            losses = per_example_losses(model, batch)    # shape (batch,), any code
            losses.sum().backward()
        clipper.norms                                     # (units,), before clipping

    Contexts accumulate, as ``backward`` does, so micro-batches need no other code: their sum is kept in float64, and ``p.grad`` is
    its rounding (``running_sums``). Dimension 0 of every layer's input
    is the example; a leading 1 means that all examples share it. Every backward inside a context counts, also one that
    ``torch.autograd.grad`` runs. Norms in float32 are rounded up, by some 1e-5 of their size (``factors``). The
    first context also probes that rows are independent (``probing``), which costs two more backwards.

    | case | what happens |
    | --- | --- |
    | norm 0, such as a padding row with loss 0 | contributes zero |
    | norm inf or NaN, or a square that overflows | contributes exactly zero, whatever its tensors hold |
    | empty batch (0 rows) | no norms, zero gradients, where the model itself runs (transformers' BERT does not) |
    | weight w of a unit (`weighted`) | it contributes at most ``w * clip_norm`` |
    | parameter that the backward does not reach | ``p.grad`` as it was, zeros if it was None |
    | exception inside the context | nothing is added to ``p.grad``; the model is as before |

    Args:
        model: float32 or float64 parameters; it keeps hooks, idle outside contexts, until ``close``.
        clip_norm: the bound C, from 1e-6 to 1e12.
        sequences_per_unit: rows that form one unit.
        clipping: ``FlatClipping()``, ``AutomaticClipping()`` or ``PerLayerClipping()``.
        use: ``untried``: the first context probes that rows are independent. ``trial``: of made-up rows: every context probes, and
            every unit is added up in float64, as is done of units whose parts cancel, since it takes most memory. ``tried``: a trial
            has probed, and no context does.

    Raises:
        UsageError: an option is out of range, or nothing can be trained; in a context, the batch is not dimension 0,
            is no multiple of ``sequences_per_unit``, or no backward ran.
        RefusedError: ``parameter-without-rule``, ``cross-example-operation`` or ``compiled-model``; in a context,
            ``parameter-outside-rule``, ``parameter-without-rule``, ``ambiguous-batch-dimension``,
            ``packed-sequence``, ``compiled-model``, ``cross-example-operation``, ``buffer-written`` or
            ``second-order-gradient``.
    """

    def __init__(
        self,
        model: nn.Module,
        clip_norm: float = 1.0,
        sequences_per_unit: int = 1,
        clipping: Clipping = _FLAT,
        *,
        use: Use = "untried",
    ) -> None:
        if not LEAST <= clip_norm <= LARGEST:
            raise UsageError(f"clip_norm must be from {LEAST:g} to {LARGEST:g}, not {clip_norm}")
        if sequences_per_unit < 1:
            raise UsageError(f"sequences_per_unit must be at least 1, not {sequences_per_unit}")
        self._model = model
        self._clip_norm = float(clip_norm)
        self._sequences_per_unit = sequences_per_unit
        self._clipping = clipping
        self._use = use
        self._most_parts = -1.0 if use == "trial" else CANCELLING * self._clip_norm
        self._parameters = trainable_parameters(model)
        self._sites = {site.module: site for site in find_sites(model)}
        refuse_environment(next(iter(self._parameters.values())).device)
        self._capture: Capture | None = None
        self._snapshot: StateSnapshot | None = None
        self._context = ExitStack()
        self._lstm_modes: list[LstmMode] = []
        self._norms: Tensor | None = None
        self._next_weights: Tensor | None = None
        self._weights: Tensor | None = None
        self._probed: set[Shapes] = set()
        self._probed_before: set[Shapes] = set()
        self._is_torn = False
        self._workspace = Workspace()
        self._sums = RunningSums()
        self._site_hooks: dict[nn.Module, tuple[RemovableHandle, RemovableHandle]] = {}
        self._module_hooks = self._register()

    @property
    def norms(self) -> Tensor:
        """The norms of the last context's units before clipping, ``(units,)``: private values, never to be logged."""
        if self._norms is None:
            raise UsageError("no clipping context has ended yet, so there are no norms")
        return self._norms

    @property
    def is_torn(self) -> bool:
        """Whether an error came while a context's sum was added: a part of it is in ``p.grad``, which is of no use then."""
        return self._is_torn

    def weighted(self, weights_U: Tensor) -> PerExampleClipper:
        """This clipper, for one context in which unit u is clipped at ``weights_U[u] * clip_norm``.

            with clipper.weighted(weights_U):
                ...

        Adding or removing unit u then changes the sum by at most that, whatever the clipping: it sees the norm over the weight.
        Units whose weights differ belong in micro-batches of their own: a micro-batch is added up in float32, and how those of weight
        1 are rounded is not little beside the clip norm of one of 1e-4 (TACIT-58).

        Args:
            weights_U: one for each unit of the batch, padding included, above 0 and at most 1.

        Raises:
            UsageError: a weight is outside that range; at the context's end, there is not one for each unit.
        """
        weights_U = weights_U.detach()
        if weights_U.dim() != 1 or not bool(((weights_U > 0) & (weights_U <= 1)).all()):
            raise UsageError("the weights of units must be one row of numbers above 0 and at most 1")
        self._next_weights = weights_U
        return self

    def take_rests(self) -> Mapping[nn.Parameter, Tensor]:
        """What the float32 sums in ``p.grad`` could not hold of several contexts' float64 sums, for `add_noise_`; once a step.

        Without them a sum of n units is rounded once more before the noise, by up to n clip norms times 2^-24.
        """
        return self._sums.take_rests()

    def sums(self) -> list[Tensor]:
        """The sum of every trainable parameter so far, in float64 where ``p.grad`` is its rounding: what a checkpoint keeps."""
        return [self._sums.exact(parameter) for parameter in self._parameters.values()]

    def put_sums(self, sums: Sequence[Tensor]) -> None:
        """Go on from `sums`."""
        for parameter, total in zip(self._parameters.values(), sums, strict=True):
            self._sums.put(parameter, total)

    def close(self) -> None:
        """Remove every hook; the clipper cannot be used again."""
        self._release()
        for handle in self._module_hooks:
            handle.remove()
        self._module_hooks = []
        self._workspace = Workspace()

    def __enter__(self) -> PerExampleClipper:
        weights, self._next_weights = self._next_weights, None  # for this context alone, also when it does not begin
        if self._capture is not None:
            raise UsageError("this clipping context is already active; end it before the next one")
        if not self._module_hooks:
            raise UsageError("this clipper was closed; make a new one")
        check_ready(self._model, self._parameters, self._sites)
        for module, hooks in self._site_hooks.items():
            check_hooks(self._sites[module], hooks)
        sharded = any(is_sharded(parameter) for parameter in self._parameters.values())
        probes = self._use != "tried" and not sharded
        self._workspace.reset()
        self._is_torn = False
        if self._use == "trial":
            self._probed.clear()
        self._probed_before = set(self._probed)
        self._capture = Capture(
            self._sites, self._sequences_per_unit, self._probed if probes else None, self._workspace
        )
        self._snapshot = StateSnapshot(self._model, self._parameters)
        self._weights = weights
        with ExitStack() as context:
            if any(site.kind == "fallback" for site in self._sites.values()):
                # The layer's output is compared with that of another run: how it was rounded must not be what differs.
                context.enter_context(full_precision())
            for name, parameter in self._parameters.items():
                if is_sharded(parameter):
                    context.enter_context(gradient_aside(name, parameter))
                else:
                    context.callback(parameter.register_hook(partial(refuse_outside_use, name)).remove)
            context.enter_context(activated(self._capture))
            if probes and (self._use == "trial" or not self._probed):
                context.enter_context(LossWatch(self._capture))
            self._context = context.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        capture = self._release()
        ended = False
        try:
            if kind is None and capture is not None and self._snapshot is not None:
                self._snapshot.check()
                self._add_clipped_sum(capture)
                ended = True
        finally:
            if not ended:  # the next context is the one to probe
                self._probed.intersection_update(self._probed_before)

    def _register(self) -> list[RemovableHandle]:
        """Hooks that are idle outside a context. Ours sees a layer's output before a hook of the user changes it."""
        handles = [
            module.register_forward_pre_hook(self._before_any, with_kwargs=True) for module in self._model.modules()
        ]
        for site in self._sites.values():
            before, after = partial(self._before_site, site), partial(self._after_site, site)
            first = site.module.register_forward_pre_hook(before)
            last = site.module.register_forward_hook(after, prepend=True, with_kwargs=True, always_call=True)
            self._site_hooks[site.module] = first, last
            handles += [first, last]
        return handles

    def _before_any(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        if self._capture is None or not torch.is_grad_enabled():
            return None
        refuse_compiling()
        self._capture.learn_rows(args, kwargs)
        given = args, kwargs
        found = at_aligned_places(given)
        return None if found is given else found

    def _before_site(self, site: Site, module: nn.Module, args: tuple[Any, ...]) -> None:
        if self._capture is None:
            return
        check_own_parameters(site, self._parameters)
        _set_requires_grad(site.parameters(), False)
        if site.kind == "lstm" and torch.is_grad_enabled():
            mode = LstmMode(site, self._capture)
            mode.__enter__()
            self._lstm_modes.append(mode)

    def _after_site(
        self, site: Site, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any
    ) -> Any:
        """Also called when the layer raised: its output is None then."""
        if self._capture is None:
            return None
        _set_requires_grad(site.parameters(), True)
        if site.kind == "lstm" and self._lstm_modes:
            self._lstm_modes.pop().__exit__(None, None, None)
        if output is None or not torch.is_grad_enabled():
            return None
        if site.kind == "rule":
            return self._capture.tap(site, args[0] if args else next(iter(kwargs.values())), output)
        return tap_call(self._capture, site, args, kwargs, output) if site.kind == "fallback" else None

    def _release(self) -> Capture | None:
        """End the context: no hook on a parameter, and every parameter requires its gradient again."""
        capture, self._capture = self._capture, None
        while self._lstm_modes:  # left open by an interrupt, after which no forward hook runs
            self._lstm_modes.pop().__exit__(None, None, None)
        if capture is not None:
            capture.close()
            _set_requires_grad(self._parameters.values(), True)
        self._context.close()
        return capture

    def _add_clipped_sum(self, capture: Capture) -> None:
        device = next(iter(self._parameters.values())).device.type
        with torch.no_grad(), torch.autocast(device, enabled=False), full_precision():
            factors = capture.take_factors()
            squares = {name: squared_norms(combined) for name, combined in factors.items()}
            norms_GU, group_of = self._group_norms(squares)
            self._norms = _joint(norms_GU)
            # A unit of weight w has coefficient * norm / w <= C by the clipping's promise, so it adds at most w C.
            coefficients_GU = self._clipping.coefficients(self._weighed(norms_GU), self._clip_norm)
            dropped = ~self._norms.isfinite()
            # dropping takes memory, which a trial takes as well: whether there is enough may not hang on a unit
            some_dropped = bool(dropped.any()) or self._use == "trial"
            if some_dropped:
                factors = {name: tuple(one.without(dropped) for one in combined) for name, combined in factors.items()}
            parts = {name: coefficients_GU[group_of[name]] for name in factors}
            # Each unit for itself: what one is added up from decides the precision of no other one.
            most_U = self._most_parts if self._weights is None else self._most_parts * self._weights.to(self._norms)
            cancelling_U = _most_absolute(factors, parts, self._norms) > most_U
            some_cancel = bool(cancelling_U.any())
            precise_GU = coefficients_GU.double().masked_fill(~cancelling_U, 0)
            coefficients_GU = coefficients_GU.masked_fill(cancelling_U, 0)
            self._is_torn = True
            for name, parameter in self._parameters.items():
                group = group_of[name]
                precise_U = precise_GU[group] if some_cancel else None
                self._accumulate(parameter, factors.pop(name, ()), coefficients_GU[group], precise_U)
            self._is_torn = False

    def _accumulate(
        self, parameter: nn.Parameter, factors: Sequence[Factor], coefficients_U: Tensor, precise_U: Tensor | None
    ) -> None:
        """Add the clipped sum of a micro-batch.

        Args:
            coefficients_U: of units that are added up in the parameter's precision, zero for others.
            precise_U: of the others, in float64; None where there are none.
        """
        weights_U = coefficients_U.to(torch.promote_types(parameter.dtype, coefficients_U.dtype))
        total = _weighted_sum(parameter, factors, weights_U)
        if precise_U is not None:
            total = total.double() + _weighted_sum(parameter, factors, precise_U)
        sharded = sharding_of(parameter)
        if sharded is not None:  # also where this rank has nothing to add
            if parameter.grad is None:
                parameter.grad = zero_gradient(parameter)
            self._sums.add_(parameter, summed(sharded, total))
        elif parameter.grad is None:
            self._sums.put(parameter, total)
        elif factors:
            self._sums.add_(parameter, total)

    def _weighed(self, norms_GU: Tensor) -> Tensor:
        if self._weights is None:
            return norms_GU
        if len(self._weights) != norms_GU.shape[1]:
            raise UsageError(f"{len(self._weights)} weights for {norms_GU.shape[1]} units; give one for each unit")
        return norms_GU / self._weights.to(norms_GU)

    def _group_norms(self, squares: dict[str, Tensor]) -> tuple[Tensor, dict[str, int]]:
        """The norms (G, U) of the clipping's groups, and each parameter's group."""
        group_of = dict(zip(self._parameters, self._clipping.groups(list(self._parameters)), strict=True))
        first, dtypes = next(iter(squares.values())), {square.dtype for square in squares.values()}
        # in float64: of thousands of parameters one large square would hide what the others have
        total_GU = first.new_zeros(max(group_of.values()) + 1, len(first), dtype=torch.float64)
        for name, square in squares.items():
            total_GU[group_of[name]] += square
        return total_GU.sqrt().to(torch.float64 if torch.float64 in dtypes else first.dtype), group_of


def _joint(norms_GU: Tensor) -> Tensor:
    """The norm of all groups. One by one and in float64: torch adds up some columns of a matrix in another order than others, and
    whether a norm is finite decides whether its unit is dropped."""
    if len(norms_GU) == 1:
        return norms_GU[0]
    return reduce(torch.add, norms_GU.double().square()).sqrt().to(norms_GU.dtype)


def _most_absolute(
    factors: Mapping[str, Sequence[Factor]], coefficients_U: Mapping[str, Tensor], like_U: Tensor
) -> Tensor:
    """The largest sum, for each unit (U,), of the norms of what its clipped gradient of a parameter is added up from."""
    found = [
        (coefficients_U[name] * absolute_U).double()
        for name, combined in factors.items()
        for factor in combined
        if (absolute_U := factor.absolute_sums()) is not None
    ]
    return torch.stack(found).amax(0) if found else torch.zeros_like(like_U, dtype=torch.float64)


def _weighted_sum(parameter: Tensor, factors: Sequence[Factor], weights: Tensor) -> Tensor:
    if not factors:
        return torch.zeros(parameter.shape, dtype=weights.dtype, device=weights.device)
    total = factors[0].weighted_sum(weights)
    for factor in factors[1:]:
        factor.add_weighted_sum_(total, weights)
    return total


def _set_requires_grad(parameters: Iterable[nn.Parameter], value: bool) -> None:
    for parameter in parameters:
        parameter.requires_grad_(value)
