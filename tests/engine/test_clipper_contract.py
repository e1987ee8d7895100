"""Every layer, shape, tie and use against the per-example autograd loop, and wrong engines against the same checks (T1-T3)."""

from __future__ import annotations

import copy
import weakref
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit.engine import (
    CLIPPINGS,
    RULES,
    AutomaticClipping,
    Clipping,
    PerExampleClipper,
    PerLayerClipping,
)
from tacit.engine.rules import full_name

from .cases import CASES, Batch, Case, Losses, TiedTable, cast, full_head_losses, id_losses, take, tiny_bert, tokens
from .checks import (
    Engine,
    Result,
    assert_close,
    autograd,
    check_agreement,
    check_influence,
    clip_and_add,
    loop_engine,
    median_norm,
    norm_of,
    our_engine,
    rows_of,
    trainable,
)

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_every_rule_has_a_case() -> None:
    modules = [module for case in CASES.values() for module in case.model().modules()]
    assert RULES.keys() <= {type(module) for module in modules} | {full_name(module) for module in modules}


@every_case
def test_clipped_sum_is_the_loop(case: Case) -> None:
    check_agreement(our_engine, case)


@every_case
@pytest.mark.parametrize("sequences_per_unit", [2, 3])
def test_a_unit_is_clipped_as_one(case: Case, sequences_per_unit: int) -> None:
    batch = case.batch(6, 4)
    expected = loop_engine(case.model(), batch, case.losses, 1.0, sequences_per_unit)
    clip_norm = expected.norms.median().item()
    expected = loop_engine(case.model(), batch, case.losses, clip_norm, sequences_per_unit)
    assert_close(our_engine(case.model(), batch, case.losses, clip_norm, sequences_per_unit), expected)


@every_case
def test_one_example(case: Case) -> None:
    check_agreement(our_engine, case, rows=1)


@every_case
def test_float32_is_close(case: Case) -> None:
    batch = case.batch(5, 3)
    clip_norm = median_norm(case, batch)
    expected = loop_engine(case.model(), batch, case.losses, clip_norm)
    actual = our_engine(case.model(torch.float32), cast(batch, torch.float32), case.losses, clip_norm)
    assert actual.norms.dtype == torch.float32
    assert_close(actual, expected, tolerance=2e-4)


@every_case
def test_micro_batches_and_repeats_add_up(case: Case) -> None:
    batch = take(case.batch(4, 5), [0, 1, 1, 2, 3, 3, 3])
    clip_norm = median_norm(case, batch)
    model = case.model()
    clipper = PerExampleClipper(model, clip_norm)
    norms = []
    for rows in ([0, 1, 2], [3], [4, 5, 6]):
        with clipper:
            case.losses(model, take(batch, rows)).sum().backward()
        norms.append(clipper.norms)
    sums = {name: parameter.grad for name, parameter in trainable(model).items() if parameter.grad is not None}
    assert_close(Result(torch.cat(norms), sums), loop_engine(case.model(), batch, case.losses, clip_norm))


@every_case
def test_rows_without_loss_contribute_zero(case: Case) -> None:
    batch = case.batch(5, 6)
    clip_norm = median_norm(case, batch)
    batch["weight"][[1, 4]] = 0.0
    actual = our_engine(case.model(), batch, case.losses, clip_norm)
    expected = loop_engine(case.model(), take(batch, [0, 2, 3]), case.losses, clip_norm)
    assert actual.norms[[1, 4]].tolist() == [0.0, 0.0]
    assert_close(Result(actual.norms[[0, 2, 3]], actual.sums), expected)


@every_case
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e200], ids=["nan", "inf", "overflow"])
def test_a_unit_without_a_finite_norm_contributes_zero(case: Case, bad: float) -> None:
    batch = case.batch(5, 6)
    clip_norm = median_norm(case, batch)
    batch["weight"][2] = bad
    actual = our_engine(case.model(), batch, case.losses, clip_norm)
    expected = loop_engine(case.model(), take(batch, [0, 1, 3, 4]), case.losses, clip_norm)
    assert not actual.norms[2].isfinite()
    assert_close(Result(actual.norms[[0, 1, 3, 4]], actual.sums), expected)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["linear-3d", "linear-gram", "layer-norm-two-dims", "frozen"])
def test_a_row_of_bad_inputs_contributes_zero(name: str, bad: float) -> None:
    case = CASES[name]
    batch = case.batch(4, 6)
    batch["x"][1, 0] = bad
    actual = our_engine(case.model(), batch, case.losses, 1.0)
    expected = loop_engine(case.model(), take(batch, [0, 2, 3]), case.losses, 1.0)
    assert_close(Result(actual.norms[[0, 2, 3]], actual.sums), expected)


