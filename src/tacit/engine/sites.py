"""Where a model's trainable parameters are: the layers to hook, or the reason why the model cannot be clipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import nn
from torch.nn.modules.instancenorm import _InstanceNorm

from tacit.engine.rules import (
    CROSS_EXAMPLE_MODULES,
    FLATTENING_MODULES,
    SELF_CONTAINED_MODULES,
    UNREAD_PARAMETERS,
    Rule,
    full_name,
    lstm_objection,
    rule_of,
)
from tacit.engine.sharding import is_sharded, plain_class
from tacit.errors import RefusedError, UsageError

__all__ = ["Site", "check_forward", "check_precisions", "find_sites", "first_named", "trainable_parameters"]

Kind = Literal["rule", "lstm", "fallback"]


@dataclass(frozen=True)
class Site:
    """A layer with trainable parameters.

    Args:
        path: where it is in the model.
        module: the layer.
        kind: how its gradients are had: by its rule, by our own LSTM, or by vmap.
        names: its trainable parameters: the name in the layer -> the name in the model (the first one, where tied).
        flattened: whether its rows may be all positions of all examples, examples first (`FLATTENING_MODULES`).
    """

    path: str
    module: nn.Module
    kind: Kind
    names: Mapping[str, str]
    flattened: bool = False

    @property
    def rule(self) -> Rule:
        """The layer's rule; only where ``kind`` is "rule"."""
        rule = rule_of(self.module)
        assert rule is not None
        return rule

    def describe(self) -> str:
        """The layer in an error message: path and class."""
        return _describe(self.path, self.module)

    def parameters(self) -> list[nn.Parameter]:
        """The layer's trainable parameters as they are now."""
        return [self.module.get_parameter(name) for name in self.names]


