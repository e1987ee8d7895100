"""A unit without a gradient moves nothing, however many units and micro-batches there are (SOUNDNESS T2)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from tacit.engine import PerExampleClipper, add_noise_, micro_batches
from tacit.engine.running_sums import RunningSums
from tacit.randomness import Streams

UNITS, AT_ONCE = 2**15, 16
STREAMS = Streams(bytes(32))


def leaning(units: int) -> np.ndarray:
    """Gradients below 1 whose sums of 16 lie so that float32 rounds each of them the same way, and another way one place on.

    They are chosen by trying: of two sorts of micro-batches, whose sums are rounded up and down near the middle of the whole sum.
    """
    step = 2.0**-9
    target = (math.floor(AT_ONCE * 0.99 / step) + 0.6) * step
    one = np.concatenate([np.full(15, (target - 0.96) / 15), [0.96]])
    other = np.concatenate([np.full(15, (target - 0.96 + step / 2) / 15), [0.96 - step / 2]])
    return np.tile(np.concatenate([one, other]), units // 32).astype(np.float32)


def clipped_sum(values: np.ndarray, wrong: bool = False) -> Tensor:
    """In float64, what the noise is added to. Wrong: the sum in float32 that ``p.grad += ...`` makes."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.zeros_(model.weight)
    clipper = PerExampleClipper(model, clip_norm=1.0)
    plain = torch.zeros(())
    for chosen, real in micro_batches(np.arange(len(values)), AT_ONCE):
        rows = torch.from_numpy(np.where(real, values[chosen], 0).astype(np.float32))[:, None]
        if wrong:
            model.weight.grad = None
        with clipper:
            model(rows)[:, 0].sum().backward()
        if wrong:
            assert model.weight.grad is not None
            plain += model.weight.grad[0, 0]
    assert model.weight.grad is not None
    rests = clipper.take_rests()
    found = model.weight.grad.double()[0, 0] + (rests[model.weight].double()[0, 0] if model.weight in rests else 0.0)
    clipper.close()
    return plain.double() if wrong else found


def moved(total: Callable[[np.ndarray], Tensor]) -> float:
    """In clip norms, by one unit whose gradient is zero and which stands before all others."""
    values = leaning(UNITS)
    return abs(float(total(np.concatenate([[np.float32(0)], values])) - total(values)))


def test_a_unit_without_a_gradient_moves_no_sum() -> None:
    assert moved(clipped_sum) <= UNITS * 2.0**-24
    assert moved(lambda values: clipped_sum(values, wrong=True)) > 0.5  # known wrong: float32, as autograd adds


def test_the_sum_is_exact_to_what_a_micro_batch_rounds() -> None:
    values = leaning(UNITS)
    truth = float(values.astype(np.float64).sum())
    assert abs(float(clipped_sum(values)) - truth) <= UNITS * 2.0**-24


def filled(sums: RunningSums, parameter: nn.Parameter, numbers: list[float]) -> None:
    for number in numbers:
        if parameter.grad is None:
            parameter.grad = torch.tensor([number])
        else:
            sums.add_(parameter, torch.tensor([number]))


def test_whoever_changes_the_gradient_begins_another_sum() -> None:
    tiny = 2.0**-25
    changes: list[Callable[[nn.Parameter], object]] = [
        lambda parameter: parameter.grad.zero_() if parameter.grad is not None else None,
        lambda parameter: parameter.grad.mul_(0.0) if parameter.grad is not None else None,
        lambda parameter: setattr(parameter, "grad", torch.zeros(1)),
        lambda parameter: setattr(parameter, "grad", None),
    ]
    for change in changes:
        parameter, sums = nn.Parameter(torch.zeros(1)), RunningSums()
        filled(sums, parameter, [1.0, tiny])
        assert sums.exact(parameter).item() == 1.0 + tiny
        change(parameter)
        filled(sums, parameter, [2.0, tiny])
        assert sums.exact(parameter).item() == 2.0 + tiny
        assert {key: rest.item() for key, rest in sums.take_rests().items()} == {parameter: tiny}
        assert sums.take_rests() == {}


def test_a_sum_goes_on_from_where_it_was() -> None:
    whole, part = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1))
    sums, before, after = RunningSums(), RunningSums(), RunningSums()
    numbers = [1e4, *([0.3, 1e-4, 0.7] * 20)]
    filled(sums, whole, numbers)
    filled(before, part, numbers[:31])
    after.put(part, before.exact(part))
    filled(after, part, numbers[31:])
    assert torch.equal(after.exact(part), sums.exact(whole))
    assert part.grad is not None
    assert whole.grad is not None
    assert torch.equal(part.grad, whole.grad)
    assert torch.equal(after.take_rests()[part], sums.take_rests()[whole])


def test_the_rest_is_added_behind_the_noise() -> None:
    parameter = nn.Parameter(torch.zeros(3))
    parameter.grad = torch.full((3,), 2.0**20)
    rest = torch.full((3,), 0.25)
    without, with_rest = parameter.grad.clone(), parameter.grad
    add_noise_([("w", parameter)], 1e-3, STREAMS, 0, rests={parameter: rest})
    alone = nn.Parameter(torch.zeros(3))
    alone.grad = without
    add_noise_([("w", alone)], 1e-3, STREAMS, 0)
    assert torch.equal(with_rest, without + rest)
    assert not torch.equal(with_rest, without)
