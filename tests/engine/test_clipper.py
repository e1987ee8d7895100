"""The clipper's life: options, coefficients, what is refused and why, and a model that is as before when it is closed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from tacit.engine import RULES, PerExampleClipper, Rule, clip_coefficients
from tacit.engine.factors import Dense
from tacit.errors import RefusedError, UsageError

from .cases import CASES, Batch, full_head_losses, tiny_bert
from .checks import assert_close, autograd, loop_engine, our_engine

FOUR = torch.arange(12.0).view(4, 3)


def two_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def step(clipper: PerExampleClipper, model: nn.Module, x: Tensor = FOUR) -> None:
    with clipper:
        model(x).square().sum().backward()


# Options and coefficients


def test_coefficients_of_edge_cases() -> None:
    norms = torch.tensor([0.0, 1e-30, 0.5, 2.0, 8.0, float("inf"), float("nan")])
    assert clip_coefficients(norms, 2.0).tolist() == [1.0, 1.0, 1.0, 1.0, 0.25, 0.0, 0.0]
    assert clip_coefficients(torch.zeros(0), 2.0).shape == (0,)


@pytest.mark.parametrize("clip_norm", [0.0, -1.0, float("inf"), float("nan")])
def test_clip_norm_must_be_positive_and_finite(clip_norm: float) -> None:
    with pytest.raises(UsageError, match="clip_norm"):
        PerExampleClipper(two_layers(), clip_norm)


def test_a_unit_has_at_least_one_sequence() -> None:
    with pytest.raises(UsageError, match="sequences_per_unit"):
        PerExampleClipper(two_layers(), sequences_per_unit=0)


def test_low_precision_parameters_are_named() -> None:
    model = two_layers()
    model[2].to(torch.bfloat16)
    with pytest.raises(UsageError, match=r"2\.weight is torch\.bfloat16"):
        PerExampleClipper(model)


def test_something_must_be_trainable() -> None:
    with pytest.raises(UsageError, match="no trainable parameter"):
        PerExampleClipper(two_layers().requires_grad_(False))


# Refused when the clipper is made


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.ones(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x


class OwnLinear(nn.Linear):
    """A subclass may compute something else, so it has no rule of its parent."""


def patched_forward() -> nn.Module:
    layer = nn.Linear(3, 2)
    layer.forward = lambda input: F.linear(input, layer.weight)  # type: ignore[method-assign]
    return layer


WITHOUT_RULE: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "bare parameter": (Scale, r"'gain' of inner\.0 \(Scale\)"),
    "subclass": (lambda: OwnLinear(3, 2), r"'weight' of inner\.0 \(OwnLinear\)"),
    "attention": (lambda: nn.MultiheadAttention(4, 2), r"inner\.0 \(MultiheadAttention\)"),
    "reparametrised": (lambda: nn.utils.parametrizations.weight_norm(nn.Linear(3, 2)), r"Parametrized"),
    "patched": (patched_forward, r"inner\.0 \(Linear\) has a forward of its own"),
    "max_norm": (lambda: nn.Embedding(3, 2, max_norm=1.0), r"inner\.0 \(Embedding\) max_norm"),
    "by frequency": (lambda: nn.Embedding(3, 2, scale_grad_by_freq=True), r"inner\.0 \(Embedding\) scale_grad_by_freq"),
}


@pytest.mark.parametrize(("build", "named"), WITHOUT_RULE.values(), ids=WITHOUT_RULE.keys())
def test_a_parameter_without_a_rule_is_refused_by_name(build: Callable[[], nn.Module], named: str) -> None:
    model = nn.ModuleDict({"inner": nn.Sequential(build()), "head": nn.Linear(2, 2)})
    with pytest.raises(RefusedError, match=named) as refusal:
        PerExampleClipper(model)
    assert refusal.value.reason == "parameter-without-rule"
    assert "\n" not in str(refusal.value)
    model["inner"].requires_grad_(False)
    PerExampleClipper(model).close()


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


class BorrowedTable(nn.Module):
    """User code that reads a table outside the embedding's own call (an output layer by hand)."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return F.linear(self.table(ids), self.table.weight)


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


