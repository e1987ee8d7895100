"""Correlated noise: its law in two ways, what a unit can add to it, and what a whole run pays for it.

Oracles: a dense matrix in float64; the privacy loss of every released number of a simulated mechanism; DP-SGD's own account.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tacit.config import parse_config
from tacit.engine.correlated import CorrelatedNoise
from tacit.engine.distributed import Ranks
from tacit.engine.noise import Grid, add_noise_
from tacit.errors import UsageError
from tacit.pipeline.stages import run
from tacit.planning import make_plan
from tacit.privacy.accounting.accountant import epsilon, joint_epsilon
from tacit.privacy.events import CorrelatedPoissonGaussian, PoissonGaussian, Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.strict_json import read_number, read_strict
from tacit.randomness import KeyedRandomness
from tacit.release.verification import verify_run
from tacit.runs.folder import RunFolder
from tacit.training import correlated
from tacit.training.correlation import banded_column, noise_in_mean
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import CorrelatedPlan, NoiselessPlan
from tacit.training.sequences import SequenceStream

from ..processes import in_processes
from ..small import small_values, write_corpora
from .phases import KEY, Weights, checkpoint_of, same, train
from .streams import random_units, stream_of

STREAMS = KeyedRandomness(bytes(range(32)))
STEPS, BANDS = 11, 4
PLAN = CorrelatedPlan(
    sampling_probability=0.9, clip_norm=0.4, noise_multiplier=0.5, normaliser=5.0, sequences_per_unit=2, noise_bands=3
)
PHASE = Phase("private", "private", PLAN, 5, AdamOptions(1e-2))


def matrix(column: np.ndarray, steps: int) -> np.ndarray:
    """C, lower triangular (steps, steps)."""
    return sum(
        (np.diag(np.full(steps - band, entry), -band) for band, entry in enumerate(column[:steps])),
        np.zeros((steps, steps)),
    )


FINE = Grid(2.0**-40)


class Numbers(nn.Module):
    """Two parameters, which are asked nothing."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.one = nn.Parameter(torch.zeros(size, dtype=torch.float64))
        self.other = nn.Parameter(torch.zeros(2, 3, dtype=torch.float64))


def independent(size: int, steps: int, stddev: float) -> np.ndarray:
    """The noise of each step before the matrix correlates it (steps, size + 6)."""
    rows = []
    for step in range(steps):
        model = Numbers(size)
        add_noise_(model.named_parameters(), stddev, STREAMS, step, None)
        drawn = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        assert len(drawn) == 2
        rows.append(np.concatenate([noise.numpy().ravel() for noise in drawn]))
    return np.stack(rows)


def released(noises: CorrelatedNoise, model: Numbers, sums: np.ndarray, stddev: float, step: int) -> np.ndarray:
    """A step's noisy sum, of a sum over the first parameter."""
    model.one.grad, model.other.grad = torch.from_numpy(sums.copy()), torch.zeros(2, 3, dtype=torch.float64)
    noises.add_(stddev, STREAMS, step, FINE)
    return torch.cat([model.one.grad.ravel(), model.other.grad.ravel()]).numpy().copy()


# the law of the noise ------------------------------------------------------------------------------------------------


def test_the_noise_is_that_of_the_dense_matrix() -> None:
    """C^-1 Z, solved at once; and its covariance is not that of independent noise."""
    model, column = Numbers(7), banded_column(BANDS)
    noises = CorrelatedNoise(dict(model.named_parameters()), column.tolist())
    found = np.stack([released(noises, model, np.zeros(7), 0.7, step) for step in range(STEPS)])
    expected = np.linalg.solve(matrix(column, STEPS), independent(7, STEPS, 0.7))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert not np.allclose(found, independent(7, STEPS, 0.7))


