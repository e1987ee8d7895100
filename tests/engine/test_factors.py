"""Factored gradients against the same gradients written out, and the rounding of sums that cancel."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tacit.engine.combining import combine, squared_norms
from tacit.engine.factors import Dense, Factor, Lookup, Outer
from tacit.engine.logits import IGNORE_INDEX, Logits, rounded_product

U, V, D = 3, 50, 8


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def outer(positions: int, seed: int = 0) -> Outer:
    return Outer(random(U, positions, V, seed=seed), random(U, positions, D, seed=seed + 1))


def lookup(positions: int, rows: int = V, seed: int = 5) -> Lookup:
    generator = torch.Generator().manual_seed(seed)
    return Lookup(torch.randint(0, rows, (U, positions), generator=generator), random(U, positions, D, seed=seed), V)


HEAD_WEIGHT, HEAD_BIAS = random(V, D, seed=30), random(V, seed=31)


def logits(positions: int, seed: int = 0, bias: Tensor | None = HEAD_BIAS, block: int = 7 * V) -> Logits:
    """A third of the labels are left out."""
    hidden, weight = random(U, positions, D, seed=seed), HEAD_WEIGHT
    label = torch.randint(0, V, (U, positions), generator=torch.Generator().manual_seed(seed))
    label[:, 1::3] = IGNORE_INDEX
    scores = hidden @ weight.T if bias is None else hidden @ weight.T + bias
    return Logits(
        hidden, random(U, positions, seed=seed + 2), label, scores.logsumexp(2), weight, bias, torch.float64, block
    )


def softmax_minus_onehot(head: Logits, unit: int, position: int) -> Tensor:
    if head.label_UR[unit, position] == IGNORE_INDEX:
        return torch.zeros(V, dtype=torch.float64)
    scores = head.weight_Vd @ head.hidden_URd[unit, position]
    probabilities = (scores if head.bias_V is None else scores + head.bias_V).softmax(0)
    probabilities[head.label_UR[unit, position]] -= 1
    return head.upstream_UR[unit, position] * probabilities


def written_out(factor: Factor) -> Tensor:
    """One unit and one position at a time."""
    total = torch.zeros(U, V, D, dtype=torch.float64)
    for unit in range(U):
        if isinstance(factor, Outer):
            for left, right in zip(factor.left_URp[unit], factor.right_URd[unit], strict=True):
                total[unit] += left[:, None] * right[None, :]
        elif isinstance(factor, Lookup):
            for row, value in zip(factor.index_UR[unit], factor.value_URd[unit], strict=True):
                total[unit, row] += value
        elif isinstance(factor, Logits):
            for position, hidden in enumerate(factor.hidden_URd[unit]):
                total[unit] += softmax_minus_onehot(factor, unit, position)[:, None] * hidden
        else:
            total[unit] = factor.gradient_Uw[unit]
    return total


MIXTURES: dict[str, tuple[list[Factor], set[type]]] = {
    "dense": ([Dense(random(U, V, D))], {Dense}),
    "outer": ([outer(4)], {Outer}),
    "outer, long": ([outer(12)], {Dense}),
    "lookup": ([lookup(4)], {Lookup}),
    "lookup, repeats": ([lookup(9, rows=2)], {Lookup}),
    "tied": ([outer(4), lookup(6, rows=5)], {Outer, Lookup}),
    "tied, long": ([lookup(6), outer(12)], {Dense}),
    "two outers": ([outer(1), outer(3, seed=9)], {Outer}),
    "two outers, long together": ([outer(5), outer(5, seed=9)], {Dense}),
    "two lookups": ([lookup(4, rows=3), lookup(2, rows=3, seed=8)], {Lookup}),
    "two of each": ([lookup(4, rows=3), outer(2), outer(2, seed=9), lookup(2, rows=3, seed=8)], {Outer, Lookup}),
    "all": ([Dense(random(U, V, D)), outer(2), lookup(3)], {Dense}),
    "no positions": ([outer(0), lookup(0)], {Outer, Lookup}),
    "logits": ([logits(4)], {Logits}),
    "logits, long": ([logits(12)], {Logits}),
    "logits, no bias": ([logits(4, bias=None)], {Logits}),
    "logits, one entry at a time": ([logits(4, block=1)], {Logits}),
    "logits, all but small": ([logits(12, block=U * V * D - 1)], {Logits}),
    "logits, small": ([logits(12, block=U * V * D), lookup(3)], {Dense}),
    "logits, tied": ([logits(4), lookup(6, rows=5)], {Logits, Lookup}),
    "logits, long, tied": ([lookup(6), logits(12)], {Logits, Lookup}),
    "logits, tied twice": ([logits(4), lookup(4, rows=3), lookup(2, rows=3, seed=8)], {Logits, Lookup}),
    "two calls of a head": ([logits(4), logits(3, seed=9), lookup(4)], {Logits, Lookup}),
    "two heads with one weight": ([logits(1), logits(3, seed=9, bias=None)], {Outer}),
    "two heads, one weight, other bias": ([logits(1), logits(3, seed=9, bias=HEAD_BIAS.flip(0))], {Outer}),
    "logits and a layer's call": ([logits(2), outer(2), lookup(3)], {Outer, Lookup}),
    "logits and a layer's call, long": ([logits(5), outer(5)], {Dense}),
    "logits and dense": ([Dense(random(U, V, D)), logits(4), lookup(3)], {Dense}),
    "logits, no positions": ([logits(0)], {Logits}),
}


@pytest.mark.parametrize(("factors", "forms"), MIXTURES.values(), ids=MIXTURES.keys())
def test_norms_and_weighted_sums_of_every_mixture(factors: list[Factor], forms: set[type]) -> None:
    gradient_UVD = sum((written_out(factor) for factor in factors), torch.zeros(U, V, D, dtype=torch.float64))
    combined = combine(factors)
    assert {type(factor) for factor in combined} == forms
    assert len(combined) == len(forms)
    torch.testing.assert_close(squared_norms(combined), gradient_UVD.square().sum((1, 2)), rtol=1e-12, atol=1e-12)

    weight_U, start = torch.tensor([0.5, 0.0, 2.0], dtype=torch.float64), random(V, D, seed=20)
    total = start.clone()
    for factor in combined:
        factor.add_weighted_sum_(total, weight_U)
    expected = start + (weight_U[:, None, None] * gradient_UVD).sum(0)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("factor", [Dense(random(U, V, D)), outer(4), lookup(4)])
def test_a_dropped_unit_is_zero_whatever_it_holds(factor: Factor) -> None:
    for tensor in vars(factor).values():
        if isinstance(tensor, Tensor) and tensor.is_floating_point():
            tensor[1] = float("nan")
    without = written_out(factor.without(torch.tensor([False, True, False])))
    assert not without[1].any()
    assert without[[0, 2]].isfinite().all()
    assert without[0].any()


def test_two_calls_of_one_head_join_only_where_both_are_computed_alike() -> None:
    call = logits(2)
    assert call.joins(replace(call, label_UR=call.label_UR.flip(0)))
    assert not call.joins(replace(call, rounding=torch.bfloat16))
    assert not call.joins(replace(call, bias_V=None))


@pytest.mark.parametrize("block", [1, 7 * V, 10**6])
@pytest.mark.parametrize("positions", [4, 12])
def test_the_gradient_of_a_heads_bias(positions: int, block: int) -> None:
    head = logits(positions, block=block)
    places = [[softmax_minus_onehot(head, unit, position) for position in range(positions)] for unit in range(U)]
    expected = torch.stack([torch.stack(place).sum(0) for place in places])
    torch.testing.assert_close(head.bias_gradient().gradient_Uw, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("positions", [4, 12])
@pytest.mark.parametrize("where", ["hidden_URd", "upstream_UR", "weight_Vd", "bias_V"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_head_call_that_is_not_finite_has_no_norm_and_is_zero_when_dropped(
    positions: int, where: str, bad: float
) -> None:
    head = replace(logits(positions), weight_Vd=HEAD_WEIGHT.clone(), bias_V=HEAD_BIAS.clone())
    of_all_units = where in ("weight_Vd", "bias_V")
    getattr(head, where)[1] = bad
    dropped = torch.tensor([of_all_units, True, of_all_units])
    assert (~head.squared_norms().isfinite()).tolist() == dropped.tolist()
    kept = head.without(dropped)
    assert (kept.squared_norms() == 0).tolist() == dropped.tolist()
    total = torch.zeros(V, D, dtype=torch.float64)
    kept.add_weighted_sum_(total, torch.ones(U, dtype=torch.float64))
    expected = written_out(logits(positions))[~dropped].sum(0)
    torch.testing.assert_close(total, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rounding", [torch.float32, torch.bfloat16])
def test_a_dropped_unit_changes_no_others_softmax(rounding: torch.dtype) -> None:
    """One row is multiplied by another kernel than two, and the softmax is rounded otherwise than it was in the norm."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(2, 1, 64, generator=generator) * 4, torch.randn(5000, 64, generator=generator)
    lse = rounded_product(hidden.flatten(0, 1), weight.T, rounding).logsumexp(1)[:, None]
    head = Logits(hidden, torch.ones(2, 1), torch.tensor([[7], [9]]), lse, weight, None, rounding, 20_000)
    dropped = torch.tensor([False, True])
    expected = head.weighted_sum(torch.tensor([1.0, 0.0]))
    assert torch.equal(head.without(dropped).weighted_sum(torch.ones(2)), expected)


