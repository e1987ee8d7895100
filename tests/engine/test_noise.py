"""The noise on the sum: its law, its scale, its keys, and versions that are wrong and must fail the same test (T4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

from tacit.engine import add_noise_
from tacit.engine.distributed import Ranks
from tacit.engine.noise import CHUNK, Grid, NoiseSource, noise_source
from tacit.engine.noise import on_grid as on_grid_of
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness

from ..processes import in_processes, values_of

STREAMS = KeyedRandomness(bytes(range(32)))
STDDEV = 3.5
FALSE_ALARM = 1e-6

Named = dict[str, nn.Parameter]
AddNoise = Callable[[Named, float, int], None]


DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


def parameters(dtype: torch.dtype = torch.float32, device: str = "cpu") -> Named:
    return {name: nn.Parameter(torch.zeros(200, 300, dtype=dtype, device=device)) for name in ("first", "second")}


def ours(named: Named, noise_stddev: float, step: int) -> None:
    add_noise_(named.items(), noise_stddev, STREAMS, step, None)


def draw(
    add_noise: AddNoise, step: int, dtype: torch.dtype = torch.float32, device: str = "cpu"
) -> dict[str, np.ndarray]:
    named = parameters(dtype, device)
    add_noise(named, STDDEV, step)
    return {name: p.grad.double().cpu().numpy().ravel() / STDDEV for name, p in named.items() if p.grad is not None}


def check_noise(add_noise: AddNoise, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
    """Standard normal after division by the deviation, and no correlation between parameters, steps or neighbours."""
    draws = [values for step in (0, 1) for values in draw(add_noise, step, dtype, device).values()]
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_noise_follows_the_law(dtype: torch.dtype, device: str) -> None:
    check_noise(ours, dtype, device)


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


@pytest.mark.parametrize("device", DEVICES)
def test_a_step_run_again_draws_the_same_noise(device: str) -> None:
    first, again = draw(ours, 5, device=device), draw(ours, 5, device=device)
    assert all((first[name] == again[name]).all() for name in first)


def test_other_keys_draw_other_noise() -> None:
    named = parameters()
    add_noise_(named.items(), STDDEV, KeyedRandomness(bytes(32)), 5, None)
    assert named["first"].grad is not None
    assert (named["first"].grad.numpy().ravel() / STDDEV != draw(ours, 5)["first"]).mean() > 0.99


def test_a_tied_parameter_gets_noise_once() -> None:
    model = nn.Sequential(nn.Embedding(50, 20), nn.Linear(20, 50, bias=False))
    model[1].weight = model[0].weight
    add_noise_(model.named_parameters(remove_duplicate=False), STDDEV, STREAMS, 1, None)
    alone = nn.Parameter(torch.zeros(50, 20))
    add_noise_([("0.weight", alone)], STDDEV, STREAMS, 1, None)
    torch.testing.assert_close(model[0].weight.grad, alone.grad, rtol=0, atol=0)


def test_float64_parameters_get_float64_noise() -> None:
    values = draw(ours, 0, torch.float64)["first"]
    assert (values * STDDEV != (values * STDDEV).astype(np.float32)).mean() > 0.99


def test_zero_deviation_changes_nothing_and_makes_gradients() -> None:
    named = parameters()
    named["first"].grad = torch.ones(200, 300)
    add_noise_(named.items(), 0.0, STREAMS, 0, None)
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
        add_noise_([("w", one), ("w", two)], 1.0, STREAMS, 0, None)
    assert one.grad is None


@pytest.mark.parametrize(("noise_stddev", "step"), [(-1.0, 0), (float("nan"), 0), (float("inf"), 0), (1.0, -1)])
def test_options_out_of_range(noise_stddev: float, step: int) -> None:
    with pytest.raises(UsageError, match="must"):
        add_noise_(parameters().items(), noise_stddev, STREAMS, step, None)


def test_low_precision_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"first is torch\.bfloat16"):
        ours(parameters(torch.bfloat16), 1.0, 0)


# threads -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets torch's threads; back to what they were at the end."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 17])
def test_the_bits_do_not_depend_on_the_number_of_threads(size: int, threads: Callable[[int], None]) -> None:
    found = []
    for number in (1, 2, 5):
        threads(number)
        named = {name: nn.Parameter(torch.zeros(size)) for name in ("a", "b", "c")}
        ours(named, STDDEV, 2)
        found.append(torch.cat([p.grad for p in named.values() if p.grad is not None]).numpy())
    assert found[0].shape == (3 * size,)
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_the_chunks_of_a_parameter_have_streams_of_their_own() -> None:
    parameter = nn.Parameter(torch.zeros(3 * CHUNK))
    ours({"p": parameter}, 1.0, 0)
    assert parameter.grad is not None
    chunks = parameter.grad.double().numpy().reshape(3, CHUNK)
    limit = stats.norm.isf(FALSE_ALARM / 6)
    for i in range(3):
        for j in range(i):
            assert abs(chunks[i] @ chunks[j]) / math.sqrt(CHUNK) < limit
    expected = STREAMS.generator("noise", 0, "p", 2).standard_normal(CHUNK, dtype=np.float32)
    np.testing.assert_array_equal(chunks[2], expected)


def test_a_gradient_that_is_not_contiguous_gets_its_noise() -> None:
    parameter = nn.Parameter(torch.zeros(40, 30))
    parameter.grad = torch.ones(30, 40).t()
    ours({"p": parameter}, STDDEV, 0)
    fresh = nn.Parameter(torch.zeros(40, 30))
    ours({"p": fresh}, STDDEV, 0)
    torch.testing.assert_close(parameter.grad - 1, fresh.grad, rtol=0, atol=1e-6)


# the source ----------------------------------------------------------------------------------------------------------


def test_the_source_follows_the_device_and_says_what_it_is() -> None:
    assert noise_source(torch.device("cpu")) is NoiseSource.CHACHA20
    assert noise_source(torch.device("cuda", 1)) is NoiseSource.CHACHA20_ON_GPU
    assert (
        NoiseSource.CHACHA20_ON_GPU.value != NoiseSource.CHACHA20.value
    )  # a run does not change from one to the other
    with pytest.raises(UsageError, match="no noise for gradients on meta"):
        noise_source(torch.device("meta"))


def test_a_parameter_without_a_source_is_an_error_before_anything_changes() -> None:
    named = {"first": nn.Parameter(torch.zeros(3)), "second": nn.Parameter(torch.zeros(3, device="meta"))}
    with pytest.raises(UsageError, match="no noise for gradients on meta"):
        ours(named, 1.0, 0)
    assert named["first"].grad is None


# the grid ------------------------------------------------------------------------------------------------------------

CLIP_NORM = 0.75


def on_grid(values: np.ndarray, spacing: float) -> bool:
    return bool((values / spacing == np.rint(values / spacing)).all())


def noisy(total: np.ndarray, grid: Grid | None, step: int = 0, noise_stddev: float = STDDEV) -> np.ndarray:
    parameter = nn.Parameter(torch.zeros(total.shape, dtype=torch.float64))
    parameter.grad = torch.from_numpy(total.copy())
    add_noise_([("p", parameter)], noise_stddev, STREAMS, step, grid)
    return parameter.grad.numpy()


def test_on_a_grid_the_reachable_values_do_not_depend_on_the_sum() -> None:
    """Without it, the last bits of sum + noise give the sum away: here, whether it is 0 or 1/3."""
    grid = Grid(2.0**-20)
    for total in (0.0, 1 / 3, -1e-7, 5.5):
        found = noisy(np.full(50_000, total), grid)
        assert on_grid(found, grid.spacing)
        assert not on_grid(noisy(np.full(50_000, total), None), grid.spacing)


def test_sum_and_noise_are_rounded_to_the_nearest() -> None:
    grid = Grid(2.0**-6)
    total = np.random.default_rng(0).normal(size=10_000)
    found, plain = noisy(total, grid), noisy(total, None)
    rounded = np.rint(total / grid.spacing) * grid.spacing
    noise = np.rint((plain - total) / grid.spacing) * grid.spacing
    assert (found == rounded + noise).mean() > 0.999  # the difference plain - total has float64's own rounding
    assert np.abs(found - plain).max() <= grid.spacing * (1 + 1e-9)
    np.testing.assert_array_equal(noisy(total, grid, noise_stddev=0.0), rounded)


def test_float32_gradients_are_summed_on_the_grid_in_float64() -> None:
    """What float32 makes of the result is post-processing of a value on the grid."""
    grid = Grid(2.0**-30)
    total = torch.randn(5000, generator=torch.Generator().manual_seed(0))
    parameter = nn.Parameter(torch.zeros(5000))
    parameter.grad = total.clone()
    add_noise_([("p", parameter)], STDDEV, STREAMS, 0, grid)
    expected = noisy(total.double().numpy(), grid)
    np.testing.assert_array_equal(parameter.grad.numpy(), expected.astype(np.float32))


def test_noise_on_a_grid_follows_the_law() -> None:
    def rounded(named: Named, noise_stddev: float, step: int) -> None:
        add_noise_(named.items(), noise_stddev, STREAMS, step, Grid(2.0**-16))

    check_noise(rounded)


def sensitivity_reached(grid: Grid, dimensions: int) -> float:
    """The worst unit that we know: it moves every coordinate over a rounding boundary, and spends the rest on one of them."""
    nearly = grid.spacing / 2 * (1 - 1e-9)
    total = np.full(dimensions, nearly)
    unit = np.full(dimensions, 2e-9 * grid.spacing)
    unit[0] = math.sqrt(CLIP_NORM**2 - np.square(unit[1:]).sum())
    one, other = (noisy(values, grid, noise_stddev=0.0) for values in (total, total + unit))
    return float(np.linalg.norm(other - one))


def check_sensitivity(bound: Callable[[Grid, int], float]) -> None:
    for exponent, dimensions in ((-3, 50), (-8, 5000), (-12, 200_000)):
        grid = Grid(2.0**exponent)
        assert sensitivity_reached(grid, dimensions) <= bound(grid, dimensions) * (1 + 1e-12)


def test_rounding_moves_the_sum_by_no_more_than_the_sensitivity_says() -> None:
    check_sensitivity(lambda grid, dimensions: grid.sensitivity(CLIP_NORM, dimensions))


def test_several_ranks_are_rounded_once() -> None:
    """Known wrong: each rank rounds its own sum, and one unit more moves all behind it to other ranks (fourteenth attack)."""
    grid, part = Grid(2.0**-6), np.full(1000, 0.3 * 2.0**-6)

    def work(ranks: Ranks) -> np.ndarray:
        parameter = nn.Parameter(torch.zeros(1000, dtype=torch.float64))
        parameter.grad = torch.from_numpy(part.copy())
        add_noise_([("p", parameter)], STDDEV, STREAMS, 0, grid, ranks)
        return parameter.grad.numpy()

    together = noisy(3 * part, grid)
    for found in values_of(in_processes(3, work)):
        np.testing.assert_array_equal(found, together)
    assert not np.array_equal(noisy(np.zeros(1000), grid), together)  # what three roundings would come to


def odd_shares(noisy: Callable[[np.ndarray, Grid], np.ndarray]) -> list[float]:
    """Of sums at, below and above the middle between two multiples, how often the result is an odd multiple."""
    grid = Grid(2.0**-6)
    found = []
    for place in (0.5, 1.5, 0.499, 0.25, 0.0):
        result = noisy(np.full(20_000, place * grid.spacing), grid) / grid.spacing
        found.append(float((np.abs(result) % 2).mean()))
    return found


def rounded_together(total: np.ndarray, grid: Grid) -> np.ndarray:
    """Known wrong: a sum in the middle comes out even, whatever the noise."""
    drawn = noisy(np.zeros_like(total), grid)
    return np.rint((total + drawn) / grid.spacing) * grid.spacing


def test_whether_a_result_is_even_tells_nothing_of_the_sum() -> None:
    """With a fixed key; five of 20,000 fair coins are further from a half once in 10^6 times."""
    limit = 4.9 / 2 / math.sqrt(20_000)
    assert max(abs(share - 0.5) for share in odd_shares(noisy)) < limit
    assert odd_shares(rounded_together)[:2] == [0.0, 0.0]


def test_noise_that_float64_has_no_grid_for_is_refused() -> None:
    """Whole numbers above 2^53 round again, and that would tell of the sum."""
    stddev, grid = on_grid_of(1e3, 1.0, 10**9, 1e-3)
    assert stddev / grid.spacing * 40 < 2.0**52
    for values in ((1e9, 1.0, 10**6, 1e-4), (1e9, 1.0, 10**9, 1.0)):
        with pytest.raises(UsageError, match="float64 has no grid for both"):
            on_grid_of(*values)


def test_the_check_of_the_sensitivity_catches_the_clip_norm_alone() -> None:
    with pytest.raises(AssertionError):
        check_sensitivity(lambda grid, dimensions: CLIP_NORM)


@pytest.mark.parametrize("dimensions", [1, 100, 3_000_000, 110_000_000])
@pytest.mark.parametrize("clip_norm", [1e-3, 0.5, 1.0, 30.0])
def test_a_fine_grid_costs_less_than_a_thousandth_and_is_not_finer_than_needed(
    clip_norm: float, dimensions: int
) -> None:
    grid = Grid.fine_enough(clip_norm, dimensions)
    assert clip_norm < grid.sensitivity(clip_norm, dimensions) <= clip_norm * (1 + 1 / 1000)
    assert Grid(2 * grid.spacing).sensitivity(clip_norm, dimensions) > clip_norm * (1 + 1 / 1024)


@pytest.mark.parametrize("spacing", [0.0, -0.5, 0.3, 3.0, float("inf"), float("nan")])
def test_a_grid_that_is_no_power_of_two_is_refused(spacing: float) -> None:
    with pytest.raises(UsageError, match="power of two"):
        Grid(spacing)