# transformers' models cannot run 0 rows; the fallback has no unit to look at
EMPTY_RUNS = [name for name in CASES if not name.startswith(("bert", "gpt2", "llama", "albert", "lora", "fallback"))]


@pytest.mark.parametrize("name", EMPTY_RUNS)
def test_an_empty_batch_adds_zeros(name: str) -> None:
    case = CASES[name]
    result = our_engine(case.model(), case.batch(0, 1), case.losses, 1.0)
    assert result.norms.shape == (0,)
    assert result.sums.keys() == trainable(case.model()).keys()
    assert not result.vector().any()


@every_case
def test_influence_is_bounded(case: Case) -> None:
    batch = case.batch(4, 8)
    check_influence(our_engine, case.model(), batch, case.losses, median_norm(case, batch))


# Clipping functions


def clipped_loop(model: nn.Module, batch: Batch, losses: Losses, clipping: Clipping, clip_norm: float) -> Result:
    """The oracle for every clipping function: per-example autograd, the group norms by hand, then the formulas of the papers."""
    each = [autograd(losses(model, take(batch, [i])).sum(), model) for i in range(rows_of(batch))]
    layers = sorted({name.rpartition(".")[0] for name in each[0]})
    total = {name: torch.zeros_like(value) for name, value in each[0].items()}
    for one in each:
        whole = norm_of(one).item()
        for name, gradient in one.items():
            if isinstance(clipping, PerLayerClipping):
                layer = [g for other, g in one.items() if other.rpartition(".")[0] == name.rpartition(".")[0]]
                norm = torch.cat([g.flatten() for g in layer]).norm().item()
                scale = min(1.0, clip_norm / len(layers) ** 0.5 / norm) if norm > 0 else 1.0
            elif isinstance(clipping, AutomaticClipping):
                scale = clip_norm / (whole + clipping.stability)
            else:
                scale = min(1.0, clip_norm / whole) if whole > 0 else 1.0
            total[name] += scale * gradient
    return Result(torch.stack([norm_of(one) for one in each]), total)


every_clipping = pytest.mark.parametrize("clipping", CLIPPINGS.values(), ids=CLIPPINGS.keys())