T = TypeVar("T")


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require a gradient, by name; a tied one once, under its first name."""
    found = first_named(model, lambda module: module._parameters)
    return {name: parameter for name, parameter in found.items() if parameter.requires_grad}


def first_named(model: nn.Module, own: Callable[[nn.Module], Mapping[str, T | None]]) -> dict[str, T]:
    """What the modules own, by its first name: as ``named_parameters`` and ``named_buffers``, at a tenth of their cost.

    Every context asks four times.
    """
    found: dict[str, T] = {}
    seen: set[int] = set()
    waiting: list[tuple[str, nn.Module]] = [("", model)]
    while waiting:
        prefix, module = waiting.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        for name, value in own(module).items():
            if value is not None and id(value) not in seen:
                seen.add(id(value))
                found[prefix + name] = value
        children = [(f"{prefix}{name}.", child) for name, child in module._modules.items() if child is not None]
        waiting += reversed(children)
    return found


def find_sites(model: nn.Module) -> list[Site]:
    """The layers that own trainable parameters.

    A module without a rule may hold a parameter that a layer with a rule holds too (a tied bias): if the module itself
    reads it, the backward is refused. Other parameters of a module without a rule go to the vmap fallback.

    Raises:
        UsageError: no parameter requires a gradient, or one has a precision below float32.
        RefusedError: a layer mixes examples, is compiled, is one that its rule cannot clip, or is sharded without a rule.
    """
    trainable = trainable_parameters(model)
    check_precisions(trainable)
    for path, module in model.named_modules():
        _check_no_mixing(path, module)
        _check_not_compiled(path, module)
    first_names = {parameter: name for name, parameter in trainable.items()}
    owners = [(path, m, owned) for path, m in _named_modules(model) if (owned := _owned(m, first_names))]
    flattened = _flattened_paths(model)
    sites = [
        Site(path, m, kind, owned, path.startswith(flattened))
        for path, m, owned in owners
        if (kind := _kind(m)) != "fallback"
    ]
    for site in sites:
        _check_site(site)
    covered = {name for site in sites for name in site.names.values()}
    for path, module, owned in owners:
        rest = {} if _kind(module) != "fallback" else _uncovered(module, owned, covered)
        if rest:
            sites.append(Site(path, module, "fallback", rest))
    for site in sites:
        _check_sharding(site)
    return sites


def _flattened_paths(model: nn.Module) -> tuple[str, ...]:
    """How the paths of layers begin that `FLATTENING_MODULES` give rows of positions."""
    return tuple(
        f"{path}.{child}" if path else child
        for path, module in model.named_modules()
        for child in FLATTENING_MODULES.get(full_name(module), ())
    )


def _kind(module: nn.Module) -> Kind:
    if plain_class(module) is nn.LSTM:
        return "lstm"
    return "fallback" if rule_of(module) is None else "rule"


def _named_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """All modules, without those whose parameters the module around them reads itself."""
    for path, module in model.named_modules():
        parent = model.get_submodule(path.rpartition(".")[0]) if path else None
        if not isinstance(parent, SELF_CONTAINED_MODULES):
            yield path, module


def _owned(module: nn.Module, first_names: Mapping[nn.Parameter, str]) -> dict[str, str]:
    within = isinstance(module, SELF_CONTAINED_MODULES)
    named = module.named_parameters(recurse=within, remove_duplicate=False)
    return {name: first_names[parameter] for name, parameter in named if parameter.requires_grad}


def _uncovered(module: nn.Module, owned: Mapping[str, str], covered: set[str]) -> dict[str, str]:
    """What the fallback must take: not a parameter that a container holds for a layer inside it (a head's tied bias).

    A module without children owns its parameters because it reads them (a scaled embedding, tied to the head).
    """
    unread = UNREAD_PARAMETERS.get(full_name(module), ())
    leaf = not any(True for _ in module.children())
    return {name: first for name, first in owned.items() if (leaf or first not in covered) and name not in unread}


def check_precisions(trainable: Mapping[str, nn.Parameter]) -> None:
    """Raises:
    UsageError: nothing can be trained, or a parameter has a precision below float32.
    """
    if not trainable:
        raise UsageError("the model has no trainable parameter: every requires_grad is False")
    for name, parameter in trainable.items():
        if parameter.dtype not in (torch.float32, torch.float64):
            raise UsageError(
                f"{name} is {parameter.dtype}; keep parameters in float32 (autocast may run the layers lower)"
            )


def _check_no_mixing(path: str, module: nn.Module) -> None:
    if isinstance(module, CROSS_EXAMPLE_MODULES):
        raise RefusedError(
            "cross-example-operation",
            f"{_describe(path, module)} mixes the examples of a batch; use a per-example layer such as LayerNorm",
        )
    if isinstance(module, _InstanceNorm) and module.track_running_stats:
        raise RefusedError(
            "buffer-written",
            f"{_describe(path, module)} keeps running statistics of the batch, which no noise protects; turn them off",
        )


def _check_not_compiled(path: str, module: nn.Module) -> None:
    if full_name(module) == "torch._dynamo.eval_frame.OptimizedModule" or module._compiled_call_impl is not None:
        raise RefusedError(
            "compiled-model",
            f"{_describe(path, module)} is compiled, and compiled code does not run the clipper's hooks; "
            "give the clipper the model as it was before torch.compile",
        )


def _check_site(site: Site) -> None:
    objection = _objection_to_rule(site) if site.kind == "rule" else lstm_objection(site.module)
    if objection:
        raise _refusal(site, objection)
    check_forward(site)


def check_forward(site: Site) -> None:
    """A rule is about the class's own forward.

    Raises:
        RefusedError: ``parameter-without-rule``, if the instance has another one.
    """
    if site.kind != "fallback" and "forward" in vars(site.module):
        raise _refusal(site, "has a forward of its own, set on the instance")


def _refusal(site: Site, objection: str) -> RefusedError:
    return RefusedError("parameter-without-rule", f"{site.describe()} {objection}; freeze it or use a plain layer")


def _check_sharding(site: Site) -> None:
    if site.kind != "rule" and any(is_sharded(parameter) for parameter in site.parameters()):
        raise RefusedError(
            "sharded-without-rule",
            f"{site.describe()} is sharded and has no rule of its own (LSTM or fallback); freeze it, or do not shard the model",
        )


def _objection_to_rule(site: Site) -> str | None:
    unknown = [name for name in site.names if name not in site.rule.factors]
    return (
        f"has a parameter {unknown[0]!r} that its rule does not know" if unknown else site.rule.objection(site.module)
    )


def _describe(path: str, module: nn.Module) -> str:
    return f"{path or 'the model'} ({type(module).__name__})"
