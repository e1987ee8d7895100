"""The gradients of all units with respect to one parameter, kept as factors instead of one tensor a unit.

Legend: U units, R and S positions of a unit (its sequences one after another), d features of the input, p features of
the output, V rows of an embedding table. A suffix names a tensor's dimensions; w is the parameter's own shape.

Four forms cover the layers of a language model, and a tied weight is a sum of two of them:

    Dense   g_u                                        biases, normalisation layers, and anything small
    Outer   g_u = sum_r left_ur right_ur^T             a weight (p, d) that multiplies its input: linear layers
    Lookup  g_u = sum_r onehot(index_ur) value_ur^T    a table (V, d) whose rows are picked: embeddings
    Logits  an Outer whose left side is computed when it is asked for: output heads with a large vocabulary (logits.py)

The squared norm of an Outer is the sum of the entries of (L L^T) * (R R^T), so that no (p, d) tensor a unit is needed
(Li et al. 2022, "ghost clipping", arXiv 2110.05679).

Where the outer products of a unit nearly cancel, rounding could make a Gram norm far too small, and the unit would
pass unclipped. So inner products are float64, and norms are rounded up besides: some machine epsilons of float32 (of float64
as many as any order of summation may lose) times (sum_r |left_r| |right_r|)^2 are added, at most a few 1e-5 of the norm
for ordinary float32 gradients.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.engine import positions

__all__ = [
    "Dense",
    "Factor",
    "Lookup",
    "Outer",
    "aligned",
    "even_rows",
    "extreme",
    "gram",
    "on_gpu",
    "rounding_margin",
    "row_norms",
    "unit_products",
    "unit_sums",
    "zero_units",
]

# In units of epsilon: a float32 norm is rounded up by it. All inner products are float64 (TACIT-51), so what it has to cover is the
# rounding of what they are made from, and of a float32 sum of parts (`clipper.CANCELLING`), which may leave more than was measured.
ROUNDING_MARGIN = 4.0
TERMS_PER_MARGIN = 64
MOST_TERMS = 1024

# A gradient is materialised where it takes at most this much of its factors' memory (docs/decisions/0004-engine.md has what
# was measured). The Gram form costs R*R*(p + d) products more than the sum; the gradient itself is the sum's own product, but is
# written to fresh memory once and read twice.
DENSE_MEMORY_RATIO = 1.7
DENSE_MOST_BYTES = 2**25

_RUN = 256

_PRECISE_DOUBT = 2.0**-43
"""Of the sum of the norms of all that is added up in float64, for each position, in another order where other units have a gradient
elsewhere: a thousand times its rounding, so that what other units decide is less than a thousandth of a clip norm."""

_ROUNDED_DOUBT = 2.0**13
"""Of the last digit of the norm of what was added up so, rounded to its own precision, and then added to what may cancel it:
others may decide that digit."""

_NUMBERS_AT_ONCE = 1 << 22


class Factor(ABC):
    """The gradients of all units with respect to one use of one parameter."""

    @abstractmethod
    def squared_norms(self) -> Tensor:
        """The squared norm of each unit's gradient, ``(U,)``, never less than it is but for rounding."""

    @abstractmethod
    def absolute_sums(self) -> Tensor | None:
        """The sum of the norms of all that is added up to a unit's gradient, ``(U,)``, or more; None: it was added up already.

        Over the gradient's own norm it is how much these cancel, and how much larger than it the rounding of a sum may be.
        """

    @abstractmethod
    def without(self, dropped_U: Tensor) -> Factor:
        """The factor with exact zeros for some units, whatever these hold."""

    @abstractmethod
    def weighted_sum(self, weight_U: Tensor) -> Tensor:
        """``sum_u weight_u g_u``, of the parameter's shape, multiplied and added up in the weights' precision."""

    @abstractmethod
    def add_weighted_sum_(self, total: Tensor, weight_U: Tensor) -> None:
        """Add ``weighted_sum`` to a tensor of the parameter's shape."""

    @abstractmethod
    def dense(self) -> Dense:
        """The gradients themselves."""

    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """What it is made from, which must not change before it is used."""


