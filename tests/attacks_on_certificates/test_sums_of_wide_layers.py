"""TACIT-48: which positions of a wide layer are added up hangs on the other units, and must decide nothing of a unit's own gradient.

Of a layer with 4,096 outputs and more the positions without a gradient are left out, unless some unit of the micro-batch has one at
most of them. What is added up over fewer positions may be rounded in another way. Where the parts cancel, and the clip norm is small
beside them, that is all that a clipped gradient is: fifteen units were each another vector beside a sixteenth that has a gradient
everywhere.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.pytorch_utils import Conv1D

from tacit.engine import PerExampleClipper, capture
from tacit.engine.factors import Dense, Outer

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
    clipper = PerExampleClipper(layer, CLIP, 2)
    with clipper:
        (layer(x) * upstream).sum((1, 2)).sum().backward()
    clipper.close()
    found = {one: p.grad for one, p in layer.named_parameters() if p.grad is not None}
    own = {one: grad[:USED] if grad.shape[0] == WIDE else grad[:, :USED] for one, grad in found.items()}
    return clipper.norms[:-1].clone(), own


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
