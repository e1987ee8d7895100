"""One step of DP training against a plain loop over units, and what must not be possible in it."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from torch.optim.optimizer import register_optimizer_step_pre_hook

from tacit.config import ComputeOptions
from tacit.engine import PerExampleClipper, add_noise_, micro_batches
from tacit.errors import BudgetError
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.loop import run_phase
from tacit.training.masking import MaskedRows, mask_rows
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan, NoiselessPlan, PlainPlan
from tacit.training.sequences import SequenceStream
from tacit.training.sums import sums_digest
from tacit.training.unit_rows import Source, unit_targets

from ..unrounded import UnroundedPlan
from .streams import LENGTH, MASKING, OBJECTIVE, random_units, stream_of, tiny_bert

STREAMS = KeyedRandomness(bytes(range(32)))
STEP = 3
PLAN = UnroundedPlan(
    sampling_probability=0.5, clip_norm=0.4, noise_multiplier=1.3, normaliser=7.0, sequences_per_unit=2
)
SILENT = dataclasses.replace(PLAN, noise_multiplier=0.0, normaliser=1.0)
"""Without noise and divisor: what reaches the gradient before the noise."""

Gradients = dict[str, torch.Tensor]


def compute(micro_batch: int = 4) -> ComputeOptions:
    return ComputeOptions(micro_batch=micro_batch, threads=1, checkpoint_seconds=1e9)


def taken(model: torch.nn.Module) -> Gradients:
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def flat(gradients: Gradients) -> torch.Tensor:
    return torch.cat([gradients[name].flatten() for name in sorted(gradients)])


def step_gradients(
    indices: np.ndarray,
    stream: SequenceStream,
    plan: DpPlan = PLAN,
    micro_batch: int = 4,
    kind: type[DpStep] = DpStep,
    step: int = STEP,
) -> Gradients:
    """What one step hands to the optimizer."""
    model = tiny_bert()
    model.train()
    with contextlib.closing(kind(model, plan, compute(micro_batch), Source(stream, OBJECTIVE, STREAMS))) as step_of:
        run_step(step_of, step, indices)
    return taken(model)


def gradients_of_steps(
    indices: np.ndarray, stream: SequenceStream, plan: DpPlan, micro_batch: int, kind: type[DpStep], steps: int
) -> torch.Tensor:
    """What the first steps hand to the optimizer, each from the same weights of a wider model (steps, parameters)."""
    model, found = tiny_bert(width=32), []
    model.train()
    with contextlib.closing(kind(model, plan, compute(micro_batch), Source(stream, OBJECTIVE, STREAMS))) as step_of:
        for step in range(steps):
            model.zero_grad(set_to_none=True)
            run_step(step_of, step, indices)
            found.append(flat(taken(model)))
    return torch.stack(found)


def run_step(step_of: DpStep, step: int, indices: np.ndarray) -> None:
    for _ in step_of.add_up(step, indices, 0):
        pass
    step_of.finish(step)


# the oracle ----------------------------------------------------------------------------------------------------------


def unit_rows(unit: int, stream: SequenceStream, plan: DpPlan) -> MaskedRows:
    """The rows of one unit, masked alone: nothing else is in the call."""
    generator = STREAMS.generator("unit", STEP, stream.keys_U[unit])
    own = stream.choose_rows(unit, plan.sequences_per_unit, generator).repeat(plan.maskings)
    drawn = generator.random((len(own), 3, stream.ids_ST.shape[1]))
    return mask_rows(stream.ids_ST[own].astype(np.int64), stream.lengths_S[own], drawn, MASKING)


def unit_gradient(unit: int, stream: SequenceStream, plan: DpPlan) -> Gradients:
    """transformers' own masked-language-model loss of one unit (its mean over masked tokens) and plain autograd."""
    rows = unit_rows(unit, stream, plan)
    labels = np.full(rows.ids_BT.shape, -100)
    for number, (slots, real) in enumerate(zip(rows.slots_BK, rows.real_BK, strict=True)):
        labels[number, slots[real]] = rows.labels_BK[number, real]
    model = tiny_bert()
    if (labels >= 0).any():
        model(
            input_ids=torch.from_numpy(rows.ids_BT),
            attention_mask=torch.from_numpy(rows.attention_BT.astype(np.int64)),
            labels=torch.from_numpy(labels),
        ).loss.backward()
    return {name: torch.zeros_like(p) if p.grad is None else p.grad.clone() for name, p in model.named_parameters()}


