"""Sums in float64 of which ``p.grad`` is the rounding."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from tacit.engine import add_noise_
from tacit.engine.running_sums import RunningSums
from tacit.randomness import KeyedRandomness

STREAMS = KeyedRandomness(bytes(32))


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
    add_noise_([("w", parameter)], 1e-3, STREAMS, 0, None, rests={parameter: rest})
    alone = nn.Parameter(torch.zeros(3))
    alone.grad = without
    add_noise_([("w", alone)], 1e-3, STREAMS, 0, None)
    assert torch.equal(with_rest, without + rest)
    assert not torch.equal(with_rest, without)
