"""What is clipped is summed as torch was told to multiply, and what is compared was computed alike (TACIT-56).

What was wrong. `NVIDIA_TF32_OVERRIDE=1` rounds products of float32 to TF32 whatever torch asks for: on an H200 they were off by 5e-2
where true float32 is off by 2e-4, in sums whose norms are float64. And in a loop of one's own a convolution was computed in TF32, as
torch comes, and compared with a second run in float32: whether they agreed hung on how large a unit's numbers are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tacit.config import ModelOptions
from tacit.engine import PerExampleClipper
from tacit.engine.places import PlaceWatch
from tacit.engine.precision import refuse_rounded_products
from tacit.errors import UsageError
from tacit.evaluation import causal_lm
from tacit.models.kinds import build_model
from tacit.training.sequences import SequenceStream

from ..networks import special_of

torch.set_num_threads(1)


@pytest.mark.parametrize(
    ("name", "value", "device", "refused"),
    [
        ("NVIDIA_TF32_OVERRIDE", "1", "cuda", True),
        ("NVIDIA_TF32_OVERRIDE", "0", "cuda", False),
        ("NVIDIA_TF32_OVERRIDE", "", "cuda", False),
        ("NVIDIA_TF32_OVERRIDE", "1", "cpu", False),
        ("CUBLAS_EMULATE_DOUBLE_PRECISION", "1", "cuda", True),
        ("CUBLAS_EMULATION_STRATEGY", "eager", "cuda", True),
    ],
)
def test_what_rounds_products_below_torch_is_refused(
    name: str, value: str, device: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    if refused:
        with pytest.raises(UsageError, match=f"{name}={value} lets NVIDIA's libraries round products"):
            refuse_rounded_products(torch.device(device))
    else:
        refuse_rounded_products(torch.device(device))


def precision_of_convolutions() -> str:
    convolutions: Any = torch.backends.mkldnn.conv
    return convolutions.fp32_precision


@pytest.fixture
def bf16() -> Iterator[None]:
    """Convolutions on a CPU may be rounded, as a user may have it."""
    convolutions: Any = torch.backends.mkldnn.conv
    before = convolutions.fp32_precision
    convolutions.fp32_precision = "bf16"
    yield
    convolutions.fp32_precision = before


class Told(nn.Module):
    """Says how convolutions are rounded while it computes."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner
        self.found: list[str] = []

    def forward(self, x: Tensor) -> Tensor:
        self.found.append(precision_of_convolutions())
        return self.inner(x)


@pytest.mark.parametrize(
    ("layer", "expected"),
    [(nn.Conv1d(3, 2, 2), "ieee"), (nn.Linear(4, 2), "bf16")],
    ids=["computed twice", "computed once, as the user likes"],
)
def test_what_is_computed_again_is_compared_with_what_was_rounded_alike(
    layer: nn.Module, expected: str, bf16: None
) -> None:
    model = Told(layer)
    clipper = PerExampleClipper(model)
    with clipper:
        model(torch.randn(5, 3, 4)).square().sum((1, 2)).sum().backward()
    clipper.close()
    assert model.found == [expected]
    assert precision_of_convolutions() == "bf16"


def products_of(read: str) -> set[int]:
    """The columns of the products that are tried while rows are read as an evaluation's trial reads them."""
    size, width, rows = 43, 16, 8
    model = build_model(
        ModelOptions(kind="gpt2", layers=1, width=24, heads=2, length=width), special_of(size), 1
    ).eval()
    stream = SequenceStream(
        np.zeros((0, width), dtype=np.int32), np.zeros(0, dtype=np.int32), np.zeros(1, dtype=np.int64), ()
    )
    with torch.no_grad(), PlaceWatch(rows) as watch:
        if read == "blank":
            causal_lm._blank_nats(model, width, rows)
        else:
            causal_lm._batch_nats(model, stream, np.zeros(0, dtype=np.int64), width, rows)
    described = [key[3] for key in watch._seen if key[0].overloadpacket.__name__ in ("mm", "addmm")]
    return {leaves[-1][0][1] for leaves in described if len(leaves[-1][0]) == 2}


def test_a_trial_of_an_evaluation_asks_the_head() -> None:
    """Known wrong: rows without a label, at none of whose places a head was asked."""
    assert 43 in products_of("blank")
    assert 43 not in products_of("as it was")
