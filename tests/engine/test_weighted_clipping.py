"""A unit of weight w moves the clipped sum by at most w C, whatever its gradient is (adaptive DP); engines that do not are caught."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tacit.engine import CLIPPINGS, AutomaticClipping, Clipping, FlatClipping, PerExampleClipper, PerLayerClipping
from tacit.engine import clipper as engine_clipper
from tacit.engine.factors import Factor
from tacit.errors import UsageError

from .cases import CASES, Case, take
from .checks import Result, assert_close, autograd, median_norm, norm_of, step, trainable, two_layers

FLAT = FlatClipping()
C = 0.7

Sum = Callable[[Tensor, Tensor, Clipping], Tensor]
"""From gradients (U, d) and weights (U,) to the clipped sum (d,)."""


class Any(nn.Module):
    """A model whose per-unit gradients are its inputs, over two layers: adversarial ones can be given."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.one = nn.Linear(width, 1, bias=False, dtype=torch.float64)
        self.two = nn.Linear(width, 1, bias=False, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        width = self.one.in_features
        return (self.one(x[:, :width]) + self.two(x[:, width : 2 * width])).squeeze(1)


def our_sum(gradients_Ud: Tensor, weights_U: Tensor, clipping: Clipping = FLAT) -> Tensor:
    width = gradients_Ud.shape[1] // 2
    model = Any(width)
    clipper = PerExampleClipper(model, C, 1, clipping)
    # Columns that nothing reads, so that no batch here is as long as its rows are wide, which the engine refuses as ambiguous.
    rows = torch.cat([gradients_Ud, torch.zeros(len(gradients_Ud), 7, dtype=torch.float64)], dim=1)
    with clipper.weighted(weights_U):
        model(rows).sum().backward()
    return torch.cat([parameter.grad.flatten() for parameter in model.parameters() if parameter.grad is not None])


def weights_ignored(gradients_Ud: Tensor, weights_U: Tensor, clipping: Clipping = FLAT) -> Tensor:
    """Known wrong."""
    return our_sum(gradients_Ud, torch.ones_like(weights_U), clipping)


def weights_of_the_batch(gradients_Ud: Tensor, weights_U: Tensor, clipping: Clipping = FLAT) -> Tensor:
    """Known wrong: all units are clipped at the batch's mean weight."""
    return our_sum(gradients_Ud, torch.full_like(weights_U, float(weights_U.mean())), clipping)


def scaled_before(gradients_Ud: Tensor, weights_U: Tensor, clipping: Clipping = FLAT) -> Tensor:
    """Known wrong: the gradient is weighed before it is clipped, which a large gradient does not feel."""
    return our_sum(gradients_Ud * weights_U[:, None], torch.ones_like(weights_U), clipping)


def check_influence(
    engine: Sum, gradients_Ud: Tensor, weights_U: Tensor, other_d: Tensor, clipping: Clipping = FLAT
) -> None:
    """Each unit in turn: gone, moves the sum by at most w C; replaced by one of weight v, by at most (w + v) C."""
    whole = engine(gradients_Ud, weights_U, clipping)
    assert whole.isfinite().all()
    slack = 1e-9 * (1 + float(whole.norm()))
    for unit in range(len(weights_U)):
        kept = [place for place in range(len(weights_U)) if place != unit]
        without = engine(gradients_Ud[kept], weights_U[kept], clipping)
        assert float((whole - without).norm()) <= float(weights_U[unit]) * C + slack
        entered, weights = gradients_Ud.clone(), weights_U.clone()
        entered[unit], weights[unit] = other_d, 0.35
        replaced = engine(entered, weights, clipping)
        assert float((whole - replaced).norm()) <= (float(weights_U[unit]) + 0.35) * C + slack


number = st.one_of(
    st.floats(-3, 3), st.sampled_from([0.0, -0.0, 1e-300, 1e300, -1e300, math.inf, -math.inf, math.nan, 1e8])
)
vector = st.lists(number, min_size=4, max_size=4)
units = st.lists(st.tuples(vector, st.floats(1e-3, 1.0)), min_size=2, max_size=5)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(units=units, other=vector, name=st.sampled_from(sorted(CLIPPINGS)), twice=st.booleans())
def test_no_gradient_moves_the_sum_by_more_than_its_weight_allows(
    units: list[tuple[list[float], float]], other: list[float], name: str, twice: bool
) -> None:
    units = [*units, units[0]] if twice else units  # the same unit's text may occur again
    gradients = torch.tensor([gradient for gradient, _ in units], dtype=torch.float64)
    weights = torch.tensor([weight for _, weight in units], dtype=torch.float64)
    check_influence(our_sum, gradients, weights, torch.tensor(other, dtype=torch.float64), CLIPPINGS[name])


LOUD = torch.tensor([[9.0, 0, 0, 9], [0, 50, 1, 0], [1, -20, 300, 4]], dtype=torch.float64)
WEIGHTS = torch.tensor([1.0, 0.25, 0.1], dtype=torch.float64)


@pytest.mark.parametrize("wrong", [weights_ignored, weights_of_the_batch, scaled_before])
def test_the_check_of_the_influence_catches(wrong: Sum) -> None:
    check_influence(our_sum, LOUD, WEIGHTS, -LOUD[0])
    with pytest.raises(AssertionError):
        check_influence(wrong, LOUD, WEIGHTS, -LOUD[0])


def test_the_bound_is_reached() -> None:
    moved = our_sum(LOUD, WEIGHTS) - our_sum(LOUD[:2], WEIGHTS[:2])
    assert float(moved.norm()) == pytest.approx(0.1 * C, rel=1e-12)


def weighted_loop(case: Case, rows: int, weights: Sequence[float], clip_norm: float) -> Result:
    """The oracle: autograd of each example alone, clipped at w C."""
    model, batch = case.model(), case.batch(rows, 3)
    gradients = [autograd(case.losses(model, take(batch, [row])).sum(), model) for row in range(rows)]
    norms = [norm_of(gradient) for gradient in gradients]
    scales = [min(1.0, weight * clip_norm / max(n.item(), 1e-300)) for weight, n in zip(weights, norms, strict=True)]
    sums = {
        name: sum((s * g[name] for s, g in zip(scales, gradients, strict=True)), torch.tensor(0.0))
        for name in gradients[0]
    }
    return Result(torch.stack(norms), sums)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_sum_is_the_loop_over_units_clipped_at_their_weights(case: Case) -> None:
    weights, batch = [1.0, 0.5, 0.05, 0.7, 0.3], case.batch(5, 3)
    clip_norm, model = median_norm(case, batch), case.model()
    clipper = PerExampleClipper(model, clip_norm)
    with clipper.weighted(torch.tensor(weights)):
        case.losses(model, batch).sum().backward()
    sums = {name: parameter.grad for name, parameter in trainable(model).items() if parameter.grad is not None}
    assert_close(Result(clipper.norms, sums), weighted_loop(case, 5, weights, clip_norm), 1e-7)  # weights are float32


@pytest.mark.parametrize(("clipping", "bound"), [(AutomaticClipping(), None), (PerLayerClipping(), 2**-0.5)])
def test_other_clippings_see_the_norm_over_the_weight(clipping: Clipping, bound: float | None) -> None:
    gradient, w = torch.tensor([[3.0, 0.0, 0.0, 4.0]], dtype=torch.float64), 0.4
    found = our_sum(gradient, torch.tensor([w], dtype=torch.float64), clipping)
    if bound is None:
        expected = gradient[0] * C / (5.0 / w + 0.01)
    else:
        expected = torch.tensor([1.0, 0.0, 0.0, 1.0], dtype=torch.float64) * bound * C * w
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


def test_weight_one_changes_no_bit() -> None:
    found = []
    for weighted in (False, True):
        model = two_layers()
        clipper = PerExampleClipper(model, 0.1)
        with clipper.weighted(torch.ones(4)) if weighted else clipper:
            model(torch.arange(12.0).view(4, 3)).square().sum().backward()
        found.append([parameter.grad for parameter in model.parameters() if parameter.grad is not None])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_a_unit_of_several_rows_has_one_weight() -> None:
    model, x = two_layers(), torch.arange(12.0).view(4, 3)
    clipper = PerExampleClipper(model, 0.1, 2)
    with clipper.weighted(torch.tensor([0.5, 1.0])):
        model(x).square().sum().backward()
    halves = []
    for rows, weight in ((slice(0, 2), 0.5), (slice(2, 4), 1.0)):
        alone = autograd(model(x[rows]).square().sum(), model)
        halves.append({name: value * (0.1 * weight / norm_of(alone)) for name, value in alone.items()})
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        torch.testing.assert_close(parameter.grad, halves[0][name] + halves[1][name], rtol=1e-5, atol=1e-7)


def test_weights_are_for_one_context() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model, 0.1)
    with clipper.weighted(torch.full((4,), 0.25)):
        model(torch.arange(12.0).view(4, 3)).square().sum().backward()
    model.zero_grad()
    step(clipper, model)  # no weights: as if they had never been
    fresh = two_layers()
    step(PerExampleClipper(fresh, 0.1), fresh)
    for one, other in zip(model.parameters(), fresh.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)


