"""A process that is killed anywhere in a step and started again ends bit for bit like one that was left alone (T8)."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tacit.config import ComputeOptions
from tacit.engine.distributed import Ranks
from tacit.errors import LedgerError
from tacit.privacy.ledger import Ledger
from tacit.randomness import KeyedRandomness
from tacit.training import unit_rows
from tacit.training.checkpoint import Progress, gradients, load_checkpoint, save_checkpoint
from tacit.training.dp_step import DpStep
from tacit.training.sequences import SequenceStream
from tacit.training.sums import sums_digest
from tacit.training.unit_rows import Source

from ..processes import killed
from .phases import (
    KEY,
    PHASE,
    PLAN,
    STEPS,
    Weights,
    assert_close,
    checkpoint_of,
    dropping_bert,
    same,
    spent,
    train,
)
from .streams import OBJECTIVE, random_units, stream_of

POINTS = ("sampling", "dropout", "unit", "noise")
"""The draws of a step: for the batch, for each row of a micro-batch, for each unit in it, for each parameter at the end."""

AT_ONCE = 2
"""Units of a micro-batch: so many draws of a kind "unit" later, the next one begins."""


@pytest.fixture(scope="module")
def stream() -> SequenceStream:
    return stream_of(random_units(8))


class CountedStreams(KeyedRandomness):
    """Counts draws by their kind, and kills this process (nothing is cleaned up or flushed) at the n-th of one kind."""

    def __init__(
        self, kind: str = "", number: int = -1, key: bytes = KEY, counts: dict[str, int] | None = None
    ) -> None:
        super().__init__(key)
        self.kind, self.number = kind, number
        self.counts = dict.fromkeys(POINTS, 0) if counts is None else counts

    def child(self, *address: str | int) -> CountedStreams:
        """What is below counts too."""
        return type(self)(self.kind, self.number, self.derive("child", *address), self.counts)

    def derive(self, *address: str | int) -> bytes:
        kind = str(address[1]) if len(address) > 1 else ""
        if kind in self.counts:
            if (kind, self.counts[kind]) == (self.kind, self.number):
                os.kill(os.getpid(), signal.SIGKILL)
            self.counts[kind] += 1
        return super().derive(*address)


@pytest.fixture(scope="module")
def uninterrupted(stream: SequenceStream, tmp_path_factory: pytest.TempPathFactory) -> tuple[Weights, dict[str, int]]:
    """The weights without a kill (and without any checkpoint on the way), and how many draws there were."""
    streams = CountedStreams()
    weights = train(tmp_path_factory.mktemp("uninterrupted"), stream, streams, checkpoint_seconds=1e9)
    assert streams.counts["dropout"] > 2 * STEPS  # several micro-batches a step
    return weights, streams.counts


def kills(counts: dict[str, int]) -> list[tuple[str, int]]:
    """Every draw of a batch, and the first one of every micro-batch; of rows and parameters some."""
    every = {"sampling": 1, "dropout": 17, "unit": 2, "noise": 47}
    return [(kind, number) for kind in POINTS for number in range(0, counts[kind], every[kind])]


@pytest.mark.slow
def test_killed_anywhere_in_a_step_and_started_again_equals_uninterrupted(
    stream: SequenceStream, uninterrupted: tuple[Weights, dict[str, int]], tmp_path: Path
) -> None:
    weights, counts = uninterrupted
    inside = 0
    for kind, number in kills(counts):
        folder = tmp_path / f"{kind} {number}"
        folder.mkdir()
        assert killed(lambda: train(folder, stream, CountedStreams(kind, number))), (kind, number)  # noqa: B023
        paid = spent(folder)
        inside += "partial" in stored(folder)
        # Its own checkpoints change nothing, and are the next test's: here the killed process alone writes them at every micro-batch.
        assert same(train(folder, stream, checkpoint_seconds=1e9), weights), (kind, number)
        assert spent(folder) == STEPS >= paid
        assert "partial" not in stored(folder)  # what is without noise goes when its step is done
    assert inside > STEPS


@pytest.mark.slow
def test_killed_again_and_again_equals_uninterrupted(
    stream: SequenceStream, uninterrupted: tuple[Weights, dict[str, int]], tmp_path: Path
) -> None:
    """At the second micro-batch of every start: each start adds one micro-batch to the sum."""
    starts = 0
    while killed(lambda: train(tmp_path, stream, CountedStreams("unit", AT_ONCE))):
        starts += 1
        assert starts < 100
    assert starts > STEPS
    assert same(train(tmp_path, stream), uninterrupted[0])
    assert spent(tmp_path) == STEPS


# known-wrong continuations -------------------------------------------------------------------------------------------


def stored(folder: Path) -> dict[str, object]:
    path = checkpoint_of(folder)
    return torch.load(path, weights_only=True) if path.exists() else {}


def forget_the_sum(partial: dict[str, object]) -> None:
    """Goes on inside the step with an empty sum."""
    partial["sums"] = [[torch.zeros_like(own) for own in sums] for sums in partial["sums"]]


def begin_on_top_of_the_sum(partial: dict[str, object]) -> None:
    """Adds the step's first units to the sum that holds them already, so that they count twice."""
    partial["sums"] = [[2 * own for own in sums] for sums in partial["sums"]]


