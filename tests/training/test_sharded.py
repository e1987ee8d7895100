"""A phase whose layers are sharded over real processes: the training of one, and checkpoints that any number of them goes on from."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule

from tacit.engine import noise
from tacit.engine.distributed import Ranks
from tacit.engine.sharding import is_sharded, shard_of
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness
from tacit.training import checkpoint, loop
from tacit.training.checkpoint import finished_steps, load_weights
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import PlainPlan
from tacit.training.sequences import SequenceStream
from tacit.training.sharded_checkpoint import read_rest
from tacit.training.sharding import layers_of, shard

from ..processes import Ended, in_processes, values_of
from .phases import KEY, STEPS, Weights, assert_close, checkpoint_of, dropping_bert, spent, train
from .streams import random_units, stream_of
from .test_ranks import LossyStreams

pytestmark = pytest.mark.slow

SHARD = {"shard": True}
PUBLIC = Phase("private", "public", PlainPlan(batch_size=7), STEPS, AdamOptions(1e-2))
"""Under the name by which checkpoints are found here."""
NEVER = 1e9
"""Seconds between checkpoints where they are not the point: those on the way are half of a run's time, and the first test's."""


@pytest.fixture(scope="module")
def stream() -> SequenceStream:
    return stream_of(random_units(8))


@pytest.fixture(scope="module")
def alone(stream: SequenceStream, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    return train(tmp_path_factory.mktemp("alone"), stream, dropout=0.0)


def on_ranks(
    world: int,
    folder: Path,
    stream: SequenceStream,
    lost: int = -1,
    at: int = 0,
    sharded: bool = True,
    **options: Any,
) -> list[Ended]:
    folder.mkdir(exist_ok=True)

    def work(ranks: Ranks) -> None:
        streams = LossyStreams(at) if ranks.rank == lost else KeyedRandomness(KEY)
        train(folder, stream, streams, ranks=ranks, dropout=0.0, compute=SHARD if sharded else {}, **options)

    return in_processes(world, work)


def weights_of(folder: Path) -> Weights:
    """What one process reads of the checkpoint."""
    model = dropping_bert(0.0)
    load_weights(checkpoint_of(folder), model)
    assert finished_steps(checkpoint_of(folder)) == STEPS
    return {name: tensor.detach().clone() for name, tensor in model.named_parameters()}


@pytest.mark.parametrize("checkpoint_seconds", [0.0, NEVER])
@pytest.mark.parametrize("world", [2, 3])
def test_sharded_training_is_that_of_one_process(
    world: int, checkpoint_seconds: float, stream: SequenceStream, alone: Weights, tmp_path: Path
) -> None:
    values_of(on_ranks(world, tmp_path, stream, checkpoint_seconds=checkpoint_seconds))
    assert checkpoint_of(tmp_path).is_dir()
    assert_close(weights_of(tmp_path), alone)
    assert spent(tmp_path) == STEPS


@pytest.mark.parametrize(
    ("lost", "at", "world", "sharded"), [(0, 1, 1, False), (1, 1, 2, True), (0, 1, 4, True), (1, 1, 2, False)]
)
def test_a_killed_run_goes_on_with_any_number_of_ranks(
    lost: int, at: int, world: int, sharded: bool, stream: SequenceStream, alone: Weights, tmp_path: Path
) -> None:
    """Inside a step: each unit once, and the same noise."""
    ended = on_ranks(2, tmp_path, stream, lost, at, checkpoint_seconds=0.0)
    assert ended[lost].exit_code == -signal.SIGKILL
    assert read_rest(checkpoint_of(tmp_path))["drawn"] > 0
    values_of(on_ranks(world, tmp_path, stream, sharded=sharded, checkpoint_seconds=NEVER))
    assert_close(weights_of(tmp_path), alone)
    assert spent(tmp_path) == STEPS


def test_a_run_that_was_not_sharded_goes_on_sharded(stream: SequenceStream, alone: Weights, tmp_path: Path) -> None:
    on_ranks(2, tmp_path, stream, 1, 1, sharded=False, checkpoint_seconds=0.0)
    assert checkpoint_of(tmp_path).is_file()
    assert "partial" in torch.load(checkpoint_of(tmp_path), weights_only=True)
    values_of(on_ranks(3, tmp_path, stream, checkpoint_seconds=NEVER))
    assert_close(weights_of(tmp_path), alone)


def test_ranks_without_units_take_part(tmp_path: Path) -> None:
    """Two units for three ranks: in every step at least one rank has nothing to add, and some steps have no unit at all."""
    few = stream_of({name: rows for name, rows in random_units(2).items() if name.startswith("unit")})
    (tmp_path / "alone").mkdir()
    expected = train(tmp_path / "alone", few, dropout=0.0)
    values_of(on_ranks(3, tmp_path / "three", few, checkpoint_seconds=NEVER))
    assert_close(weights_of(tmp_path / "three"), expected)


def every_rank_its_own(self: KeyedRandomness, *address: str | int) -> np.random.Generator:
    """Known wrong: each rank draws noise of its own for its part, and for what is whole."""
    own = (*address, int(os.environ["RANK"])) if address[0] == "noise" else address
    return np.random.Generator(np.random.PCG64(int.from_bytes(self.derive("test", *own)[:8], "big")))


def twice(gradient: torch.Tensor, full: torch.Tensor) -> torch.Tensor:
    """Known wrong: the noise of a part is added at every rank, as if the parts were a sum."""
    return shard_of(gradient, 2**0.5 * full)


@pytest.mark.parametrize(
    ("place", "name", "wrong"),
    [(KeyedRandomness, "generator", every_rank_its_own), (noise, "shard_of", twice)],
    ids=["own", "twice"],
)
def test_the_check_catches_noise_that_is_not_drawn_once(
    place: object,
    name: str,
    wrong: object,
    stream: SequenceStream,
    alone: Weights,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(place, name, wrong)
    on_ranks(2, tmp_path, stream, checkpoint_seconds=NEVER)
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        assert_close(weights_of(tmp_path), alone)


def lose_a_rank(path: Path) -> None:
    """Known wrong: what one rank has added up of a whole parameter is forgotten."""
    rest = read_rest(path)
    torch.save({**rest, "ranks": 1}, path / "rest.pt")


def test_the_check_catches_partial_sums_that_are_lost(stream: SequenceStream, alone: Weights, tmp_path: Path) -> None:
    on_ranks(2, tmp_path, stream, 1, 1, checkpoint_seconds=0.0)
    lose_a_rank(checkpoint_of(tmp_path))
    values_of(on_ranks(2, tmp_path, stream, checkpoint_seconds=NEVER))
    with pytest.raises(AssertionError):
        assert_close(weights_of(tmp_path), alone)


def test_a_rank_holds_a_part_of_every_layer(stream: SequenceStream) -> None:
    """Weights, gradients and moments of the layers are divided by the number of ranks."""

    def work(ranks: Ranks) -> tuple[int, int]:
        model = dropping_bert(0.0)
        whole = sum(p.numel() for layer in layers_of(model) for p in layer.parameters())
        shard(model)
        return whole, sum(p.to_local().numel() for p in model.parameters() if is_sharded(p))

    for whole, own in values_of(in_processes(2, work)):
        assert own * 2 == whole


@pytest.fixture(scope="module")
def public_alone(stream: SequenceStream, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    return train(tmp_path_factory.mktemp("alone"), stream, dropout=0.0, phase=PUBLIC)


@pytest.mark.parametrize("world", [2, 3])
def test_a_sharded_phase_on_public_text_is_that_of_one_process(
    world: int, stream: SequenceStream, public_alone: Weights, tmp_path: Path
) -> None:
    """Of the 7 rows two or three ranks take 2 at once, so in the last round a rank has none."""
    values_of(on_ranks(world, tmp_path, stream, phase=PUBLIC, micro_batch=2, checkpoint_seconds=NEVER))
    assert checkpoint_of(tmp_path).is_dir()
    assert_close(weights_of(tmp_path), public_alone)


@pytest.mark.parametrize(("world", "sharded"), [(1, False), (2, True), (4, True)])
def test_a_killed_phase_on_public_text_goes_on_with_any_number_of_ranks(
    world: int, sharded: bool, stream: SequenceStream, public_alone: Weights, tmp_path: Path
) -> None:
    """Inside a step, where what is sharded is the sum of all ranks and the rest each rank's own."""

    def work(ranks: Ranks) -> None:
        options = {"phase": PUBLIC, "micro_batch": 2, "dropout": 0.0}
        train(tmp_path, stream, ranks=ranks, compute=SHARD, checkpoint_seconds=0.0, **options)

    def killed_inside(path: Path, *arguments: Any) -> None:
        write(path, *arguments)
        ranks = arguments[-1]  # the first one alone knows when it is in place
        if ranks.first and read_rest(path)["drawn"] and read_rest(path)["next_step"] == 1:
            os.kill(os.getpid(), signal.SIGKILL)

    write = checkpoint.save_shards
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "save_shards", killed_inside)
        in_processes(2, work)
    assert read_rest(checkpoint_of(tmp_path))["drawn"] > 0
    options = {"phase": PUBLIC, "micro_batch": 2, "checkpoint_seconds": NEVER}
    values_of(on_ranks(world, tmp_path, stream, sharded=sharded, **options))
    assert_close(weights_of(tmp_path), public_alone)


