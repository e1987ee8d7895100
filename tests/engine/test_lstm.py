"""LSTMs: values and gradients of the module itself, per-example sums of the loop, and wrong backward passes that differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence
from torch.utils.checkpoint import checkpoint

from tacit.engine import PerExampleClipper, lstm
from tacit.engine.capture import Capture
from tacit.engine.lstm import LstmRecord
from tacit.errors import RefusedError, UsageError

from .cases import Batch, cast
from .checks import Result, assert_close, autograd, check_influence, clip_and_add, loop_engine, norm_of, our_engine


@dataclass(frozen=True)
class Shape:
    """An LSTM between a linear layer below it, one that makes its first state, and a loss on some of its outputs."""

    rows: int = 4
    length: int = 5
    inputs: int = 3
    hidden: int = 2
    layers: int = 1
    bias: bool = True
    batch_first: bool = True
    bidirectional: bool = False
    dropout: float = 0.0
    given_state: bool = True
    used: tuple[str, ...] = ("output", "h_n", "c_n")


class Tagger(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.states = shape.layers * (1 + shape.bidirectional)
        self.enter = nn.Linear(shape.inputs, shape.inputs)
        if shape.given_state:
            self.encoder = nn.Linear(2, 2 * self.states * shape.hidden)
        self.lstm = nn.LSTM(
            shape.inputs,
            shape.hidden,
            shape.layers,
            bias=shape.bias,
            batch_first=shape.batch_first,
            dropout=shape.dropout,
            bidirectional=shape.bidirectional,
        )

    def forward(self, x_BTD: Tensor, first_B2: Tensor) -> Tensor:
        """The used outputs side by side, (B, features)."""
        x_BTD = torch.tanh(self.enter(x_BTD))
        x = x_BTD if self.shape.batch_first else x_BTD.transpose(0, 1)
        output, (h_n, c_n) = self.lstm(x, self.first_state(first_B2)) if self.shape.given_state else self.lstm(x)
        by_row = {
            "output": output if self.shape.batch_first else output.transpose(0, 1),
            "h_n": h_n.transpose(0, 1),
            "c_n": c_n.transpose(0, 1),
        }
        return torch.cat([by_row[name].flatten(1) for name in self.shape.used], 1)

    def first_state(self, first_B2: Tensor) -> tuple[Tensor, Tensor]:
        state = self.encoder(first_B2).view(len(first_B2), 2, self.states, self.shape.hidden)
        return state[:, 0].transpose(0, 1).contiguous(), state[:, 1].transpose(0, 1).contiguous()


def tagger(shape: Shape, dtype: torch.dtype = torch.float64, seed: int = 7) -> Tagger:
    torch.manual_seed(seed)
    model = Tagger(shape).double()
    with torch.no_grad():
        for parameter in model.parameters():  # gates well away from their initial near-linear range
            parameter += 0.5 * torch.randn_like(parameter)
    return model.to(dtype)


def batch_of(shape: Shape, seed: int = 3) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    return {
        "x": torch.randn(shape.rows, shape.length, shape.inputs, generator=generator, dtype=torch.float64),
        "first": torch.randn(shape.rows, 2, generator=generator, dtype=torch.float64),
        "weight": 10 ** torch.linspace(-2, 2, max(shape.rows, 1), dtype=torch.float64)[: shape.rows],
    }


def losses(model: Callable[[Tensor, Tensor], Tensor], batch: Batch) -> Tensor:
    """A different weight for every feature, so that no two positions look alike."""
    features = model(batch["x"], batch["first"])
    return batch["weight"] * ((features - 0.3).square() * torch.linspace(0.5, 2, features.shape[1])).sum(1)


def check(shape: Shape, frozen: tuple[str, ...] = (), tolerance: float = 1e-9) -> None:
    """Norms and clipped sums are those of the loop over examples, with a clip norm that clips some of them."""

    def model() -> Tagger:
        built = tagger(shape)
        for name, parameter in built.named_parameters():
            parameter.requires_grad_(name not in frozen)
        return built

    batch = batch_of(shape)
    clip_norm = loop_engine(model(), batch, losses, 1.0).norms.median().item() or 1.0  # 0: only W_hh, and no h before
    expected = loop_engine(model(), batch, losses, clip_norm)
    assert_close(our_engine(model(), batch, losses, clip_norm), expected, tolerance)


SHAPES: dict[str, Shape] = {
    "one layer": Shape(),
    "no state given": Shape(given_state=False),
    "time first": Shape(batch_first=False),
    "three layers": Shape(layers=3),
    "bidirectional": Shape(bidirectional=True),
    "two bidirectional layers, time first": Shape(layers=2, bidirectional=True, batch_first=False),
    "no bias": Shape(bias=False, layers=2),
    "one position": Shape(length=1, layers=2, bidirectional=True),
    "one row": Shape(rows=1),
    "one row, one position, time first": Shape(rows=1, length=1, batch_first=False),
    "only the output": Shape(used=("output",), layers=2),
    "only h_n": Shape(used=("h_n",), layers=2),
    "only c_n": Shape(used=("c_n",), bidirectional=True),
    "long": Shape(length=40, hidden=3),
    "wide, so that norms take the Gram form": Shape(rows=3, length=2, inputs=30, hidden=20),
}

every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())


@every_shape
def test_clipped_sum_is_the_loop(shape: Shape) -> None:
    check(shape)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    shape=st.builds(
        Shape,
        rows=st.integers(1, 5),
        length=st.integers(1, 7),
        inputs=st.integers(1, 5),
        hidden=st.integers(1, 5),
        layers=st.integers(1, 3),
        bias=st.booleans(),
        batch_first=st.booleans(),
        bidirectional=st.booleans(),
        dropout=st.just(0.0),
        given_state=st.booleans(),
        used=st.sampled_from([("output",), ("h_n",), ("c_n",), ("output", "c_n"), ("output", "h_n", "c_n")]),
    ),
    data=st.data(),
)
def test_clipped_sum_is_the_loop_at_any_shape(shape: Shape, data: st.DataObject) -> None:
    assume(shape.batch_first or shape.rows == 1 or shape.rows != shape.length)
    names = [name for name, _ in tagger(shape).named_parameters()]
    check(shape, tuple(data.draw(st.sets(st.sampled_from(names), max_size=len(names) - 1))))


@every_shape
def test_units_of_two_rows_float32_and_rows_without_loss(shape: Shape) -> None:
    shape = replace(shape, rows=6)
    batch = batch_of(shape)
    clip_norm = loop_engine(tagger(shape), batch, losses, 1.0, 2).norms.median().item()
    expected = loop_engine(tagger(shape), batch, losses, clip_norm, 2)
    assert_close(our_engine(tagger(shape), batch, losses, clip_norm, 2), expected)
    single = our_engine(tagger(shape, torch.float32), cast(batch, torch.float32), losses, clip_norm, 2)
    assert single.norms.dtype == torch.float32
    assert_close(single, expected, tolerance=2e-4)
    batch["weight"][2:4] = 0.0
    assert our_engine(tagger(shape), batch, losses, clip_norm, 2).norms[1] == 0.0


@every_shape
def test_influence_is_bounded(shape: Shape) -> None:
    shape = replace(shape, rows=3)  # no shape of the table has 2 or 3 positions where time comes first
    batch = batch_of(shape)
    clip_norm = loop_engine(tagger(shape), batch, losses, 1.0).norms.median().item()
    check_influence(our_engine, tagger(shape), batch, losses, clip_norm)


@pytest.mark.parametrize("name", ["output", "h_n", "c_n"])
def test_a_plain_sum_whose_gradient_is_one_number_expanded(name: str) -> None:
    shape = Shape(layers=2, used=(name,))

    def sums(model: nn.Module, b: Batch) -> Tensor:
        return model(b["x"], b["first"]).sum(1)

    expected = loop_engine(tagger(shape), batch_of(shape), sums, 1.0)
    assert_close(our_engine(tagger(shape), batch_of(shape), sums, 1.0), expected)


def test_an_empty_batch_adds_zeros() -> None:
    shape = Shape(rows=0, layers=2, bidirectional=True)
    result = our_engine(tagger(shape), batch_of(shape), losses, 1.0)
    assert result.norms.shape == (0,)
    assert result.sums.keys() == dict(tagger(shape).named_parameters()).keys()
    assert not result.vector().any()


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_row_of_bad_inputs_contributes_zero(bad: float) -> None:
    shape = Shape(layers=2, bidirectional=True)
    batch = batch_of(shape)
    batch["first"][1, 0] = bad
    actual = our_engine(tagger(shape), batch, losses, 1.0)
    others = {name: values[[0, 2, 3]] for name, values in batch.items()}
    expected = loop_engine(tagger(shape), others, losses, 1.0)
    assert_close(Result(actual.norms[[0, 2, 3]], actual.sums), expected)


# The module itself: the same values, and the same gradients below it


class Whole(nn.Module):
    """All that an LSTM returns, as it returns it; every input leads with the example."""

    def __init__(self, module: nn.LSTM) -> None:
        super().__init__()
        self.lstm = module

    def forward(self, x_BTD: Tensor, h0_BSH: Tensor, c0_BSH: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x = x_BTD if self.lstm.batch_first else x_BTD.transpose(0, 1)
        output, (h_n, c_n) = self.lstm(x, (h0_BSH.transpose(0, 1), c0_BSH.transpose(0, 1)))
        return output, h_n, c_n


def run_whole(model: Whole, inputs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """The values, and the gradients at the inputs and first states."""
    torch.manual_seed(5)
    leaves = [tensor.clone().requires_grad_() for tensor in inputs]
    values = model(*leaves)
    torch.stack([(value.sin() * (1 + value)).sum() for value in values]).sum().backward()
    return [value.detach() for value in values], [leaf.grad for leaf in leaves if leaf.grad is not None]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("dropout", [0.0, 0.4])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_values_and_input_gradients_are_the_modules(
    dtype: torch.dtype, training: bool, dropout: float, batch_first: bool, bidirectional: bool
) -> None:
    """With dropout too: the masks are drawn as the module draws them, and outputs lie in memory as the module's."""
    torch.manual_seed(1)
    module = nn.LSTM(5, 4, 3, dropout=dropout, batch_first=batch_first, bidirectional=bidirectional, dtype=dtype)
    model = Whole(module).train(training)
    states = 3 * (1 + bidirectional)
    inputs = [torch.randn(2, size, features, dtype=dtype) for size, features in [(6, 5), (states, 4), (states, 4)]]
    values, gradients = run_whole(model, inputs)
    with PerExampleClipper(model, 1.0):
        own_values, own_gradients = run_whole(model, inputs)
    tolerance = {torch.float32: 2e-6, torch.float64: 1e-12}[dtype]
    torch.testing.assert_close(own_values, values, rtol=tolerance, atol=tolerance, check_stride=True)
    torch.testing.assert_close(own_gradients, gradients, rtol=10 * tolerance, atol=10 * tolerance)
    assert len(gradients) == 3


