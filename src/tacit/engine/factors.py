"""The gradients of all units with respect to one parameter, kept as factors instead of one tensor a unit.

Legend: U units, R and S positions of a unit (its sequences one after another), d features of the input, p features of
the output, V rows of an embedding table. A suffix names a tensor's dimensions; w is the parameter's own shape.

Four forms cover the layers of a language model, and a tied weight is a sum of two of them:

    Dense   g_u                                        biases, normalisation layers, and anything small
    Outer   g_u = sum_r left_ur right_ur^T             a weight (p, d) that multiplies its input: linear layers
    Lookup  g_u = sum_r onehot(index_ur) value_ur^T    a table (V, d) whose rows are picked: embeddings
    Logits  an Outer whose left side is computed when it is asked for: output heads with a large vocabulary

The squared norm of an Outer is the sum of the entries of (L L^T) * (R R^T), so that no (p, d) tensor a unit is needed
(Li et al. 2022, "ghost clipping", arXiv 2110.05679). The inner product of a Lookup with an Outer is the sum over r, s of
left_ur[index_us] <right_ur, value_us>, which makes the norm of a tied embedding exact.

Where the outer products of a unit nearly cancel, rounding could make a Gram norm far too small, and the unit would
pass unclipped. So Gram norms are rounded up: ``ROUNDING_MARGIN`` times machine epsilon times (sum_r |left_r| |right_r|)^2
is added, at most a few 1e-5 of the norm for ordinary float32 gradients.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = [
    "IGNORE_INDEX",
    "Dense",
    "Factor",
    "Logits",
    "Lookup",
    "Outer",
    "combine",
    "rounded_product",
    "spread_rows",
    "squared_norms",
]

IGNORE_INDEX = -100  # the label of a position without a loss, as in torch and transformers

# A gradient is materialised where it takes no more memory than its factors. Measured on a CPU, a higher or lower ratio is
# slower: the Gram form costs R*R*(d + p) products more, the materialised one memory traffic.
DENSE_SIZE_RATIO = 1.0

# In units of epsilon; the worst error seen in sums that cancel was below 1 (tests/engine/test_factors.py).
ROUNDING_MARGIN = 4.0

# Logits takes fewer units at a time rather than fewer columns of the vocabulary than this: thin products are slow.
LEAST_COLUMNS = 1024


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

    def units(self, some: slice) -> Lookup:
        """Of these units only."""
        return Lookup(self.index_UR[some], self.value_URd[some], self.V)

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


@dataclass(frozen=True)
class Logits:
    """The weight (V, d) of an output head under cross-entropy: ``g_u = sum_r P_ur (upstream_ur hidden_ur)^T``.

    P_ur = softmax(hidden_ur weight^T + bias) - onehot(label_ur), and 0 where the label is ``IGNORE_INDEX``. It is
    computed again by each method, never whole: in blocks of units and of columns of the vocabulary. Norm and sum
    compute it alike; a norm of another P, such as one in another precision, would not bound what the sum adds.

    Args:
        hidden_URd: the head's input, in the precision that sums are kept in (float32 or float64).
        upstream_UR: the gradient at each position's loss.
        label_UR: token ids or ``IGNORE_INDEX``.
        lse_UR: the log of the sum of exp(logits) over the vocabulary, from the forward.
        weight_Vd: the head's weight, referred to.
        bias_V: its bias, or None.
        rounding: what hidden and weight are rounded to in the logits (``rounded_product``).
        block: entries of P that may exist at one time. (The Gram form has R*R entries a unit besides.)
    """

    hidden_URd: Tensor
    upstream_UR: Tensor
    label_UR: Tensor
    lse_UR: Tensor
    weight_Vd: Tensor
    bias_V: Tensor | None
    rounding: torch.dtype
    block: int

    def right_URd(self) -> Tensor:
        """The right side of the outer products; P is the left one."""
        return self.hidden_URd * self.upstream_UR[:, :, None]

    def squared_norms(self, lookup: Lookup | None = None) -> Tensor:
        """With a lookup of the same parameter, plus twice the inner product with it: one pass gives both."""
        return torch.cat(
            [part._squares(None if lookup is None else lookup.units(units)) for units, part in self._parts()]
        )

    def without(self, dropped_U: Tensor) -> Logits:
        return replace(
            self,
            hidden_URd=_zero_units(self.hidden_URd, dropped_U),
            upstream_UR=_zero_units(self.upstream_UR, dropped_U),
            label_UR=self.label_UR.masked_fill(dropped_U[:, None], IGNORE_INDEX),
        )

    def add_weighted_sum_(self, total_Vd: Tensor, weight_U: Tensor) -> None:
        for units, part in self._parts():
            row_N = part._labelled_rows()
            right_Nd = (part.right_URd() * weight_U[units, None, None]).flatten(0, 1)[row_N]
            for columns, p_Nv in part._blocks(row_N):
                total_Vd[columns].addmm_(p_Nv.T, right_Nd)

    def dense(self) -> Dense:
        gradient_UVd = self.hidden_URd.new_empty(len(self.hidden_URd), *self.weight_Vd.shape)
        for units, part in self._parts():
            right_URd = part.right_URd()
            for columns, p_URv in part._spread_blocks():
                gradient_UVd[units, columns] = torch.bmm(p_URv.mT, right_URd)
        return Dense(gradient_UVd)

    def smaller_dense(self) -> bool:
        """Whether the (V, d) gradients of all units fit in a block: fewer products than a norm and a sum of blocks."""
        return len(self.hidden_URd) * self.weight_Vd.numel() <= self.block

    def outer(self) -> Outer:
        """With P whole."""
        left_URV = self.hidden_URd.new_empty(*self.label_UR.shape, len(self.weight_Vd))
        for units, part in self._parts():
            for columns, p_URv in part._spread_blocks():
                left_URV[units, :, columns] = p_URv
        return Outer(left_URV, self.right_URd())

    def bias_gradient(self) -> Dense:
        """The gradient of the head's bias, ``sum_r upstream_ur P_ur``."""
        gradient_UV = self.hidden_URd.new_empty(len(self.hidden_URd), len(self.weight_Vd))
        for units, part in self._parts():
            for columns, p_URv in part._spread_blocks():
                gradient_UV[units, columns] = torch.bmm(part.upstream_UR[:, None], p_URv)[:, 0]
        return Dense(gradient_UV)

    def joins(self, other: Logits) -> bool:
        """Whether both are calls of one head in one precision: then they are one call with more positions."""
        mine, others = self.bias_V, other.bias_V
        one_bias = mine is others if mine is None or others is None else mine.is_set_to(others)
        return one_bias and self.rounding == other.rounding

    def _squares(self, lookup: Lookup | None) -> Tensor:
        """Squared norms from P P^T or, where a unit has more positions than features, from the gradient itself."""
        units, positions, d = self.hidden_URd.shape
        right_URd = self.right_URd()
        gram_URR = torch.bmm(right_URd, right_URd.mT) if positions <= d else None
        product_URS = None if lookup is None else torch.bmm(right_URd, lookup.value_URd.mT)
        square_U, p_square_UR = right_URd.new_zeros(units), right_URd.new_zeros(units, positions)
        for columns, p_URv in self._spread_blocks():
            p_square_UR += torch.linalg.vector_norm(p_URv, dim=2).square_()
            if gram_URR is None:
                square_U += torch.bmm(p_URv.mT, right_URd).square_().sum((1, 2))
            else:
                square_U += torch.bmm(p_URv, p_URv.mT).mul_(gram_URR).sum((1, 2))
            if lookup is not None and product_URS is not None:
                square_U += 2 * _inner_products_in(columns, p_URv, product_URS, lookup.index_UR)
        return square_U + _rounding_margin(p_square_UR.sqrt_() * torch.linalg.vector_norm(right_URd, dim=2))

    def _parts(self) -> Iterator[tuple[slice, Logits]]:
        """A few units at a time."""
        units, positions = self.label_UR.shape
        columns = max(positions, min(len(self.weight_Vd), LEAST_COLUMNS))
        size = max(1, self.block // max(1, positions * columns))
        for first in range(0, max(1, units), size):
            some = slice(first, first + size)
            yield some, self._with([tensor[some] for tensor in self._per_position()])

    def _per_position(self) -> list[Tensor]:
        return [self.hidden_URd, self.upstream_UR, self.label_UR, self.lse_UR]

    def _with(self, per_position: Sequence[Tensor]) -> Logits:
        hidden_URd, upstream_UR, label_UR, lse_UR = per_position
        return replace(self, hidden_URd=hidden_URd, upstream_UR=upstream_UR, label_UR=label_UR, lse_UR=lse_UR)

    def _labelled_rows(self) -> Tensor:
        """The (unit, position) pairs that have a label, counted through."""
        return (self.label_UR != IGNORE_INDEX).flatten().nonzero().flatten()

    def _blocks(self, row_N: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """P at the labelled rows, in blocks of columns of the vocabulary."""
        hidden_Nd = self.hidden_URd.flatten(0, 1)[row_N]
        label_N1, lse_N1 = self.label_UR.flatten()[row_N, None], self.lse_UR.flatten()[row_N, None]
        width = max(1, self.block // max(1, self.label_UR.numel()))
        for first in range(0, len(self.weight_Vd), width):
            columns = slice(first, min(first + width, len(self.weight_Vd)))
            p_Nv = rounded_product(hidden_Nd, self.weight_Vd[columns].T, self.rounding)
            if self.bias_V is not None:
                p_Nv += self.bias_V[columns]
            p_Nv.sub_(lse_N1).exp_()
            place_N1 = label_N1 - first
            here_N1 = (place_N1 >= 0) & (place_N1 < p_Nv.shape[1])
            p_Nv.scatter_add_(1, place_N1.clamp(0, p_Nv.shape[1] - 1), -here_N1.to(p_Nv.dtype))
            yield columns, p_Nv

    def _spread_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """P as (unit, position, column), in blocks of columns."""
        row_N, (units, positions) = self._labelled_rows(), self.label_UR.shape
        for columns, p_Nv in self._blocks(row_N):
            yield columns, spread_rows(p_Nv, row_N, units * positions).view(units, positions, p_Nv.shape[1])


Factor = Dense | Outer | Lookup | Logits


def combine(factors: Sequence[Factor]) -> tuple[Factor, ...]:
    """The same gradient with at most one factor of each form, in the cheaper form.

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
    materialise = bool(merged) or any(factor.smaller_dense() for factor in logits)
    merged += logits
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
    lookup = next((factor for factor in factors if isinstance(factor, Lookup)), None)
    squares = [f.squared_norms(lookup) if isinstance(f, Logits) else f.squared_norms() for f in factors]
    total_U = torch.stack(squares).sum(0)
    outer = next((factor for factor in factors if isinstance(factor, Outer)), None)
    if outer is not None and lookup is not None:
        total_U += 2 * _inner_products(outer, lookup)
    if lookup is not None and len(factors) > 1:
        total_U += _rounding_margin(torch.linalg.vector_norm(lookup.value_URd, dim=2))
    return total_U


def _inner_products(outer: Outer, lookup: Lookup) -> Tensor:
    """``<outer_u, lookup_u>`` of each unit: sum over r, s of left_ur[index_us] <right_ur, value_us>."""
    product_URS = torch.bmm(outer.right_URd, lookup.value_URd.mT)
    product_URS *= outer.left_URp.gather(2, lookup.index_UR[:, None, :].expand_as(product_URS))
    return product_URS.sum((1, 2))


def _inner_products_in(columns: slice, p_URv: Tensor, product_URS: Tensor, index_US: Tensor) -> Tensor:
    """``_inner_products`` as far as the looked-up rows are in these columns; P changes."""
    place_US = index_US - columns.start
    here_US = (place_US >= 0) & (place_US < p_URv.shape[2])
    place_URS = place_US.clamp(0, p_URv.shape[2] - 1)[:, None, :].expand_as(product_URS)
    product_US = p_URv.gather(2, place_URS).mul_(product_URS).sum(1)
    return product_US.masked_fill(~here_US, 0).sum(1)


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


def _join_logits(calls: Sequence[Logits]) -> list[Logits]:
    """One, where all are calls of one head; otherwise as they are."""
    if len(calls) < 2 or not all(call.joins(calls[0]) for call in calls):
        return list(calls)
    tensors = zip(*(call._per_position() for call in calls), strict=True)
    return [calls[0]._with([torch.cat(of_calls, 1) for of_calls in tensors])]


def rounded_product(left_nd: Tensor, right_dm: Tensor, rounding: torch.dtype) -> Tensor:
    """``left @ right`` of values rounded to a precision, multiplied and added up in float32 (float64 for float64).

    Unlike a product in bfloat16, whose results are rounded too, it is the same to float32 precision on every device
    and for every shape.
    """
    left_nd, right_dm = left_nd.to(rounding), right_dm.to(rounding)
    if rounding in (torch.float32, torch.float64):
        return left_nd @ right_dm
    if left_nd.is_cuda:
        return torch.mm(left_nd, right_dm, out_dtype=torch.float32)
    return left_nd.float() @ right_dm.float()


def spread_rows(x_Nv: Tensor, row_N: Tensor, rows: int) -> Tensor:
    """``x_Nv`` at the given rows (in order, each once) of ``rows`` rows, zeros in the others."""
    if len(row_N) == rows:
        return x_Nv
    return x_Nv.new_zeros(rows, x_Nv.shape[1]).index_copy_(0, row_N, x_Nv)


def _zero_units(x_U: Tensor, dropped_U: Tensor) -> Tensor:
    """Zeros in place of the dropped units, whatever they hold (0 * NaN would be NaN)."""
    return x_U.masked_fill(dropped_U.view(-1, *[1] * (x_U.dim() - 1)), 0)
