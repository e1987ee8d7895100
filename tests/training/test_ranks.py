"""A phase on 1, 2 and 3 real processes: the same training, one ledger, and continuing after any of them is lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tacit.config import ComputeOptions
from tacit.engine.distributed import ALONE, Ranks
from tacit.privacy.ledger import Ledger
from tacit.randomness import KeyedRandomness
from tacit.training.loop import run_phase
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import PlainPlan
from tacit.training.sequences import SequenceStream

from ..processes import Ended, check_one_says, in_processes, values_of
from .phases import KEY, STEPS, Weights, assert_close, checkpoint_of, dropping_bert, same, spent, train
from .streams import OBJECTIVE, random_units, stream_of


@pytest.fixture(scope="module")
def stream() -> SequenceStream:
    return stream_of(random_units(8))


@pytest.fixture(scope="module")
def alone(stream: SequenceStream, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """One process without dropout, whose masks depend on the number of ranks."""
    return train(tmp_path_factory.mktemp("alone"), stream, checkpoint_seconds=1e9, dropout=0.0)


class LossyStreams(KeyedRandomness):
    """Kills its process at the n-th micro-batch, of two units each."""

    def __init__(self, number: int, key: bytes = KEY) -> None:
        super().__init__(key)
        self.left = 2 * number

    def child(self, *address: str | int) -> LossyStreams:
        """What is below kills instead."""
        return LossyStreams(self.left // 2, self.derive("child", *address))

    def generator(self, *address: str | int) -> np.random.Generator:
        if address[0] == "unit":
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            self.left -= 1
        return super().generator(*address)


def on_ranks(
    world: int, folder: Path, stream: SequenceStream, lost: int = -1, at: int = 0, **options: float
) -> list[Ended]:
    """The phase on so many processes, of which rank ``lost`` is killed at its micro-batch ``at``."""
    folder.mkdir(exist_ok=True)

    def work(ranks: Ranks) -> Weights:
        streams = LossyStreams(at) if ranks.rank == lost else KeyedRandomness(KEY)
        return train(folder, stream, streams, ranks=ranks, **options)

    return in_processes(world, work)


@pytest.fixture(scope="module")
def whole(stream: SequenceStream, tmp_path_factory: pytest.TempPathFactory) -> Weights:
    """What two processes end with that nobody kills, with dropout."""
    return values_of(on_ranks(2, tmp_path_factory.mktemp("whole"), stream))[0]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 3])
@pytest.mark.parametrize("checkpoint_seconds", [0.0, 1e9])
def test_several_ranks_train_like_one(
    world: int, checkpoint_seconds: float, stream: SequenceStream, alone: Weights, tmp_path: Path
) -> None:
    ended = on_ranks(world, tmp_path, stream, checkpoint_seconds=checkpoint_seconds, dropout=0.0)
    found: list[Weights] = values_of(ended)
    assert_close(found[0], alone)
    assert all(same(weights, found[0]) for weights in found)
    assert spent(tmp_path) == STEPS


def test_ranks_without_units_take_part(tmp_path: Path) -> None:
    """Two units for three ranks: in every step at least one rank has nothing to add."""
    few = stream_of({name: rows for name, rows in random_units(2).items() if name.startswith("unit")})
    (tmp_path / "alone").mkdir()
    expected = train(tmp_path / "alone", few, dropout=0.0)
    for weights in values_of(on_ranks(3, tmp_path / "three", few, dropout=0.0)):
        assert_close(weights, expected)


@pytest.mark.slow
@pytest.mark.parametrize(("lost", "at"), [(0, 0), (1, 0), (0, 1), (1, 1), (1, 2), (0, 4), (1, 4)])
def test_when_a_rank_is_killed_all_end_and_the_next_start_goes_on(
    lost: int, at: int, stream: SequenceStream, whole: Weights, tmp_path: Path
) -> None:
    ended = on_ranks(2, tmp_path / "killed", stream, lost, at)
    assert ended[lost].exit_code == -signal.SIGKILL
    assert ended[1 - lost].error.startswith("LostError: process ")
    assert ended[1 - lost].seconds < 20
    paid = spent(tmp_path / "killed")
    found = values_of(on_ranks(2, tmp_path / "killed", stream))
    assert all(same(weights, whole) for weights in found)
    assert spent(tmp_path / "killed") == STEPS >= paid


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 3])
def test_another_number_of_ranks_goes_on_at_the_same_unit(
    world: int, stream: SequenceStream, alone: Weights, tmp_path: Path
) -> None:
    on_ranks(2, tmp_path, stream, 1, 1, dropout=0.0)
    state = torch.load(checkpoint_of(tmp_path), weights_only=True)
    assert len(state["partial"]["sums"]) == 2
    for weights in values_of(on_ranks(world, tmp_path, stream, dropout=0.0)):
        assert_close(weights, alone)


def lose_a_rank(sums: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """Known wrong: the checkpoint has the first rank's sum only."""
    return sums[:1]


