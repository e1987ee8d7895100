"""The gradients of all units with respect to one parameter, kept as factors instead of one tensor a unit.

Legend: U units, R and S positions of a unit (its sequences one after another), d features of the input, p features of
the output, V rows of an embedding table. A suffix names a tensor's dimensions; w is the parameter's own shape.

Three forms cover the layers of a language model, and a tied weight is a sum of two of them:

    Dense   g_u                                        biases, normalisation layers, and anything small
    Outer   g_u = sum_r left_ur right_ur^T             a weight (p, d) that multiplies its input: linear layers
    Lookup  g_u = sum_r onehot(index_ur) value_ur^T    a table (V, d) whose rows are picked: embeddings

The squared norm of an Outer is the sum of the entries of (L L^T) * (R R^T), so that no (p, d) tensor a unit is needed
(Li et al. 2022, "ghost clipping", arXiv 2110.05679). The inner product of a Lookup with an Outer is the sum over r, s of
left_ur[index_us] <right_ur, value_us>, which makes the norm of a tied embedding exact.

Where the outer products of a unit nearly cancel, rounding could make a Gram norm far too small, and the unit would
pass unclipped. So Gram norms are rounded up: ``ROUNDING_MARGIN`` times machine epsilon times (sum_r |left_r| |right_r|)^2
is added, at most a few 1e-5 of the norm for ordinary float32 gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Dense", "Factor", "Lookup", "Outer", "combine", "squared_norms"]

# A gradient is materialised where it takes no more memory than its factors. Measured on a CPU, a higher or lower ratio is
# slower: the Gram form costs R*R*(d + p) products more, the materialised one memory traffic.
DENSE_SIZE_RATIO = 1.0

# In units of epsilon; the worst error seen in sums that cancel was below 1 (tests/engine/test_factors.py).
ROUNDING_MARGIN = 4.0


@dataclass(frozen=True)
class Dense:
    """Each unit's gradient as it is: ``gradient_Uw``."""

    gradient_Uw: Tensor

    def squared_norms(self) -> Tensor:
        return self.gradient_Uw.flatten(1).square().sum(1)

    def without(self, dropped_U: Tensor) -> Dense:
        return Dense(_zero_units(self.gradient_Uw, dropped_U))

    def add_weighted_sum_(self, total_w: Tensor, weight_U: Tensor) -> None:
        total_w += (weight_U @ self.gradient_Uw.flatten(1)).view_as(total_w)

    def dense(self) -> Dense:
        return self


@dataclass(frozen=True)
class Outer:
    """Each unit's gradient as a sum of outer products: ``left_URp`` (output gradients), ``right_URd`` (inputs)."""

    left_URp: Tensor
    right_URd: Tensor

    def squared_norms(self) -> Tensor:
        product_URR = torch.bmm(self.left_URp, self.left_URp.mT)
        product_URR *= torch.bmm(self.right_URd, self.right_URd.mT)
        sizes_UR = product_URR.diagonal(dim1=1, dim2=2).sqrt()  # |left_r| |right_r|
        return product_URR.sum((1, 2)) + _rounding_margin(sizes_UR)

    def without(self, dropped_U: Tensor) -> Outer:
        return Outer(_zero_units(self.left_URp, dropped_U), _zero_units(self.right_URd, dropped_U))

    def add_weighted_sum_(self, total_pd: Tensor, weight_U: Tensor) -> None:
        left_URp, right_URd = self.left_URp, self.right_URd
        if left_URp.shape[2] < right_URd.shape[2]:  # scale the smaller factor
            left_URp = left_URp * weight_U[:, None, None]
        else:
            right_URd = right_URd * weight_U[:, None, None]
        total_pd.addmm_(left_URp.flatten(0, 1).T, right_URd.flatten(0, 1))

    def dense(self) -> Dense:
        return Dense(torch.bmm(self.left_URp.mT, self.right_URd))

    def smaller_dense(self) -> bool:
        """Whether the (p, d) gradient of a unit is no larger than its two factors."""
        positions, p, d = *self.left_URp.shape[1:], self.right_URd.shape[2]
        return p * d <= DENSE_SIZE_RATIO * positions * (p + d)


