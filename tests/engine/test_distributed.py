"""1, 2 and 3 real processes: the same sum, the noise in it once, equal parameters, and an end for all when one is lost."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from tacit.engine import PerExampleClipper, add_noise_, micro_batches, poisson_sample
from tacit.engine import distributed as module
from tacit.engine.distributed import ALONE, Ranks, join
from tacit.engine.noise import Grid
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness

from ..processes import check_one_says, in_processes, values_of

STREAMS = KeyedRandomness(bytes(range(32)))
CLIP_NORM = 0.7
STDDEV = 1.9
UNITS = 11
FALSE_ALARM = 1e-6

Sums = dict[str, Tensor]
AddNoise = Callable[[nn.Module, float, int, Ranks], None]


# the draw ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 100])
def test_slices_are_disjoint_and_make_up_the_draw(world: int, length: int) -> None:
    draw = np.sort(np.random.default_rng(length).choice(1000, length, replace=False))
    parts = [Ranks(rank, world).slice(draw) for rank in range(world)]
    assert sorted(np.concatenate(parts)) == draw.tolist()
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_the_beginnings_of_the_slices_are_the_beginning_of_the_draw() -> None:
    """What a checkpoint inside a step counts on: n entries of each rank are the first n * world of the draw."""
    draw = np.arange(20) ** 2
    for world in (1, 2, 3):
        for done in range(len(draw) // world):
            begun = np.concatenate([Ranks(rank, world).slice(draw)[:done] for rank in range(world)])
            assert sorted(begun) == draw[: done * world].tolist()


def test_a_rank_outside_its_world_is_refused() -> None:
    for rank, world in ((-1, 2), (2, 2), (0, 0)):
        with pytest.raises(UsageError, match="rank must be"):
            Ranks(rank, world)


# the sum -------------------------------------------------------------------------------------------------------------


def make_model(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 3)).to(dtype)


def rows() -> Tensor:
    return torch.from_numpy(np.random.default_rng(1).normal(size=(UNITS, 6)))


def user_step(ranks: Ranks, draw: np.ndarray, noise_stddev: float, step: int, model: nn.Module) -> None:
    """The loop of docs/distributed.md: micro-batches of this rank's slice, then noise and sum."""
    clipper = PerExampleClipper(model, CLIP_NORM)
    for chosen, real in micro_batches(ranks.slice(draw), 2):
        with clipper:
            losses = model(rows()[chosen]).square().sum(dim=1) * torch.from_numpy(real)
            losses.sum().backward()
    clipper.close()
    add_noise_(model.named_parameters(), noise_stddev, STREAMS, step, None, ranks)


def taken(model: nn.Module) -> Sums:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def clipped_sum(draw: np.ndarray) -> Sums:
    """Oracle: autograd for one unit after the other."""
    model = make_model()
    total = {name: torch.zeros_like(p) for name, p in model.named_parameters()}
    for unit in draw:
        model.zero_grad()
        model(rows()[[unit]]).square().sum().backward()
        own = taken(model)
        norm = float(torch.cat([g.flatten() for g in own.values()]).norm())
        for name in total:
            total[name] += own[name] * min(1.0, CLIP_NORM / norm)
    return total


def sums_of(ranks: Ranks, draws: list[np.ndarray], noise_stddev: float) -> list[Sums]:
    found = []
    for step, draw in enumerate(draws):
        model = make_model()
        user_step(ranks, draw, noise_stddev, step, model)
        found.append(taken(model))
    return found


DRAWS = [np.array(units, dtype=np.int64) for units in ([], [4], [0, 9], list(range(UNITS)))]
"""An empty draw, draws with which some ranks are empty, and all units."""


def check_sums(world: int, work: Callable[[Ranks], list[Sums]]) -> None:
    """On every rank the oracle's sum, and the same bits."""
    found = values_of(in_processes(world, work))
    for number, draw in enumerate(DRAWS):
        expected = clipped_sum(draw)
        for rank in range(world):
            for name in expected:
                torch.testing.assert_close(found[rank][number][name], expected[name], rtol=1e-9, atol=1e-12)
                assert torch.equal(found[rank][number][name], found[0][number][name])


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_sum_is_that_of_all_units_on_every_rank(world: int) -> None:
    check_sums(world, lambda ranks: sums_of(ranks, DRAWS, 0.0))


def own_draw(ranks: Ranks) -> list[Sums]:
    """Known wrong: each rank draws for itself, so a unit may be in the sum of several ranks."""
    draws = [poisson_sample(UNITS, 0.7, STREAMS.generator("sampling", step, ranks.rank)) for step in range(len(DRAWS))]
    return [_whole(ranks, draw, step) for step, draw in enumerate(draws)]


