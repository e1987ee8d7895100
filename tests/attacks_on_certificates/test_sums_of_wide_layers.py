"""TACIT-48: what other units decide of how a unit's gradient is added up.

Which positions of a wide layer are added up hangs on the other units, and must decide nothing of a unit's own gradient.

Of a layer with 4,096 outputs and more the positions without a gradient are left out, unless some unit of the micro-batch has one at
most of them. What is added up over fewer positions may be rounded in another way. Where the parts cancel, and the clip norm is small
beside them, that is all that a clipped gradient is: fifteen units were each another vector beside a sixteenth that has a gradient
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.pytorch_utils import Conv1D

from tacit.config import ComputeOptions
from tacit.engine import PerExampleClipper, capture, clipper, combining, factors
from tacit.engine.factors import Dense, Factor, Lookup, Outer
from tacit.models.lstm import LstmConfig, LstmForCausalLM
from tacit.models.places import together
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.unit_rows import Source

from ..training.phases import PLAN, dropping_bert
from ..training.streams import OBJECTIVE, stream_of

T, WIDE, UNITS, CLIP = 64, 4096, 16, 1e-3
OTHERS = slice(30, None)  # the rows of the last unit
USED = 10  # positions of a row at which the others have a gradient, and features


def linear_bias() -> nn.Module:
    layer = nn.Linear(8, WIDE)
    layer.weight.requires_grad_(False)
    return layer


LAYERS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "bias": (linear_bias, 8),
    "linear": (lambda: nn.Linear(8, WIDE), 8),
    "layer norm": (lambda: nn.LayerNorm(WIDE), WIDE),
    "llama's norm": (lambda: LlamaRMSNorm(WIDE), WIDE),
    "conv1d": (lambda: Conv1D(WIDE, 8), 8),
}


def step(name: str, beside: bool) -> tuple[Tensor, dict[str, Tensor]]:
    """Norms of the first units, and what they add to the clipped sum, beside a unit that has a gradient everywhere or nowhere.

    That unit has it at other features alone.
    """
    make, features = LAYERS[name]
    torch.manual_seed(0)
    layer = make()
    parts, x = 1e4 * torch.randn(USED, USED), torch.randn(2 * UNITS, T, features)
    x[1:30:2, :USED] = x[0:30:2, :USED]  # so that the two rows of a unit cancel in weights too
    upstream = torch.zeros(2 * UNITS, T, WIDE)
    upstream[0:30:2, :USED, :USED], upstream[1:30:2, :USED, :USED] = parts, -parts
    if beside:
        upstream[OTHERS, :, USED:] = 1e-3
    clips = PerExampleClipper(layer, CLIP, 2)
    with clips:
        (layer(x) * upstream).sum((1, 2)).sum().backward()
    clips.close()
    found = {one: p.grad for one, p in layer.named_parameters() if p.grad is not None}
    own = {one: grad[:USED] if grad.shape[0] == WIDE else grad[:, :USED] for one, grad in found.items()}
    return clips.norms[:-1].clone(), own


@pytest.mark.parametrize("name", LAYERS)
def test_a_unit_beside_them_changes_nothing_of_the_others(name: str) -> None:
    norms, own = step(name, beside=False)
    norms_beside, own_beside = step(name, beside=True)
    assert (norms - norms_beside).abs().max() <= 1e-3 * CLIP
    if name not in ("linear", "conv1d"):  # of which float64 leaves something, where all cancels
        assert torch.equal(norms, norms_beside)
    for parameter, sum_ in own.items():
        assert (sum_ - own_beside[parameter]).norm() <= 1e-3 * CLIP, parameter


@pytest.mark.parametrize("name", ["bias", "layer norm"])
def test_adding_up_what_is_left_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known wrong, as it was: the sum over the positions that stay. The sum of fifteen units moved by fifteen clip norms."""

    def of_what_stays(record: capture._LayerRecord, units: int):  # pyright: ignore[reportPrivateUsage]
        rule, module = record.site.rule, record.site.module
        assert rule is not None
        gradient_UR = capture.per_unit(record.gradient, units, rule.output_features(module))
        given = capture.per_unit(record.input, units, rule.input_features(module)), gradient_UR
        for parameter, in_model in record.site.names.items():
            yield in_model, rule.factors[parameter](module, *capture.with_gradient(*given))

    monkeypatch.setattr(capture._LayerRecord, "factors", of_what_stays)
    (_, own), (_, own_beside) = step(name, beside=False), step(name, beside=True)
    moved = sum((own[one] - own_beside[one]).square().sum() for one in own)
    assert float(moved) ** 0.5 > 5 * CLIP


