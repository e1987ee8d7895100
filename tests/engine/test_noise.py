"""The noise on the sum: its law, its scale, its keys, and versions that are wrong and must fail the same test (T4)."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit.engine import add_noise_
from tacit.errors import UsageError
from tacit.randomness import Streams

STREAMS = Streams(bytes(range(32)))
STDDEV = 3.5
FALSE_ALARM = 1e-6

Named = dict[str, nn.Parameter]
AddNoise = Callable[[Named, float, int], None]


def parameters(dtype: torch.dtype = torch.float32) -> Named:
    return {name: nn.Parameter(torch.zeros(200, 300, dtype=dtype)) for name in ("first", "second")}


def ours(named: Named, noise_stddev: float, step: int) -> None:
    add_noise_(named.items(), noise_stddev, STREAMS, step)


def draw(add_noise: AddNoise, step: int, dtype: torch.dtype = torch.float32) -> dict[str, np.ndarray]:
    named = parameters(dtype)
    add_noise(named, STDDEV, step)
    return {name: p.grad.double().numpy().ravel() / STDDEV for name, p in named.items() if p.grad is not None}


def check_noise(add_noise: AddNoise, dtype: torch.dtype = torch.float32) -> None:
    """Standard normal after division by the deviation, and no correlation between parameters, steps or neighbours."""
    draws = [values for step in (0, 1) for values in draw(add_noise, step, dtype).values()]
    tests = 3 * len(draws) + 6
    limit = stats.norm.isf(FALSE_ALARM / tests / 2)
    for values in draws:
        scale = (np.square(values).sum() - values.size) / math.sqrt(2 * values.size)
        assert abs(scale) < limit, f"scale: {np.sqrt(np.square(values).mean()):.3f} of the deviation"
        assert stats.kstest(values, "norm").pvalue > FALSE_ALARM / tests, "law"
        assert abs(values[1:] @ values[:-1]) / math.sqrt(values.size) < limit, "neighbours"
    for i, one in enumerate(draws):
        for other in draws[:i]:
            assert abs(one @ other) / math.sqrt(one.size) < limit, "reused"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_follows_the_law(dtype: torch.dtype) -> None:
    check_noise(ours, dtype)


def scaled(factor: float) -> AddNoise:
    return lambda named, noise_stddev, step: ours(named, factor * noise_stddev, step)


def same_for_all_parameters(named: Named, noise_stddev: float, step: int) -> None:
    for parameter in named.values():
        ours({"parameter": parameter}, noise_stddev, step)


def same_at_all_steps(named: Named, noise_stddev: float, step: int) -> None:
    ours(named, noise_stddev, 0)


def per_micro_batch(named: Named, noise_stddev: float, step: int) -> None:
    """Once a micro-batch instead of once a logical batch."""
    ours(named, noise_stddev, 2 * step)
    ours(named, noise_stddev, 2 * step + 1)


def laplace(named: Named, noise_stddev: float, step: int) -> None:
    """The right variance, the wrong law."""
    for name, parameter in named.items():
        values = STREAMS.generator(name, step).laplace(scale=noise_stddev / math.sqrt(2), size=parameter.shape)
        parameter.grad = torch.from_numpy(values.astype(np.float32))


WRONG: dict[str, tuple[AddNoise, str]] = {
    "3 % too little": (scaled(0.97), "scale"),
    "3 % too much": (scaled(1.03), "scale"),
    "half": (scaled(0.5), "scale"),
    "same for all parameters": (same_for_all_parameters, "reused"),
    "same at all steps": (same_at_all_steps, "reused"),
    "per micro-batch": (per_micro_batch, "scale"),
    "another law": (laplace, "scale|law"),
}


@pytest.mark.parametrize(("add_noise", "failed"), WRONG.values(), ids=WRONG.keys())
def test_wrong_noise_fails(add_noise: AddNoise, failed: str) -> None:
    with pytest.raises(AssertionError, match=failed):
        check_noise(add_noise)


def test_noise_is_added_to_the_sum() -> None:
    named = parameters()
    fresh = draw(ours, 7)
    named["first"].grad = torch.full((200, 300), 2.0)
    ours(named, STDDEV, 7)
    assert named["first"].grad is not None
    added = (named["first"].grad - 2.0).double().numpy().ravel() / STDDEV
    np.testing.assert_allclose(added, fresh["first"], atol=1e-6)


def test_a_step_run_again_draws_the_same_noise() -> None:
    first, again = draw(ours, 5), draw(ours, 5)
    assert all((first[name] == again[name]).all() for name in first)


def test_other_keys_draw_other_noise() -> None:
    named = parameters()
    add_noise_(named.items(), STDDEV, Streams(bytes(32)), 5)
    assert named["first"].grad is not None
    assert (named["first"].grad.numpy().ravel() / STDDEV != draw(ours, 5)["first"]).mean() > 0.99


def test_a_tied_parameter_gets_noise_once() -> None:
    model = nn.Sequential(nn.Embedding(50, 20), nn.Linear(20, 50, bias=False))
    model[1].weight = model[0].weight
    add_noise_(model.named_parameters(remove_duplicate=False), STDDEV, STREAMS, 1)
    alone = nn.Parameter(torch.zeros(50, 20))
    add_noise_([("0.weight", alone)], STDDEV, STREAMS, 1)
    torch.testing.assert_close(model[0].weight.grad, alone.grad, rtol=0, atol=0)


def test_float64_parameters_get_float64_noise() -> None:
    values = draw(ours, 0, torch.float64)["first"]
    assert (values * STDDEV != (values * STDDEV).astype(np.float32)).mean() > 0.99


def test_zero_deviation_changes_nothing_and_makes_gradients() -> None:
    named = parameters()
    named["first"].grad = torch.ones(200, 300)
    add_noise_(named.items(), 0.0, STREAMS, 0)
    assert (named["first"].grad == 1).all()
    assert named["second"].grad is not None
    assert not named["second"].grad.any()


def test_frozen_parameters_get_none() -> None:
    named = parameters()
    named["first"].requires_grad_(False)
    ours(named, STDDEV, 0)
    assert named["first"].grad is None
    assert named["second"].grad is not None


def test_two_parameters_of_one_name_are_an_error_before_anything_changes() -> None:
    one, two = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    with pytest.raises(UsageError, match="two parameters are called w"):
        add_noise_([("w", one), ("w", two)], 1.0, STREAMS, 0)
    assert one.grad is None


@pytest.mark.parametrize(("noise_stddev", "step"), [(-1.0, 0), (float("nan"), 0), (float("inf"), 0), (1.0, -1)])
def test_options_out_of_range(noise_stddev: float, step: int) -> None:
    with pytest.raises(UsageError, match="must"):
        add_noise_(parameters().items(), noise_stddev, STREAMS, step)


def test_low_precision_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"first is torch\.bfloat16"):
        ours(parameters(torch.bfloat16), 1.0, 0)
