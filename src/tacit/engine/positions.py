"""Positions whose output gradient is exactly zero add nothing to any parameter's gradient, so a large head leaves them out.

In a masked language model with its full head they are six of seven rows of the head's gradient. Where their input is infinite, NaN
or so large that its square may overflow (`factors.extreme`), they stay, since 0 * inf is NaN: whether a unit is dropped must not
depend on what the other units of its batch hold. Nor may its norm: how many positions stay is a quarter of them, whatever the units
have; products over them are float64, left out or not (`Outer.may_lack`); and what is added up at once, as biases and norms are, is
added up over all positions.

Legend: U units, R positions of a unit; a position's own dimensions follow.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["WIDE", "may_lack_positions", "with_gradient"]

WIDE = 4096
"""Output features from which positions are left out: asking a GPU for a count waits for it, and small layers gain little."""


def may_lack_positions(gradient_UR: Tensor) -> bool:
    """Whether a layer with such an output gradient is wide enough that `with_gradient` may leave some out."""
    return gradient_UR[0, 0].numel() >= WIDE if gradient_UR.dim() > 2 and gradient_UR.numel() else False


def with_gradient(input_UR: Tensor, gradient_UR: Tensor) -> tuple[Tensor, Tensor]:
    """Input and output gradient of a quarter of the positions, among them all that have a gradient; of all where more have one."""
    units, positions = gradient_UR.shape[:2]
    if not may_lack_positions(gradient_UR):
        return input_UR, gradient_UR
    gradient_URn, kept = gradient_UR.flatten(2), -(-positions // 4)
    if int(gradient_URn[:, :, 0].count_nonzero()) > units * kept:  # so more than a quarter, in some unit
        return input_UR, gradient_UR
    used_UR = (gradient_URn.amax(2) != 0) | (gradient_URn.amin(2) != 0)  # no tensor as large as it; NaN is not 0 either
    if input_UR.is_floating_point():
        used_UR |= ~_is_small(input_UR.reshape(units, positions, -1))
    if int(used_UR.sum(1).max()) > kept:
        return input_UR, gradient_UR
    order_UR = torch.argsort(used_UR.byte(), dim=1, descending=True, stable=True)[:, :kept]
    unit_U1 = torch.arange(units, device=order_UR.device)[:, None]
    return input_UR[unit_U1, order_UR], gradient_UR[unit_U1, order_UR]


def _is_small(input_URn: Tensor) -> Tensor:
    """Positions whose input could drop no unit, well below the bound of `factors.extreme`; (U, R)."""
    dtype = torch.promote_types(input_URn.dtype, torch.float32)
    return input_URn.to(dtype).square().sum(2) <= torch.finfo(dtype).max ** 0.5 / 4
