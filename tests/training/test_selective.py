"""The two phases of selective DP: which tokens count, the noise of the states, how often a record takes part, and the clip."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import special, stats

from tacit.config import ComputeOptions, ModelOptions
from tacit.errors import RefusedError, UsageError
from tacit.models.lstm import LstmForCausalLM
from tacit.privacy.events import Gaussian, NonPrivate
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.privacy.selective import participations
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.loop import run_phase
from tacit.training.marked import split_marks
from tacit.training.objectives import Targets
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plain_step import PlainStep
from tacit.training.plans import DpPlan, PlainPlan, SelectivePlan
from tacit.training.selective import PrivateTokens, PublicTokens, normals, numbers_of_state
from tacit.training.sequences import SequenceStream
from tacit.training.steps import Step
from tacit.training.unit_rows import Source

from ..networks import build_gpt2, build_lstm

torch.set_num_threads(1)

STREAMS = KeyedRandomness(bytes(range(32)))
FALSE_ALARM = 1e-6
LENGTH, VOCABULARY, WIDTH, SEGMENTS, CLIP, NOISE, STEP = 12, 40, 5, 2, 0.3, 0.7, 3
NUMBERS = numbers_of_state(1, WIDTH)
PUBLIC = PublicTokens(VOCABULARY, SEGMENTS, CLIP, NOISE, NUMBERS, PublicTokens.draws_for(SEGMENTS, NUMBERS, LENGTH))
PRIVATE = PrivateTokens(VOCABULARY)
PLAN = SelectivePlan(batch_size=6, slots=9, segments=SEGMENTS, state_clip=CLIP, state_noise_multiplier=NOISE)
DP_PLAN = DpPlan(sampling_probability=0.6, clip_norm=0.4, noise_multiplier=1.3, normaliser=4.0)
COMPUTE = ComputeOptions(micro_batch=4, threads=1, checkpoint_seconds=1e9)

# One record a line, without [CLS] and [SEP]: p a private token, o a public one.
RECORDS = ("ooooo", "oppoo", "poopop", "ppp", "opopopopoo", "", "oooppppooo")

Gradients = dict[str, torch.Tensor]


def lstm(layers: int = 1) -> LstmForCausalLM:
    model = build_lstm(
        ModelOptions(kind="lstm", layers=layers, width=WIDTH, length=LENGTH), VOCABULARY, 0, 2, 3, seed=4
    )
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.5 * torch.randn_like(parameter)
    return model.double().train()


def marked_stream(records: tuple[str, ...] = RECORDS) -> SequenceStream:
    """``[CLS] tokens [SEP]`` and padding, private tokens with the vocabulary's size added."""
    generator = np.random.default_rng(3)
    ids_ST = np.zeros((len(records), LENGTH), dtype=np.int32)
    for row, line in enumerate(records):
        tokens = generator.integers(5, VOCABULARY, len(line)) + VOCABULARY * np.array(
            [mark == "p" for mark in line], int
        )
        ids_ST[row, : len(line) + 2] = [2, *tokens, 3]
    lengths_S = np.array([len(line) + 2 for line in records], dtype=np.int32)
    keys = tuple(f"record {row}" for row in range(len(records)))
    return SequenceStream(ids_ST, lengths_S, np.arange(len(records) + 1), keys)


def uniforms(stream: SequenceStream) -> np.ndarray:
    return STREAMS.generator("uniforms").random((stream.sequences, PUBLIC.draws, LENGTH))


def taken(model: torch.nn.Module) -> Gradients:
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def flat(gradients: Gradients) -> torch.Tensor:
    return torch.cat([gradients[name].flatten() for name in sorted(gradients)])


# which tokens count ----------------------------------------------------------------------------------------------------


def counted_by_hand(line: str) -> tuple[list[bool], list[bool]]:
    """(public, private) targets of a record's row, [CLS] and [SEP] included, one token after the other."""
    public, private, runs, before = [False], [False], 0, "o"
    for mark in [*line, "o"]:
        runs += mark == "p" and before == "o"
        public.append(mark == "o" and runs <= SEGMENTS)
        private.append(mark == "p")
        before = mark
    rest = [False] * (LENGTH - len(public))
    return public + rest, private + rest