def test_on_a_grid_what_is_released_is_a_function_of_the_rounded_sums_behind_the_matrix() -> None:
    """Not of the sums: step by step the nearest multiple of (C X + Z - what the last outputs take back) / c_0, Z not rounded."""
    model, column, grid = Numbers(50), banded_column(BANDS), Grid(0.25)
    noises, sums = CorrelatedNoise(dict(model.named_parameters()), column.tolist()), np.zeros((STEPS, 56))
    sums[:, :50] = np.random.default_rng(1).normal(size=(STEPS, 50))
    rounded = np.rint(sums / 0.25) * 0.25
    behind, outputs = matrix(column, STEPS) @ rounded + independent(50, STEPS, 0.7), np.zeros((STEPS, 56))
    for step in range(STEPS):
        for band in range(1, min(BANDS, step + 1)):
            behind[step] -= column[band] * outputs[step - band]
        outputs[step] = np.rint(behind[step] / column[0] / 0.25) * 0.25
        model.one.grad, model.other.grad = (
            torch.from_numpy(sums[step, :50].copy()),
            torch.zeros(2, 3, dtype=torch.float64),
        )
        noises.add_(0.7, STREAMS, step, grid)
        assert model.one.grad is not None
        np.testing.assert_array_equal(model.one.grad.numpy(), outputs[step, :50])
    assert len(noises.remembered()) == BANDS - 1


