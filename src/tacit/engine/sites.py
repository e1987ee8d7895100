"""Where a model's trainable parameters are: the layers to hook, or the reason why the model cannot be clipped."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from tacit.engine.rules import CROSS_EXAMPLE_MODULES, RULES, UNREAD_PARAMETERS, Rule
from tacit.errors import RefusedError, UsageError

__all__ = ["Site", "find_sites", "trainable_parameters"]


@dataclass(frozen=True)
class Site:
    """A layer with a rule: where it is in the model, and its trainable parameters by their names in the layer."""

    path: str
    module: nn.Module
    rule: Rule
    parameters: Mapping[str, nn.Parameter]

    def describe(self) -> str:
        return _describe(self.path, self.module)


def trainable_parameters(model: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that require a gradient, by name; a tied one once, under its first name."""
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def find_sites(model: nn.Module) -> list[Site]:
    """The layers that own trainable parameters, each with its rule.

    A module without a rule may hold a parameter that a layer with a rule holds too (a tied bias): if the module itself
    reads it, the backward is refused.

    Raises:
        UsageError: no parameter requires a gradient, or one has a precision below float32.
        RefusedError: a parameter belongs to no layer with a rule, or a layer mixes examples.
    """
    _check_precisions(trainable_parameters(model))
    owners = [(path, module, owned) for path, module in model.named_modules() if (owned := _owned(module))]
    sites = [Site(path, m, RULES[type(m)], owned) for path, m, owned in owners if type(m) in RULES]
    for path, module in model.named_modules():
        _check_no_mixing(path, module)
    for site in sites:
        _check_site(site)
    covered = {parameter for site in sites for parameter in site.parameters.values()}
    for path, module, owned in owners:
        _check_covered(path, module, [name for name, parameter in owned.items() if parameter not in covered])
    return sites


def _owned(module: nn.Module) -> dict[str, nn.Parameter]:
    return {name: parameter for name, parameter in module.named_parameters(recurse=False) if parameter.requires_grad}


def _check_precisions(trainable: Mapping[str, nn.Parameter]) -> None:
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


def _check_site(site: Site) -> None:
    unknown = [name for name in site.parameters if name not in site.rule.factors]
    objection = f"has a parameter {unknown[0]!r} that its rule does not know" if unknown else None
    if "forward" in vars(site.module):
        objection = "has a forward of its own, set on the instance"
    objection = objection or site.rule.objection(site.module)
    if objection:
        raise RefusedError("parameter-without-rule", f"{site.describe()} {objection}; freeze it or use a plain layer")


def _check_covered(path: str, module: nn.Module, uncovered: list[str]) -> None:
    kind = type(module)
    unread = UNREAD_PARAMETERS.get(f"{kind.__module__}.{kind.__qualname__}", ())
    for name in uncovered:
        if name not in unread:
            raise RefusedError(
                "parameter-without-rule",
                f"parameter {name!r} of {_describe(path, module)} has no per-example rule; freeze it with "
                "requires_grad_(False), or add the layer to tacit.engine.rules.RULES",
            )


def _describe(path: str, module: nn.Module) -> str:
    return f"{path or 'the model'} ({type(module).__name__})"