def same_graph(model: nn.Module, batch: Batch, clip_norm: float) -> Result:
    """The oracle for dropout: one forward, then autograd row by row through that same graph."""
    torch.manual_seed(5)
    gradients = [autograd(loss, model, retain_graph=True) for loss in losses(model, batch)]
    return clip_and_add(gradients, [norm_of(gradient) for gradient in gradients], clip_norm)


def test_dropout_between_layers() -> None:
    shape = Shape(layers=3, dropout=0.4, bidirectional=True)
    batch = batch_of(shape)
    expected = same_graph(tagger(shape), batch, 1.0)
    model = tagger(shape)
    torch.manual_seed(5)
    assert_close(our_engine(model, batch, losses, 1.0), expected)
    without = same_graph(tagger(replace(shape, dropout=0.0)), batch, 1.0)
    assert (without.vector() - expected.vector()).norm() > 1e-3  # the masks matter
    assert_close(our_engine(tagger(shape).eval(), batch, losses, 1.0), without)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant: bool) -> None:
    shape = Shape(layers=2, dropout=0.4)
    batch = batch_of(shape)
    expected = same_graph(tagger(shape), batch, 1.0)

    def recomputed(model: nn.Module, b: Batch) -> Tensor:
        x = b["x"].clone().requires_grad_()
        features = checkpoint(model, x, b["first"], use_reentrant=reentrant)
        assert isinstance(features, Tensor)
        return losses(lambda x, first: features, b)

    model = tagger(shape)
    torch.manual_seed(5)
    assert_close(our_engine(model, batch, recomputed, 1.0), expected)