def sharp_logits(rounding: torch.dtype, positions: int) -> Logits:
    """In float32, with logits of some tens, where bfloat16 changes the softmax."""
    hidden, weight = random(U, positions, D).float() * 6, HEAD_WEIGHT.float()
    label = torch.randint(0, V, (U, positions), generator=torch.Generator().manual_seed(1))
    lse, upstream = rounded_product(hidden.flatten(0, 1), weight.T, rounding).logsumexp(1), torch.ones(U, positions)
    return Logits(hidden, upstream, label, lse.view(U, positions), weight, None, rounding, 3 * V)


def excess(bounded: Logits, added: Logits) -> float:
    """How far a unit's part of the sum is above its norm, at most, relative to the norm."""
    norms, found = bounded.squared_norms().sqrt(), []
    for unit in range(U):
        total = torch.zeros(V, D)
        added.add_weighted_sum_(total, torch.eye(U)[unit])
        found.append(total.norm() / norms[unit] - 1)
    return torch.stack(found).max().item()


@pytest.mark.parametrize("positions", [4, 12])
def test_the_sum_adds_what_the_norm_measured_in_every_precision(positions: int) -> None:
    """The known-wrong pair, a norm in float32 of a sum from bfloat16 logits, fails."""
    exact, rounded = sharp_logits(torch.float32, positions), sharp_logits(torch.bfloat16, positions)
    assert excess(exact, exact) < 1e-6
    assert excess(rounded, rounded) < 1e-6
    assert max(excess(exact, rounded), excess(rounded, exact)) > 3e-5