def sum_twice(sums: list[list[torch.Tensor]]) -> list[list[torch.Tensor]]:
    """Known wrong: the total is given to every rank."""
    total = [torch.stack(parts).sum(0) for parts in zip(*sums, strict=True)]
    return [total, total]


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [lose_a_rank, sum_twice])
def test_the_check_catches_partial_sums_that_are_dealt_wrongly(
    wrong: Callable[[list[list[torch.Tensor]]], list[list[torch.Tensor]]],
    stream: SequenceStream,
    whole: Weights,
    tmp_path: Path,
) -> None:
    on_ranks(2, tmp_path / "killed", stream, 1, 1)
    path = checkpoint_of(tmp_path / "killed")
    state = torch.load(path, weights_only=True)
    state["partial"]["sums"] = wrong(state["partial"]["sums"])
    torch.save(state, path)
    assert not same(values_of(on_ranks(2, tmp_path / "killed", stream))[0], whole)


# the ledger ----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_that_is_refused_happens_at_no_rank(stream: SequenceStream, tmp_path: Path) -> None:
    """The ledger has one step less than the phase: the first rank says so, and no other rank gets a sum of that step."""
    ended = on_ranks(2, tmp_path, stream, limit=STEPS - 1)
    check_one_says(ended, "BudgetError: stage 'private' has used all its 2 steps; step 2 is refused")
    assert spent(tmp_path) == STEPS - 1
    assert torch.load(checkpoint_of(tmp_path), weights_only=True)["next_step"] == STEPS - 1


class PaidStreams(KeyedRandomness):
    """Notes what the ledger on disk held when each noise was drawn and each row seeded."""

    def __init__(self, ledger: Path, key: bytes = KEY) -> None:
        super().__init__(key)
        self.ledger = ledger
        self.seen: list[tuple[str, int, int]] = []

    def child(self, *address: str | int) -> PaidStreams:
        """What is below notes too."""
        below = PaidStreams(self.ledger, self.derive("child", *address))
        below.seen = self.seen
        return below

    def derive(self, *address: str | int) -> bytes:
        if len(address) > 2 and address[1] in ("noise", "dropout", "sampling"):
            with Ledger.open(self.ledger, readonly=True) as ledger:
                self.seen.append((str(address[1]), int(address[2]), ledger.spent("private")))
        return super().derive(*address)


def test_the_first_rank_pays_before_its_part_of_the_sum_exists(stream: SequenceStream, tmp_path: Path) -> None:
    def work(ranks: Ranks) -> list[tuple[str, int, int]]:
        streams = PaidStreams(tmp_path / "ledger.sqlite") if ranks.first else KeyedRandomness(KEY)
        train(tmp_path, stream, streams, ranks=ranks)
        return streams.seen if isinstance(streams, PaidStreams) else []

    seen = values_of(in_processes(2, work))[0]
    assert {kind for kind, *_ in seen} == {"noise", "dropout", "sampling"}
    assert all(paid > step for _, step, paid in seen)


# what must agree -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_ranks_with_other_weights_are_refused_before_anything_is_paid(stream: SequenceStream, tmp_path: Path) -> None:
    """A rank that does not see the checkpoint would begin elsewhere."""
    (tmp_path / "0").mkdir()
    (tmp_path / "1").mkdir()
    train(tmp_path / "0", stream)

    ended = in_processes(2, lambda ranks: train(tmp_path / str(ranks.rank), stream, ranks=ranks))
    assert all(
        "the weights and the step at the start of phase private: rank 1 has another" in process.error
        for process in ended
    )


# ordinary training ---------------------------------------------------------------------------------------------------


def test_a_plain_phase_on_ranks_is_that_of_one_process(stream: SequenceStream, tmp_path: Path) -> None:
    phase = Phase("public", "public", PlainPlan(7), STEPS, AdamOptions(1e-2))

    def work(ranks: Ranks) -> Weights:
        model = dropping_bert(0.0)
        compute = ComputeOptions(micro_batch=2, threads=1, checkpoint_seconds=0.0)
        path = tmp_path / f"{ranks.world}.pt"
        run_phase(model, phase, stream, OBJECTIVE, None, KeyedRandomness(KEY), compute, path, ranks=ranks)
        return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}

    expected = work(ALONE)
    for world in (2, 3):
        found = values_of(in_processes(world, work))
        assert all(same(weights, found[0]) for weights in found)
        assert_close(found[0], expected)


def test_ranks_with_other_public_records_are_refused(stream: SequenceStream, tmp_path: Path) -> None:
    """A public corpus that is another file at one rank may be private text, which nobody looked at."""
    phase = Phase("public", "public", PlainPlan(7), STEPS, AdamOptions(1e-2))
    others = stream_of(random_units(9))

    def work(ranks: Ranks) -> None:
        compute = ComputeOptions(micro_batch=2, threads=1, checkpoint_seconds=0.0)
        records, path = (others if ranks.rank else stream), tmp_path / "public.pt"
        run_phase(dropping_bert(0.0), phase, records, OBJECTIVE, None, KeyedRandomness(KEY), compute, path, ranks=ranks)

    ended = in_processes(2, work)
    assert all("what the sums of phase public are made from: rank 1 has another" in one.error for one in ended)


@pytest.mark.parametrize("world", [2, 3])
def test_with_dropout_too_several_ranks_train_like_one(world: int, stream: SequenceStream, tmp_path: Path) -> None:
    """A unit is dropped by its own seed, whichever rank it comes to and whatever stands beside it there."""
    (tmp_path / "alone").mkdir()
    expected = train(tmp_path / "alone", stream, checkpoint_seconds=1e9)
    for weights in values_of(on_ranks(world, tmp_path / "together", stream, checkpoint_seconds=1e9)):
        assert_close(weights, expected)