def whole_draw(ranks: Ranks) -> list[Sums]:
    """Known wrong: every rank takes the whole draw, so each unit counts ``world`` times."""
    return [_whole(ranks, draw, step) for step, draw in enumerate(DRAWS)]


def _whole(ranks: Ranks, draw: np.ndarray, step: int) -> Sums:
    model = make_model()
    clipper = PerExampleClipper(model, CLIP_NORM)
    if len(draw):
        with clipper:
            model(rows()[draw]).square().sum().backward()
    add_noise_(model.named_parameters(), 0.0, STREAMS, step, None, ranks)
    return taken(model)


@pytest.mark.parametrize("wrong", [own_draw, whole_draw])
def test_the_check_of_the_sum_catches(wrong: Callable[[Ranks], list[Sums]]) -> None:
    with pytest.raises(AssertionError):
        check_sums(2, wrong)


def test_buckets_of_any_size_and_type_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def work(ranks: Ranks) -> list[Tensor]:
        tensors = [
            torch.full(shape, float(10**ranks.rank), dtype=dtype)
            for shape in ((3, 4), (), (2,), (0, 5), (9,))
            for dtype in (torch.float32, torch.float32, torch.float64)
        ]
        ranks.sum_(tensors)
        return tensors

    for size in (1, 7, 1000):
        monkeypatch.setattr(module, "_BUCKET", size)
        for tensors in values_of(in_processes(3, work)):
            assert all((tensor == 111.0).all() for tensor in tensors)


# the noise -----------------------------------------------------------------------------------------------------------


def wide(dtype: torch.dtype = torch.float32) -> nn.Module:
    model = nn.Sequential(nn.Linear(200, 300, bias=False), nn.Linear(600, 500), nn.Linear(7, 1))
    return model.to(dtype)


def ours(model: nn.Module, noise_stddev: float, step: int, ranks: Ranks) -> None:
    add_noise_(model.named_parameters(), noise_stddev, STREAMS, step, None, ranks)


def every_rank_its_own(model: nn.Module, noise_stddev: float, step: int, ranks: Ranks) -> None:
    """Known wrong: independent noise at every rank."""
    add_noise_(model.named_parameters(), noise_stddev, STREAMS.child("rank", ranks.rank), step, None)
    ours(model, 0.0, step, ranks)


def every_rank_the_same(model: nn.Module, noise_stddev: float, step: int, ranks: Ranks) -> None:
    """Known wrong: the same noise at every rank."""
    add_noise_(model.named_parameters(), noise_stddev, STREAMS, step, None)
    ours(model, 0.0, step, ranks)


def no_rank(model: nn.Module, noise_stddev: float, step: int, ranks: Ranks) -> None:
    """Known wrong: each rank believes that another one does it."""
    ours(model, 0.0, step, ranks)


def only_the_first_share(model: nn.Module, noise_stddev: float, step: int, ranks: Ranks) -> None:
    """Known wrong: one rank leaves its share out."""
    ours(model, noise_stddev if ranks.first else 0.0, step, ranks)


def noise_of(add_noise: AddNoise, world: int) -> list[np.ndarray]:
    """What is in the sum of each rank when all gradients are zero, in units of the deviation."""

    def work(ranks: Ranks) -> np.ndarray:
        model = wide()
        add_noise(model, STDDEV, 3, ranks)
        return torch.cat([gradient.flatten() for gradient in taken(model).values()]).numpy()

    return [values.astype(np.float64) / STDDEV for values in values_of(in_processes(world, work))]


def check_noise_once(add_noise: AddNoise, world: int) -> None:
    """Variance 1 in total, both sides, false alarm 1e-6; the same on every rank."""
    found = noise_of(add_noise, world)
    low, high = stats.chi2.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], len(found[0]))
    assert low < float(np.square(found[0]).sum()) < high
    assert all(np.array_equal(values, found[0]) for values in found)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_sum_over_ranks_has_the_noise_once(world: int) -> None:
    check_noise_once(ours, world)


@pytest.mark.parametrize("wrong", [every_rank_its_own, every_rank_the_same, no_rank, only_the_first_share])
def test_the_check_of_the_noise_catches(wrong: AddNoise) -> None:
    with pytest.raises(AssertionError):
        check_noise_once(wrong, 2)