def test_two_calls_and_two_backwards_in_a_context() -> None:
    shape = Shape(layers=2, bidirectional=True)
    batch = batch_of(shape)
    batch["more"] = batch_of(shape, seed=4)["x"][:, :3].contiguous()

    def both(model: nn.Module, b: Batch) -> Tensor:
        return losses(model, b) + losses(model, b | {"x": b["more"]})

    expected = loop_engine(tagger(shape), batch, both, 1.0)
    assert_close(our_engine(tagger(shape), batch, both, 1.0), expected)

    model = tagger(shape)
    clipper = PerExampleClipper(model, 1.0)
    with clipper:
        losses(model, batch).sum().backward()
        losses(model, batch | {"x": batch["more"]}).sum().backward()
    torch.testing.assert_close(clipper.norms, expected.norms)


def test_a_graph_that_is_kept_can_be_run_back_twice() -> None:
    shape = Shape(layers=2, bidirectional=True)
    batch = batch_of(shape)
    expected = loop_engine(tagger(shape), batch, lambda m, b: 2 * losses(m, b), 1.0)
    model = tagger(shape)
    clipper = PerExampleClipper(model, 1.0)
    with clipper:
        loss = losses(model, batch).sum()
        loss.backward(retain_graph=True)
        loss.backward()
    torch.testing.assert_close(clipper.norms, expected.norms)


