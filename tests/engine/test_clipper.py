"""The clipper's life: options, coefficients, contexts, and a model that is as before when it is closed."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tacit.engine import RULES, AutomaticClipping, FlatClipping, PerExampleClipper, PerLayerClipping, Rule
from tacit.engine.factors import Dense
from tacit.engine.precision import full_precision
from tacit.errors import UsageError

from .cases import CASES, Batch
from .checks import FOUR, Scale, assert_close, autograd, loop_engine, our_engine, step, two_layers

# Options and coefficients


NORMS = torch.tensor([[0.0, 1e-30, 0.5, 2.0, 8.0, float("inf"), float("nan")]])


def test_flat_coefficients_of_edge_cases() -> None:
    assert FlatClipping().coefficients(NORMS, 2.0).tolist() == [[1.0, 1.0, 1.0, 1.0, 0.25, 0.0, 0.0]]
    assert FlatClipping().coefficients(torch.zeros(1, 0), 2.0).shape == (1, 0)


def test_automatic_coefficients_of_edge_cases() -> None:
    found = AutomaticClipping(0.5).coefficients(NORMS, 2.0)
    torch.testing.assert_close(found, torch.tensor([[4.0, 4.0, 2.0, 0.8, 2 / 8.5, 0.0, 0.0]]))


def test_per_layer_coefficients_share_the_bound() -> None:
    norms = torch.tensor(
        [[0.0, 9.0, 1.0, 1.0], [0.5, 9.0, float("inf"), 1.0], [9.0, 9.0, 1.0, 1.0], [0.1, 9.0, 1.0, 1.0]]
    )
    found = PerLayerClipping().coefficients(norms, 2.0)  # four layers: each may add 1
    torch.testing.assert_close(found[:, 0], torch.tensor([1.0, 1.0, 1 / 9, 1.0]))
    torch.testing.assert_close(found[:, 1], torch.full((4,), 1 / 9))
    assert not found[:, 2].any()
    assert found[:, 3].tolist() == [1.0] * 4


def test_layers_are_modules_and_a_tie_belongs_to_the_first() -> None:
    names = ["table.weight", "block.0.weight", "block.0.bias", "norm.weight", "own"]
    assert PerLayerClipping().groups(names) == [0, 1, 1, 2, 3]


@pytest.mark.parametrize("stability", [0.0, -1.0, float("nan"), float("inf")])
def test_stability_must_be_positive_and_finite(stability: float) -> None:
    with pytest.raises(UsageError, match="stability"):
        AutomaticClipping(stability)


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


# Contexts


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

    def interrupted_step() -> None:
        with clipper:
            model[2].register_forward_pre_hook(interrupt)  # after ours, so the layer's parameters are out of the graph
            model(FOUR)

    with pytest.raises(KeyboardInterrupt):
        interrupted_step()
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


@pytest.mark.parametrize("chosen", ["tf32", "bf16", "everything"])
def test_a_precision_that_was_chosen_by_operation_is_put_back(chosen: str) -> None:
    """Torch's older function, which was asked before, raised then: in a loop of one's own each step was paid for and lost."""
    products = torch.backends.mkldnn.matmul if chosen == "bf16" else torch.backends.cuda.matmul
    set_on: Any = torch.backends if chosen == "everything" else products
    operations: Any = (products, torch.backends.cudnn.conv, torch.backends.cudnn.rnn)
    before = [one.fp32_precision for one in operations]
    try:
        set_on.fp32_precision = "tf32" if chosen == "everything" else chosen
        meant = [one.fp32_precision for one in operations]
        with full_precision():
            assert [one.fp32_precision for one in operations] == ["ieee"] * 3
            assert torch.get_float32_matmul_precision() == "highest"
            assert not torch.backends.cudnn.allow_tf32
        assert [one.fp32_precision for one in operations] == meant
        model = two_layers()
        step(PerExampleClipper(model), model)
    finally:
        torch.backends.fp32_precision = "none"  # pyright: ignore[reportAttributeAccessIssue]
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = True
        for one, was in zip(operations, before, strict=True):
            one.fp32_precision = was


class Diagonal(nn.Module):
    """To the fallback, whose gradients of it are scattered numbers of a matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = nn.Parameter(torch.ones(256))

    def forward(self, x: Tensor) -> Tensor:
        return x @ torch.diag(self.numbers)


def test_scattered_numbers_lose_no_more_digits_than_others() -> None:
    """31st attack: one large number before 255 small ones, added up one by one, was 7.6e-6 of the clip norm too much."""
    x = torch.full((1, 256), 2.0**-12 * 0.999)
    x[0, 0] = 1.0
    found = our_engine(Diagonal(), {"x": x}, lambda m, b: m(b["x"]).sum(1), 1e-3).vector().double()
    assert found.norm() <= 1e-3 * (1 + 20 * 2.0**-24)


@pytest.mark.parametrize(("use", "drops"), [("trial", True), ("tried", False)])
def test_a_trial_takes_the_memory_that_a_dropped_unit_takes(
    use: Any, drops: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    dropped: list[Tensor] = []
    without = Dense.without
    monkeypatch.setattr(Dense, "without", lambda self, units: dropped.append(units) or without(self, units))
    model = two_layers()
    step(PerExampleClipper(model, use=use), model)
    assert bool(dropped) == drops
    assert not any(units.any() for units in dropped)


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [100, 3000])
def test_one_large_parameter_hides_the_norms_of_no_other(parameters: int) -> None:
    """31st attack: added up in float32, squares below 2^-24 of the largest were lost; 3,000 of them added 9e-5 of the clip norm."""

    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Scale() for _ in range(parameters))

        def forward(self, x: Tensor) -> Tensor:
            small = [layer(x * 2.4e-4) for layer in self.layers[:-1]]
            return torch.stack([*small, self.layers[-1](x)]).sum(0)  # the backward begins with the last

    model = Many()
    (total,) = [our_engine(model, {"x": torch.ones(1, 2)}, lambda m, b: m(b["x"]).sum(1), 1e-3).vector().double()]
    assert total.norm() <= 1e-3 * (1 + 2.0**-21)
