"""What a phase ends with, the mean of its iterates or a part of its way: against the formula, over stops, and what would be wrong."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tacit.config import ComputeOptions
from tacit.privacy.ledger import Ledger
from tacit.randomness import KeyedRandomness
from tacit.training.averaging import IterateAverage
from tacit.training.loop import run_phase
from tacit.training.plans import PlainPlan
from tacit.training.sequences import SequenceStream

from .phases import KEY, PHASE, STEPS, Weights, checkpoint_of, dropping_bert, opened_ledger
from .streams import OBJECTIVE, random_units, stream_of

DECAY = 0.6
AVERAGED = dataclasses.replace(PHASE, optimizer=dataclasses.replace(PHASE.optimizer, average=DECAY))


@pytest.fixture(scope="module")
def stream() -> SequenceStream:
    return stream_of(random_units(10))


@pytest.fixture(scope="module")
def uninterrupted(
    stream: SequenceStream, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Weights, list[Weights]]]:
    """What the phase, and the one with the mean of its iterates, come to without a stop: nobody changes it."""
    phases = {"last": PHASE, "mean": AVERAGED}
    return {name: train(tmp_path_factory.mktemp(name), stream, phase) for name, phase in phases.items()}


class StoppedError(Exception):
    """A stop between two steps."""


def train(
    folder: Path, stream: SequenceStream, phase: object = AVERAGED, stop_after: int | None = None
) -> tuple[Weights, list[Weights]]:
    """The weights at the end, and those after every step that was done now."""
    model = dropping_bert()
    compute = ComputeOptions(micro_batch=4, threads=1, checkpoint_seconds=0.0)
    iterates: list[Weights] = []

    def on_step(done: int) -> None:
        iterates.append({name: value.detach().clone() for name, value in model.named_parameters()})
        if stop_after is not None and done == stop_after + 1:  # before its checkpoint: the step is done again
            raise StoppedError

    with opened_ledger(folder) as ledger:
        try:
            _run(model, phase, stream, ledger, compute, folder, on_step)
        except StoppedError:
            assert stop_after is not None
    return {name: value.detach().clone() for name, value in model.named_parameters()}, iterates


def _run(
    model: object,
    phase: object,
    stream: SequenceStream,
    ledger: Ledger,
    compute: ComputeOptions,
    folder: Path,
    on_step: Callable[[int], None],
) -> None:
    run_phase(model, phase, stream, OBJECTIVE, ledger, KeyedRandomness(KEY), compute, checkpoint_of(folder), on_step)  # pyright: ignore[reportArgumentType]


def written_out(iterates: list[Weights], decay: float = DECAY) -> Weights:
    shares = [decay ** (len(iterates) - 1 - number) for number in range(len(iterates))]
    return {
        name: sum(share * own[name] for share, own in zip(shares, iterates, strict=True)) / sum(shares)
        for name in iterates[0]
    }


def close(one: Weights, other: Weights) -> bool:
    return all(torch.allclose(one[name], other[name], rtol=0, atol=1e-12) for name in other)


def test_a_phase_ends_with_the_mean_of_its_iterates(
    uninterrupted: dict[str, tuple[Weights, list[Weights]]],
) -> None:
    last, iterates = uninterrupted["last"]
    assert len(iterates) == STEPS
    assert close(last, iterates[-1])
    mean, _ = uninterrupted["mean"]
    assert close(mean, written_out(iterates))
    for wrong in (iterates[-1], written_out(iterates, 0.7), written_out(iterates[1:])):
        assert not close(mean, wrong)


@pytest.mark.parametrize("stop_after", range(STEPS))
def test_a_stop_changes_nothing(
    stop_after: int, stream: SequenceStream, uninterrupted: dict[str, tuple[Weights, list[Weights]]], tmp_path: Path
) -> None:
    whole, _ = uninterrupted["mean"]
    train(tmp_path, stream, stop_after=stop_after)
    again, _ = train(tmp_path, stream)
    assert all(torch.equal(again[name], whole[name]) for name in whole)


def test_the_checkpoint_at_the_end_holds_the_mean(stream: SequenceStream, tmp_path: Path) -> None:
    """It is what the run releases, and what the next phase goes on from."""
    mean, _ = train(tmp_path, stream)
    stored = torch.load(checkpoint_of(tmp_path), weights_only=True)["model"]
    assert all(torch.equal(stored[name], value) for name, value in mean.items())


def test_the_mean_is_not_drawn_to_the_start() -> None:
    """A plain exponential mean that begins with the start's weights, or with zeros, would be."""
    layer = torch.nn.Linear(2, 2)
    average = IterateAverage(layer, 0.99)
    with torch.no_grad():
        layer.weight.fill_(3.0)
    average.add(1)
    assert torch.equal(average.mean[0], torch.full((2, 2), 3.0))


KEPT = dataclasses.replace(PHASE, optimizer=dataclasses.replace(PHASE.optimizer, keep=0.3))
BOTH = dataclasses.replace(KEPT, optimizer=dataclasses.replace(KEPT.optimizer, average=DECAY))


def between(start: Weights, end: Weights, part: float) -> Weights:
    return {name: (1 - part) * start[name] + part * end[name] for name in end}


@pytest.mark.slow
@pytest.mark.parametrize("stop_after", [None, *range(STEPS)])
def test_a_phase_ends_with_a_part_of_its_way_however_often_it_is_stopped(
    stop_after: int | None,
    stream: SequenceStream,
    uninterrupted: dict[str, tuple[Weights, list[Weights]]],
    tmp_path: Path,
) -> None:
    """The start is that of the phase, and not of what a stopped run goes on from."""
    for name in ("kept", "both"):
        (tmp_path / name).mkdir()
    begun = {name: value.detach().clone() for name, value in dropping_bert().named_parameters()}
    last, iterates = uninterrupted["last"]
    ends = {}
    for name, phase in (("kept", KEPT), ("both", BOTH)):
        if stop_after is not None:
            train(tmp_path / name, stream, phase, stop_after)
        ends[name], _ = train(tmp_path / name, stream, phase)
    assert close(ends["kept"], between(begun, last, 0.3))
    assert close(ends["both"], between(begun, written_out(iterates), 0.3))  # the mean first
    for wrong in (last, between(begun, last, 0.4), between(iterates[0], last, 0.3)):
        assert not close(ends["kept"], wrong)
    stored = torch.load(checkpoint_of(tmp_path / "kept"), weights_only=True)["model"]
    assert all(torch.equal(stored[name], value) for name, value in ends["kept"].items())


def test_plain_phases_may_have_one_too(stream: SequenceStream, tmp_path: Path) -> None:
    phase = dataclasses.replace(AVERAGED, stream="public", plan=PlainPlan(4))
    mean, iterates = train(tmp_path, stream, phase)
    assert not close(mean, iterates[0])