def test_calls_without_a_graph_are_no_part_of_the_batch() -> None:
    shape = Shape()
    batch = batch_of(shape)
    expected = loop_engine(tagger(shape), batch, losses, 1.0)
    model = tagger(shape)
    clipper = PerExampleClipper(model, 1.0)
    with clipper:
        losses(model, batch).sum().backward()
        with torch.no_grad():
            other = batch_of(replace(shape, rows=7))
            inside = losses(model, other)
    torch.testing.assert_close(clipper.norms, expected.norms)
    with torch.no_grad():  # not bit for bit: products round by where in memory they are
        torch.testing.assert_close(inside, losses(model, other), rtol=1e-13, atol=1e-15)


def test_autocast_has_the_modules_dtypes_and_clips_what_it_adds() -> None:
    """Norms are those of the gradient that is added, in float32; it is near the exact one."""
    shape = Shape(rows=1, layers=2, hidden=6, bidirectional=True)
    batch, seen = cast(batch_of(shape), torch.float32), []
    model = tagger(shape, torch.float32)
    model.lstm.register_forward_hook(lambda module, args, output: seen.append((output[0].dtype, output[1][0].dtype)))

    def autocast(m: nn.Module, b: Batch) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return losses(m, b)

    plain = autograd(autocast(model, batch).sum(), model)
    unclipped, clipped = (our_engine(model, batch, autocast, clip_norm) for clip_norm in (1e9, 0.1))
    assert len(set(seen)) == 1
    assert all(value.dtype == torch.float32 for value in clipped.sums.values())
    torch.testing.assert_close(unclipped.vector().norm(), unclipped.norms[0], rtol=1e-5, atol=0)
    assert clipped.vector().norm().item() == pytest.approx(0.1, rel=1e-5)
    assert_close(unclipped, clip_and_add([plain], [norm_of(plain)], 1e9), tolerance=0.05)


def test_a_backward_inside_autocast_is_in_full_precision_too() -> None:
    model, inputs = Whole(nn.LSTM(3, 4, 2, batch_first=True)), [torch.randn(2, 5, 3), *torch.randn(2, 2, 2, 4)]

    def norms(backward_inside: bool) -> Tensor:
        clipper = PerExampleClipper(model, 1.0)
        with clipper, torch.autocast("cpu", dtype=torch.bfloat16):
            loss = torch.stack([value.float().square().sum() for value in model(*inputs)]).sum()
            with torch.autocast("cpu", enabled=backward_inside):
                loss.backward()
        clipper.close()
        return clipper.norms

    torch.testing.assert_close(norms(True), norms(False), rtol=1e-6, atol=0)