def test_targets_are_public_tokens_up_to_the_last_release_and_private_tokens() -> None:
    stream = marked_stream()
    public = PUBLIC.targets(stream.ids_ST, stream.lengths_S, uniforms(stream))
    private = PRIVATE.targets(stream.ids_ST, stream.lengths_S, np.zeros((stream.sequences, 0, LENGTH)))
    expected = [counted_by_hand(line) for line in RECORDS]
    assert public.real_BN.tolist() == [one for one, _ in expected]
    assert private.real_BN.tolist() == [other for _, other in expected]
    for targets in (public, private):
        assert targets.arrays[0].max() < VOCABULARY
        assert np.array_equal(targets.arrays[0], split_marks(stream.ids_ST, VOCABULARY)[0])


def test_private_tokens_change_no_target_but_their_own() -> None:
    """What counts, and with which weight, is a function of lengths and marks."""
    stream, other = marked_stream(), marked_stream()
    private = stream.ids_ST >= VOCABULARY
    other.ids_ST[private] = VOCABULARY + 5 + (stream.ids_ST[private] - VOCABULARY - 5 + 7) % (VOCABULARY - 5)
    one, two = (PUBLIC.targets(s.ids_ST, s.lengths_S, uniforms(s)) for s in (stream, other))
    assert np.array_equal(one.real_BN, two.real_BN)
    for mine, theirs in zip(one.arrays[1:], two.arrays[1:], strict=True):
        assert np.array_equal(mine, theirs)


# the noise of the states -----------------------------------------------------------------------------------------------


Normals = Callable[[np.ndarray], np.ndarray]


def our_normals(uniforms: np.ndarray) -> np.ndarray:
    return normals(torch.from_numpy((uniforms * 2**52).astype(np.int64))).numpy()


def check_normals(draw: Normals) -> None:
    drawn = draw(STREAMS.generator("normals").random(200_000))
    limit = stats.norm.isf(FALSE_ALARM / 6)
    assert np.isfinite(drawn).all()
    assert abs(np.square(drawn).sum() - drawn.size) / math.sqrt(2 * drawn.size) < limit
    assert abs(drawn.sum()) / math.sqrt(drawn.size) < limit
    assert stats.kstest(drawn, "norm").pvalue > FALSE_ALARM / 3
    edges = draw(np.array([0.0, 2.0**-53, 1 - 2.0**-53, 0.5 - 2.0**-53]))
    assert np.isfinite(edges).all()
    assert abs(edges).max() < 8.3


def test_normals_follow_the_law_and_are_finite_at_the_edges() -> None:
    check_normals(our_normals)


@pytest.mark.parametrize(
    "wrong", [lambda u: 1.02 * our_normals(u), lambda u: our_normals(u) + 0.02, special.ndtri, lambda u: 2 * u - 1]
)
def test_the_check_of_the_normals_catches(wrong: Normals) -> None:
    with np.errstate(divide="ignore"), pytest.raises(AssertionError):
        check_normals(wrong)


def looped_losses(
    model: LstmForCausalLM, stream: SequenceStream, uniforms_SnT: np.ndarray, weights_SN: np.ndarray, scale: float = 1.0
) -> torch.Tensor:
    """One row and one position after the other; the noise by scipy, ``scale`` times what it should be."""
    plain_ST, private_ST = split_marks(stream.ids_ST, VOCABULARY)
    losses = []
    for row, size in enumerate(stream.lengths_S.tolist()):
        numbers = special.ndtri((np.floor(uniforms_SnT[row].ravel() * 2.0**52) + 0.5) / 2.0**52)
        state = (torch.zeros(1, 1, WIDTH).double(), torch.zeros(1, 1, WIDTH).double())
        total, done = torch.zeros(()).double(), 0
        for place, token in enumerate(plain_ST[row, :size].tolist()):
            if weights_SN[row, place]:
                total = total - float(weights_SN[row, place]) * model.lm_head(state[0][0, 0]).log_softmax(0)[token]
            private = bool(private_ST[row, place])
            with torch.set_grad_enabled(not private):
                _, state = model.lstm(model.embedding(torch.tensor([[token]])), state)
            if private and place + 1 < size and not private_ST[row, place + 1] and done < SEGMENTS:
                vector = torch.cat([state[0].flatten(), state[1].flatten()])
                noise = torch.from_numpy(numbers[done * NUMBERS : (done + 1) * NUMBERS])
                vector = vector * min(1.0, CLIP / float(vector.norm())) + scale * CLIP * NOISE * noise
                state = (vector[:WIDTH].view(1, 1, -1), vector[WIDTH:].view(1, 1, -1))
                done += 1
        losses.append(total)
    return torch.stack(losses)