@every_clipping
@pytest.mark.parametrize("name", ["linear-gram", "tied-gram", "lstm", "gpt2-tied", "fallback"])
def test_clipping_functions(name: str, clipping: Clipping) -> None:
    case = CASES[name]
    batch = case.batch(5, 3)
    clip_norm = median_norm(case, batch)

    def engine(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
        return our_engine(model, batch, losses, clip_norm, clipping=clipping)

    expected = clipped_loop(case.model(), batch, case.losses, clipping, clip_norm)
    assert_close(engine(case.model(), batch, case.losses, clip_norm), expected)
    check_influence(engine, case.model(), case.batch(4, 8), case.losses, clip_norm)


def test_per_layer_bounds_that_are_not_shared_break_the_bound() -> None:
    """Known wrong: every layer clipped to C itself, as if the layers were one."""

    class Unshared(PerLayerClipping):
        def scales(self, norms_GU: Tensor, clip_norm: float) -> Tensor:
            return super().scales(norms_GU, clip_norm * len(norms_GU) ** 0.5)

    def engine(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
        return our_engine(model, batch, losses, clip_norm, clipping=Unshared())

    case = CASES["gpt2-tied"]
    with pytest.raises(AssertionError, match="removing"):
        check_influence(engine, case.model(), case.batch(4, 8), case.losses, 1e-4)


# Known-wrong engines: what peers have shipped. Each must fail.


def without_cross_term(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
    """Tied weights whose two norms are added as if the uses were two parameters (fastDP 2.1)."""
    untied = copy.deepcopy(model)
    assert isinstance(model, TiedTable)
    assert isinstance(untied, TiedTable)
    untied.head.weight = nn.Parameter(untied.head.weight.detach().clone())
    norms = [norm_of(autograd(losses(untied, take(batch, [i])).sum(), untied)) for i in range(rows_of(batch))]
    gradients = [autograd(losses(model, take(batch, [i])).sum(), model) for i in range(rows_of(batch))]
    return clip_and_add(gradients, norms, clip_norm)


def batch_mean(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
    """The loss averaged over the batch before it is clipped: every example's gradient depends on how many others there are."""
    return our_engine(model, batch, lambda m, b: losses(m, b) / rows_of(b), clip_norm)


def no_clipping(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
    norms = loop_engine(model, batch, losses, clip_norm).norms
    return Result(norms, autograd(losses(model, batch).sum(), model))


def silently_untrained(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
    """A bias that no hook sees is left out of the norm and of the sum (cls.predictions.bias in fastDP)."""
    result = our_engine(model, batch, losses, clip_norm)
    last = list(result.sums)[-1]
    return Result(result.norms, result.sums | {last: torch.zeros_like(result.sums[last])})


def norm_without_biases(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
    """Biases are scaled like the rest and added, but do not count in the norm."""
    gradients = [autograd(losses(model, take(batch, [i])).sum(), model) for i in range(rows_of(batch))]
    norms = [norm_of({name: g for name, g in one.items() if "bias" not in name}) for one in gradients]
    return clip_and_add(gradients, norms, clip_norm)


WRONG: dict[str, Engine] = {
    "no-cross-term": without_cross_term,
    "batch-mean": batch_mean,
    "no-clipping": no_clipping,
    "silently-untrained": silently_untrained,
    "norm-without-biases": norm_without_biases,
}


@pytest.mark.parametrize("engine", WRONG.values(), ids=WRONG.keys())
@pytest.mark.parametrize("name", ["tied-small", "tied-gram"])
def test_wrong_engines_disagree_with_the_loop(engine: Engine, name: str) -> None:
    with pytest.raises(AssertionError):
        check_agreement(engine, CASES[name])


def opposed(rows: int) -> tuple[nn.Module, Batch, Losses]:
    """All rows but one pull the same way, just below C = 1; the last one pulls back with more than C."""
    model = nn.Linear(2, 1, bias=False).double()
    pull = torch.ones(rows, dtype=torch.float64)
    pull[:-1], pull[-1] = rows - 1.5, -100.0
    x = torch.tensor([[1.0, 0.0]], dtype=torch.float64).expand(rows, 2)
    return model, {"x": x, "pull": pull}, lambda m, b: b["pull"] * m(b["x"])[:, 0]


def aligned_tie() -> tuple[nn.Module, Batch, Losses]:
    """Both uses of a tied table pull the same way: a norm without the cross term is too small by sqrt(2)."""
    model = TiedTable(5, 3, None).double()
    with torch.no_grad():
        model.table.weight.fill_(0.5)
        model.middle.weight.copy_(torch.eye(3))
        model.middle.bias.zero_()

    def losses(m: nn.Module, b: Batch) -> Tensor:
        return 50 * m(b["ids"]).gather(2, b["ids"][:, :, None]).sum((1, 2))

    return model, {"ids": torch.tensor([[1, 1, 1], [2, 2, 2]])}, losses


def test_right_engine_passes_the_attacks() -> None:
    for model, batch, losses in (opposed(6), aligned_tie()):
        check_influence(our_engine, model, batch, losses, 1.0)


@pytest.mark.parametrize("engine", [batch_mean, no_clipping])
def test_wrong_engines_break_the_bound(engine: Engine) -> None:
    model, batch, losses = opposed(6)
    with pytest.raises(AssertionError, match="removing"):
        check_influence(engine, model, batch, losses, 1.0)


def test_missing_cross_term_breaks_the_bound() -> None:
    model, batch, losses = aligned_tie()
    with pytest.raises(AssertionError, match="removing"):
        check_influence(without_cross_term, model, batch, losses, 1.0)


def test_missing_biases_break_the_bound() -> None:
    case = CASES["tied-small"]
    batch = case.batch(4, 8)
    with pytest.raises(AssertionError, match="removing"):
        check_influence(norm_without_biases, case.model(), batch, case.losses, 1e-3)


def unit_influence(rows_clipped_together: int) -> float:
    """How far taking away the first unit of two rows moves the sum."""
    case = CASES["linear-gram"]
    batch = take(case.batch(6, 8), [4, 4, 0, 1, 2, 3])
    model = case.model()
    clip_norm = median_norm(case, batch)
    whole = our_engine(model, batch, case.losses, clip_norm, rows_clipped_together).vector()
    without = our_engine(model, take(batch, [2, 3, 4, 5]), case.losses, clip_norm, rows_clipped_together).vector()
    return ((whole - without).norm() / clip_norm).item()


def test_a_unit_of_two_rows_moves_the_sum_by_one_clip_norm_at_most() -> None:
    assert unit_influence(2) <= 1 + 1e-9
    assert unit_influence(1) > 1.9  # rows clipped one by one: a unit counts twice


widths = st.integers(1, 9)


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    rows=st.integers(2, 4),
    length=st.integers(1, 6),
    vocabulary=st.integers(2, 40),
    width=widths,
    padding=st.booleans(),
    exponent=st.integers(-6, 6),
    seed=st.integers(0, 10**6),
)
def test_influence_is_bounded_at_any_shape_and_scale(
    rows: int, length: int, vocabulary: int, width: int, padding: bool, exponent: int, seed: int
) -> None:
    torch.manual_seed(seed)
    model = nn.Sequential(TiedTable(vocabulary, width, 0 if padding else None), nn.LayerNorm(vocabulary)).double()
    batch = {
        "ids": torch.randint(0, vocabulary, (rows, length)),
        "weight": 10.0 ** torch.randint(-3, 4, (rows,)).double() * torch.randn(rows).double().sign(),
    }
    clip_norm = 10.0**exponent
    check_influence(our_engine, model, batch, id_losses, clip_norm)
    expected = loop_engine(model, batch, id_losses, clip_norm)
    assert_close(our_engine(model, batch, id_losses, clip_norm), expected, scale=clip_norm)


# One graph: randomness and recomputation


def same_graph_engine(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float, seed: int) -> Result:
    """The oracle for dropout: one forward, then autograd row by row through that same graph."""
    torch.manual_seed(seed)
    each = losses(model, batch)
    gradients = [autograd(loss, model, retain_graph=True) for loss in each]
    return clip_and_add(gradients, [norm_of(gradient) for gradient in gradients], clip_norm)


@pytest.mark.parametrize("checkpointing", [None, False, True], ids=["plain", "checkpoint", "reentrant"])
def test_dropout_and_activation_checkpointing(checkpointing: bool | None) -> None:
    case = Case(partial(tiny_bert, dropout=0.3), tokens(7, 40), full_head_losses)
    batch = case.batch(4, 2)
    expected = same_graph_engine(case.model().train(), batch, case.losses, 1.0, seed=5)
    model = case.model().train()
    if checkpointing is not None:
        model.activation_checkpointing_enable({"use_reentrant": checkpointing})
    torch.manual_seed(5)
    assert_close(our_engine(model, batch, case.losses, 1.0), expected)
    other = same_graph_engine(case.model().train(), batch, case.losses, 1.0, seed=6)
    assert (other.vector() - expected.vector()).norm() > 1e-3  # the masks matter


@pytest.mark.parametrize("checkpointing", [True, False])
def test_activation_checkpointing_still_frees_activations(checkpointing: bool) -> None:
    """The engine's own record of a layer's input is recomputed too, instead of kept."""
    case = CASES["bert-tied"]
    batch, model = case.batch(3, 2), case.model().train()
    if checkpointing:
        model.activation_checkpointing_enable({"use_reentrant": False})
    inputs: list[weakref.ref[Tensor]] = []
    inner = model.get_submodule("bert.encoder.layer.0.output.dense")
    inner.register_forward_hook(lambda module, args, output: inputs.append(weakref.ref(args[0].untyped_storage())))
    clipper = PerExampleClipper(model, 1.0)
    with clipper:
        loss = case.losses(model, batch).sum()
        assert (inputs[0]() is None) == checkpointing
        loss.backward()


def test_eval_mode_has_no_dropout() -> None:
    case = Case(partial(tiny_bert, dropout=0.3), tokens(7, 40), full_head_losses)
    batch = case.batch(4, 2)
    expected = loop_engine(CASES["bert-tied"].model(), batch, case.losses, 1.0)
    assert_close(our_engine(case.model().eval(), batch, case.losses, 1.0), expected)


def test_two_calls_in_a_context_are_the_same_rows() -> None:
    case = CASES["tied-gram"]
    batch, other = case.batch(4, 2), case.batch(4, 3)
    both = {"ids": batch["ids"], "weight": batch["weight"], "more": other["ids"]}

    def losses(model: nn.Module, b: Batch) -> Tensor:
        return id_losses(model, b) + 0.5 * id_losses(model, {"ids": b["more"], "weight": b["weight"]})

    expected = loop_engine(case.model(), both, losses, 1.0)
    assert_close(our_engine(case.model(), both, losses, 1.0), expected)

    model = case.model()
    clipper = PerExampleClipper(model, 1.0)
    with clipper:  # two backwards instead of one
        id_losses(model, batch).sum().backward()
        (0.5 * id_losses(model, {"ids": other["ids"], "weight": batch["weight"]})).sum().backward()
    torch.testing.assert_close(clipper.norms, expected.norms)


@pytest.mark.parametrize("around", ["the forward", "the context"])
def test_autocast_clips_what_it_adds(around: str) -> None:
    """Under bfloat16 layers the norm is that of the gradient that is added, in float32."""
    case = CASES["tied-gram"]
    batch = cast(take(case.batch(5, 3), [4]), torch.float32)
    model = case.model(torch.float32)

    def losses(m: nn.Module, b: Batch) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return id_losses(m, b)

    def engine(clip_norm: float) -> Result:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=around == "the context"):
            return our_engine(model, batch, losses, clip_norm)

    unclipped, clipped = engine(1e9), engine(0.5)
    assert all(value.dtype == torch.float32 for value in clipped.sums.values())
    torch.testing.assert_close(unclipped.vector().norm(), unclipped.norms[0], rtol=1e-5, atol=0)
    assert clipped.vector().norm().item() == pytest.approx(0.5, rel=1e-5)