def clipped_sum(indices: np.ndarray, stream: SequenceStream, plan: DpPlan) -> Gradients:
    total = {name: torch.zeros_like(p) for name, p in tiny_bert().named_parameters()}
    for unit in indices:
        gradient = unit_gradient(int(unit), stream, plan)
        norm = float(flat(gradient).norm())
        for name in total:
            total[name] += gradient[name] * min(1.0, plan.clip_norm / norm if norm else 1.0)
    return total


def keyed_noise(plan: DpPlan) -> Gradients:
    model = tiny_bert()
    add_noise_(model.named_parameters(), plan.noise_stddev, STREAMS, STEP, None)
    return taken(model)


def check_step(kind: type[DpStep], indices: np.ndarray, stream: SequenceStream, micro_batch: int = 4) -> None:
    """(sum of clipped gradients + noise) / normaliser, exactly; the weights 1/n are float32, hence 1e-6."""
    found = step_gradients(indices, stream, micro_batch=micro_batch, kind=kind)
    expected, noise = clipped_sum(indices, stream, PLAN), keyed_noise(PLAN)
    assert found.keys() == expected.keys()
    for name in expected:
        torch.testing.assert_close(
            found[name], (expected[name] + noise[name]) / PLAN.normaliser, rtol=1e-6, atol=1e-8, msg=name
        )


@pytest.fixture(scope="module")
def stream() -> SequenceStream:
    return stream_of(random_units(5))


class NoiseEachMicroBatch(DpStep):
    """Known wrong: the noise comes once a micro-batch."""

    def add(self, chosen, places, step):
        super().add(chosen, places, step)
        streams = STREAMS if places[0] == 0 else STREAMS.child(int(places[0]))
        add_noise_(self._model.named_parameters(), self._plan.noise_stddev, streams, step, None)

    def finish(self, step):
        for gradient in [parameter.grad for parameter in self._model.parameters()]:
            assert gradient is not None
            gradient.div_(self._plan.normaliser)


class DividedByBatch(DpStep):
    """Known wrong: the divisor is the size of the drawn batch."""

    def add_up(self, step, draw, drawn):
        self._plan = dataclasses.replace(self._plan, normaliser=max(1, len(draw)))
        return super().add_up(step, draw, drawn)


class ClippedBySequence(DpStep):
    """Known wrong: every sequence has the whole clip norm for itself."""

    def __init__(self, model, plan, compute, source):
        super().__init__(model, plan, compute, source)
        self._clipper.close()
        self._clipper = PerExampleClipper(model, plan.clip_norm, 1)


class NotClipped(DpStep):
    """Known wrong: the clip norm is so large that it never binds; the noise is as planned."""

    def __init__(self, model, plan, compute, source):
        super().__init__(model, plan, compute, source)
        self._clipper.close()
        self._clipper = PerExampleClipper(model, 1e9, plan.sequences_per_unit)


@pytest.mark.parametrize("micro_batch", [1, 4, 64])
def test_a_step_is_the_clipped_sum_plus_the_noise_over_the_normaliser(stream: SequenceStream, micro_batch: int) -> None:
    check_step(DpStep, np.arange(stream.units), stream, micro_batch)