def public_losses(model: LstmForCausalLM, stream: SequenceStream) -> tuple[torch.Tensor, np.ndarray]:
    targets = PUBLIC.targets(stream.ids_ST.astype(np.int64), stream.lengths_S, uniforms(stream))
    weights_SN = targets.real_BN / np.maximum(1, targets.real_BN.sum(axis=1, keepdims=True))
    arrays = [torch.from_numpy(array.astype(np.int64)) for array in targets.arrays]
    return PUBLIC.losses(model, arrays, torch.from_numpy(weights_SN)), weights_SN


def test_losses_are_those_of_a_loop_with_noise_of_the_planned_size() -> None:
    model, stream = lstm(), marked_stream()
    found, weights_SN = public_losses(model, stream)
    found.sum().backward()
    mine = taken(model)
    model.zero_grad()
    expected = looped_losses(model, stream, uniforms(stream), weights_SN)
    expected.sum().backward()
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    theirs = taken(model)
    for name in theirs:
        torch.testing.assert_close(mine[name], theirs[name], rtol=1e-8, atol=1e-11, msg=name)


@pytest.mark.parametrize("scale", [0.0, 0.99, 1.01])
def test_the_check_of_the_losses_catches_another_noise(scale: float) -> None:
    model, stream = lstm(), marked_stream()
    found, weights_SN = public_losses(model, stream)
    wrong = looped_losses(model, stream, uniforms(stream), weights_SN, scale)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(found, wrong, rtol=1e-9, atol=1e-11)


def test_noise_is_new_for_every_row_release_and_step() -> None:
    """All cells of two steps of the plain loop are distinct."""
    stream = marked_stream(("oppoo",) * 9)
    cells: list[np.ndarray] = []
    model = lstm()
    for step in (0, 1):
        with contextlib.closing(PlainStep(model, PLAN, COMPUTE, Source(stream, PUBLIC, STREAMS))) as step_of:
            chosen = step_of.draw(step)
            targets = PUBLIC.targets(
                stream.ids_ST[chosen], stream.lengths_S[chosen], step_of._uniforms_BnT[: len(chosen)]
            )
            cells.append(targets.arrays[3].ravel())
    every = np.concatenate(cells)
    assert len(np.unique(every)) == len(every) == 2 * 6 * SEGMENTS * NUMBERS


# how often a record takes part -----------------------------------------------------------------------------------------


def most_often(plan: PlainPlan, records: int, steps: int) -> int:
    counts = Counter(int(record) for step in range(steps) for record in plan.batch(records, STREAMS, step))
    return max(counts.values(), default=0)


@pytest.mark.parametrize("slots", [1, 5, 7, 24])
@pytest.mark.parametrize("batch_size", [1, 4, 7, 10])
def test_no_record_takes_part_more_often_than_accounted(slots: int, batch_size: int) -> None:
    """For every number of steps and of records, also other numbers than was stated."""
    plan = dataclasses.replace(PLAN, slots=slots, batch_size=batch_size)
    for records in (0, 1, 3, 7, 24, 30):
        for steps in (1, 2, 3, 5, 8, 13):
            most = participations(steps, batch_size, slots)
            found = most_often(plan, records, steps)
            assert found <= most
            if 0 < records <= slots and (steps * batch_size) % slots == 0:
                assert found == most  # whole epochs: the bound is reached


