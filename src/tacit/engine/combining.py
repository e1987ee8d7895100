"""A parameter that is used several times: its gradient is the sum of its uses, and so are its norm's cross terms.

The inner product of a Lookup with an Outer is the sum over r, s of left_ur[index_us] <right_ur, value_us>, which makes the norm
of a tied embedding exact: |head + embedding|^2 = |head|^2 + |embedding|^2 + 2 <head, embedding>.

Legend: U units, R and S positions of a unit, d features of the input, p features of the output.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import torch
from torch import Tensor

from tacit.engine.factors import Dense, Factor, Lookup, Outer, rounding_margin, row_norms, unit_sums
from tacit.engine.logits import Logits
from tacit.engine.workspace import Workspace
from tacit.errors import UsageError

__all__ = ["Gathered", "combine", "squared_norms"]


class Gathered:
    """The factors of each parameter, as its uses come in. Gradients that are cheaper materialised are so at once.

    Args:
        workspace: where they are put.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._dense: dict[str, Dense] = {}
        self._others: dict[str, list[Factor]] = {}
        self._versions: list[tuple[str, Tensor, int]] = []

    def add(self, name: str, factor: Factor) -> None:
        """Take one use of a parameter."""
        if isinstance(factor, Outer) and factor.cheaper_dense():
            factor = factor.dense(self._workspace.empty(factor.shape(), factor.left_URp))
        if not isinstance(factor, Dense):
            self._others.setdefault(name, []).append(factor)
            self._versions += [(name, tensor, tensor._version) for tensor in factor.tensors()]
        elif name in self._dense:
            self._dense[name] = self._dense[name].plus_(factor)
        else:
            self._dense[name] = factor

    def empty(self) -> bool:
        return not self._dense and not self._others

    def take(self) -> dict[str, tuple[Factor, ...]]:
        """All factors, combined; they are forgotten here.

        Raises:
            UsageError: what a factor refers to was changed since it came in.
        """
        for name, tensor, version in self._versions:
            if tensor._version != version:
                raise UsageError(
                    f"the input of the layer of {name!r}, or the gradient at its output, was changed in place before the "
                    "clipping context ended"
                )
        self._versions = []
        combined = {}
        for name in [*self._dense, *(name for name in self._others if name not in self._dense)]:
            dense = [self._dense.pop(name)] if name in self._dense else []
            combined[name] = combine([*dense, *self._others.pop(name, [])])  # pop: frees memory early
        return combined


def combine(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """Combine factors of one parameter: the same gradient with at most one factor of each form, in the cheaper form.

    A parameter that is used several times has one factor a use. Outer products (and lookups) of several uses are one
    Outer (Lookup) over more positions. When any of them is Dense, or small, all of them are materialised and added.
    Logits stay blocks unless there are Outers too: whole logits exist then anyway.
    """
    outers = [factor for factor in factors if isinstance(factor, Outer)]
    logits = _join_logits([factor for factor in factors if isinstance(factor, Logits)])
    if outers or len(logits) > 1:
        outers, logits = [*outers, *(factor.outer() for factor in logits)], []
    lookups = [factor for factor in factors if isinstance(factor, Lookup)]
    merged: list[Factor] = [factor for factor in factors if isinstance(factor, Dense)]
    materialise = bool(merged) or any(factor.cheaper_dense() for factor in logits)
    merged += logits
    if outers:
        outer = _join_outers(outers)
        materialise |= outer.cheaper_dense()
        merged.append(outer)
    if lookups:
        merged.append(_join_lookups(lookups))
    if materialise and len(merged) == 1:
        return (merged[0].dense(),)
    if materialise:
        return (functools.reduce(Dense.plus_, (factor.dense() for factor in merged)),)
    return tuple(merged)


def squared_norms(factors: Sequence[Factor]) -> Tensor:
    """The squared norm of each unit's gradient, ``(U,)``, of factors that ``combine`` returned.

    Should rounding beat the margin, a negative result is NaN, so the unit is dropped and not passed unclipped, whatever other
    parameters add to its norm.
    """
    lookup = next((factor for factor in factors if isinstance(factor, Lookup)), None)
    outer = next((factor for factor in factors if isinstance(factor, Outer)), None)
    is_double = any(tensor.dtype == torch.float64 for factor in factors for tensor in factor.tensors())
    # what cancels is rounded when it is added up
    total_U = torch.stack([_unrounded_squares(factor, lookup) for factor in factors]).sum(0)
    if outer is not None and lookup is not None:
        total_U += 2 * _inner_products(outer, lookup)
    if lookup is not None and len(factors) > 1:
        total_U += rounding_margin(row_norms(lookup.value_URd), lookup.value_URd.shape[2])
    total_U = total_U.masked_fill(total_U < 0, torch.nan)
    return total_U if is_double else total_U.float()


def _unrounded_squares(factor: Factor, lookup: Lookup | None) -> Tensor:
    """The squared norms in float64; those of logits come with their inner products with the lookup."""
    if isinstance(factor, Outer):
        return factor.unrounded_squares()
    square_U = factor.squared_norms(lookup) if isinstance(factor, Logits) else factor.squared_norms()
    return square_U.double()


def _inner_products(outer: Outer, lookup: Lookup) -> Tensor:
    """``<outer_u, lookup_u>`` of each unit: sum over r, s of left_ur[index_us] <right_ur, value_us>; float64, as their norms."""
    product_URS = torch.bmm(outer.right_URd.double(), lookup.value_URd.mT.double())
    product_URS *= outer.left_URp.gather(2, lookup.index_UR[:, None, :].expand_as(product_URS))
    return unit_sums(product_URS)


def _join_outers(outers: Sequence[Outer]) -> Outer:
    if len(outers) == 1:
        return outers[0]
    left_URp = torch.cat([outer.left_URp for outer in outers], 1)
    right_URd = torch.cat([outer.right_URd for outer in outers], 1)
    return Outer(left_URp, right_URd, sum(outer.positions for outer in outers), any(one.may_lack for one in outers))


def _join_lookups(lookups: Sequence[Lookup]) -> Lookup:
    if len(lookups) == 1:
        return lookups[0]
    index_UR = torch.cat([lookup.index_UR for lookup in lookups], 1)
    return Lookup(index_UR, torch.cat([lookup.value_URd for lookup in lookups], 1), lookups[0].V)


def _join_logits(calls: Sequence[Logits]) -> list[Logits]:
    """One, where all are calls of one head; otherwise as they are."""
    if len(calls) < 2 or not all(call.joins(calls[0]) for call in calls):
        return list(calls)
    tensors = zip(*(call._per_position() for call in calls), strict=True)
    return [calls[0]._with([torch.cat(of_calls, 1) for of_calls in tensors])]
