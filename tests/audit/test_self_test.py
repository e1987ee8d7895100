"""The self-test: each break is one, each audit finds its own, and neither the correct engine nor a break that is none is accused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from tests.cli.calling import assert_one_line, caller
from torch.nn import functional as F

from tacit.audit.bounds.verdict import Verdict
from tacit.audit.self_test.breaks.fixed_batches import FixedBatches
from tacit.audit.self_test.breaks.no_clipping import NoClipping
from tacit.audit.self_test.breaks.no_cross_term import NO_CROSS_TERM, NoCrossTerm
from tacit.audit.self_test.breaks.noise_by_micro_batch import NOISE_BY_MICRO_BATCH, NoiseByMicroBatch
from tacit.audit.self_test.breaks.registry import BREAKS
from tacit.audit.self_test.games import Solo
from tacit.audit.self_test.model import GRADIENT_NORM, WordTable, canary_row, derivatives, stream_of, word_table
from tacit.audit.self_test.run import SelfTest, WithoutNoise, try_break
from tacit.audit.self_test.simulated import Calibration
from tacit.audit.self_test.training import noisy_sums
from tacit.randomness import KeyedRandomness, key_of
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan

torch.set_num_threads(1)

STREAMS = KeyedRandomness(key_of("tests of the self-test"))
C = GRADIENT_NORM / 4
WORDS = 128


def one_sum(
    made_by: type[DpStep], members: list[int], noise: float = 0.5, q: float = 1.0, step: int = 0
) -> torch.Tensor:
    """The noisy sum of the last of ``step + 1`` steps."""
    stream = stream_of([canary_row(word) for word in members], members, 3)
    model = word_table(WORDS, STREAMS)
    return list(noisy_sums(made_by, model, stream, DpPlan(q, C, noise, 1.0), step + 1, STREAMS))[-1]


def moved(made_by: type[DpStep]) -> float:
    """How far one canary more moves the sum of two others, in clip norms; under the same noise."""
    return float((one_sum(made_by, [3, 8, 20]) - one_sum(made_by, [3, 8])).norm()) / C


def test_one_canary_moves_the_sum_by_a_clip_norm_and_by_more_without_clipping_or_the_cross_term() -> None:
    assert moved(DpStep) == pytest.approx(1, abs=1e-3)
    assert moved(NoClipping) == pytest.approx(GRADIENT_NORM / C, rel=0.1)
    assert moved(NoCrossTerm) == pytest.approx(np.sqrt(2), rel=0.02)


def test_the_attackers_derivative_is_the_product_with_the_gradient() -> None:
    model, direction_VD = word_table(WORDS, STREAMS), torch.randn((WORDS, 16), generator=torch.manual_seed(0))
    table_VD = model.table.weight.detach().requires_grad_()
    for word, found in zip((5, 77), derivatives(model, np.array([5, 77]), direction_VD), strict=True):
        loss = F.cross_entropy((table_VD[word] @ table_VD.T)[None], torch.tensor([word]))
        (gradient_VD,) = torch.autograd.grad(loss, table_VD)
        assert found == pytest.approx(float((gradient_VD * direction_VD).sum()), abs=1e-5)
        assert float(gradient_VD.norm()) == pytest.approx(GRADIENT_NORM, rel=0.1)


def test_noise_by_micro_batch_leaves_an_empty_draw_as_it_is() -> None:
    assert not one_sum(NoiseByMicroBatch, []).any()
    assert one_sum(DpStep, []).any()
    assert not one_sum(WithoutNoise, []).any()


def test_fixed_batches_have_each_unit_once_an_epoch() -> None:
    turns = [
        bool(one_sum(FixedBatches, [65], noise=1e-9, q=1 / 64, step=step)[65].norm() > C / 2) for step in (0, 1, 2)
    ]
    assert turns == [False, True, False]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_and_a_break_that_is_none_is_not_found() -> None:
    found = try_break("no-cross-term", NO_CROSS_TERM, 1, STREAMS)
    assert found.is_right
    assert found == try_break("no-cross-term", NO_CROSS_TERM, 1, STREAMS)
    none = try_break("no-cross-term", dataclasses.replace(NO_CROSS_TERM, made_by=DpStep), 1, STREAMS)
    assert (none.verdict, none.is_right) == (Verdict.NOT_CONTRADICTED, False)


def test_trainings_on_one_corpus_begin_alike_and_draw_anew() -> None:
    """Known wrong: weights that go on from the training before, and noise that is drawn again."""

    def norms(model: WordTable, sums: Iterator[torch.Tensor]) -> float:
        return float(sum(sum_VD.norm() for sum_VD in sums))

    def scores(made_by: type[DpStep]) -> dict[bool, list[float]]:
        plan = DpPlan(1.0, C, 0.5, 1.0)
        played = Solo(plan, steps=2, trainings=12, score=norms, others=1).play(made_by, 12, STREAMS, lambda: None)
        return {is_in: played.scores_m[played.included_m == is_in].tolist() for is_in in (False, True)}

    exact, noisy = scores(WithoutNoise), scores(DpStep)
    assert [len(set(own)) for own in exact.values()] == [1, 1]
    assert exact[False][0] < exact[True][0]
    assert len(exact[False]) + len(exact[True]) == len({one for own in noisy.values() for one in own}) == 12
    assert noisy == scores(DpStep)


def test_without_power_nothing_is_found_and_what_is_wrong_is_said() -> None:
    blind = dataclasses.replace(
        NOISE_BY_MICRO_BATCH.game, score=lambda model, sums: 0.0 * len(list(sums)), trainings=24
    )
    found = try_break("blind", dataclasses.replace(NOISE_BY_MICRO_BATCH, game=blind), 1, STREAMS)
    assert found.verdict == Verdict.UNDECIDED
    accused = Calibration("a mechanism", "one-run", audits=100, accused=40)
    assert SelfTest((found,), (accused,)).failures == [
        "noise once a micro-batch, none on empty draws: undecided: no power; the correct engine: undecided: no power",
        "one-run on a mechanism: 40 of 100 audits accuse it",
    ]
    shows_little = Calibration("a mechanism", "one-run", audits=100, accused=5, shown=0.5, least=1.0)
    assert not shows_little.is_right
    assert dataclasses.replace(shows_little, shown=1.1).is_right


@pytest.mark.slow
def test_the_command_finds_every_break_and_accuses_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    done = caller(monkeypatch, capfd)("audit", "--self-test", "--size", "small", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["failures"] == []
    assert [row["name"] for row in found["tried"]] == list(BREAKS)
    for row in found["tried"]:
        assert row["verdict"] == Verdict.VIOLATED
        assert row["verdict_on_correct"] == Verdict.NOT_CONTRADICTED
        assert row["correct"] <= row["claimed"] < row["broken"] <= row["capacity"]
    assert len(found["calibrations"]) == 5


def test_the_self_test_reads_no_run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    tacit = caller(monkeypatch, capfd)
    assert_one_line(tacit("audit", "runs/any", "--self-test"), 2, "--self-test audits no run")
    assert_one_line(tacit("audit", "--self-test", "--size", "huge"), 2, "'huge'", "small, standard, large")
    assert_one_line(tacit("audit"), 2, "which run?")