def test_without_empty_slots_fewer_records_take_part_more_often() -> None:
    """Known wrong: an epoch of the records that are there."""
    assert most_often(PlainPlan(4), records=3, steps=5) > participations(5, 4, slots=24)
    assert participations(5, 4, slots=24) == 1


def test_a_batch_holds_every_record_of_its_slots_and_no_empty_one() -> None:
    batches = [PLAN.batch(7, STREAMS, step) for step in range(3)]  # 18 slots of permutations of 9
    assert sorted(np.concatenate(batches).tolist()) == sorted([*range(7)] * 2)


# the public step ---------------------------------------------------------------------------------------------------------


def run_step(step_of: Step, draw: np.ndarray) -> None:
    for _ in step_of.add_up(STEP, draw, 0):
        pass
    step_of.finish(STEP)


def test_a_public_step_is_the_sum_of_rows_over_the_planned_batch() -> None:
    """Also where slots are empty: the divisor does not depend on how many records there are."""
    stream, model = marked_stream(), lstm()
    with contextlib.closing(PlainStep(model, PLAN, COMPUTE, Source(stream, PUBLIC, STREAMS))) as step_of:
        draw = step_of.draw(STEP)
        run_step(step_of, draw)
        drawn = step_of._uniforms_BnT
    assert 0 < len(draw) < PLAN.batch_size
    found = taken(model)
    total = {name: torch.zeros_like(gradient) for name, gradient in found.items()}
    for place, record in enumerate(draw):
        model.zero_grad()
        rows = SequenceStream(stream.ids_ST[[record]], stream.lengths_S[[record]], np.arange(2), ("one",))
        public = np.array([counted_by_hand(RECORDS[record])[0]])
        weights = public / max(1, int(public.sum())) / PLAN.batch_size
        looped_losses(model, rows, drawn[[place]], weights).sum().backward()
        for name, gradient in taken(model).items():
            total[name] += gradient
    for name in total:  # weights are float32 in the loop
        torch.testing.assert_close(found[name], total[name], rtol=1e-5, atol=1e-7, msg=name)


# the private step ----------------------------------------------------------------------------------------------------------


def unit_gradient(record: int, stream: SequenceStream) -> Gradients:
    """The mean loss of one record's private tokens, from all true tokens before them, by plain autograd in float64."""
    model = lstm()
    plain, private = split_marks(stream.ids_ST[record, : stream.lengths_S[record]].astype(np.int64), VOCABULARY)
    if private.any():
        logits = model(input_ids=torch.from_numpy(plain)[None]).logits[0, :-1]
        losses = torch.nn.functional.cross_entropy(logits, torch.from_numpy(plain[1:]), reduction="none")
        losses[torch.from_numpy(private[1:])].mean().backward()
    return taken(model)


def clipped_sum(draw: np.ndarray, stream: SequenceStream) -> Gradients:
    total = {name: torch.zeros_like(p) for name, p in lstm().named_parameters()}
    for record in draw:
        gradient = unit_gradient(int(record), stream)
        norm = float(flat(gradient).norm())
        for name in total:
            total[name] += gradient[name] * min(1.0, DP_PLAN.clip_norm / norm if norm else 1.0)
    return total


def private_step(objective: PrivateTokens | PublicTokens) -> Gradients:
    """Without noise and divisor."""
    stream, model = marked_stream(), lstm()
    plan = dataclasses.replace(DP_PLAN, noise_multiplier=0.0, normaliser=1.0)
    with contextlib.closing(DpStep(model, plan, COMPUTE, Source(stream, objective, STREAMS))) as step_of:
        run_step(step_of, np.arange(stream.units))
    return taken(model)


def test_a_private_step_is_the_clipped_sum_over_private_tokens() -> None:
    stream = marked_stream()
    found, expected = private_step(PRIVATE), clipped_sum(np.arange(stream.units), stream)
    norms = [float(flat(unit_gradient(record, stream)).norm()) for record in range(stream.units)]
    assert [norm == 0 for norm in norms] == ["p" not in line for line in RECORDS]
    assert max(norms) > DP_PLAN.clip_norm
    for name in expected:
        torch.testing.assert_close(found[name], expected[name], rtol=1e-6, atol=1e-8, msg=name)