def test_autocast_leaves_float64_as_it_is() -> None:
    shape = Shape(layers=2)
    batch = batch_of(shape)
    model = Whole(tagger(shape).lstm)
    inputs = [batch["x"], *torch.randn(2, 4, 2, 2, dtype=torch.float64)]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        values, gradients = run_whole(model, inputs)
        with PerExampleClipper(model, 1.0):
            own_values, own_gradients = run_whole(model, inputs)
    torch.testing.assert_close([own_values, own_gradients], [values, gradients], rtol=1e-12, atol=1e-12)


# What stays as it was


def test_an_interrupt_inside_a_context_leaves_other_lstms_alone() -> None:
    def interrupt(module: nn.Module, args: tuple[Tensor]) -> None:
        raise KeyboardInterrupt

    model = tagger(Shape())
    clipper = PerExampleClipper(model)

    def interrupted_step() -> None:
        with clipper:
            model.lstm.register_forward_pre_hook(interrupt)  # after ours, so the mode is active
            losses(model, batch_of(Shape()))

    with pytest.raises(KeyboardInterrupt):
        interrupted_step()
    other = nn.LSTM(3, 2)
    other(torch.ones(1, 1, 3))[0].sum().backward()
    assert all(parameter.grad is not None for parameter in other.parameters())


# Known-wrong backward passes: each differs from the loop


def shifted(record: LstmRecord) -> LstmRecord:
    """Each position's own h in place of the one before."""
    return replace(record, previous_TBH=record.previous_TBH.roll(-1, 0))


def without_first_state(record: LstmRecord) -> LstmRecord:
    previous_TBH = record.previous_TBH.clone()
    previous_TBH[0] = 0
    return replace(record, previous_TBH=previous_TBH)


def last_position(record: LstmRecord) -> LstmRecord:
    gradient_TBG = torch.zeros_like(record.gradient_TBG)
    gradient_TBG[-1] = record.gradient_TBG[-1]
    return replace(record, gradient_TBG=gradient_TBG)


def other_order_of_gates(record: LstmRecord) -> LstmRecord:
    i, f, g, o = record.gradient_TBG.chunk(4, 2)
    return replace(record, gradient_TBG=torch.cat([i, f, o, g], 2))


def without(kind: str) -> Callable[[LstmRecord], LstmRecord]:
    return lambda record: replace(record, names={k: name for k, name in record.names.items() if k != kind})


WRONG_RECORDS: dict[str, Callable[[LstmRecord], LstmRecord]] = {
    "shifted": shifted,
    "without first state": without_first_state,
    "last position": last_position,
    "other order of gates": other_order_of_gates,
    **{f"without {kind}": without(kind) for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")},
}


@pytest.mark.parametrize("damage", WRONG_RECORDS.values(), ids=WRONG_RECORDS.keys())
@pytest.mark.parametrize("name", ["one layer", "three layers", "two bidirectional layers, time first"])
def test_wrong_records_disagree_with_the_loop(
    monkeypatch: pytest.MonkeyPatch, name: str, damage: Callable[[LstmRecord], LstmRecord]
) -> None:
    add = Capture.add

    def add_damaged(capture: Capture, record: Any, layer: str, *gradients: Tensor) -> None:
        add(capture, damage(record) if isinstance(record, LstmRecord) else record, layer, *gradients)

    monkeypatch.setattr(Capture, "add", add_damaged)
    with pytest.raises(AssertionError):
        check(SHAPES[name])


def cut_in_time(slope: Tensor, cell_slope: Tensor, forget: Tensor, w_hh: Tensor, *rest: Any) -> Any:
    """The gradient does not flow through h from a position to the one before."""
    return RUN_BACK(slope, cell_slope, forget, torch.zeros_like(w_hh), *rest)


def forgetful(slope: Tensor, cell_slope: Tensor, forget: Tensor, *rest: Any) -> Any:
    """The gradient does not flow through the cell from a position to the one before."""
    return RUN_BACK(slope, cell_slope, torch.zeros_like(forget), *rest)


def without_last_state(
    slope: Tensor, cell_slope: Tensor, forget: Tensor, w_hh: Tensor, gradients: Any, *rest: Any
) -> Any:
    """The gradients at h_n and c_n are left out."""
    output, h_n, c_n = gradients
    return RUN_BACK(slope, cell_slope, forget, w_hh, (output, 0 * h_n, 0 * c_n), *rest)


RUN_BACK = lstm._run_back_


@pytest.mark.parametrize("wrong", [cut_in_time, forgetful, without_last_state])
def test_wrong_recurrences_disagree_with_the_loop(monkeypatch: pytest.MonkeyPatch, wrong: Callable[..., Any]) -> None:
    monkeypatch.setattr(lstm, "_run_back_", wrong)
    with pytest.raises(AssertionError):
        check(Shape())


# Refused


def clipped_step(model: nn.Module, batch: Batch) -> None:
    with PerExampleClipper(model, 1.0):
        losses(model, batch).sum().backward()


def test_projections_and_unknown_parameters_are_refused_by_name() -> None:
    with pytest.raises(RefusedError, match=r"1 \(LSTM\) has projections \(proj_size=2\)"):
        PerExampleClipper(nn.Sequential(nn.Linear(3, 3), nn.LSTM(3, 4, proj_size=2)))
    odd = nn.LSTM(3, 4)
    odd.register_parameter("temperature", nn.Parameter(torch.ones(1)))
    with pytest.raises(RefusedError, match=r"the model \(LSTM\) has a parameter 'temperature'"):
        PerExampleClipper(odd)


class Packing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 2, batch_first=True)

    def forward(self, x: Tensor, first: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, torch.tensor([5, 4, 2, 1]), batch_first=True)
        return self.lstm(packed)[1][0].squeeze(0)


