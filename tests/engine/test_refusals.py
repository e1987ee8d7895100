"""What the clipper refuses, and wrong use: each with an error that names the layer or the parameter (T3)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.engine import PerExampleClipper
from tacit.errors import RefusedError, UsageError

from .cases import CASES, BorrowedTable, full_head_losses, tiny_bert
from .checks import FOUR, step, two_layers

# Refused when the clipper is made


class OwnLinear(nn.Linear):
    """A subclass may compute something else, so it has no rule of its parent."""


def patched_forward() -> nn.Module:
    layer = nn.Linear(3, 2)
    layer.forward = lambda input: F.linear(input, layer.weight)
    return layer


OBJECTIONS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "patched": (patched_forward, r"inner\.0 \(Linear\) has a forward of its own"),
    "max_norm": (lambda: nn.Embedding(3, 2, max_norm=1.0), r"inner\.0 \(Embedding\) max_norm"),
    "by frequency": (lambda: nn.Embedding(3, 2, scale_grad_by_freq=True), r"inner\.0 \(Embedding\) scale_grad_by_freq"),
    "projected lstm": (lambda: nn.LSTM(3, 4, proj_size=2), r"inner\.0 \(LSTM\) has projections"),
}


@pytest.mark.parametrize(("build", "named"), OBJECTIONS.values(), ids=OBJECTIONS.keys())
def test_a_layer_that_its_rule_cannot_clip_is_refused_by_name(build: Callable[[], nn.Module], named: str) -> None:
    model = nn.ModuleDict({"inner": nn.Sequential(build()), "head": nn.Linear(2, 2)})
    with pytest.raises(RefusedError, match=named) as refusal:
        PerExampleClipper(model)
    assert refusal.value.reason == "parameter-without-rule"
    assert "\n" not in str(refusal.value)
    model["inner"].requires_grad_(False)
    PerExampleClipper(model).close()


class Noisy(nn.Module):
    """Base of layers without a rule; each does one thing that no example alone could repeat."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3))


class DropsOut(Noisy):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(self.gain * x, 0.5)


class DrawsNumpy(Noisy):
    """Randomness that vmap does not see: only the comparison of the outputs can."""

    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x * self.generator.random()


class CentresBatch(Noisy):
    def forward(self, x: Tensor) -> Tensor:
        return self.gain * (x - x.mean(0))


class MeanLoss(Noisy):
    def forward(self, x: Tensor) -> Tensor:
        return (self.gain * x).mean()


class Branches(Noisy):
    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x if bool((x > 100).any()) else -self.gain * x


class SwapsRows(Noisy):
    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x.flip(0)


INEXACT: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "dropout": (DropsOut, "cannot run one example at a time"),
    "unseen randomness": (DrawsNumpy, "another output alone"),
    "mixes the batch": (CentresBatch, "another output alone"),
    "swaps rows": (SwapsRows, "another output alone"),
    "mean over the batch": (MeanLoss, "not one row an example"),
    "branches on data": (Branches, "cannot run one example at a time"),
    "reparametrised": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 3)), "not one row an example"),
}


@pytest.mark.parametrize(("build", "named"), INEXACT.values(), ids=INEXACT.keys())
def test_a_layer_that_the_fallback_cannot_repeat_is_refused_by_name(build: Callable[[], nn.Module], named: str) -> None:
    model = nn.Sequential(nn.Linear(3, 3), build())
    with pytest.raises(RefusedError, match=named) as refusal:
        step(PerExampleClipper(model), model)
    assert refusal.value.reason == "parameter-without-rule"
    assert "1" in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_a_compiled_model_is_refused() -> None:
    compiled = torch.compile(two_layers(), backend="eager")
    with pytest.raises(RefusedError, match=r"before torch\.compile") as refusal:
        PerExampleClipper(compiled)
    assert refusal.value.reason == "compiled-model"
    in_place = two_layers()
    in_place[0].compile(backend="eager")
    with pytest.raises(RefusedError, match=r"0 \(Linear\) is compiled"):
        PerExampleClipper(in_place)


def test_a_compiled_step_is_refused_or_exact() -> None:
    """Code around the model may be compiled: dynamo either meets our refusal or runs the hooks as they are."""
    model = two_layers()
    clipper = PerExampleClipper(model)
    losses = torch.compile(lambda x: model(x).square().sum(1), backend="eager")
    with pytest.raises(RefusedError, match="compiled-model"), clipper:
        losses(FOUR).sum().backward()