class EveryToken(PrivateTokens):
    """Known wrong: public tokens count too."""

    def targets(self, ids_BT: np.ndarray, lengths_B: np.ndarray, uniforms_BnT: np.ndarray) -> Targets:
        plain = split_marks(ids_BT, self.size)[0]
        return super(PrivateTokens, self).targets(plain, lengths_B, uniforms_BnT)


def test_the_check_of_the_private_step_catches_public_tokens() -> None:
    found, expected = private_step(EveryToken(VOCABULARY)), clipped_sum(np.arange(len(RECORDS)), marked_stream())
    assert (flat(found) - flat(expected)).abs().max() > 1e-3


# plans, phases, refusals -----------------------------------------------------------------------------------------------


def phases() -> tuple[Phase, Phase]:
    return (
        Phase("public", "marked", PLAN, 2, AdamOptions(1e-2)),
        Phase("private", "marked", DP_PLAN, 2, AdamOptions(1e-2)),
    )


def test_both_phases_are_in_the_ledger_without_a_guarantee_and_with_their_numbers() -> None:
    public, private = (phase.event for phase in phases())
    assert isinstance(public, NonPrivate)
    assert isinstance(private, NonPrivate)
    assert "noise multiplier 0.7" in public.reason
    assert "2 states" in public.reason
    assert "sampling probability 0.6" in private.reason
    assert "noise multiplier 1.3" in private.reason
    assert PLAN.state_event == Gaussian(NOISE)


def test_noise_that_is_none_is_refused() -> None:
    small = dataclasses.replace(PLAN, state_noise_multiplier=0.01)
    with pytest.raises(RefusedError, match="noise-too-small"):
        _ = Phase("public", "marked", small, 2, AdamOptions(1e-2)).event


def test_both_phases_are_paid_for_and_train(tmp_path: Path) -> None:
    stream, model = marked_stream(), lstm()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    header = LedgerHeader("record", "replace", 9, math.inf, 1e-5, "digest", "commitment")
    with Ledger.create(tmp_path / "ledger.sqlite", header) as ledger:
        for phase, objective in zip(phases(), (PUBLIC, PRIVATE), strict=True):
            assert phase.event is not None
            ledger.plan(phase.name, phase.event, phase.steps)
            checkpoint = tmp_path / f"{phase.name}.pt"
            run_phase(model, phase, stream, objective, ledger, STREAMS.child(phase.name), COMPUTE, checkpoint)
        assert [ledger.spent(phase.name) for phase in phases()] == [2, 2]
    assert any(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_another_kind_of_model_is_refused() -> None:
    stream = marked_stream()
    targets = PUBLIC.targets(stream.ids_ST, stream.lengths_S, uniforms(stream))
    model = build_gpt2(ModelOptions(layers=1, width=8, heads=2, length=LENGTH), VOCABULARY, 0, 2, 3, seed=5)
    arrays = [torch.from_numpy(array.astype(np.int64)) for array in targets.arrays]
    with pytest.raises(UsageError, match="needs an LSTM"):
        PUBLIC.losses(model, arrays, torch.from_numpy(targets.real_BN.astype(np.float32)))


@pytest.mark.parametrize("place", [(1, 2), (4, 11)])  # a private token; behind the last release
def test_a_weight_where_nothing_was_released_is_refused(place: tuple[int, int]) -> None:
    stream = marked_stream()
    targets = PUBLIC.targets(stream.ids_ST, stream.lengths_S, uniforms(stream))
    weights = targets.real_BN.astype(np.float64)
    assert weights[place] == 0
    weights[place] = 1.0
    arrays = [torch.from_numpy(array.astype(np.int64)) for array in targets.arrays]
    with pytest.raises(UsageError, match="behind the last released state"):
        PUBLIC.losses(lstm(), arrays, torch.from_numpy(weights))
