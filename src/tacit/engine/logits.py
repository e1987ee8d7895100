"""The factor of an output head with a large vocabulary: outer products whose left side is computed when it is asked for.

Legend: U units, R and S positions of a unit, N all positions with a label, d features, V vocabulary, v some of its columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.engine.factors import (
    Dense,
    Factor,
    Lookup,
    Outer,
    aligned,
    extreme,
    gram,
    on_gpu,
    rounding_margin,
    row_norms,
    unit_products,
    unit_sums,
    zero_units,
)

__all__ = ["IGNORE_INDEX", "Logits", "least_rows", "rounded_product", "spread_rows", "sum_over_positions"]

IGNORE_INDEX = -100  # the label of a position without a loss, as in torch and transformers

_DROPPED = -101  # the label of a position whose unit was dropped: its P is 0

# Fewer units at a time rather than fewer columns of the vocabulary than this: thin products are slow.
LEAST_COLUMNS = 1024

# How many positions have a label, others than the unit itself decide; of one to three rows, of all or of a thread's share, the
# products were other bits.
LEAST_ROWS = 16

# In float64 the rows beyond a multiple of 4 have other bits, however many there are.
ROWS_OF_DOUBLES = 4

# Of fewer than 12 columns they were other bits too: a block has a multiple of this, and what is left over joins the last one.
_COLUMNS = 64


@dataclass(frozen=True)
class Logits(Factor):
    """The weight (V, d) of an output head under cross-entropy: ``g_u = sum_r P_ur (upstream_ur hidden_ur)^T``.

    P_ur = softmax(hidden_ur weight^T + bias) - onehot(label_ur), and 0 where the label is ``IGNORE_INDEX``. It is
    computed again by each method, never whole: in blocks of units and of columns of the vocabulary. Norm and sum
    compute it alike; a norm of another P, such as one in another precision, would not bound what the sum adds. All blocks of units
    have one size, the last one with blank units, and so the same blocks of columns: how a unit is rounded must not hang on its place.

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
        """The squared norms; with a lookup of the same parameter, plus twice the inner product with it: one pass gives both."""
        squares = [  # in float64, as their inner products
            part._squares(None if lookup is None else lookup.units(units).filled(len(part.label_UR)))
            for units, part in self._parts()
        ]
        return torch.cat(squares)[: len(self.hidden_URd)]

    def absolute_sums(self) -> Tensor:
        """The sums of norms, with the most that the norm of a P can be: a distribution less a one."""
        return 2**0.5 * unit_sums(row_norms(self.right_URd()))

    def without(self, dropped_U: Tensor) -> Logits:
        """Their positions keep a place in the products: of fewer rows the others' P could be rounded otherwise than in the norm."""
        gone_UR = dropped_U[:, None] & (self.label_UR != IGNORE_INDEX)
        return replace(
            self,
            hidden_URd=zero_units(self.hidden_URd, dropped_U),
            upstream_UR=zero_units(self.upstream_UR, dropped_U),
            label_UR=self.label_UR.masked_fill(gone_UR, _DROPPED),
        )

    def weighted_sum(self, weight_U: Tensor) -> Tensor:
        total = weight_U.new_zeros(self.weight_Vd.shape)
        self.add_weighted_sum_(total, weight_U)
        return total

    def add_weighted_sum_(self, total: Tensor, weight_U: Tensor) -> None:
        for units, part in self._parts():
            row_N = part._labelled_rows()
            part_U = F.pad(weight_U[units], (0, len(part.label_UR) - len(weight_U[units])))
            right_Nd = (part.right_URd() * part_U[:, None, None]).flatten(0, 1)[row_N]
            for columns, p_Nv in part._blocks(row_N):
                total[columns].addmm_(p_Nv.T.to(total.dtype), right_Nd)

    def dense(self) -> Dense:
        gradient_UVd = self.hidden_URd.new_empty(len(self.hidden_URd), *self.weight_Vd.shape)
        for units, part in self._parts():
            right_URd = part.right_URd()
            for columns, p_URv in part._spread_blocks():
                gradient_UVd[units, columns] = unit_products(p_URv, right_URd)[: units.stop - units.start]
        return Dense(gradient_UVd)

    def tensors(self) -> tuple[Tensor, ...]:
        bias = () if self.bias_V is None else (self.bias_V,)
        return *self._per_position(), self.weight_Vd, *bias

    def cheaper_dense(self) -> bool:
        """Whether the (V, d) gradients of all units fit in a block: fewer products than a norm and a sum of blocks."""
        return len(self.hidden_URd) * self.weight_Vd.numel() <= self.block

    def outer(self) -> Outer:
        """The outer products, with P whole."""
        left_URV = self.hidden_URd.new_empty(*self.label_UR.shape, len(self.weight_Vd))
        for units, part in self._parts():
            for columns, p_URv in part._spread_blocks():
                left_URV[units, :, columns] = p_URv[: units.stop - units.start]
        return Outer(left_URV, self.right_URd())

    def bias_gradient(self) -> Dense:
        """The gradient of the head's bias, ``sum_r upstream_ur P_ur``."""
        gradient_UV = self.hidden_URd.new_empty(len(self.hidden_URd), len(self.weight_Vd))
        for units, part in self._parts():
            for columns, p_URv in part._spread_blocks():
                gradient_UV[units, columns] = sum_over_positions(part.upstream_UR, p_URv)[: units.stop - units.start]
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
        precise_URd = right_URd.double()
        gram_URR = gram(right_URd) if positions <= d else None
        product_URS = None if lookup is None else torch.bmm(precise_URd, lookup.value_URd.mT.double())
        square_U, p_square_UR = (
            right_URd.new_zeros(*shape, dtype=torch.float64) for shape in ((units,), (units, positions))
        )
        for columns, p_URv in self._spread_blocks():
            p_square_UR += row_norms(p_URv).double().square_()
            if gram_URR is None:
                square_U += unit_sums(torch.bmm(p_URv.double().mT, precise_URd).square_())
            else:
                square_U += unit_sums(gram(p_URv).mul_(gram_URR))
            if lookup is not None and product_URS is not None:
                square_U += 2 * _inner_products_in(columns, p_URv, product_URS, lookup.index_UR)
        right_UR = row_norms(right_URd)
        square_U += rounding_margin(p_square_UR.sqrt_() * right_UR, max(d, len(self.weight_Vd)), right_URd.dtype)
        return square_U.masked_fill_(extreme(right_UR.square_()), torch.inf)

    def _parts(self) -> Iterator[tuple[slice, Logits]]:
        """A few units at a time, and which they are; behind the last ones stand blank units."""
        units, positions = self.label_UR.shape
        columns = max(positions, min(len(self.weight_Vd), LEAST_COLUMNS))
        most = max(1, self.block // max(1, positions * columns))
        size = -(-units // max(1, -(-units // most)))
        for first in range(0, max(1, units), max(1, size)):
            some = slice(first, min(first + size, units))
            yield some, self._with([tensor[some] for tensor in self._per_position()])._filled(size)

    def _filled(self, units: int) -> Logits:
        """The logits filled with blank units behind, up to so many."""
        missing = units - len(self.label_UR)
        if missing == 0:
            return self
        per_position = [_with_blanks(tensor, missing) for tensor in self._per_position()]
        per_position[2][-missing:] = IGNORE_INDEX
        return self._with(per_position)

    def _per_position(self) -> list[Tensor]:
        return [self.hidden_URd, self.upstream_UR, self.label_UR, self.lse_UR]

    def _with(self, per_position: Sequence[Tensor]) -> Logits:
        hidden_URd, upstream_UR, label_UR, lse_UR = per_position
        return replace(self, hidden_URd=hidden_URd, upstream_UR=upstream_UR, label_UR=label_UR, lse_UR=lse_UR)

    def _labelled_rows(self) -> Tensor:
        """The (unit, position) pairs that have a label, counted through; on a GPU all, whose P is 0 without one.

        There each number of rows is multiplied by a program of its own, and other units decide how many have a label.
        """
        if on_gpu(self.label_UR):
            return torch.arange(self.label_UR.numel(), device=self.label_UR.device)
        return (self.label_UR != IGNORE_INDEX).flatten().nonzero().flatten()

    def _blocks(self, row_N: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """P at the labelled rows, in blocks of columns of the vocabulary."""
        hidden_Nd = self.hidden_URd.flatten(0, 1)[row_N]
        label_N1, lse_N1 = self.label_UR.flatten()[row_N, None], self.lse_UR.flatten()[row_N, None]
        gone_N1 = (label_N1 == _DROPPED) | (label_N1 == IGNORE_INDEX)
        some_gone = bool(gone_N1.any())
        for columns in _column_blocks(len(self.weight_Vd), self.block // max(1, self.label_UR.numel())):
            p_Nv = rounded_product(hidden_Nd, self.weight_Vd[columns].T, self.rounding)
            if self.bias_V is not None:
                p_Nv += self.bias_V[columns]
            p_Nv.sub_(lse_N1).exp_()
            place_N1 = label_N1 - columns.start
            here_N1 = (place_N1 >= 0) & (place_N1 < p_Nv.shape[1])
            p_Nv.scatter_add_(1, place_N1.clamp(0, p_Nv.shape[1] - 1), -here_N1.to(p_Nv.dtype))
            if some_gone:
                p_Nv.masked_fill_(gone_N1, 0)  # whatever the head's weight holds
            yield columns, p_Nv

    def _spread_blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """P as (unit, position, column), in blocks of columns."""
        row_N, (units, positions) = self._labelled_rows(), self.label_UR.shape
        for columns, p_Nv in self._blocks(row_N):
            yield columns, spread_rows(p_Nv, row_N, units * positions).view(units, positions, p_Nv.shape[1])


def _column_blocks(V: int, most: int) -> Iterator[slice]:
    """Blocks of about so many columns each, never of a few."""
    width = max(_COLUMNS, most - most % _COLUMNS)
    edges = [*range(0, max(1, V - _COLUMNS + 1), width), V]
    yield from map(slice, edges[:-1], edges[1:])


def _with_blanks(x_U: Tensor, missing: int) -> Tensor:
    return torch.cat([x_U, x_U.new_zeros(missing, *x_U.shape[1:])])


def sum_over_positions(weight_UR: Tensor, x_URv: Tensor) -> Tensor:
    """The weighted sum (U, v) over each unit's positions, the same to the bit in every unit's place."""
    return torch.bmm(weight_UR[:, None], aligned(x_URv))[:, 0, : x_URv.shape[2]]


def least_rows() -> int:
    """The fewest rows of a product whose number of rows other units decide: 8 for each thread, in multiples of 16."""
    return LEAST_ROWS * -(-torch.get_num_threads() // 2)


def _inner_products_in(columns: slice, p_URv: Tensor, product_URS: Tensor, index_US: Tensor) -> Tensor:
    """``_inner_products`` as far as the looked-up rows are in these columns; P changes."""
    place_US = index_US - columns.start
    here_US = (place_US >= 0) & (place_US < p_URv.shape[2])
    place_URS = place_US.clamp(0, p_URv.shape[2] - 1)[:, None, :].expand_as(product_URS)
    product_US = (p_URv.gather(2, place_URS) * product_URS).sum(1)
    return unit_sums(product_US.masked_fill(~here_US, 0))


def rounded_product(left_nd: Tensor, right_dm: Tensor, rounding: torch.dtype) -> Tensor:
    """``left @ right`` of values rounded to a precision, multiplied and added up in float32 (float64 for float64).

    Unlike a product in bfloat16, whose results are rounded too, it is the same to float32 precision on every device
    and for every shape. On the CPU a row of it is the same to the bit however many rows there are: fewer than `least_rows`, for which
    the mathematics library has kernels of their own, are filled up with zeros. On a GPU it is so only among products of one shape.
    """
    rows, least = len(left_nd), LEAST_ROWS if left_nd.is_cuda else least_rows()
    if left_nd.dtype == torch.float64:
        least = max(least, -(-rows // ROWS_OF_DOUBLES) * ROWS_OF_DOUBLES)
    if 0 < rows < least:
        filled = left_nd.new_zeros(least, left_nd.shape[1])
        filled[:rows] = left_nd
        return rounded_product(filled, right_dm, rounding)[:rows]
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