@dataclass(frozen=True)
class Dense(Factor):
    """Each unit's gradient as it is: ``gradient_Uw``; and its squared norm, where that is known already.

    ``doubt_U``: how much of it other units of the batch may decide by its rounding; it counts as part of the norm.
    """

    gradient_Uw: Tensor
    square_U: Tensor | None = None
    doubt_U: Tensor | None = None

    def squared_norms(self) -> Tensor:
        """Exact to a few epsilon: short runs by ``vector_norm``, which is fast and loses digits in long ones."""
        square_U = self._squares() if self.square_U is None else self.square_U
        return square_U if self.doubt_U is None else square_U + self.doubt_U.square()

    def _squares(self) -> Tensor:
        gradient_Un = (
            self._numbers_Un().contiguous()
        )  # torch adds up scattered numbers one by one, and loses more digits
        run = math.gcd(gradient_Un.shape[1], _RUN)
        if run < 16:
            return unit_sums(gradient_Un.double().square())
        return unit_sums(torch.linalg.vector_norm(gradient_Un.unflatten(1, (-1, run)), dim=2).double().square_())

    def absolute_sums(self) -> None:
        return None

    def plus_(self, other: Dense) -> Dense:
        """The sum, in the memory of the first."""
        doubts = [
            one.doubt_U + _ROUNDED_DOUBT * torch.finfo(one.gradient_Uw.dtype).eps * one.squared_norms().sqrt()
            for one in (self, other)
            if one.doubt_U is not None
        ]
        return Dense(self.gradient_Uw.add_(other.gradient_Uw), doubt_U=torch.stack(doubts).sum(0) if doubts else None)

    def without(self, dropped_U: Tensor) -> Dense:
        return Dense(zero_units(self.gradient_Uw, dropped_U))

    def weighted_sum(self, weight_U: Tensor) -> Tensor:
        return (weight_U @ self._numbers_Un().to(weight_U.dtype)).view(self.gradient_Uw.shape[1:])

    def _numbers_Un(self) -> Tensor:
        """Each unit's in one line; of a parameter without dimensions there is one."""
        return self.gradient_Uw[:, None] if self.gradient_Uw.dim() == 1 else self.gradient_Uw.flatten(1)

    def add_weighted_sum_(self, total: Tensor, weight_U: Tensor) -> None:
        total += self.weighted_sum(weight_U)

    def dense(self) -> Dense:
        return self

    def tensors(self) -> tuple[Tensor, ...]:
        return (self.gradient_Uw,)