@dataclass(frozen=True)
class Lookup:
    """Each unit's gradient as rows of a table: ``value_URd`` is added to row ``index_UR``; the table has ``V`` rows."""

    index_UR: Tensor
    value_URd: Tensor
    V: int

    def squared_norms(self) -> Tensor:
        """Values of one (unit, row) pair are added up first, then squared."""
        units = len(self.index_UR)
        unit_U = torch.arange(units, device=self.index_UR.device)
        pairs, slot = torch.unique(unit_U[:, None] * self.V + self.index_UR, return_inverse=True)
        sums = self.value_URd.new_zeros(len(pairs), self.value_URd.shape[2])
        sums.index_add_(0, slot.flatten(), self.value_URd.flatten(0, 1))
        return self.value_URd.new_zeros(units).index_add_(0, pairs // self.V, sums.square().sum(1))

    def without(self, dropped_U: Tensor) -> Lookup:
        return Lookup(self.index_UR, _zero_units(self.value_URd, dropped_U), self.V)

    def add_weighted_sum_(self, total_Vd: Tensor, weight_U: Tensor) -> None:
        value_URd = self.value_URd * weight_U[:, None, None]
        total_Vd.index_add_(0, self.index_UR.flatten(), value_URd.flatten(0, 1))

    def dense(self) -> Dense:
        units, _, d = self.value_URd.shape
        index_URd = self.index_UR[:, :, None].expand_as(self.value_URd)
        return Dense(self.value_URd.new_zeros(units, self.V, d).scatter_add_(1, index_URd, self.value_URd))


Factor = Dense | Outer | Lookup


def combine(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """The same gradient with at most one factor of each form, in the cheaper form.

    A parameter that is used several times has one factor a use. Outer products (and lookups) of several uses are one
    Outer (Lookup) over more positions. When any of them is Dense, or small, all of them are materialised and added.
    """
    outers = [factor for factor in factors if isinstance(factor, Outer)]
    lookups = [factor for factor in factors if isinstance(factor, Lookup)]
    merged: list[Factor] = [factor for factor in factors if isinstance(factor, Dense)]
    materialise = bool(merged)
    if outers:
        outer = _join_outers(outers)
        materialise |= outer.smaller_dense()
        merged.append(outer)
    if lookups:
        merged.append(_join_lookups(lookups))
    if materialise:
        return (Dense(sum((f.dense().gradient_Uw for f in merged[1:]), merged[0].dense().gradient_Uw)),)
    return tuple(merged)


def squared_norms(factors: Sequence[Factor]) -> Tensor:
    """The squared norm of each unit's gradient, ``(U,)``, of factors that ``combine`` returned.

    Should rounding beat the margin, a negative result is left as it is: its root is NaN, and the unit is dropped, not
    passed unclipped.
    """
    total_U = torch.stack([factor.squared_norms() for factor in factors]).sum(0)
    outer = next((factor for factor in factors if isinstance(factor, Outer)), None)
    lookup = next((factor for factor in factors if isinstance(factor, Lookup)), None)
    if outer is not None and lookup is not None:
        total_U += 2 * _inner_products(outer, lookup)
        total_U += _rounding_margin(torch.linalg.vector_norm(lookup.value_URd, dim=2))
    return total_U


def _inner_products(outer: Outer, lookup: Lookup) -> Tensor:
    """``<outer_u, lookup_u>`` of each unit: sum over r, s of left_ur[index_us] <right_ur, value_us>."""
    product_URS = torch.bmm(outer.right_URd, lookup.value_URd.mT)
    product_URS *= outer.left_URp.gather(2, lookup.index_UR[:, None, :].expand_as(product_URS))
    return product_URS.sum((1, 2))


def _rounding_margin(sizes_UR: Tensor) -> Tensor:
    """Room for the rounding of a sum of Gram products. A cross term of sizes a, b has 2ab <= a^2 + b^2: both margins."""
    return ROUNDING_MARGIN * torch.finfo(sizes_UR.dtype).eps * sizes_UR.sum(1).square()


def _join_outers(outers: Sequence[Outer]) -> Outer:
    if len(outers) == 1:
        return outers[0]
    left_URp = torch.cat([outer.left_URp for outer in outers], 1)
    return Outer(left_URp, torch.cat([outer.right_URd for outer in outers], 1))


def _join_lookups(lookups: Sequence[Lookup]) -> Lookup:
    if len(lookups) == 1:
        return lookups[0]
    index_UR = torch.cat([lookup.index_UR for lookup in lookups], 1)
    return Lookup(index_UR, torch.cat([lookup.value_URd for lookup in lookups], 1), lookups[0].V)


def _zero_units(x_U: Tensor, dropped_U: Tensor) -> Tensor:
    """Zeros in place of the dropped units, whatever they hold (0 * NaN would be NaN)."""
    return x_U.masked_fill(dropped_U.view(-1, *[1] * (x_U.dim() - 1)), 0)