def test_weights_of_a_context_that_did_not_begin_are_forgotten() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model, 0.1)
    with clipper:
        with pytest.raises(UsageError, match="already active"), clipper.weighted(torch.full((4,), 0.25)):
            pass
        model(torch.arange(12.0).view(4, 3)).square().sum().backward()
    fresh = two_layers()
    step(PerExampleClipper(fresh, 0.1), fresh)
    first, second = next(model.parameters()).grad, next(fresh.parameters()).grad
    assert first is not None
    assert second is not None
    assert torch.equal(first, second)


@pytest.mark.parametrize("weights", [[0.0, 1.0], [-0.5, 1.0], [1.5, 1.0], [math.nan, 1.0], [[1.0, 1.0]]])
def test_weights_outside_their_range_are_refused(weights: list[float]) -> None:
    with pytest.raises(UsageError, match="above 0 and at most 1"):
        PerExampleClipper(two_layers(), 0.1).weighted(torch.tensor(weights))


def test_a_missing_weight_adds_nothing() -> None:
    model = two_layers()
    clipper = PerExampleClipper(model, 0.1)
    with pytest.raises(UsageError, match="3 weights for 4 units"), clipper.weighted(torch.ones(3)):
        model(torch.arange(12.0).view(4, 3)).square().sum().backward()
    assert all(parameter.grad is None for parameter in model.parameters())


def test_parts_that_cancel_are_judged_by_the_units_own_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten clip norms of parts are little for a unit of weight 1, and a thousand times what one of weight 0.01 may add."""
    seen: list[torch.dtype] = []
    real = engine_clipper._weighted_sum

    def told(parameter: Tensor, factors: Sequence[Factor], weights: Tensor) -> Tensor:
        seen.append(weights.dtype)
        return real(parameter, factors, weights)

    monkeypatch.setattr(engine_clipper, "_weighted_sum", told)
    rows = torch.ones(2, 4, 64)
    rows[:, 2:] *= -(1 - 2e-3)
    clipper = PerExampleClipper(model := nn.Linear(64, 64, bias=False), 1.0)
    with clipper.weighted(torch.full((2,), 0.01)):
        model(rows).sum((1, 2)).sum().backward()
    assert torch.float64 in seen
