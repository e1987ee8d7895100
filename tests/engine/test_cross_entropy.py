"""The fused cross-entropy against torch's own."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tacit.engine import cross_entropy
from tacit.errors import RefusedError, UsageError

V = 37


def logits_and_labels(rows: int, labelled: float, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    logits = 5 * torch.randn(3, rows, V, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, V, (3, rows), generator=generator)
    labels[torch.rand(3, rows, generator=generator) > labelled] = -100
    return logits.to(dtype).requires_grad_(), labels


def plain(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none").view(labels.shape)


@pytest.mark.parametrize("labelled", [0.0, 0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("rows", [0, 1, 11, 5000])
def test_losses_and_gradients_are_torchs(rows: int, labelled: float) -> None:
    """5,000 rows of 37 logits are more than one part."""
    logits, labels = logits_and_labels(rows, labelled)
    upstream = torch.randn(labels.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ours, theirs = cross_entropy(logits, labels), plain(logits, labels)
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-12)
    (gradient,) = torch.autograd.grad(ours, logits, upstream)
    (expected,) = torch.autograd.grad(theirs, logits, upstream)
    torch.testing.assert_close(gradient, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("labelled", [0.0, 0.2, 0.9])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_position_without_a_label_has_no_gradient_whatever_its_logits(bad: float, labelled: float) -> None:
    logits, labels = logits_and_labels(40, labelled)
    with torch.no_grad():
        logits[labels == -100] = bad
    losses = cross_entropy(logits, labels)
    assert not losses[labels == -100].any()
    losses.sum().backward()
    assert not logits.grad[labels == -100].any()
    assert logits.grad[labels != -100].isfinite().all()


def test_logits_of_tokens_that_cannot_be_said() -> None:
    logits, labels = logits_and_labels(11, 1.0)
    with torch.no_grad():
        logits[:, :, 5] = -torch.inf
    labels[labels == 5] = 4
    torch.testing.assert_close(cross_entropy(logits, labels), plain(logits, labels), rtol=1e-12, atol=1e-12)
    cross_entropy(logits, labels).sum().backward()
    assert not logits.grad[:, :, 5].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_short_floats_are_computed_in_float32(dtype: torch.dtype) -> None:
    logits, labels = logits_and_labels(50, 0.9, dtype)
    losses = cross_entropy(logits, labels)
    assert losses.dtype == torch.float32
    wide = logits.detach().float().requires_grad_()
    torch.testing.assert_close(losses, plain(wide, labels), rtol=1e-5, atol=1e-5)
    losses.sum().backward()
    (expected,) = torch.autograd.grad(plain(wide, labels).sum(), wide)
    torch.testing.assert_close(logits.grad, expected.to(dtype), rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


def test_mistakes_are_named() -> None:
    logits, labels = logits_and_labels(4, 1.0)
    for wrong in (labels[:, 1:], labels.int(), labels + V, labels - V):
        with pytest.raises(UsageError, match="label"):
            cross_entropy(logits, wrong)
    with pytest.raises(RefusedError, match="second-order-gradient"):
        torch.autograd.grad(cross_entropy(logits, labels).sum(), logits, create_graph=True)