@dataclass(frozen=True)
class Outer(Factor):
    """Each unit's gradient as a sum of outer products: ``left_URp`` (output gradients), ``right_URd`` (inputs).

    ``judged_by``: the number of positions that the form of the norm is chosen by, where some were left out; None: all that are
    here. Whether some are left out depends on the other units of a batch, and the forms round differently: a unit's norm must not.
    ``may_lack``: whether some may have been left out here; then products are added up in float64.
    """

    left_URp: Tensor
    right_URd: Tensor
    judged_by: int | None = None
    may_lack: bool = False

    @property
    def positions(self) -> int:
        """What the form of the norm is chosen by."""
        return self.left_URp.shape[1] if self.judged_by is None else self.judged_by

    def squared_norms(self) -> Tensor:
        return self.unrounded_squares().to(self.left_URp.dtype)

    def unrounded_squares(self) -> Tensor:
        """The squared norms in float64, for a sum with what may cancel it. Some units at a time, with blank ones at the end."""
        units, positions, p = self.left_URp.shape
        numbers = positions * (p + self.right_URd.shape[2] + 2 * positions)
        most = max(1, _NUMBERS_AT_ONCE // max(1, numbers))
        size = max(1, -(-units // max(1, -(-units // most))))
        squares = [
            self._squares_of(_some(self.left_URp, first, size), _some(self.right_URd, first, size))
            for first in range(0, units, size)
        ]
        return torch.cat(squares)[:units] if squares else self.left_URp.new_zeros(0, dtype=torch.float64)

    def _squares_of(self, left_URp: Tensor, right_URd: Tensor) -> Tensor:
        left_URR, right_URR = gram(left_URp), gram(right_URd)
        dtype = self.left_URp.dtype
        extreme_U = extreme(left_URR.diagonal(dim1=1, dim2=2), dtype) | extreme(
            right_URR.diagonal(dim1=1, dim2=2), dtype
        )
        product_URR = left_URR.mul_(right_URR)
        sizes_UR = product_URR.diagonal(dim1=1, dim2=2).sqrt()  # |left_r| |right_r|
        terms = max(left_URp.shape[2], right_URd.shape[2])
        square_U = unit_sums(product_URR) + rounding_margin(sizes_UR, terms, dtype)
        return square_U.masked_fill_(extreme_U, torch.inf)

    @property
    def is_precise(self) -> bool:
        """Whether what is materialised is added up in float64: other units decide how many positions stay."""
        return self.may_lack or self.left_URp.shape[2] >= positions.WIDE

    def absolute_sums(self) -> Tensor:
        return unit_sums(row_norms(self.left_URp) * row_norms(self.right_URd))

    def without(self, dropped_U: Tensor) -> Outer:
        left_URp, right_URd = zero_units(self.left_URp, dropped_U), zero_units(self.right_URd, dropped_U)
        return replace(self, left_URp=left_URp, right_URd=right_URd)

    def weighted_sum(self, weight_U: Tensor) -> Tensor:
        left_Np, right_Nd = self._weighted(weight_U)
        return left_Np.T @ right_Nd

    def add_weighted_sum_(self, total: Tensor, weight_U: Tensor) -> None:
        left_Np, right_Nd = self._weighted(weight_U)
        total.addmm_(left_Np.T, right_Nd)

    def _weighted(self, weight_U: Tensor) -> tuple[Tensor, Tensor]:
        """All positions, with the weight in the smaller factor."""
        left_URp, right_URd = self.left_URp.to(weight_U.dtype), self.right_URd.to(weight_U.dtype)
        if left_URp.shape[2] < right_URd.shape[2]:
            left_URp = left_URp * weight_U[:, None, None]
        else:
            right_URd = right_URd * weight_U[:, None, None]
        return left_URp.flatten(0, 1), right_URd.flatten(0, 1)

    def dense(self, out_Upd: Tensor | None = None) -> Dense:
        """Likewise, in the memory that is given, with their norms: they are in the cache now."""
        doubt_U = None
        if self.is_precise:
            dense = Dense(self._precise_products(out_Upd))
            doubt_U = _PRECISE_DOUBT * self.positions * self.absolute_sums()
        else:
            dense = Dense(unit_products(self.left_URp, self.right_URd, out_Upd))
        return Dense(dense.gradient_Uw, dense.squared_norms(), doubt_U)

    def _precise_products(self, out_Upd: Tensor | None) -> Tensor:
        """The products where other units decide how many positions stay: added up in float64, one unit after the other."""
        products_Upd = self.left_URp.new_empty(self.shape()) if out_Upd is None else out_Upd
        for product_pd, left_Rp, right_Rd in zip(products_Upd, self.left_URp, self.right_URd, strict=True):
            product_pd.copy_(left_Rp.double().mT @ right_Rd.double())
        return products_Upd

    def shape(self) -> tuple[int, int, int]:
        """(units, p, d)."""
        return len(self.left_URp), self.left_URp.shape[2], self.right_URd.shape[2]

    def tensors(self) -> tuple[Tensor, ...]:
        return self.left_URp, self.right_URd

    def cheaper_dense(self) -> bool:
        """Whether to materialise the units' gradients."""
        units, p, d = self.shape()
        if units * p * d * self.left_URp.element_size() > DENSE_MOST_BYTES:
            return False
        return p * d <= DENSE_MEMORY_RATIO * self.positions * (p + d)


@dataclass(frozen=True)
class Lookup(Factor):
    """Each unit's gradient as rows of a table: ``value_URd`` is added to row ``index_UR``; the table has ``V`` rows."""

    index_UR: Tensor
    value_URd: Tensor
    V: int

    def units(self, some: slice) -> Lookup:
        """The lookup of these units only."""
        return Lookup(self.index_UR[some], self.value_URd[some], self.V)

    def filled(self, units: int) -> Lookup:
        """The lookup filled with units behind that add nothing, up to so many."""
        missing = units - len(self.index_UR)
        if missing == 0:
            return self
        return Lookup(F.pad(self.index_UR, (0, 0, 0, missing)), F.pad(self.value_URd, (0, 0, 0, 0, 0, missing)), self.V)

    def squared_norms(self) -> Tensor:
        """Values of one (unit, row) pair are added up first, then squared. They may cancel, so the margin is added."""
        units = len(self.index_UR)
        unit_U = torch.arange(units, device=self.index_UR.device)
        pairs, sums = summed_rows(unit_U[:, None] * self.V + self.index_UR, self.value_URd)
        square_U = sums.new_zeros(units).index_add_(0, pairs // self.V, unit_sums(sums.square()))
        return square_U.to(self.value_URd.dtype) + rounding_margin(row_norms(self.value_URd))

    def absolute_sums(self) -> Tensor:
        return unit_sums(row_norms(self.value_URd))

    def without(self, dropped_U: Tensor) -> Lookup:
        return Lookup(self.index_UR, zero_units(self.value_URd, dropped_U), self.V)

    def weighted_sum(self, weight_U: Tensor) -> Tensor:
        total = weight_U.new_zeros(self.V, self.value_URd.shape[2])
        self.add_weighted_sum_(total, weight_U)
        return total

    def add_weighted_sum_(self, total: Tensor, weight_U: Tensor) -> None:
        rows, sums = summed_rows(self.index_UR, self.value_URd, weight_U)
        total.index_add_(0, rows, sums.to(total.dtype))

    def tensors(self) -> tuple[Tensor, ...]:
        return self.index_UR, self.value_URd

    def dense(self) -> Dense:
        units, _, d = self.value_URd.shape
        index_URd = self.index_UR[:, :, None].expand_as(self.value_URd)
        return Dense(self.value_URd.new_zeros(units, self.V, d).scatter_add_(1, index_URd, self.value_URd))


def summed_rows(index_UR: Tensor, value_URd: Tensor, weight_U: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The distinct indices, ascending, and for each the sum of its values, times the weights of their units, (n, d) in float64.

    One row of a table may have a value at every position of every unit: so many additions in float32 lose clip norms.
    """
    rows, slot_UR = torch.unique(index_UR, return_inverse=True)
    sums = value_URd.new_zeros(len(rows), value_URd.shape[2], dtype=torch.float64)
    at_once = max(1, _NUMBERS_AT_ONCE // max(1, value_URd[0].numel() if len(value_URd) else 1))
    for start in range(0, len(value_URd), at_once):
        some = slice(start, start + at_once)
        values = value_URd[some].double()
        if weight_U is not None:
            values = values * weight_U[some, None, None]
        sums.index_add_(0, slot_UR[some].flatten(), values.flatten(0, 1))
    return rows, sums


def _some(x_U: Tensor, first: int, size: int) -> Tensor:
    """So many units from one on; zeros where there are no more."""
    part_U = x_U[first : first + size]
    missing = size - len(part_U)
    return part_U if missing == 0 else torch.cat([part_U, part_U.new_zeros(missing, *part_U.shape[1:])])


def gram(x_URk: Tensor) -> Tensor:
    """Inner products of a unit's rows, (U, R, R), in float64: in float32 a norm of parts that cancel may be too small by far."""
    x_URk = aligned(x_URk.double())
    return torch.bmm(x_URk, x_URk.mT)


def aligned(x_URk: Tensor) -> Tensor:
    """Rows with the same inner products that begin at multiples of 16 bytes: else a unit's place decides how its own are rounded."""
    if missing := -x_URk.shape[2] % 4:
        return F.pad(x_URk, (0, missing))
    return x_URk.contiguous() if x_URk.stride(1) % 4 else x_URk


def unit_products(left_URp: Tensor, right_URd: Tensor, out_Upd: Tensor | None = None) -> Tensor:
    """The matrix of each unit ``left^T right`` (U, p, d), the same to the bit in every unit's place.

    Where matrices are no multiple of 16 bytes, every second or fourth one begins elsewhere in memory, and is added up otherwise (of
    366,000 random shapes 11 %; none with the columns that are added here). Of a unit whose positions cancel that rounding is all.
    """
    p, d = left_URp.shape[2], right_URd.shape[2]
    if p * d % 4 == 0:
        return torch.bmm(left_URp.mT, right_URd, out=out_Upd)
    products_Upd = torch.bmm(left_URp.mT, F.pad(right_URd, (0, -d % 4)))[:, :, :d]
    return products_Upd if out_Upd is None else out_Upd.copy_(products_Upd)


def even_rows(x: Tensor, value: float = 0.0) -> Tensor:
    """The tensor; on a GPU, rows (of the last dimension) that would begin elsewhere than at 32 bytes get ends of ``value``.

    Torch adds up rows of more than 128 numbers in vectors from the first aligned one on (its Reduce.cuh), so where a row stands
    would decide how it is rounded.
    """
    missing = -x.shape[-1] % 8
    return F.pad(x, (0, missing), value=value) if missing and x.shape[-1] > 128 and on_gpu(x) else x


def on_gpu(x: Tensor) -> bool:
    """Whether what is computed is chosen by sizes and places as there."""
    return x.is_cuda


def unit_sums(x_U: Tensor) -> Tensor:
    """All of each unit, added up: (U,)."""
    return even_rows(x_U.flatten(1)).sum(1)


def row_norms(x_URk: Tensor) -> Tensor:
    """The length of each row, (U, R)."""
    return torch.linalg.vector_norm(even_rows(x_URk), dim=2)


def extreme(square_UR: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Units with a squared size beyond the root of the largest number: what they multiply may be lost below the smallest."""
    return (square_UR > torch.finfo(dtype or square_UR.dtype).max ** 0.5).any(1)


def rounding_margin(sizes_UR: Tensor, terms: int = 1, dtype: torch.dtype | None = None) -> Tensor:
    """Room for the rounding of a sum of Gram products. A cross term of sizes a, b has 2ab <= a^2 + b^2: both margins.

    Args:
        sizes_UR: |left_r| |right_r| of each position.
        terms: terms of the inner products.
        dtype: of the factors; None: that of the sizes.
    """
    total_U = unit_sums(sizes_UR).square()
    if (dtype or sizes_UR.dtype) == torch.float64:
        # what any order of summation may lose: of the inner products' terms, and of the sum over pairs of positions
        additions = 2 * terms + sizes_UR.shape[1] ** 2 + 8
        return additions * torch.finfo(torch.float64).eps * total_U
    parts, longest = -(-terms // MOST_TERMS), min(terms, MOST_TERMS)
    margin = ROUNDING_MARGIN + longest / TERMS_PER_MARGIN + parts / 2
    return margin * torch.finfo(torch.float32).eps * total_U


def zero_units(x_U: Tensor, dropped_U: Tensor) -> Tensor:
    """Zeros in place of the dropped units, whatever they hold (0 * NaN would be NaN)."""
    return x_U.masked_fill(dropped_U.view(-1, *[1] * (x_U.dim() - 1)), 0)