def test_packed_sequences_are_refused() -> None:
    with pytest.raises(RefusedError, match=r"lstm \(LSTM\) got a PackedSequence") as refusal:
        clipped_step(Packing().double(), batch_of(Shape()))
    assert refusal.value.reason == "packed-sequence"


class Untransposed(nn.Module):
    """Rows go where the LSTM has time."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 2)

    def forward(self, x: Tensor, first: Tensor) -> Tensor:
        return self.lstm(x)[0].flatten(1)


def test_another_batch_dimension_is_refused() -> None:
    model = Untransposed().double()
    with pytest.raises(
        UsageError, match=r"lstm \(LSTM\) got an input of shape \(4, 5, 3\) in a batch of 4; dimension 1"
    ):
        clipped_step(model, batch_of(Shape()))
    with pytest.raises(RefusedError, match=r"lstm \(LSTM\) got may be examples or positions") as refusal:
        clipped_step(model, batch_of(Shape(length=4)))
    assert refusal.value.reason == "ambiguous-batch-dimension"


def test_an_input_without_positions_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"lstm \(LSTM\) got an input of shape \(4, 0, 3\), which has no position"):
        clipped_step(tagger(Shape()), batch_of(Shape(length=0)))


def test_weights_made_of_something_else_are_refused() -> None:
    model = tagger(Shape())
    source = model.lstm.get_parameter("weight_hh_l0").detach().clone().requires_grad_()
    del model.lstm.weight_hh_l0
    model.lstm.weight_hh_l0 = 2 * source
    with pytest.raises(RefusedError, match=r"lstm \(LSTM\) runs on weights that are not its own") as refusal:
        clipped_step(model, batch_of(Shape()))
    assert refusal.value.reason == "parameter-outside-rule"


def test_second_order_gradients_are_refused() -> None:
    model, batch = tagger(Shape()), batch_of(Shape())
    batch["x"].requires_grad_()
    with pytest.raises(RefusedError, match="create_graph") as refusal, PerExampleClipper(model, 1.0):
        torch.autograd.grad(losses(model, batch).sum(), batch["x"], create_graph=True)
    assert refusal.value.reason == "second-order-gradient"


def test_an_input_changed_in_place_is_an_error() -> None:
    model, batch = Whole(nn.LSTM(3, 2, batch_first=True)), torch.randn(4, 5, 3)

    def overwritten() -> None:
        with PerExampleClipper(model, 1.0):
            output, *_ = model(batch, *torch.zeros(2, 4, 1, 2))
            batch.zero_()
            output.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        overwritten()