def one_unit(*shape: int, seed: int) -> Tensor:
    return torch.randn(1, *shape, generator=torch.Generator().manual_seed(seed))


def cancelling_outer(seed: int, positions: int, p: int, d: int) -> tuple[Outer]:
    """One direction many times, with weights that sum to (nearly) zero: the true gradient is rounding alone."""
    signs = one_unit(positions, 1, seed=seed)
    left = one_unit(1, p, seed=seed + 1) * (signs - signs.mean(1, keepdim=True))
    return (Outer(left, one_unit(1, d, seed=seed + 2).expand(1, positions, d)),)


def cancelling_tie(seed: int, positions: int, p: int, d: int) -> tuple[Outer, Lookup]:
    """A tied table whose two uses undo each other."""
    right = one_unit(1, d, seed=seed).expand(1, positions, d)
    left = one_unit(1, p, seed=seed + 1).abs() * one_unit(positions, 1, seed=seed + 2).sigmoid()
    outer = Outer(left, right)
    return outer, Lookup(torch.arange(p)[None], -gradient_in_float64(outer)[None].float(), p)


def gradient_in_float64(*factors: Outer | Lookup | Logits) -> Tensor:
    """The gradient of the only unit."""
    total = 0
    for factor in factors:
        factor = factor.outer() if isinstance(factor, Logits) else factor
        if isinstance(factor, Outer):
            total += factor.left_URp[0].double().T @ factor.right_URd[0].double()
        else:
            values = factor.value_URd[0].double()
            total += torch.zeros(factor.V, values.shape[1]).double().index_add_(0, factor.index_UR[0], values)
    return torch.as_tensor(total)


def cancelling_logits(seed: int, positions: int, p: int, d: int) -> tuple[Logits]:
    """One token predicted from one state many times, with upstream gradients that sum to (nearly) zero."""
    hidden, weight = one_unit(1, d, seed=seed).expand(1, positions, d), one_unit(p, d, seed=seed + 1)[0]
    signs = one_unit(positions, seed=seed + 2)
    lse, label = (hidden @ weight.T).logsumexp(2), torch.zeros(1, positions, dtype=torch.int64)
    return (Logits(hidden, signs - signs.mean(), label, lse, weight, None, torch.float32, positions * 100),)


SHAPES = [(128, 1024, 64), (64, 300, 77), (16, 1000, 100), (33, 8, 5)]


@pytest.mark.parametrize("build", [cancelling_outer, cancelling_tie, cancelling_logits])
def test_a_gram_norm_is_never_below_the_true_norm_when_the_sum_cancels(
    build: Callable[[int, int, int, int], tuple[Outer] | tuple[Outer, Lookup] | tuple[Logits]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In float32. With inner products of float32 and without the margin the same search finds norms near 0 for gradients that are
    not: they would not be clipped.
    """
    found = [build(seed, *shape) for seed in range(0, 60, 3) for shape in SHAPES]
    true = [gradient_in_float64(*factors).norm().item() for factors in found]
    assert all(squared_norms(factors).sqrt().item() >= norm for factors, norm in zip(found, true, strict=True))
    for module in ("factors", "combining", "logits"):
        monkeypatch.setattr(
            f"tacit.engine.{module}.rounding_margin", lambda sizes_UR, terms=1, dtype=None: torch.zeros(len(sizes_UR))
        )
    for module in ("factors", "logits"):
        monkeypatch.setattr(f"tacit.engine.{module}.gram", lambda x_URk: torch.bmm(x_URk, x_URk.mT))
    # NaN where it was below 0: such a unit is dropped
    assert any(not squared_norms(factors).item() >= norm**2 / 4 for factors, norm in zip(found, true, strict=True))


def test_the_margin_is_small_for_ordinary_gradients() -> None:
    """It grows with the terms of an inner product: 1.5e-4 of the norm at 128 positions of 1,024."""
    for positions, p, d in SHAPES:
        factor = Outer(one_unit(positions, p, seed=1), one_unit(positions, d, seed=2))
        true = gradient_in_float64(factor).norm().item()
        assert squared_norms((factor,)).sqrt().item() == pytest.approx(true, rel=2e-4)