def test_the_noise_does_not_depend_on_the_number_of_ranks() -> None:
    alone = wide()
    ours(alone, STDDEV, 3, ALONE)
    expected = torch.cat([gradient.flatten() for gradient in taken(alone).values()]).numpy().astype(np.float64)
    for world in (2, 3):
        for values in noise_of(ours, world):
            np.testing.assert_array_equal(values, expected / STDDEV)


@pytest.mark.parametrize("grid", [None, Grid(2.0**-12)])
def test_a_sharded_parameter_gets_its_part_of_the_same_noise(grid: Grid | None) -> None:
    """5 rows on 2 ranks; the gradient is summed over the ranks already, so it must not be summed again."""

    def noisy(named: dict[str, nn.Parameter], ranks: Ranks) -> list[Tensor]:
        add_noise_(named.items(), STDDEV, STREAMS, 3, grid, ranks)
        return [p.grad.full_tensor() if isinstance(p.grad, DTensor) else p.grad for p in named.values()]

    def work(ranks: Ranks) -> list[Tensor]:
        mesh = init_device_mesh("cpu", (2,))
        sharded = nn.Parameter(distribute_tensor(torch.zeros(5, 300), mesh, [Shard(0)]))
        missing = nn.Parameter(distribute_tensor(torch.zeros(5), mesh, [Shard(0)]))
        sharded.grad = distribute_tensor(torch.full((5, 300), 3.0), mesh, [Shard(0)])
        plain = nn.Parameter(torch.zeros(7))
        plain.grad = torch.full((7,), 1.5)  # the sum of two ranks is 3
        return noisy({"sharded": sharded, "missing": missing, "plain": plain}, ranks)

    named = {
        name: nn.Parameter(torch.zeros(*shape))
        for name, shape in (("sharded", (5, 300)), ("missing", (5,)), ("plain", (7,)))
    }
    named["sharded"].grad, named["plain"].grad = torch.full((5, 300), 3.0), torch.full((7,), 3.0)
    expected = noisy(named, ALONE)
    for found in values_of(in_processes(2, work)):
        for own, wanted in zip(found, expected, strict=True):
            torch.testing.assert_close(own, wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("world", [2, 3])
def test_parameters_stay_equal_on_all_ranks(world: int) -> None:
    """Five steps of a user's own loop with Poisson draws; the ranks' weights agree bit for bit, and with one process."""

    def work(ranks: Ranks) -> Sums:
        model = make_model()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        for step in range(5):
            optimizer.zero_grad()
            user_step(ranks, poisson_sample(UNITS, 0.3, STREAMS.generator("sampling", step)), CLIP_NORM, step, model)
            optimizer.step()
        return {name: p.detach().clone() for name, p in model.named_parameters()}

    alone = work(ALONE)
    found = values_of(in_processes(world, work))
    for weights in found:
        for name in alone:
            assert torch.equal(weights[name], found[0][name])
            torch.testing.assert_close(weights[name], alone[name], rtol=1e-9, atol=1e-12)


# messages ------------------------------------------------------------------------------------------------------------


def test_what_the_first_rank_decides_and_tells_reaches_all() -> None:
    def work(ranks: Ranks) -> tuple[object, ...]:
        choices = [ranks.decide(choice if ranks.first else not choice) for choice in (True, False)]
        if ranks.first:
            ranks.tell({"phase": 3})
        heard = {"phase": 3} if ranks.first else ranks.hear()
        ranks.agree("the text", b"same")
        parts = ranks.gather([torch.full((2, 2), float(ranks.rank)), torch.tensor(ranks.rank)])
        return choices, heard, [[part.tolist() for part in of_rank] for of_rank in parts]

    found = values_of(in_processes(3, work))
    assert [value[:2] for value in found] == [([True, False], {"phase": 3})] * 3
    assert found[0][2] == [[[[float(rank)] * 2] * 2, rank] for rank in range(3)]
    assert found[1][2] == found[2][2] == []


def test_what_is_gathered_may_be_of_one_type_here_and_another_there() -> None:
    """A rank whose sums are float64 asked for 8 bytes a number of one that sent 4, and read them as float64."""

    def work(ranks: Ranks) -> list[list[float]]:
        own = torch.full((5,), 0.1 + ranks.rank, dtype=torch.float64 if ranks.first else torch.float32)
        return [part.tolist() for (part,) in ranks.gather([own])]

    expected = [[0.1] * 5, [float(np.float32(1.1))] * 5]
    assert values_of(in_processes(2, work)) == [expected, []]


def test_ranks_that_disagree_all_say_so() -> None:
    ended = in_processes(3, lambda ranks: ranks.agree("the private corpus", bytes([ranks.rank == 2])))
    check_one_says(ended, "DataError: the private corpus: rank 2 has another one than rank 0")


def test_a_rank_waits_for_one_that_works_alone_for_longer_than_the_timeout() -> None:
    def work(ranks: Ranks) -> str:
        if ranks.first:
            time.sleep(1.7)
            ranks.tell("at last")
        heard = "at last" if ranks.first else ranks.hear()
        if ranks.rank == 1:
            time.sleep(1.7)
        ranks.meet()
        return heard

    assert values_of(in_processes(2, work, timeout_seconds=1.0)) == ["at last"] * 2


def add_up(ranks: Ranks) -> None:
    ranks.sum_([torch.ones(1000)])


def collect(ranks: Ranks) -> None:
    ranks.gather([torch.ones(1000)])


def wait_for_first(ranks: Ranks) -> None:
    if ranks.first:
        ranks.meet()
    else:
        ranks.hear()


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("what", [add_up, collect, wait_for_first])
def test_when_a_rank_is_killed_the_others_end(what: Callable[[Ranks], None], lost: int) -> None:
    def work(ranks: Ranks) -> None:
        add_up(ranks)
        if ranks.rank == lost:
            os.kill(os.getpid(), signal.SIGKILL)
        what(ranks)

    ended = in_processes(2, work)
    assert ended[lost].exit_code == -signal.SIGKILL
    other = ended[1 - lost]
    assert other.exit_code == 1
    assert other.error.startswith(f"LostError: process {1 - lost} of 2 stopped while ")
    assert "\n" not in other.error
    assert other.seconds < 20


@pytest.mark.slow
def test_a_silent_rank_is_noticed_after_the_timeout() -> None:
    def work(ranks: Ranks) -> None:
        # Shorter only after all have joined, which takes as long as the machine is busy.
        group = dist.group.WORLD
        assert group._get_backend(torch.device("cpu")).options._timeout == timedelta(seconds=25)
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1), group)
        if ranks.rank == 1:
            time.sleep(15)
        begun = time.monotonic()
        try:
            add_up(ranks)
        finally:
            took[ranks.rank] = time.monotonic() - begun

    took = torch.zeros(2).share_memory_()
    first, _ = in_processes(2, work, timeout_seconds=25.0)
    assert first.error.startswith("LostError: process 0 of 2 stopped while adding up the gradients")
    assert 1 <= took[0] < 10