def skip_a_micro_batch(partial: dict[str, object]) -> None:
    """Takes the number of the micro-batch for the one after it."""
    partial["drawn"] += 2


def repeat_a_micro_batch(partial: dict[str, object]) -> None:
    """Takes it for the one before."""
    partial["drawn"] -= 2


@pytest.mark.parametrize("wrong", [forget_the_sum, begin_on_top_of_the_sum, skip_a_micro_batch, repeat_a_micro_batch])
def test_the_check_catches_a_wrong_continuation(
    wrong: Callable[[dict[str, object]], None],
    stream: SequenceStream,
    uninterrupted: tuple[Weights, dict[str, int]],
    tmp_path: Path,
) -> None:
    assert killed(lambda: train(tmp_path, stream, CountedStreams("unit", 2 * AT_ONCE)))
    state = stored(tmp_path)
    assert state["partial"]["drawn"] == 4
    wrong(state["partial"])
    torch.save(state, checkpoint_of(tmp_path))
    assert not same(train(tmp_path, stream), uninterrupted[0])


class SeedsByCall(CountedStreams):
    """Known wrong: dropout is seeded by how many rows this process has seen, not by the row."""

    def seed(self, *address: str | int) -> int:
        return super().seed("dropout", self.counts["dropout"])


def test_the_check_catches_dropout_that_does_not_continue(stream: SequenceStream, tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    expected = train(tmp_path / "whole", stream, SeedsByCall())
    assert killed(lambda: train(tmp_path, stream, SeedsByCall("unit", 2 * AT_ONCE)))
    assert not same(train(tmp_path, stream, SeedsByCall()), expected)


# what may change between two starts ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("micro_batch", [2, 6, 64])
def test_another_micro_batch_size_goes_on_at_the_same_unit(
    micro_batch: int, dropout: float, stream: SequenceStream, tmp_path: Path
) -> None:
    """No unit is lost or counted twice, and none is dropped otherwise."""
    (tmp_path / "whole").mkdir()
    expected = train(tmp_path / "whole", stream, dropout=dropout)
    assert killed(lambda: train(tmp_path, stream, CountedStreams("unit", 2 * AT_ONCE), dropout=dropout))
    assert stored(tmp_path)["partial"]["drawn"] == 4
    assert_close(train(tmp_path, stream, micro_batch=micro_batch, dropout=dropout), expected)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_it_goes_on_inside_a_step_whose_rows_have_several_widths(
    dropout: float, stream: SequenceStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unit_rows, "WIDTHS", ((0.0, (1 / 4, 1 / 2, 1.0)),))
    (tmp_path / "whole").mkdir()
    expected = train(tmp_path / "whole", stream, dropout=dropout)
    assert killed(lambda: train(tmp_path, stream, CountedStreams("unit", 2 * AT_ONCE), dropout=dropout))
    assert stored(tmp_path)["partial"]["drawn"] > 0
    assert same(train(tmp_path, stream, dropout=dropout), expected)
    monkeypatch.undo()  # one width: the same units, masks and noise
    (tmp_path / "narrow").mkdir()
    assert_close(train(tmp_path / "narrow", stream, dropout=dropout), expected)


def test_an_older_checkpoint_inside_a_step_never_unspends(
    stream: SequenceStream, uninterrupted: tuple[Weights, dict[str, int]], tmp_path: Path
) -> None:
    assert killed(lambda: train(tmp_path, stream, CountedStreams("unit", 2 * AT_ONCE)))
    older = checkpoint_of(tmp_path).read_bytes()
    assert killed(lambda: train(tmp_path, stream, CountedStreams("sampling", 2)))
    assert spent(tmp_path) == STEPS
    checkpoint_of(tmp_path).write_bytes(older)
    assert same(train(tmp_path, stream), uninterrupted[0])
    assert spent(tmp_path) == STEPS


# what a checkpoint holds ---------------------------------------------------------------------------------------------


def test_a_checkpoint_inside_a_step_holds_the_clipped_sum_before_the_noise(
    stream: SequenceStream, tmp_path: Path
) -> None:
    assert killed(lambda: train(tmp_path, stream, CountedStreams("unit", 2 * AT_ONCE)))
    state = stored(tmp_path)
    assert state["next_step"] == 0
    model = dropping_bert()
    model.train()
    compute = ComputeOptions(micro_batch=4, threads=1)
    optimizer = torch.optim.AdamW(model.parameters())
    made_from = sums_digest(model, optimizer, PHASE, stream, OBJECTIVE, compute, KeyedRandomness(KEY))
    source = Source(stream, OBJECTIVE, KeyedRandomness(KEY).child("sums", made_from))
    with closing(DpStep(model, PLAN, compute, source)) as step_of:
        draw = step_of.draw(0)
        for _ in step_of.add_up(0, draw[: state["partial"]["drawn"]], 0):
            pass
    (held,) = state["partial"]["sums"]
    assert all(torch.equal(own, expected) for own, expected in zip(held, gradients(model), strict=True))
    assert any(float(own.abs().max()) > 0 for own in held)


@pytest.mark.parametrize("then", [1, 2, 3])
@pytest.mark.parametrize("now", [1, 2, 3])
def test_partial_sums_are_dealt_out_over_any_number_of_ranks(then: int, now: int, tmp_path: Path) -> None:
    path = tmp_path / "private.pt"
    model = dropping_bert()
    optimizer = torch.optim.AdamW(model.parameters())
    sums = [[torch.full_like(p, float(10**rank)) for p in model.parameters()] for rank in range(then)]
    save_checkpoint(path, model, optimizer, Progress(1, 6), sums)
    total = [torch.zeros_like(p) for p in model.parameters()]
    for rank in range(now):
        found = load_checkpoint(path, model, optimizer, Ranks(rank, now))
        assert found == Progress(1, 6)
        for own, part in zip(total, found.sums, strict=True):
            own += part
    assert all(bool((own == sum(10**rank for rank in range(then))).all()) for own in total)


# size ----------------------------------------------------------------------------------------------------------------


class LargestTensor(TorchDispatchMode):
    """Sees every tensor that is made; what lies below it in memory is a matter for benchmarks."""

    def __init__(self) -> None:
        super().__init__()
        self.numel = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        self.numel = max([self.numel, *(leaf.numel() for leaf in tree_leaves(made) if isinstance(leaf, torch.Tensor))])
        return made


def largest(micro_batch: int, units: int, stream: SequenceStream) -> int:
    """Elements of the largest tensor in a step of so many units."""
    model = dropping_bert(0.0)
    model.train()
    compute = ComputeOptions(micro_batch=micro_batch, threads=1)
    source = Source(stream, OBJECTIVE, KeyedRandomness(KEY))
    with closing(DpStep(model, PLAN, compute, source)) as step_of, LargestTensor() as seen:
        for _ in step_of.add_up(0, np.arange(units) % stream.units, 0):
            pass
    return seen.numel


@pytest.mark.slow
def test_memory_does_not_depend_on_the_logical_batch(stream: SequenceStream) -> None:
    of_one = largest(32, 32, stream)
    assert of_one == largest(32, 320, stream)
    assert largest(320, 320, stream) > 5 * of_one  # known wrong: the whole draw at once


def test_a_ledger_refuses_a_step_that_a_checkpoint_is_not_inside(stream: SequenceStream, tmp_path: Path) -> None:
    """A partial sum is worth nothing without its payment: a ledger that never paid refuses to skip the step."""
    assert killed(lambda: train(tmp_path, stream, CountedStreams("unit", 6 * AT_ONCE)))
    assert stored(tmp_path)["next_step"] > 0
    for path in tmp_path.glob("ledger.sqlite*"):
        path.unlink()
    with pytest.raises(LedgerError, match="would skip"):
        train(tmp_path, stream)
    with Ledger.open(tmp_path / "ledger.sqlite") as ledger:
        assert ledger.spent("private") == 0