def test_what_a_sum_could_not_hold_is_added_behind_the_noise() -> None:
    model = Numbers(2)
    noises = CorrelatedNoise(dict(model.named_parameters()), banded_column(2).tolist())
    model.one.grad, model.other.grad = torch.zeros(2, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    noises.add_(0.0, STREAMS, 0, FINE, {model.one: torch.tensor([1.0, -2.0], dtype=torch.float64)})
    assert model.one.grad is not None
    assert model.one.grad.tolist() == [1.0, -2.0]


def test_the_column_has_norm_one_and_the_entries_of_the_square_root() -> None:
    """C squared is the matrix of prefix sums, as far as its bands reach."""
    entries = banded_column(9) / banded_column(9)[0]
    np.testing.assert_allclose(np.convolve(entries, entries)[:9], np.ones(9))
    for bands in (1, 2, 5, 64):
        assert np.linalg.norm(banded_column(bands)) == pytest.approx(1.0, abs=1e-15)


@pytest.mark.parametrize("bands", [1, 2, 4, 8])
def test_the_noise_in_a_sum_of_steps_is_that_of_the_dense_matrix(bands: int) -> None:
    column = banded_column(bands)
    row = np.ones(40) @ np.linalg.inv(matrix(column, 40))
    assert noise_in_mean(column, 40) == pytest.approx(np.linalg.norm(row) / math.sqrt(40))
    assert (noise_in_mean(column, 40) < 1) == (bands > 1)


# what a unit can add -------------------------------------------------------------------------------------------------


def test_what_a_unit_adds_to_one_cycle_meets_no_other_cycle() -> None:
    """Steps of one group: their columns of C share no row, and have norm at most 1."""
    dense = matrix(banded_column(BANDS), STEPS)
    for group in range(BANDS):
        columns = dense[:, group::BANDS]
        assert ((columns != 0).sum(axis=1) <= 1).all()
        assert (np.linalg.norm(columns, axis=0) <= 1 + 1e-12).all()
    next_to_each_other = dense[:, 0:2]  # known wrong: a unit that may be in any step
    assert np.linalg.norm(next_to_each_other.sum(axis=1)) > math.sqrt(2) + 0.2


def test_a_unit_is_drawn_in_its_own_turn_alone() -> None:
    drawn = [PLAN.batch(3000, STREAMS, step) for step in range(9)]
    for step, units in enumerate(drawn):
        for later in range(step + 1, 9):
            assert bool(np.intersect1d(units, drawn[later]).size) == ((later - step) % 3 == 0)
    shares = [len(units) / 3000 for units in drawn]
    assert np.mean(shares) == pytest.approx(0.3, abs=0.02)
    assert np.array_equal(drawn[4], PLAN.batch(3000, STREAMS, 4))


def losses(
    column: np.ndarray, every_step: bool, present: bool, stddev: float = 1.2, probability: float = 0.4
) -> np.ndarray:
    """The privacy loss of 200,000 trainings of one number, in which a unit of group 1 adds 1 or -1, by what was released last.

    Args:
        column: of C, by which the noise is made; the loss is that of the numbers released, whatever C.
        every_step: known wrong: it is sampled in every step, and not in its turn alone.
        present: whether the unit is there.
    """
    size, steps, bands = 200_000, 7, 3  # both cycles of group 1 are whole
    model, generator = Numbers(size), np.random.default_rng(5)
    noises = CorrelatedNoise(dict(model.named_parameters()), column.tolist())
    dense, last = matrix(column, steps), np.zeros(size)
    outputs, added = [], []
    for step in range(steps):
        may_be_in = every_step or step % bands == 1
        gradient = np.where(last >= 0, 1.0, -1.0) if may_be_in else np.zeros(size)
        taken = generator.random(size) < probability
        sums = gradient * taken if present else np.zeros(size)
        last = released(noises, model, sums, stddev, step)[:size]
        outputs.append(last)
        added.append(gradient)
    rows, gradients = dense @ np.stack(outputs), np.stack(added)
    # each choice of the steps in which it is sampled is a shift of the rows; without it they are noise alone
    ways = [step for step in range(steps) if every_step or step % bands == 1]
    total = np.zeros(size)
    for chosen in range(2 ** len(ways)):
        taken_in = np.array([0.0] * steps)
        taken_in[[step for place, step in enumerate(ways) if chosen >> place & 1]] = 1
        shift = dense @ (gradients * taken_in[:, None])
        weight = probability ** taken_in.sum() * (1 - probability) ** (len(ways) - taken_in.sum())
        total += weight * np.exp(((rows * shift).sum(axis=0) - (shift**2).sum(axis=0) / 2) / stddev**2)
    return np.log(total) if present else -np.log(total)


def delta_of(loss: np.ndarray, at: float) -> float:
    return float(np.maximum(0.0, -np.expm1(at - loss)).mean())


@pytest.mark.slow
def test_the_loss_of_all_that_is_released_is_that_of_the_event() -> None:
    """By the likelihoods of the released numbers themselves, with a unit whose gradient follows them."""
    spends = [Spend(CorrelatedPoissonGaussian(0.4, 1.2, 3), 2)]
    found = {}
    for delta in (0.1, 0.02):
        at = epsilon(spends, delta)
        found[delta] = [delta_of(losses(banded_column(3), False, present), at) for present in (True, False)]
        assert max(found[delta]) == pytest.approx(delta, rel=0.05)
    at = epsilon(spends, 0.02)
    wrong = banded_column(3) / banded_column(3)[0]  # known wrong: columns of a norm above 1
    assert max(delta_of(losses(wrong, False, present), at) for present in (True, False)) > 1.3 * 0.02
    assert max(delta_of(losses(banded_column(3), True, present), at) for present in (True, False)) > 2 * 0.02


def test_a_cycle_costs_a_step_of_dp_sgd() -> None:
    for relation in ("add-or-remove", "replace"):
        cycles = epsilon([Spend(CorrelatedPoissonGaussian(0.2, 1.5, 4), 25)], 1e-5, relation)
        assert cycles == epsilon([Spend(PoissonGaussian(0.2, 1.5), 25)], 1e-5, relation)


# steps, and a run that is stopped --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stream() -> SequenceStream:
    return stream_of(random_units(8))


class Stopped(Exception):
    """In the middle."""


def stopped_after(steps: int, folder: Path, stream: SequenceStream) -> Weights:
    """Stop behind so many steps, and run again to the end."""
    folder.mkdir()

    def stop(done: int) -> None:
        if done == steps:
            raise Stopped

    with pytest.raises(Stopped):
        train(folder, stream, phase=PHASE, on_step=stop)
    return train(folder, stream, phase=PHASE)


@pytest.mark.slow
def test_a_phase_that_was_stopped_goes_on_with_the_noise_that_it_had_made(
    stream: SequenceStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = train(tmp_path, stream, phase=PHASE)
    with Ledger.open(tmp_path / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.spent("private") == 2 == ledger.plans["private"].limit  # of 5 steps 3 and 2
    for steps in (2, 3, 4):
        assert same(stopped_after(steps, tmp_path / str(steps), stream), whole)
    monkeypatch.setattr(correlated.CorrelatedStep, "remember", lambda self, noise: None)  # known wrong
    assert not same(stopped_after(3, tmp_path / "wrong", stream), whole)


def test_a_checkpoint_inside_a_step_has_the_noise_of_the_steps_before(stream: SequenceStream, tmp_path: Path) -> None:
    whole = train(tmp_path, stream, phase=PHASE, micro_batch=2)
    (tmp_path / "killed").mkdir()
    sums, calls = correlated.CorrelatedStep.sums, []

    def stop(self: correlated.CorrelatedStep) -> list[torch.Tensor]:
        """Behind a checkpoint inside the third step, which has the noise of two."""
        calls.append(len(self.remembered()))
        if calls.count(2) == 2:
            raise Stopped
        return sums(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(correlated.CorrelatedStep, "sums", stop)
        with pytest.raises(Stopped):
            train(tmp_path / "killed", stream, phase=PHASE, micro_batch=2)
    state = torch.load(checkpoint_of(tmp_path / "killed"), weights_only=True)
    assert state["partial"]["drawn"] > 0
    assert len(state["noise"]) == 2
    assert same(train(tmp_path / "killed", stream, phase=PHASE, micro_batch=2), whole)


def test_several_ranks_are_refused_before_anything_is_paid(stream: SequenceStream, tmp_path: Path) -> None:
    def work(ranks: Ranks) -> None:
        train(tmp_path, stream, KeyedRandomness(KEY), ranks=ranks, phase=PHASE)

    errors = [ended.error for ended in in_processes(2, work)]
    assert all("noise_bands: correlated noise is made by one process" in error for error in errors)
    with Ledger.open(tmp_path / "ledger.sqlite", readonly=True) as ledger:
        assert ledger.spent("private") == 0


def test_a_control_that_would_draw_otherwise_is_refused() -> None:
    with pytest.raises(ValueError, match="draws in a way of its own"):
        NoiselessPlan.of(PLAN)
    with pytest.raises(ValueError, match="independent noise alone"):
        PLAN.event_on("marked")
    with pytest.raises(ValueError, match="two bands"):
        CorrelatedPlan(0.1, 1.0, 1.0, 1.0, noise_bands=1)


# whole runs -------------------------------------------------------------------------------------------------------------


def values_of(folder: Path, **options: Any) -> dict[str, Any]:
    values = small_values(folder)
    values["phases"][1] |= {"noise_bands": 5, **options}
    return values


@pytest.mark.slow
def test_a_run_pays_for_cycles_and_is_verified(tmp_path: Path) -> None:
    """12 steps are three cycles of five: two whole ones, and one that ends early and costs as much."""
    write_corpora(tmp_path)
    values = values_of(tmp_path)
    del values["phases"][1]["noise_multiplier"]
    del values["audit"]
    config = parse_config(values)
    run(config)
    folder = RunFolder(config.resolved_run)
    assert all(check.holds for check in verify_run(folder))
    with Ledger.open(folder.ledger, readonly=True) as ledger:
        plan = ledger.plans["private"]
        noise = plan.event.step_noise_multiplier
        assert noise is not None
        assert plan.event == CorrelatedPoissonGaussian(5 * 20 / 150, noise, 5)
        assert ledger.spent("private") == plan.limit == 3
        others = [spend for stage, spend in ledger.spends_by_stage().items() if stage != "private"]
        training = Spend(PoissonGaussian(5 * 20 / 150, noise), 3, plan.partition)
    certificate = read_strict(folder.certificate, 1 << 20)
    stated = read_number(certificate["epsilons"][0]["epsilon"])
    assert joint_epsilon([*others, training], 1e-4) == pytest.approx(stated, rel=1e-9)
    assert stated <= 9.0
    planned = next(stage for stage in make_plan(config).stages if stage.name == "private")
    assert (planned.steps, planned.epsilon_alone) == (12, epsilon([training], 1e-4))
    report = read_strict(folder.release / "report.json", 1 << 22)
    assert "noise correlated over 5 steps" in str(report)


@pytest.mark.parametrize(
    ("options", "sections", "said"),
    [
        ({"noise_bands": 8}, {}, "8 times expected_batch 20 exceeds privacy.units 150"),
        ({}, {"compute": {"shard": True}}, "not with compute.shard"),
        ({}, {"audit": {"canaries": 3, "control": "without-noise"}}, "not with audit.control: without-noise"),
        ({}, {"audit": {"canaries": 3, "coins": {"examples": 20}, "white_box": True}}, "not with audit.white_box"),
    ],
)
def test_what_nobody_has_shown_is_refused(
    options: dict[str, Any], sections: dict[str, Any], said: str, tmp_path: Path
) -> None:
    write_corpora(tmp_path)
    with pytest.raises(UsageError, match=rf"phases: private: noise_bands: .*{said}"):
        parse_config({**values_of(tmp_path, **options), **sections})