def test_the_check_catches_gradients_that_are_a_mean_over_the_ranks(
    stream: SequenceStream, public_alone: Weights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FSDP2's own way."""
    monkeypatch.setattr(FSDPModule, "set_gradient_divide_factor", lambda self, factor: None)
    values_of(on_ranks(2, tmp_path, stream, phase=PUBLIC, micro_batch=2, checkpoint_seconds=NEVER))
    monkeypatch.undo()
    with pytest.raises(AssertionError):
        assert_close(weights_of(tmp_path), public_alone)


def test_what_a_killed_rank_leaves_of_a_checkpoint_stops_no_other_and_is_not_kept(
    stream: SequenceStream, alone: Weights, tmp_path: Path
) -> None:
    """Begun, and not whole: a folder. The run goes on alone, and nothing of a sum without noise stays beside the checkpoint."""
    on_ranks(2, tmp_path, stream, 1, 1, checkpoint_seconds=0.0)
    place = checkpoint_of(tmp_path)
    assert place.is_dir()
    place.with_name(f".{place.name}.partial").mkdir()
    values_of(on_ranks(1, tmp_path, stream, sharded=False, checkpoint_seconds=0.0))
    assert_close(weights_of(tmp_path), alone)
    assert {path.name for path in tmp_path.iterdir() if "private" in path.name} == {place.name}


class NoLayers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Linear(2, 2)


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])
        self.layers[1].weight = self.layers[0].weight


@pytest.mark.parametrize("model", [NoLayers, Shared])
def test_what_cannot_be_sharded_is_refused(model: type[nn.Module]) -> None:
    with pytest.raises(UsageError, match="has no layers of its own that could be sharded"):
        layers_of(model())