@pytest.mark.parametrize("micro_batch", [4, 64])
def test_several_maskings_of_a_unit_are_clipped_as_one(stream: SequenceStream, micro_batch: int) -> None:
    """Against autograd; and each masking clipped alone, which would be three times the influence, is caught."""
    plan = dataclasses.replace(PLAN, maskings=3)
    indices = np.arange(stream.units)
    expected, noise = clipped_sum(indices, stream, plan), keyed_noise(plan)
    found = step_gradients(indices, stream, plan, micro_batch)
    wrong = step_gradients(indices, stream, plan, micro_batch, ClippedBySequence)
    once = step_gradients(indices, stream, PLAN, micro_batch)
    for name in found:
        own = (expected[name] + noise[name]) / plan.normaliser
        torch.testing.assert_close(found[name], own, rtol=1e-5, atol=1e-7, msg=name)
    for other in (wrong, once):
        assert not torch.allclose(flat(found), flat(other), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("clipping", ["flat", "automatic", "per-layer"])
def test_a_step_clips_as_the_plan_says(clipping: str, stream: SequenceStream) -> None:
    """By hand from the unit's own gradient: C / norm at most 1, C / (norm + 0.01), C / sqrt(L) for each of L layers."""
    unit = stream.keys_U.index("unit 1")
    gradient = unit_gradient(unit, stream, SILENT)
    norm = float(flat(gradient).norm())
    assert norm > SILENT.clip_norm
    layers = {name.rpartition(".")[0] for name in gradient}
    scales = dict.fromkeys(gradient, min(1.0, SILENT.clip_norm / norm))
    if clipping == "automatic":
        scales = dict.fromkeys(gradient, SILENT.clip_norm / (norm + 0.01))
    if clipping == "per-layer":
        bound = SILENT.clip_norm / len(layers) ** 0.5
        for layer in layers:
            own = {name: value for name, value in gradient.items() if name.rpartition(".")[0] == layer}
            scales |= dict.fromkeys(own, min(1.0, bound / max(float(flat(own).norm()), 1e-30)))
    found = step_gradients(np.array([unit]), stream, dataclasses.replace(SILENT, clipping=clipping))
    for name in gradient:
        torch.testing.assert_close(found[name], gradient[name] * scales[name], rtol=1e-6, atol=1e-8, msg=name)


def test_the_oracle_clips_some_units_and_not_all(stream: SequenceStream) -> None:
    norms = [float(flat(unit_gradient(unit, stream, PLAN)).norm()) for unit in range(stream.units)]
    assert max(norms) > 2 * PLAN.clip_norm
    assert min(norms) == 0.0


@pytest.mark.parametrize("wrong", [NoiseEachMicroBatch, DividedByBatch, ClippedBySequence, NotClipped])
def test_the_check_of_a_step_catches(wrong: type[DpStep], stream: SequenceStream) -> None:
    with pytest.raises(AssertionError):
        check_step(wrong, np.arange(stream.units), stream)


def test_micro_batches_and_their_padding_change_nothing(stream: SequenceStream) -> None:
    indices = np.array([0, 2, 3, 5, 6])
    whole = flat(step_gradients(indices, stream, micro_batch=64))
    for micro_batch in (1, 3, 4, 6):
        torch.testing.assert_close(
            flat(step_gradients(indices, stream, micro_batch=micro_batch)), whole, rtol=1e-9, atol=1e-12
        )


def test_an_empty_batch_is_noise_alone(stream: SequenceStream) -> None:
    found = step_gradients(np.array([], dtype=np.int64), stream)
    noise = keyed_noise(PLAN)
    assert found.keys() == noise.keys()
    for name in noise:
        assert torch.equal(found[name], noise[name] / PLAN.normaliser), name


@pytest.mark.parametrize("blank", ["without rows", "unmaskable"])
def test_units_without_a_masked_token_contribute_nothing(blank: str, stream: SequenceStream) -> None:
    found = step_gradients(np.array([stream.keys_U.index(blank)]), stream, SILENT)
    assert float(flat(found).abs().max()) == 0.0


# the scale of the noise ----------------------------------------------------------------------------------------------


NOISY_STEPS = 5


@pytest.fixture(scope="module")
def silent_steps(stream: SequenceStream) -> torch.Tensor:
    """What the noise is added to, which all checks of its scale take away."""
    return gradients_of_steps(np.arange(stream.units), stream, SILENT, 64, DpStep, NOISY_STEPS)


def check_noise_scale(kind: type[DpStep], stream: SequenceStream, silent: torch.Tensor) -> None:
    """What a step adds to the clipped sum has standard deviation s C: chi-square, both sides, false alarm 1e-6."""
    noisy = gradients_of_steps(np.arange(stream.units), stream, PLAN, 4, kind, NOISY_STEPS)
    normals = ((noisy * PLAN.normaliser - silent) / (PLAN.noise_multiplier * PLAN.clip_norm)).flatten().numpy()
    low, high = stats.chi2.ppf([2.5e-7, 1 - 2.5e-7], len(normals))
    assert low < float((normals**2).sum()) < high
    assert abs(float(normals.mean())) < stats.norm.isf(2.5e-7) / np.sqrt(len(normals))


def scaled_noise(scale: float) -> type[DpStep]:
    """Known wrong: a deviation that is off by a factor."""

    class ScaledNoise(DpStep):
        def __init__(self, model, plan, compute, source):
            louder = dataclasses.replace(plan, noise_multiplier=scale * plan.noise_multiplier)
            super().__init__(model, louder, compute, source)

    return ScaledNoise


@pytest.mark.slow
def test_the_noise_has_the_planned_deviation_over_four_micro_batches(
    stream: SequenceStream, silent_steps: torch.Tensor
) -> None:
    check_noise_scale(DpStep, stream, silent_steps)


@pytest.mark.parametrize("scale", [0.5, 0.96, 1.04, 2.0])
def test_the_check_of_the_deviation_catches_a_factor(
    scale: float, stream: SequenceStream, silent_steps: torch.Tensor
) -> None:
    with pytest.raises(AssertionError):
        check_noise_scale(scaled_noise(scale), stream, silent_steps)


def test_the_check_of_the_deviation_catches_noise_by_micro_batch(
    stream: SequenceStream, silent_steps: torch.Tensor
) -> None:
    with pytest.raises(AssertionError):
        check_noise_scale(NoiseEachMicroBatch, stream, silent_steps)


# one unit's influence ------------------------------------------------------------------------------------------------


def neighbours(seed: int) -> Iterator[SequenceStream]:
    """A corpus, and those without one unit, which stands first, in the middle, or last, and has one or many sequences."""
    units = random_units(4, seed)
    yield stream_of(units)
    for name in ("unit 0", "unit 2", "repeated", "without rows"):
        yield stream_of({key: rows for key, rows in units.items() if key != name})


def check_influence(kind: type[DpStep], micro_batches_of: tuple[int, int]) -> float:
    """The largest influence of one unit over the clip norm; it must not be above 1 (add or remove)."""
    largest = 0.0
    plan = dataclasses.replace(SILENT, sequences_per_unit=4)

    def total(stream: SequenceStream, micro_batch: int) -> torch.Tensor:
        return flat(step_gradients(np.arange(stream.units), stream, plan, micro_batch, kind))

    larger, *smaller = neighbours(seed=5)
    first = total(larger, micro_batches_of[0])
    for stream in smaller:
        second = total(stream, micro_batches_of[1])
        largest = max(largest, float((first - second).norm()) / plan.clip_norm)
    assert largest <= 1 + 1e-6
    return largest


@pytest.mark.parametrize("micro_batches_of", [(64, 64), (4, 12), (8, 4)])
def test_one_unit_moves_the_sum_by_at_most_the_clip_norm(micro_batches_of: tuple[int, int]) -> None:
    assert check_influence(DpStep, micro_batches_of) > 0.99  # the bound is reached, so the test is not idle


@pytest.mark.parametrize("wrong", [ClippedBySequence, NotClipped])
def test_the_check_of_the_influence_catches(wrong: type[DpStep]) -> None:
    with pytest.raises(AssertionError):
        check_influence(wrong, (64, 64))


def unit_tensors(
    chosen: np.ndarray, real: np.ndarray, per_unit: int, stream: SequenceStream, step: int = STEP
) -> tuple[torch.Tensor, ...]:
    """ids, attention, slots, labels and weights, as the losses get them."""
    source = Source(stream, OBJECTIVE, STREAMS)
    plan = dataclasses.replace(PLAN, sequences_per_unit=per_unit)
    targets, weights = unit_targets(chosen, real, plan, source, step, stream.ids_ST.shape[1])
    return *(torch.from_numpy(array.astype(np.int64)) for array in targets.arrays), torch.from_numpy(weights)


def test_a_step_shows_at_most_the_planned_sequences_of_a_unit(stream: SequenceStream) -> None:
    for per_unit in (1, 2, 4):
        unit = stream.keys_U.index("repeated")
        *_, weights = unit_tensors(np.array([unit]), np.array([True]), per_unit, stream)
        assert len(weights) == per_unit
        assert int((weights.sum(dim=1) > 0).sum()) == per_unit


# no channel between units --------------------------------------------------------------------------------------------

Rows = dict[str, tuple[torch.Tensor, ...]]
RowsOf = Callable[[SequenceStream], Rows]


def own_rows(stream: SequenceStream, per_unit: int = 2, size: int = 3) -> Rows:
    """Everything that a step feeds the model for each unit, by the unit's name."""
    found: Rows = {}
    for chosen, real in micro_batches(np.arange(stream.units), size):
        batch = unit_tensors(chosen, real, per_unit, stream)
        for place, unit in enumerate(chosen[real]):
            found[stream.keys_U[unit]] = tuple(part[place * per_unit : (place + 1) * per_unit] for part in batch)
    return found


def rows_of_one_generator(stream: SequenceStream) -> Rows:
    """Known wrong: all masks of a batch come from one generator, so a unit's masks depend on the units before it."""
    generator = STREAMS.generator("unit", STEP)
    found: Rows = {}
    for unit in range(stream.units):
        own = stream.rows_of(unit)
        drawn = generator.random((len(own), 3, stream.ids_ST.shape[1]))
        rows = mask_rows(stream.ids_ST[own], stream.lengths_S[own], drawn, MASKING)
        found[stream.keys_U[unit]] = tuple(map(torch.from_numpy, (rows.ids_BT, rows.slots_BK, rows.real_BK)))
    return found


def rows_with_batch_weights(stream: SequenceStream) -> Rows:
    """Known wrong: the loss is averaged over the masked tokens of the whole batch."""
    rows = own_rows(stream)
    tokens = sum(int((weights > 0).sum()) for *_, weights in rows.values())
    return {name: (*parts, (weights > 0) / tokens) for name, (*parts, weights) in rows.items()}


def check_others_unchanged(rows_of: RowsOf) -> None:
    """Another text of one unit, or the unit taken out: every other unit's tensors stay bit for bit."""
    units = random_units(5)
    before = rows_of(stream_of(units))
    for changed in ({**units, "unit 1": [[8] * (LENGTH - 2)] * 4}, {k: v for k, v in units.items() if k != "unit 1"}):
        after = rows_of(stream_of(changed))
        for name in after.keys() - {"unit 1"}:
            assert all(torch.equal(old, new) for old, new in zip(before[name], after[name], strict=True)), name


def test_a_unit_changes_no_other_units_rows_and_masks() -> None:
    check_others_unchanged(own_rows)


@pytest.mark.parametrize("wrong", [rows_of_one_generator, rows_with_batch_weights])
def test_the_check_of_the_channel_catches(wrong: RowsOf) -> None:
    with pytest.raises(AssertionError):
        check_others_unchanged(wrong)


def test_masks_are_new_in_every_step(stream: SequenceStream) -> None:
    pair = np.array([0]), np.array([True])
    first, second = (unit_tensors(*pair, 2, stream, step)[2] for step in (0, 1))
    assert not torch.equal(first, second)


# a phase with its ledger ---------------------------------------------------------------------------------------------


class WatchedStreams(KeyedRandomness):
    """Notes every draw, and what the ledger had on disk at that moment."""

    def __init__(self, key: bytes, ledger: Ledger) -> None:
        super().__init__(key)
        self.ledger = ledger
        self.draws: list[tuple[tuple[str | int, ...], int]] = []

    def child(self, *address: str | int) -> WatchedStreams:
        """What is below is watched too."""
        below = WatchedStreams(self.derive("child", *address), self.ledger)
        below.draws = self.draws
        return below

    def derive(self, *address: str | int) -> bytes:
        if address[0] in ("generator", "seed"):
            self.draws.append((address[1:], self.ledger.spent("private")))
        return super().derive(*address)


@dataclasses.dataclass(frozen=True)
class WatchedStream(SequenceStream):
    """Notes every look at its units."""

    looks: list[str] = dataclasses.field(default_factory=list)

    @property
    def units(self) -> int:
        self.looks.append("units")
        return super().units

    def rows_of(self, unit: int) -> np.ndarray:
        self.looks.append("rows")
        return super().rows_of(unit)


@contextlib.contextmanager
def handed_to_the_optimizer() -> Iterator[list[Gradients]]:
    """The gradients at the moment of every optimizer step."""
    seen: list[Gradients] = []

    def note(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        seen.append({str(i): p.grad.clone() for i, p in enumerate(optimizer.param_groups[0]["params"])})

    handle = register_optimizer_step_pre_hook(note)
    try:
        yield seen
    finally:
        handle.remove()


HEADER = LedgerHeader("user", "add-or-remove", 100, float("inf"), 1e-5, "digest", "commitment")


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(tmp_path / "ledger.sqlite", HEADER) as opened:
        yield opened


def phase_of(plan: DpPlan | PlainPlan, steps: int) -> Phase:
    stream = "private" if isinstance(plan, DpPlan) else "public"
    return Phase(stream, stream, plan, steps, AdamOptions(1e-3))


def made_from_of(model: torch.nn.Module, phase: Phase, stream: SequenceStream) -> str:
    """What the draws of a phase are addressed by beside the step, at its start."""
    optimizer = torch.optim.AdamW(model.parameters())
    return sums_digest(model, optimizer, phase, stream, OBJECTIVE, compute(), STREAMS)


def test_the_optimizer_gets_exactly_the_steps_of_the_plan(
    stream: SequenceStream, ledger: Ledger, tmp_path: Path
) -> None:
    steps = 3
    ledger.plan("private", PLAN.event, steps)
    model = tiny_bert()
    with handed_to_the_optimizer() as seen:
        run_phase(model, phase_of(PLAN, steps), stream, OBJECTIVE, ledger, STREAMS, compute(), tmp_path / "private.pt")
    assert len(seen) == ledger.spent("private") == steps
    again = tiny_bert()
    optimizer = torch.optim.AdamW(again.parameters(), lr=1e-3, betas=(0.9, 0.98), eps=1e-6, weight_decay=0.01)
    again.train()
    streams = STREAMS.child("sums", made_from_of(again, phase_of(PLAN, steps), stream))
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = AdamOptions(1e-3).learning_rate_at(step, steps)
        optimizer.zero_grad()
        indices = np.flatnonzero(streams.generator("sampling", step).random(stream.units) < PLAN.sampling_probability)
        with contextlib.closing(DpStep(again, PLAN, compute(), Source(stream, OBJECTIVE, streams))) as step_of:
            drawn = step_of.draw(step)
            assert sorted(drawn) == indices.tolist()  # in another order, in which there is less padding
            run_step(step_of, step, drawn)
        for name, parameter in enumerate(again.parameters()):
            assert torch.equal(seen[step][str(name)], parameter.grad)
        optimizer.step()
    for (name, found), expected in zip(model.named_parameters(), again.parameters(), strict=True):
        assert torch.equal(found, expected), name


class LateLedger(Ledger):
    """Known wrong: a step is paid one step later."""

    def charge(self, stage: str, step: int = 0) -> None:
        if step > 0:
            super().charge(stage, step - 1)


def check_paid_first(ledger: Ledger, stream: SequenceStream, checkpoint: Path) -> None:
    ledger.plan("private", PLAN.event, 3)
    streams = WatchedStreams(bytes(32), ledger)
    run_phase(tiny_bert(), phase_of(PLAN, 3), stream, OBJECTIVE, ledger, streams, compute(), checkpoint)
    assert {address[0] for address, _ in streams.draws} == {"sampling", "unit", "noise"}
    assert all(paid > int(address[1]) for address, paid in streams.draws)
    noise = [address for address, _ in streams.draws if address[0] == "noise"]
    assert len(noise) == len(set(noise)) == 3 * len(list(tiny_bert().parameters()))  # once a step and parameter


def test_every_draw_of_a_step_comes_after_its_payment(stream: SequenceStream, ledger: Ledger, tmp_path: Path) -> None:
    check_paid_first(ledger, stream, tmp_path / "private.pt")


def test_the_check_of_the_payment_catches_a_late_one(stream: SequenceStream, tmp_path: Path) -> None:
    with LateLedger.create(tmp_path / "ledger.sqlite", HEADER) as ledger, pytest.raises(AssertionError):
        check_paid_first(ledger, stream, tmp_path / "private.pt")


def test_empty_batches_are_charged_and_get_their_noise(stream: SequenceStream, ledger: Ledger, tmp_path: Path) -> None:
    plan = dataclasses.replace(PLAN, sampling_probability=1e-12)
    ledger.plan("private", plan.event, 2)
    made_from = made_from_of(tiny_bert(), phase_of(plan, 2), stream)
    with handed_to_the_optimizer() as seen:
        run_phase(
            tiny_bert(), phase_of(plan, 2), stream, OBJECTIVE, ledger, STREAMS, compute(), tmp_path / "private.pt"
        )
    assert ledger.spent("private") == len(seen) == 2
    for step, gradients in enumerate(seen):
        model = tiny_bert()
        add_noise_(model.named_parameters(), plan.noise_stddev, STREAMS.child("sums", made_from), step, None)
        for number, parameter in enumerate(model.parameters()):
            assert torch.equal(gradients[str(number)], parameter.grad / plan.normaliser)


def test_a_step_beyond_the_plan_touches_no_data(stream: SequenceStream, ledger: Ledger, tmp_path: Path) -> None:
    ledger.plan("private", PLAN.event, 2)
    watched = WatchedStream(stream.ids_ST, stream.lengths_S, stream.starts_U1, stream.keys_U)
    streams = WatchedStreams(bytes(32), ledger)
    model = tiny_bert()
    at_limit: list[object] = []

    def note(done: int) -> None:
        if done == 2:
            at_limit.extend(
                [len(watched.looks), len(streams.draws), {n: p.clone() for n, p in model.named_parameters()}]
            )

    with pytest.raises(BudgetError, match="step 2 is refused"):
        run_phase(
            model, phase_of(PLAN, 3), watched, OBJECTIVE, ledger, streams, compute(), tmp_path / "private.pt", note
        )
    looks, draws, weights = at_limit
    assert isinstance(looks, int)
    assert looks > 0
    assert len(watched.looks) == looks
    assert len(streams.draws) == draws
    assert all(torch.equal(p, weights[name]) for name, p in model.named_parameters())
    assert ledger.spent("private") == 2


def test_a_dp_phase_without_a_ledger_is_refused(stream: SequenceStream, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="needs a ledger"):
        run_phase(tiny_bert(), phase_of(PLAN, 1), stream, OBJECTIVE, None, STREAMS, compute(), tmp_path / "private.pt")


def test_a_control_without_noise_is_the_clipped_sum_and_nothing_else(stream: SequenceStream, tmp_path: Path) -> None:
    """Its draws are keyed by its own sums; a DP plan whose noise is 0 is no control, and still needs a ledger."""
    phase = phase_of(NoiselessPlan.of(PLAN), 1)
    model = tiny_bert()
    optimizer = torch.optim.AdamW(model.parameters())
    streams = STREAMS.child("sums", sums_digest(model, optimizer, phase, stream, OBJECTIVE, compute(), STREAMS))
    with handed_to_the_optimizer() as seen:
        run_phase(model, phase, stream, OBJECTIVE, None, STREAMS, compute(), tmp_path / "control.pt")
    found = torch.cat([gradient.flatten() for gradient in seen[0].values()]) * PLAN.normaliser
    sums = []
    for plan in (SILENT, dataclasses.replace(PLAN, normaliser=1.0)):
        as_begun = tiny_bert()
        with contextlib.closing(DpStep(as_begun, plan, compute(), Source(stream, OBJECTIVE, streams))) as step_of:
            drawn = step_of.draw(0)
            run_step(step_of, 0, drawn)
        sums.append(torch.cat([gradient.flatten() for gradient in taken(as_begun).values()]))
    assert len(drawn) > 2
    torch.testing.assert_close(found, sums[0])
    assert (found - sums[1]).norm() > PLAN.noise_stddev  # the known-wrong one has noise
    with pytest.raises(ValueError, match="needs a ledger"):
        run_phase(
            tiny_bert(), phase_of(SILENT, 1), stream, OBJECTIVE, None, STREAMS, compute(), tmp_path / "private.pt"
        )


# ordinary training ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("micro_batch", [2, 64])
def test_a_plain_step_is_the_mean_gradient_of_its_rows(
    micro_batch: int, stream: SequenceStream, tmp_path: Path
) -> None:
    size = 5
    with handed_to_the_optimizer() as seen:
        run_phase(
            tiny_bert(),
            phase_of(PlainPlan(size), 1),
            stream,
            OBJECTIVE,
            None,
            STREAMS,
            compute(micro_batch),
            tmp_path / "public.pt",
        )
    indices = sorted(PlainPlan(size).batch(stream.sequences, STREAMS, 0), key=lambda row: stream.lengths_S[row])
    drawn = STREAMS.generator("mask", 0).random((size, 3, LENGTH))
    model = tiny_bert()
    losses = []
    for row, uniforms in zip(indices, drawn, strict=True):
        masked = mask_rows(stream.ids_ST[[row]].astype(np.int64), stream.lengths_S[[row]], uniforms[None], MASKING)
        labels = np.full((1, LENGTH), -100)
        slots = masked.slots_BK[masked.real_BK]
        labels[0, slots] = masked.labels_BK[masked.real_BK]
        inputs = torch.from_numpy(masked.ids_BT), torch.from_numpy(masked.attention_BT.astype(np.int64))
        if len(slots):
            losses.append(model(*inputs, labels=torch.from_numpy(labels)).loss)
    (torch.stack(losses).sum() / size).backward()
    for number, parameter in enumerate(model.parameters()):
        torch.testing.assert_close(seen[0][str(number)], parameter.grad, rtol=1e-6, atol=1e-8)