def outer(scale: float) -> Outer:
    """Of a unit whose two halves cancel."""
    torch.manual_seed(2)
    left_URp, right_URd = scale * torch.randn(1, 8, 6), scale * torch.randn(1, 8, 4)
    halves = torch.cat([left_URp, -left_URp], 1), torch.cat([right_URd, right_URd], 1)
    return Outer(*halves, may_lack=True)


def test_a_part_that_is_rounded_before_another_one_cancels_it_counts_as_doubt() -> None:
    """Its last digit, which others may decide, is all that is left: known wrong, a doubt of the float64 sum alone."""
    part = outer(1.0)
    precise = Outer(part.left_URp.abs(), part.right_URd.abs(), may_lack=True).dense()
    size = precise.squared_norms().sqrt().item()
    left = precise.plus_(Dense(-precise.gradient_Uw)).squared_norms().sqrt().item()
    assert left >= 1000 * 2.0**-24 * size
    assert left <= 1e-3 * size


def test_what_a_tied_table_shares_is_exact_where_positions_may_lack() -> None:
    """The cross term of the norm: in float32 its rounding would hang on which positions stay."""
    torch.manual_seed(5)
    left_URp, right_URd = torch.zeros(1, 64, 8), torch.randn(1, 64, 32)
    left_URp[0, :, 3] = torch.cat([torch.ones(32), -torch.ones(32)])
    right_URd[0, 32:] = right_URd[0, :32] * (1 + 1e-6)
    index_UR, value_URd = torch.full((1, 64), 3), torch.randn(1, 64, 32)
    exact = torch.einsum("urp,urd,usd->", left_URp.double(), right_URd.double(), value_URd.double())
    found = combining._inner_products(Outer(left_URp, right_URd, may_lack=True), Lookup(index_UR, value_URd, 8))
    assert found.item() == pytest.approx(exact.item(), rel=1e-6)
    products = torch.bmm(right_URd, value_URd.mT) * left_URp.gather(
        2, index_UR[:, None, :].expand(1, 64, 64)
    )  # as it was
    assert abs(products.sum().item() / exact.item() - 1) > 1e-4


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e9])
def test_rounding_of_what_cancels_is_far_below_a_clip_norm(scale: float) -> None:
    """Even in float64, where the parts are so large that nothing but rounding is left: it counts as a part of the norm."""
    cancelling = outer(scale)
    order = torch.randperm(16, generator=torch.Generator().manual_seed(3))
    moved = Outer(cancelling.left_URp[:, order], cancelling.right_URd[:, order], may_lack=True)
    one, other = cancelling.dense(), moved.dense()
    clipped = [
        each.gradient_Uw * (CLIP / each.squared_norms().sqrt()).clamp(max=1)[:, None, None] for each in (one, other)
    ]
    assert (clipped[0] - clipped[1]).norm() <= 1e-3 * CLIP
    ordinary = Outer(torch.randn(1, 8, 6), torch.randn(1, 8, 4), may_lack=True).dense()
    torch.testing.assert_close(ordinary.squared_norms(), Dense(ordinary.gradient_Uw).squared_norms(), rtol=1e-6, atol=0)


# sums of many positions, and units that cancel -----------------------------------------------------------------------

MANY, LONG = 256, 512
EACH = (
    126.4921875 * 2.0**-16
)  # of a position: an exact float32, of which each addition in the last binade loses almost half a digit


def shares_of_a_row(beside: bool) -> float:
    """What units add to one row of a table, at all positions, beside one whose own row cancels, or one without a gradient."""
    table = nn.Embedding(2, 1)
    ids, upstream = torch.zeros(MANY, LONG, dtype=torch.long), torch.full((MANY, LONG, 1), EACH)
    upstream[-1] = 0
    if beside:
        ids[-1], upstream[-1, 0::2], upstream[-1, 1::2] = 1, 1e3, -1e3
    clips = PerExampleClipper(table, 1.0)
    with clips:
        (table(ids) * upstream).sum((1, 2)).sum().backward()
    clips.close()
    assert table.weight.grad is not None
    return float(table.weight.grad[0, 0])


def test_a_row_of_a_table_is_the_sum_of_the_units_shares_whoever_is_beside() -> None:
    """So many additions in float32 lost half a clip norm, which a unit that cancels brought back: it made all sums float64."""
    exact = (MANY - 1) * LONG * EACH
    assert shares_of_a_row(False) == shares_of_a_row(True) == pytest.approx(exact, abs=1e-3)


