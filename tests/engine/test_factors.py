"""Factored gradients against the same gradients written out, and the rounding of sums that cancel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tacit.engine.factors import Dense, Factor, Lookup, Outer, combine, squared_norms

U, V, D = 3, 50, 8


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def outer(positions: int, seed: int = 0) -> Outer:
    return Outer(random(U, positions, V, seed=seed), random(U, positions, D, seed=seed + 1))


def lookup(positions: int, rows: int = V, seed: int = 5) -> Lookup:
    generator = torch.Generator().manual_seed(seed)
    return Lookup(torch.randint(0, rows, (U, positions), generator=generator), random(U, positions, D, seed=seed), V)


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
    "two outers": ([outer(2), outer(3, seed=9)], {Outer}),
    "two outers, long together": ([outer(5), outer(5, seed=9)], {Dense}),
    "two lookups": ([lookup(4, rows=3), lookup(2, rows=3, seed=8)], {Lookup}),
    "two of each": ([lookup(4, rows=3), outer(2), outer(2, seed=9), lookup(2, rows=3, seed=8)], {Outer, Lookup}),
    "all": ([Dense(random(U, V, D)), outer(2), lookup(3)], {Dense}),
    "no positions": ([outer(0), lookup(0)], {Outer, Lookup}),
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


def gradient_in_float64(*factors: Outer | Lookup) -> Tensor:
    """The gradient of the only unit."""
    total = 0
    for factor in factors:
        if isinstance(factor, Outer):
            total += factor.left_URp[0].double().T @ factor.right_URd[0].double()
        else:
            values = factor.value_URd[0].double()
            total += torch.zeros(factor.V, values.shape[1]).double().index_add_(0, factor.index_UR[0], values)
    return torch.as_tensor(total)


SHAPES = [(128, 1024, 64), (64, 300, 77), (16, 1000, 100), (33, 8, 5)]


@pytest.mark.parametrize("build", [cancelling_outer, cancelling_tie])
def test_a_gram_norm_is_never_below_the_true_norm_when_the_sum_cancels(
    build: Callable[[int, int, int, int], tuple[Outer] | tuple[Outer, Lookup]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In float32. Without the margin the same search finds norms near 0 for gradients that are not: they would not be clipped."""
    found = [build(seed, *shape) for seed in range(0, 60, 3) for shape in SHAPES]
    true = [gradient_in_float64(*factors).norm().item() for factors in found]
    assert all(squared_norms(factors).sqrt().item() >= norm for factors, norm in zip(found, true, strict=True))
    monkeypatch.setattr("tacit.engine.factors.ROUNDING_MARGIN", 0.0)
    assert any(squared_norms(factors).item() < norm**2 / 4 for factors, norm in zip(found, true, strict=True))


def test_the_margin_is_small_for_ordinary_gradients() -> None:
    for positions, p, d in SHAPES:
        factor = Outer(one_unit(positions, p, seed=1), one_unit(positions, d, seed=2))
        true = gradient_in_float64(factor).norm().item()
        assert squared_norms((factor,)).sqrt().item() == pytest.approx(true, rel=1e-4)
