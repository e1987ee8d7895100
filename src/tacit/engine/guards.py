"""What must hold around and inside a clipping context, beyond the layers' own rules; each breach is named.

The engine trusts that the model is the one that it looked at: the same parameters and forwards, and nothing in it that
changes between a layer's call and the end of the context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tacit.engine.capture import current_capture
from tacit.engine.precision import refuse_environment
from tacit.engine.sharding import is_sharded
from tacit.engine.sites import Site, check_forward, check_precisions, first_named, trainable_parameters
from tacit.errors import RefusedError, UsageError

__all__ = [
    "StateSnapshot",
    "check_hooks",
    "check_own_parameters",
    "check_ready",
    "gradient_aside",
    "refuse_compiling",
    "refuse_outside_use",
]


def check_ready(model: nn.Module, parameters: Mapping[str, nn.Parameter], sites: Mapping[nn.Module, Site]) -> None:
    """The model is as it was when the clipper was made, and no other context records it.

    Raises:
        UsageError: a parameter was frozen, unfrozen, replaced or lost precision, or a context of this model is open.
        RefusedError: a layer got a forward of its own.
    """
    check_precisions(parameters)
    refuse_environment(next(iter(parameters.values())).device)
    _check_unchanged(parameters, trainable_parameters(model))
    for site in sites.values():
        check_forward(site)
    outer = current_capture()
    while outer is not None:
        if any(outer.site_of(module) is not None for module in sites):
            raise UsageError("another clipping context of this model is open, and both would add its sum; end it first")
        outer = outer.outer


def check_hooks(site: Site, hooks: tuple[RemovableHandle, RemovableHandle]) -> None:
    """Ours must be next to the layer: the last one before it and the first one after it.

    Raises:
        UsageError: a hook was put in between after the clipper was made.
    """
    before, after = site.module._forward_pre_hooks, site.module._forward_hooks
    if next(reversed(before)) != hooks[0].id or next(iter(after)) != hooks[1].id:
        raise UsageError(
            f"{site.describe()} got a hook after the clipper was made; make the clipper after all other hooks"
        )


class StateSnapshot:
    """Parameters and buffers as they were at a context's beginning."""

    def __init__(self, model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> None:
        self._model = model
        self._parameters = parameters
        self._versions = {name: parameter._version for name, parameter in parameters.items()}
        self._buffers = {name: (buffer, buffer._version) for name, buffer in _buffers(model).items()}

    def check(self) -> None:
        """Raises:
        UsageError: a parameter was frozen, unfrozen, replaced or changed inside the context.
        RefusedError: ``buffer-written``: a buffer was, and with it what it saves in the model is a function of the batch.
        """
        _check_unchanged(self._parameters, trainable_parameters(self._model))
        for name, parameter in self._parameters.items():
            if parameter._version != self._versions[name] and not is_sharded(parameter):
                raise UsageError(f"{name} was changed inside the clipping context; step the optimizer after it")
        for name, buffer in _buffers(self._model).items():
            before, version = self._buffers.get(name, (None, 0))
            if before is None or (buffer is not before and not _equal(buffer, before)) or before._version != version:
                raise RefusedError(
                    "buffer-written",
                    f"the buffer {name} was written inside the clipping context; what a model saves must not be a function of "
                    "the batch without noise: turn running statistics off, or put the layer in eval mode",
                )


def _buffers(model: nn.Module) -> dict[str, Tensor]:
    return first_named(model, lambda module: module._buffers)


def _equal(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool((one == other).all())


def check_own_parameters(site: Site, parameters: Mapping[str, nn.Parameter]) -> None:
    """A layer is called with the model's own parameters, not with those of a ``functional_call``.

    Raises:
        RefusedError: ``parameter-outside-rule``.
    """
    for name, name_in_model in site.names.items():
        own = parameters[name_in_model]
        if not is_sharded(own) and _attribute(site.module, name) is not own:
            raise RefusedError(
                "parameter-outside-rule",
                f"{site.describe()} was called with another {name} than its own, so that the gradient would be booked wrongly; "
                "call the model itself inside a clipping context",
            )


def _attribute(module: nn.Module, name: str) -> Tensor | None:
    """A parameter's present value by its dotted name, whatever was put in its place."""
    path, _, last = name.rpartition(".")
    return module.get_submodule(path)._parameters.get(last)


def _check_unchanged(before: Mapping[str, nn.Parameter], now: Mapping[str, nn.Parameter]) -> None:
    changed = [name for name in {**before, **now} if not _same_parameter(before.get(name), now.get(name))]
    if changed:
        raise UsageError(
            f"{changed[0]} was frozen, unfrozen or replaced after the clipper was made; make a new clipper"
        )


def _same_parameter(before: nn.Parameter | None, now: nn.Parameter | None) -> bool:
    """FSDP2 puts full parameters in the shards' places for as long as they are gathered."""
    return before is now or (is_sharded(before) and now is not None)


@contextmanager
def gradient_aside(name: str, parameter: Tensor) -> Iterator[None]:
    """FSDP2 adds ordinary gradients to the shards itself; there must be none, and what was accumulated before is kept."""
    before, parameter.grad = parameter.grad, None
    try:
        yield
    finally:
        found, parameter.grad = parameter.grad, before
    if found is not None and bool((found != 0).any()):
        refuse_outside_use(name, found)


def refuse_outside_use(name: str, gradient: Tensor) -> None:
    """A hook on a parameter: an ordinary gradient has reached it.

    Raises:
        RefusedError: ``parameter-outside-rule``.
    """
    raise RefusedError(
        "parameter-outside-rule",
        f"{name} was used outside its layer's own call, or before the context began, so its gradient cannot be clipped "
        "per example; call the layer inside the context, or freeze the parameter",
    )


def refuse_compiling() -> None:
    """Raises:
    RefusedError: ``compiled-model``: torch.compile is tracing the model.
    """
    if torch.compiler.is_compiling():
        raise RefusedError(
            "compiled-model",
            "torch.compile was at work inside a clipping context; call the model's plain forward there",
        )
