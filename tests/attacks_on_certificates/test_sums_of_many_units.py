"""A step of many units: one unit without a gradient moves the sum before the noise by nothing (SOUNDNESS T2).

What was wrong: the clipped sums of micro-batches were added in float32. A unit more or less moves the units behind it into other
micro-batches, whose sums are rounded otherwise, and these roundings add up: of 131,072 units, each sampled, an empty record moved the
sum by 7.6 clip norms in a run that was certified with 4.887, where the account allows one.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.engine import PerExampleClipper, micro_batches

UNITS, AT_ONCE = 2**15, 16


def leaning(units: int) -> np.ndarray:
    """Gradients below 1 whose sums of 16 lie so that float32 rounds each of them the same way, and another way one place on.

    They are chosen by trying: of two sorts of micro-batches, whose sums are rounded up and down near the middle of the whole sum.
    """
    step = 2.0**-9
    target = (math.floor(AT_ONCE * 0.99 / step) + 0.6) * step
    one = np.concatenate([np.full(15, (target - 0.96) / 15), [0.96]])
    other = np.concatenate([np.full(15, (target - 0.96 + step / 2) / 15), [0.96 - step / 2]])
    return np.tile(np.concatenate([one, other]), units // 32).astype(np.float32)


@functools.cache
def sum_of_leaning() -> Tensor:
    """Of all units, which both tests ask for."""
    return clipped_sum(leaning(UNITS))


def clipped_sum(values: np.ndarray) -> Tensor:
    """In float64, what the noise is added to."""
    model = layer()
    clipper = PerExampleClipper(model, clip_norm=1.0)
    for rows in micro_batches_of(values):
        with clipper:
            model(rows)[:, 0].sum().backward()
    assert model.weight.grad is not None
    rests = clipper.take_rests()
    found = model.weight.grad.double()[0, 0] + (rests[model.weight].double()[0, 0] if model.weight in rests else 0.0)
    clipper.close()
    return found


def sum_as_autograd_adds(values: np.ndarray) -> Tensor:
    """Known wrong: the sum in float32 that ``p.grad += ...`` makes; no gradient is longer than the clip norm."""
    model = layer()
    for rows in micro_batches_of(values):
        model(rows)[:, 0].sum().backward()
    assert model.weight.grad is not None
    return model.weight.grad.double()[0, 0]


def layer() -> nn.Linear:
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    return model


def micro_batches_of(values: np.ndarray) -> Iterator[Tensor]:
    for chosen, real in micro_batches(np.arange(len(values)), AT_ONCE):
        yield torch.from_numpy(np.where(real, values[chosen], 0).astype(np.float32))[:, None]


def one_more() -> np.ndarray:
    """The same units behind one whose gradient is zero."""
    return np.concatenate([[np.float32(0)], leaning(UNITS)])


@pytest.mark.slow
def test_a_unit_without_a_gradient_moves_no_sum() -> None:
    """In clip norms."""
    assert abs(float(clipped_sum(one_more()) - sum_of_leaning())) <= UNITS * 2.0**-24
    plain = [sum_as_autograd_adds(values) for values in (one_more(), leaning(UNITS))]
    assert abs(float(plain[0] - plain[1])) > 0.5


def test_the_sum_is_exact_to_what_a_micro_batch_rounds() -> None:
    values = leaning(UNITS)
    truth = float(values.astype(np.float64).sum())
    assert abs(float(sum_of_leaning()) - truth) <= UNITS * 2.0**-24
