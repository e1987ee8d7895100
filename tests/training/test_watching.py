"""Watched units: their products are gradients times updates, they change nothing, go on after a stop, and have the law of theory."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tacit.audit.bounds.evidence import Scores
from tacit.audit.bounds.gaussian import GaussianDp
from tacit.audit.bounds.one_run import OneRun
from tacit.audit.bounds.tradeoff import gaussian_epsilon
from tacit.audit.bounds.verdict import Claim, Verdict, judge
from tacit.audit.self_test.model import GRADIENT_NORM, NextWord, canary_row, stream_of, word_table
from tacit.audit.self_test.simulated import gaussian_audits
from tacit.config import ComputeOptions
from tacit.errors import DataError
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.events import Spend
from tacit.privacy.ledger import Ledger
from tacit.randomness import KeyedRandomness
from tacit.training import dp_step, loop
from tacit.training.checkpoint import watched_products
from tacit.training.dp_step import DpStep
from tacit.training.loop import run_phase
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan, NoiselessPlan, PlainPlan
from tacit.training.sequences import SequenceStream
from tacit.training.sums import sums_digest
from tacit.training.unit_rows import Source
from tacit.training.watching import Watched

from .phases import HEADER, KEY, Weights, dropping_bert, same
from .streams import OBJECTIVE, random_units
from .streams import stream_of as rows_of
from .test_loop import phase_of

STREAMS = KeyedRandomness(KEY)
STEPS = 3
COMPUTE = ComputeOptions(micro_batch=4, threads=1)
PLAN = DpPlan(sampling_probability=0.7, clip_norm=0.4, noise_multiplier=0.5, normaliser=5.0, sequences_per_unit=2)


@pytest.fixture(scope="module")
def stream() -> SequenceStream:
    return rows_of(random_units(8))


def trained(
    folder: Path,
    stream: SequenceStream,
    plan: DpPlan = PLAN,
    watched: Watched | None = None,
    dropout: float = 0.0,
    micro_batch: int = 4,
) -> Weights:
    """The weights after a phase, from its checkpoint if it has one."""
    model = dropping_bert(dropout)
    path = folder / "ledger.sqlite"
    with Ledger.open(path) if path.exists() else Ledger.create(path, HEADER) as ledger:
        ledger.plan("private", plan.event, STEPS)
        run_phase(
            model,
            phase_of(plan, STEPS),
            stream,
            OBJECTIVE,
            ledger,
            STREAMS,
            ComputeOptions(micro_batch=micro_batch, threads=1, checkpoint_seconds=0.0),
            folder / "private.pt",
            watched=watched,
        )
    return {name: parameter.detach().clone() for name, parameter in model.named_parameters()}


def found(folder: Path) -> np.ndarray:
    return watched_products(folder / "private.pt")


@contextlib.contextmanager
def updates() -> Iterator[list[tuple[Weights, Weights]]]:
    """At every optimizer step the weights before it, and the gradients, by number."""
    seen: list[tuple[Weights, Weights]] = []

    def note(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        own = optimizer.param_groups[0]["params"]
        seen.append(
            (
                {str(place): p.detach().clone() for place, p in enumerate(own)},
                {str(place): p.grad.clone() for place, p in enumerate(own)},
            )
        )

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield seen
    finally:
        handle.remove()


def engine_gradients(units: list[int], step: int, weights: Weights, plan: DpPlan, source: Source) -> list[torch.Tensor]:
    """By the engine: what it adds to the sum for each of these units alone, as one vector."""
    model = dropping_bert(0.0)
    for parameter, value in zip(model.parameters(), weights.values(), strict=True):
        parameter.data.copy_(value)
    model.train()
    found = []
    with contextlib.closing(DpStep(model, plan, COMPUTE, source)) as step_of:
        for unit in units:
            model.zero_grad(set_to_none=True)
            step_of.add(np.array([unit]), np.array([0]), step)
            grads = [torch.zeros_like(p) if p.grad is None else p.grad for p in model.parameters()]
            found.append(torch.cat([grad.flatten() for grad in grads]))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("clipping", ["flat", "automatic"])
def test_products_are_clipped_gradients_times_updates(stream: SequenceStream, tmp_path: Path, clipping: str) -> None:
    """Against the engine's own gradients at each step's weights, with the masks of training; less what lies along their mean."""
    plan = NoiselessPlan.of(dataclasses.replace(PLAN, clipping=clipping))
    phase, model = phase_of(plan, STEPS), dropping_bert(0.0)
    made_from = sums_digest(model, loop._optimizer(model, phase), phase, stream, OBJECTIVE, COMPUTE, STREAMS)
    source = Source(stream, OBJECTIVE, STREAMS.child("sums", made_from))
    watched = Watched(stream, plan)
    with updates() as seen:
        run_phase(model, phase, stream, OBJECTIVE, None, STREAMS, COMPUTE, tmp_path / "private.pt", watched=watched)
    everyone, expected, with_mean = list(range(stream.units)), np.zeros(stream.units), np.zeros(stream.units)
    for step, (weights, gradients) in enumerate(seen):
        update = (
            torch.cat([gradient.flatten() for gradient in gradients.values()]) * plan.normaliser / plan.clip_norm**2
        )
        own = engine_gradients(everyone, step, weights, plan, source)
        mean = torch.stack(own).sum(dim=0)
        apart = update - (update @ mean) / (mean @ mean) * mean
        expected += [float(one @ apart) for one in own]
        with_mean += [float(one @ update) for one in own]
    assert len(seen) == STEPS
    np.testing.assert_allclose(found(tmp_path), expected, rtol=1e-4, atol=1e-5)
    assert (
        np.count_nonzero(found(tmp_path)) == np.count_nonzero(expected) == stream.units - 2
    )  # one has no row, and one nothing that may be masked
    assert np.abs(with_mean - expected).max() > 0.1


def test_what_others_add_is_taken_out(stream: SequenceStream, tmp_path: Path) -> None:
    """Half of the units are watched: of the sum only they, and the noise, are left."""
    plan = NoiselessPlan.of(PLAN)
    phase, model = phase_of(plan, 1), dropping_bert(0.0)
    made_from = sums_digest(model, loop._optimizer(model, phase), phase, stream, OBJECTIVE, COMPUTE, STREAMS)
    source = Source(stream, OBJECTIVE, STREAMS.child("sums", made_from))
    some = {name: rows for place, (name, rows) in enumerate(random_units(8).items()) if place % 2}
    numbers = [stream.keys_U.index(name) for name in some]
    with updates() as seen:
        run_phase(
            model,
            phase,
            stream,
            OBJECTIVE,
            None,
            STREAMS,
            COMPUTE,
            tmp_path / "private.pt",
            watched=Watched(rows_of(some), plan),
        )
    drawn = set(plan.batch(stream.units, source.streams, 0).tolist())
    assert drawn - set(numbers)
    assert drawn & set(numbers)
    weights = seen[0][0]
    own = engine_gradients(numbers, 0, weights, plan, source)
    left = sum(gradient for unit, gradient in zip(numbers, own, strict=True) if unit in drawn)
    mean = torch.stack(own).sum(dim=0)
    apart = left - (left @ mean) / (mean @ mean) * mean
    expected = [float(one @ apart) / plan.clip_norm**2 for one in own]
    np.testing.assert_allclose(found(tmp_path), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_watching_changes_no_weight_and_no_draw(stream: SequenceStream, tmp_path: Path, dropout: float) -> None:
    others = rows_of(random_units(5, seed=9))
    weights = []
    for name, watched in (("without", None), ("with", Watched(others, PLAN))):
        (tmp_path / name).mkdir()
        torch.manual_seed(1)
        weights.append(trained(tmp_path / name, stream, PLAN, watched, dropout))
        weights[-1]["torch's own generator"] = torch.rand(3, dtype=torch.float64)
    assert same(*weights)
    assert found(tmp_path / "with").shape == (others.units,)
    with pytest.raises(DataError, match="no unit was watched"):
        found(tmp_path / "without")


@pytest.mark.slow
def test_a_phase_that_was_stopped_inside_a_step_notes_the_same(
    stream: SequenceStream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    whole.mkdir()
    cut.mkdir()
    watched = Watched(stream, PLAN)
    weights = trained(whole, stream, PLAN, watched, micro_batch=2)

    def stop(*given: object) -> None:
        raise KeyboardInterrupt

    for step in range(STEPS):  # before the noise of each step, when its sum is in a checkpoint
        noise = dp_step.add_noise_
        at = {"step": -1}

        def until(parameters, stddev, streams, number, *rest, noise=noise, at=at, step=step):
            at["step"] = number
            (stop if number == step else noise)(parameters, stddev, streams, number, *rest)

        monkeypatch.setattr(dp_step, "add_noise_", until)
        with pytest.raises(KeyboardInterrupt):
            trained(cut, stream, PLAN, watched, micro_batch=2)
        monkeypatch.setattr(dp_step, "add_noise_", noise)
        assert at["step"] == step
    assert same(trained(cut, stream, PLAN, watched, micro_batch=2), weights)
    assert np.array_equal(found(cut), found(whole))


# the law -------------------------------------------------------------------------------------------------------------

M = 512
MU = 2.0
T = 2
DELTA = 1e-5


class QuarterPlan(DpPlan):
    """Known wrong: it says one noise, and its steps add a quarter of it."""

    step = "tacit.audit.self_test.breaks.quarter_of_the_noise:QuarterOfTheNoise"


def evidence(folder: Path, plan: DpPlan | PlainPlan, planned: DpPlan, name: str = "") -> Scores:
    """Of words in a table: canary i is word i again and again, and in the text as its coin says."""
    streams = STREAMS.child("canaries", name)
    included_m = streams.generator("coins").random(M) < 0.5
    members, everyone = np.flatnonzero(included_m).tolist(), list(range(M))
    path = folder / f"{name or 'canaries'}.pt"
    phase = Phase("private", "private", plan, T, AdamOptions(1e-3))
    with Ledger.create(folder / f"{name}.sqlite", HEADER) as ledger:
        if plan.needs_ledger:
            ledger.plan("private", planned.event, T)
        run_phase(
            word_table(M, streams),
            phase,
            stream_of([canary_row(word) for word in members], members, 3),
            NextWord(),
            ledger if plan.needs_ledger else None,
            streams,
            ComputeOptions(micro_batch=64, threads=1, checkpoint_seconds=1e9),
            path,
            watched=Watched(stream_of([canary_row(word) for word in everyone], everyone, 3), planned),
        )
    return Scores(watched_products(path), included_m, streams.generator("order").permutation(M))


def planned(mu: float) -> DpPlan:
    """Every unit is in every step: T Gaussian mechanisms, together of this mu."""
    return DpPlan(1.0, GRADIENT_NORM / 4, math.sqrt(T) / mu, normaliser=M / 2)


def separation(scores: Scores) -> float:
    """Difference of the means of those in and out, over the standard deviation within each."""
    inside, outside = scores.scores_m[scores.included_m], scores.scores_m[~scores.included_m]
    return float((inside.mean() - outside.mean()) / np.sqrt((inside.var() + outside.var()) / 2))


@pytest.mark.slow
def test_at_full_batch_the_products_have_the_law_of_a_gaussian_mechanism(tmp_path: Path) -> None:
    """N(mu^2, mu^2) against N(0, mu^2) with mu = sqrt(T) / s, up to the words' small shares in each other's gradients."""
    plan = planned(MU)
    scores = evidence(tmp_path, plan, plan)
    inside, outside = scores.scores_m[scores.included_m], scores.scores_m[~scores.included_m]
    assert inside.mean() - outside.mean() == pytest.approx(MU**2, abs=5 * MU * 2 / math.sqrt(M))
    assert inside.std() == pytest.approx(MU, rel=0.2)
    assert separation(scores) == pytest.approx(MU, abs=5 * 2.5 / math.sqrt(M))
    truth = epsilon([Spend(plan.event, T)], DELTA)
    assert truth == pytest.approx(gaussian_epsilon(MU, DELTA), rel=0.01)
    for bound in (GaussianDp(), OneRun()):  # against audits of the very mechanism, with as many examples
        ideal = [bound.lower_bound(one, DELTA).epsilon for one in gaussian_audits(30, M, MU, seed=1)]
        assert 0 < np.mean(ideal) - 4 * np.std(ideal) < bound.lower_bound(scores, DELTA).epsilon <= truth


@pytest.mark.slow
def test_a_quarter_of_the_noise_is_contradicted_and_the_right_noise_is_not(tmp_path: Path) -> None:
    plan = planned(0.5)
    claim = Claim(epsilon([Spend(plan.event, T)], DELTA), DELTA, "add-or-remove")
    wrong = QuarterPlan(**{field.name: getattr(plan, field.name) for field in dataclasses.fields(DpPlan)})
    verdicts = [
        judge(OneRun().lower_bound(evidence(tmp_path, one, plan, name), DELTA), claim, powerful=True)
        for name, one in (("right", plan), ("wrong", wrong))
    ]
    assert verdicts == [Verdict.NOT_CONTRADICTED, Verdict.VIOLATED]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["noiseless", "plain"])
def test_both_controls_show_power(tmp_path: Path, name: str) -> None:
    plan = planned(0.5)
    control = NoiselessPlan.of(plan) if name == "noiseless" else PlainPlan(M // 2)
    scores = evidence(tmp_path, control, plan, name)
    assert OneRun().lower_bound(scores, DELTA).epsilon > 3
    assert separation(scores) > 4