def test_rows_that_are_added_up_in_float32_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_float32(index_UR: Tensor, value_URd: Tensor, weight_U: Tensor | None = None) -> tuple[Tensor, Tensor]:
        rows, slot_UR = torch.unique(index_UR, return_inverse=True)
        values = value_URd if weight_U is None else value_URd * weight_U[:, None, None]
        return rows, value_URd.new_zeros(len(rows), 1).index_add_(0, slot_UR.flatten(), values.flatten(0, 1))

    monkeypatch.setattr(factors, "summed_rows", in_float32)
    assert abs(shares_of_a_row(False) - (MANY - 1) * LONG * EACH) > 0.3


@pytest.mark.parametrize("positions", [512, 16_384])
def test_a_table_row_that_many_positions_share_is_not_clipped_too_little(positions: int) -> None:
    """Known wrong: a float32 sum of 16,384 equal numbers was too small by 2.4e-4 of it, so the unit added more than the clip norm."""
    value = torch.full((1, positions, 1), 1000.4921875)
    found = Lookup(torch.zeros(1, positions, dtype=torch.long), value, 2).squared_norms().sqrt()
    assert found >= positions * 1000.4921875
    assert found <= positions * 1000.4921875 * (1 + 1e-6)


FEATURES = 64  # so many that gradients of 8 positions are not materialised


def sum_without_the_last(cancels: bool) -> Tensor:
    """The columns of a weight's sum that the last unit has no part in."""
    torch.manual_seed(4)
    layer = nn.Linear(FEATURES, FEATURES, bias=False)
    x, upstream = torch.randn(2, MANY, 8, FEATURES).unbind()
    x[-1, :, FEATURES // 2 :], x[:-1, :, : FEATURES // 2] = 0, 0
    upstream[-1] = 0
    if cancels:
        x[-1, 4:], upstream[-1, :4], upstream[-1, 4:] = x[-1, :4].clone(), 1e4, -1e4
    clips = PerExampleClipper(layer, 1.0)
    with clips:
        (layer(x) * upstream).sum((1, 2)).sum().backward()
    clips.close()
    assert layer.weight.grad is not None
    return layer.weight.grad[:, FEATURES // 2 :].clone()


def test_a_unit_that_cancels_decides_the_precision_of_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Known wrong: float64 for all units of a micro-batch as soon as one of them cancels."""
    alone = sum_without_the_last(False)
    assert torch.equal(alone, sum_without_the_last(True))
    monkeypatch.setattr(clipper, "CANCELLING", 0.0)
    assert not torch.equal(alone, sum_without_the_last(False)), "float64 would not be seen"


def test_the_trial_before_a_phase_needs_as_much_as_a_unit_that_cancels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one unit decides whether a device's memory is enough, when steps are paid for. 29th attack."""
    added, weighted_sum = [], clipper._weighted_sum

    def seen(parameter: nn.Parameter, parts: Sequence[Factor], weights: Tensor) -> Tensor:
        added.append((len(parts) > 0, weights.dtype))
        return weighted_sum(parameter, parts, weights)

    monkeypatch.setattr(clipper, "_weighted_sum", seen)
    model = nn.Module.float(dropping_bert())
    source = Source(stream_of({"unit 0": [[7, 8, 9]]}), OBJECTIVE, KeyedRandomness(bytes(32)))
    DpStep(model, PLAN, ComputeOptions(micro_batch=4, threads=1), source).close()
    assert {dtype for has_parts, dtype in added if has_parts} == {torch.float32, torch.float64}
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.parametrize("hidden", [200, 576, 640, 704])
def test_no_place_decides_an_lstms_gates(hidden: int) -> None:
    """Two gates have one sigmoid, of 2 x ``hidden`` numbers a row: a thread's share of them ended within a row. 28th attack."""
    before = torch.get_num_threads()
    model = LstmForCausalLM(LstmConfig(vocab_size=40, embedding_size=hidden, hidden_size=hidden))
    torch.set_num_threads(4)
    try:
        rows = together(model, 64, 1, [8, 16, 64])
        for seed in range(6):
            z_BG = (
                (3 * torch.randn(1, 4 * hidden, generator=torch.Generator().manual_seed(seed)))
                .expand(64, -1)
                .contiguous()
            )
            gates_BH = z_BG[:rows].clone()[:, : 2 * hidden].sigmoid_()
            assert (gates_BH == gates_BH[0]).all()
    finally:
        torch.set_num_threads(before)
    assert hidden == 200 or rows < 64