def test_contexts_do_not_nest_and_a_closed_clipper_stays_closed() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model)
    with pytest.raises(UsageError, match="already active"), clipper, clipper:
        pass
    step(clipper, model)
    clipper.close()
    with pytest.raises(UsageError, match="was closed"):
        step(clipper, model)


def test_norms_need_a_context_first() -> None:
    with pytest.raises(UsageError, match="no clipping context"):
        _ = PerExampleClipper(two_layers()).norms


def freeze(model: nn.Sequential) -> None:
    model[0].bias.requires_grad_(False)


def replace(model: nn.Sequential) -> None:
    model[0].bias = nn.Parameter(torch.zeros(4))


def grow(model: nn.Sequential) -> None:
    model.append(nn.Linear(2, 2))


@pytest.mark.parametrize(("change", "name"), [(freeze, "0.bias"), (replace, "0.bias"), (grow, "3.weight")])
def test_a_model_changed_after_construction_is_an_error(change: Callable[[Any], None], name: str) -> None:
    model = two_layers()
    clipper = PerExampleClipper(model)
    change(model)
    with pytest.raises(UsageError, match=f"{name} was frozen, unfrozen or replaced"):
        step(clipper, model)


# What stays as it was


def snapshot(model: nn.Module) -> list[Any]:
    """Everything on modules and parameters that a clipper could leave behind."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs")
    modules = [(path, set(vars(m)), [len(vars(m)[h]) for h in hooks]) for path, m in model.named_modules()]
    always = [len(m._forward_hooks_always_called) + len(m._backward_hooks) for m in model.modules()]
    parameters = [
        (name, id(p), p.requires_grad, set(vars(p)), len(p._backward_hooks or ()))
        for name, p in model.named_parameters(remove_duplicate=False)
    ]
    return [modules, always, parameters]


@pytest.mark.parametrize("name", ["bert-tied", "frozen", "reused-gram"])
def test_the_model_is_as_before_after_close(name: str) -> None:
    case = CASES[name]
    model = case.model()
    before, state, batch = snapshot(model), copy.deepcopy(model.state_dict()), case.batch(3, 1)
    losses = case.losses(model, batch)
    clipper = PerExampleClipper(model, 1.0)
    assert snapshot(model) != before
    with clipper:
        case.losses(model, batch).sum().backward()
    clipper.close()
    assert snapshot(model) == before
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)
    torch.testing.assert_close(case.losses(model, batch), losses, rtol=0, atol=0)


def test_between_contexts_the_model_trains_as_usual() -> None:
    model, plain = two_layers(), two_layers()
    clipper = PerExampleClipper(model)
    step(clipper, model)
    expected = autograd(plain(FOUR).sum(), plain)
    torch.testing.assert_close(autograd(model(FOUR).sum(), model), expected, rtol=0, atol=0)


def test_no_grad_inside_a_context_is_no_part_of_the_batch() -> None:
    model = two_layers()
    expected = our_engine(two_layers(), {"x": FOUR}, lambda m, b: m(b["x"]).square().sum(1), 1.0)
    clipper = PerExampleClipper(model)
    with clipper:
        with torch.no_grad():
            model(torch.ones(7, 3))
        model(FOUR).square().sum().backward()
    torch.testing.assert_close(clipper.norms, expected.norms)


class Failing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise ValueError("no")


@pytest.mark.parametrize("x", [FOUR, torch.zeros(4, 7)], ids=["between layers", "inside a layer"])
def test_an_exception_leaves_the_model_as_before_and_adds_nothing(x: Tensor) -> None:
    model = nn.Sequential(nn.Linear(3, 4), Failing())
    clipper = PerExampleClipper(model)
    idle = snapshot(model)
    with pytest.raises((ValueError, RuntimeError)), clipper:
        model(x)
    assert snapshot(model) == idle
    assert all(parameter.grad is None for parameter in model.parameters())
    with clipper:
        model[0](FOUR).sum().backward()
    assert clipper.norms.shape == (4,)


def test_an_interrupt_inside_a_layer_leaves_it_trainable() -> None:
    def interrupt(module: nn.Module, args: tuple[Tensor]) -> None:
        raise KeyboardInterrupt

    model = two_layers()
    clipper = PerExampleClipper(model)
    model[2].register_forward_pre_hook(interrupt)  # after ours, so the layer's parameters are out of the graph
    with pytest.raises(KeyboardInterrupt), clipper:
        model(FOUR)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_layer_that_fails_once_is_trainable_in_the_same_context() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model)
    with clipper:
        with pytest.raises(RuntimeError):
            model[0](torch.zeros(4, 7))
        assert all(parameter.requires_grad for parameter in model.parameters())
        model(FOUR).square().sum().backward()
    expected = our_engine(two_layers(), {"x": FOUR}, lambda m, b: m(b["x"]).square().sum(1), 1.0)
    torch.testing.assert_close(clipper.norms, expected.norms)


def test_gradients_accumulate_until_zero_grad() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model, 0.1)
    step(clipper, model)
    once = [parameter.grad.clone() for parameter in model.parameters()]
    step(clipper, model)
    torch.testing.assert_close([parameter.grad for parameter in model.parameters()], [2 * grad for grad in once])


def test_parameters_that_are_not_reached_keep_their_gradient() -> None:
    case = CASES["unreached"]
    model = case.model()
    model.unused.weight.grad = torch.ones_like(model.unused.weight)
    clipper = PerExampleClipper(model)
    with clipper:
        case.losses(model, case.batch(3, 1)).sum().backward()
    assert (model.unused.weight.grad == 1).all()
    assert not model.unused.bias.grad.any()
    assert not model.ignored.weight.grad.any()


def test_hooks_of_the_user_still_see_and_change_outputs() -> None:
    """A forward hook that scales a layer's output is part of the model, whether it was registered before or after."""

    def doubled(early: bool) -> nn.Sequential:
        model = two_layers().double()
        if early:
            model[0].register_forward_hook(lambda module, args, output: 2 * output)
        return model

    def losses(model: nn.Module, batch: Batch) -> Tensor:
        return model(batch["x"]).square().sum(1)

    batch = {"x": FOUR.double() / 10}
    model = doubled(early=True)
    gradients = [autograd(losses(model, {"x": row[None]}).sum(), model) for row in batch["x"]]
    norms = torch.stack([torch.cat([g.flatten() for g in one.values()]).norm() for one in gradients])
    torch.testing.assert_close(our_engine(doubled(early=True), batch, losses, 1.0).norms, norms)

    late = doubled(early=False)
    clipper = PerExampleClipper(late)
    late[0].register_forward_hook(lambda module, args, output: 2 * output)
    with clipper:
        losses(late, batch).sum().backward()
    torch.testing.assert_close(clipper.norms, norms)


def test_a_layer_is_added_by_one_line_and_its_products_are_in_full_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where the user allows TF32 or bfloat16 products, which stays so afterwards."""
    seen = []

    def gain(module: Scale, input: Tensor, gradient: Tensor) -> Dense:
        seen.append(torch.get_float32_matmul_precision())
        return Dense((input * gradient).sum(1))

    monkeypatch.setitem(RULES, Scale, Rule({"gain": gain}, lambda _: 1, lambda _: 1))
    batch = {"x": FOUR[:, :2].contiguous()}
    expected = loop_engine(Scale(), batch, lambda m, b: m(b["x"]).square().sum(1), 50.0)
    try:
        torch.set_float32_matmul_precision("medium")
        actual = our_engine(Scale(), batch, lambda m, b: m(b["x"]).square().sum(1), 50.0)
        assert seen == ["highest"]
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert_close(actual, expected, tolerance=1e-5)