def test_an_extra_parameter_on_a_known_layer_is_refused() -> None:
    layer = nn.Linear(3, 2)
    layer.register_parameter("temperature", nn.Parameter(torch.ones(1)))
    with pytest.raises(RefusedError, match="the model \\(Linear\\) has a parameter 'temperature'"):
        PerExampleClipper(layer)


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(2), nn.BatchNorm1d(2, affine=False), nn.SyncBatchNorm(2)])
def test_batch_norm_is_refused(layer: nn.Module) -> None:
    with pytest.raises(RefusedError, match=r"^refused \(cross-example-operation\): 1 \("):
        PerExampleClipper(nn.Sequential(nn.Linear(3, 2), layer))


# Refused in a context


class ReadHeadBias(nn.Module):
    """BERT's head as older versions had it: the second name of the bias is read by the head itself."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = nn.Linear(3, 5)
        self.bias = self.decoder.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(x) + self.bias


@pytest.mark.parametrize(
    ("model", "x", "name"),
    [(BorrowedTable(), torch.tensor([[1, 2]]), r"table\.weight"), (ReadHeadBias(), FOUR, r"bias")],
)
def test_a_parameter_used_outside_its_layer_is_refused_by_name(model: nn.Module, x: Tensor, name: str) -> None:
    clipper = PerExampleClipper(model)
    with pytest.raises(RefusedError, match=name) as refusal:
        step(clipper, model, x)
    assert refusal.value.reason == "parameter-outside-rule"
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())


def test_a_bare_forward_call_is_refused() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model)
    with pytest.raises(RefusedError, match=r"2\.(weight|bias) was used outside"), clipper:
        model[2].forward(model[1](model[0](FOUR))).sum().backward()


def test_a_graph_from_before_the_context_is_refused() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model)
    loss = model(FOUR).sum()
    with pytest.raises(RefusedError, match="before the context"), clipper:
        loss.backward()


def test_the_unread_bias_of_an_untied_bert_is_refused_once_it_is_read() -> None:
    model = tiny_bert(tied=False).double()
    head = model.cls.predictions
    assert head.bias is not head.decoder.bias
    batch = CASES["bert-untied"].batch(2, 1)
    clipper = PerExampleClipper(model)
    with clipper:
        full_head_losses(model, batch).sum().backward()
    assert not head.bias.grad.any()
    with pytest.raises(RefusedError, match=r"cls\.predictions\.bias"), clipper:
        (full_head_losses(model, batch) + head.bias.sum()).sum().backward()


def test_second_order_gradients_are_refused() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model)
    x = FOUR.clone().requires_grad_()
    with pytest.raises(RefusedError, match="second-order-gradient"), clipper:
        torch.autograd.grad(model(x).sum(), x, create_graph=True)


class PositionsWithoutBatch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(9, 2), nn.Embedding(9, 2)

    def forward(self, ids: Tensor) -> Tensor:
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))


@pytest.mark.parametrize(("rows", "error"), [(3, UsageError), (5, RefusedError)])
def test_positions_without_a_batch_dimension_are_never_taken_for_examples(rows: int, error: type[UsageError]) -> None:
    """Five positions look like five examples; the gradient of position t would be clipped as if it were example t's."""
    model = PositionsWithoutBatch()
    clipper = PerExampleClipper(model)
    with pytest.raises(error, match=r"positions \(Embedding\)") as raised:
        step(clipper, model, torch.zeros(rows, 5, dtype=torch.long))
    assert type(raised.value) is error


class Permutes(nn.Module):
    """Two layers with something between them that no shape can show."""

    def __init__(self, between: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.between, self.second = nn.Linear(3, 4), between, nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.tanh(self.between(self.first(x))))


MIXING: dict[str, Callable[[Tensor], Tensor]] = {
    "sorts rows": lambda x: x[x.sum(1).argsort()],
    "reverses rows": lambda x: x.flip(0),
    "centres the batch": lambda x: x - x.mean(0),
    "mixes in the gradient alone": lambda x: x + (x.mean(0) - x.mean(0).detach()),
}


def summed(losses: Tensor) -> Tensor:
    return losses.sum()


def in_another_way(losses: Tensor) -> Tensor:
    """Not recognised as a sum of losses: the first layer reached probes what is below it."""
    return torch.einsum("b->", losses)