# joining -------------------------------------------------------------------------------------------------------------


def test_without_torchrun_a_process_is_alone() -> None:
    with join() as ranks:
        assert ranks == ALONE == Ranks(0, 1)
        tensors = [torch.ones(3)]
        ranks.sum_(tensors)
        ranks.meet()
        ranks.agree("nothing", b"")
        assert torch.equal(tensors[0], torch.ones(3))
        assert ranks.decide(True)
    assert not dist.is_initialized()


def test_a_process_group_of_the_user_is_used_and_left() -> None:
    def work(ranks: Ranks) -> bool:
        with join() as again:
            assert again == ranks
        return dist.is_initialized()

    assert values_of(in_processes(2, work)) == [True, True]


def test_another_device_is_refused() -> None:
    with pytest.raises(UsageError, match="cpu or cuda"), join("tpu"):
        pass


# the documentation ---------------------------------------------------------------------------------------------------


def test_the_loop_of_the_documentation_trains_alike_on_one_and_two_processes() -> None:
    text = (Path(__file__).parents[2] / "docs" / "distributed.md").read_text(encoding="utf-8")
    (code,) = [block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if "tacit.engine" in block]

    def work(ranks: Ranks) -> Sums:
        model = make_model()
        names = {
            "model": model,
            "optimizer": torch.optim.AdamW(model.parameters(), lr=0.01),
            "streams": STREAMS,
            "clip_norm": CLIP_NORM,
            "noise_multiplier": 0.8,
            "steps": 4,
            "units": UNITS,
            "q": 0.4,
            "per_example_losses": lambda model, chosen: model(rows()[chosen]).square().sum(dim=1),
        }
        exec(compile(code, "distributed.md", "exec"), names)
        assert names["ranks"] == ranks
        return {name: p.detach().clone() for name, p in model.named_parameters()}

    alone, before = work(ALONE), dict(make_model().named_parameters())
    for weights in values_of(in_processes(2, work)):
        for name in alone:
            assert not torch.equal(alone[name], before[name])
            torch.testing.assert_close(weights[name], alone[name], rtol=1e-9, atol=1e-12)