@pytest.mark.parametrize("between", MIXING.values(), ids=MIXING.keys())
@pytest.mark.parametrize("add_up", [summed, in_another_way])
def test_examples_that_reach_each_other_are_refused(
    between: Callable[[Tensor], Tensor], add_up: Callable[[Tensor], Tensor]
) -> None:
    model = Permutes(between)
    clipper = PerExampleClipper(model)
    x = torch.tensor([[3.0, 1, 2], [0, 1, 5], [9, 9, 9], [2, 2, 0]])
    with pytest.raises(RefusedError, match=r"first \(Linear\).*reaches the row of another") as refusal, clipper:
        add_up(model(x).square().sum(1)).backward()
    assert refusal.value.reason == "cross-example-operation"
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("add_up", [summed, in_another_way])
def test_rows_of_one_unit_may_reach_each_other(add_up: Callable[[Tensor], Tensor]) -> None:
    def within(x: Tensor) -> Tensor:
        pairs = x.view(2, 2, -1)
        return (pairs - pairs.mean(1, keepdim=True)).view_as(x)

    model = Permutes(within)
    x = torch.tensor([[3.0, 1, 2], [0, 1, 5], [9, 9, 9], [2, 2, 0]])
    clipper = PerExampleClipper(model, sequences_per_unit=2)
    with clipper:
        add_up(model(x).square().sum(1)).backward()
    one_by_one = PerExampleClipper(model)
    with pytest.raises(RefusedError, match="cross-example-operation"), one_by_one:
        add_up(model(x).square().sum(1)).backward()


def test_a_later_shape_in_which_rows_look_like_positions_is_probed_too() -> None:
    """Positions first in the second layer: seen when there are as many of them as rows."""

    class TimeFirst(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            if h.shape[0] == h.shape[1]:
                h = h.transpose(0, 1)
            return self.second(h)

    model = TimeFirst()
    clipper = PerExampleClipper(model)
    step(clipper, model, torch.randn(4, 5, 3))
    with pytest.raises(RefusedError, match="cross-example-operation"):
        step(clipper, model, torch.randn(4, 4, 3))


# Wrong use


class Flatten(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x.flatten(0, 1))


def test_a_flattened_batch_is_an_error_that_names_the_layer() -> None:
    model = Flatten()
    with pytest.raises(
        UsageError, match=r"head \(Linear\) got an input of shape \(8, 3\) in a batch of 4: it flattens"
    ):
        step(PerExampleClipper(model), model, torch.zeros(4, 2, 3))


def test_a_second_call_with_another_batch_is_an_error() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model)
    with pytest.raises(UsageError, match="in a batch of 4"), clipper:
        (model(FOUR).sum() + model(FOUR[:3]).sum()).backward()


def test_a_layer_norm_over_the_batch_is_an_error() -> None:
    model = nn.LayerNorm((4, 3))
    with pytest.raises(UsageError, match=r"\(LayerNorm\) got an input of shape \(4, 3\)"):
        step(PerExampleClipper(model), model)


def test_units_must_divide_the_batch() -> None:
    model = two_layers()
    with pytest.raises(UsageError, match="4 rows are no multiple of sequences_per_unit=3"):
        step(PerExampleClipper(model, sequences_per_unit=3), model)


def test_inputs_must_agree_on_the_batch() -> None:
    model = nn.Bilinear(3, 3, 2).requires_grad_(False)
    both = nn.ModuleDict({"pair": model, "head": nn.Linear(2, 2)})
    clipper = PerExampleClipper(both)
    with pytest.raises(UsageError, match=r"sizes \[4, 3\]"), clipper:
        both["pair"](FOUR, FOUR[:3])


def test_a_context_without_a_backward_is_an_error() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model)
    with pytest.raises(UsageError, match="nothing was recorded"), clipper:
        model(FOUR).sum()
    with pytest.raises(UsageError, match="nothing was recorded"), clipper:
        pass


def test_a_backward_after_the_context_is_an_error() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model)
    with clipper:
        late = model(FOUR).sum()
        model(FOUR).sum().backward()
    with pytest.raises(UsageError, match="after its clipping context"):
        late.backward()


def test_an_input_changed_in_place_is_an_error() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model)
    x = FOUR.clone()
    with clipper:
        losses = model(x).square().sum(1)
        x += 1
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            losses.sum().backward()
        model(x).square().sum().backward()
