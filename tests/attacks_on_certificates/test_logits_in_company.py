"""Cross-entropy of a model's own logits: how many positions of other units have a label decides neither a bit nor an error.

Models whose logits are more than a head on hidden states (Granite, Cohere, Gemma 2), and taggers, go through
`tacit.engine.cross_entropy`. It looks at the positions with a label alone where fewer than half have one. In bfloat16 that ended
with an error of torch, so that one short record decided whether there is a release (TACIT-29: 3 of 3). In float32 a position that was
left over was added up by all threads, the others by one each, as in the fused head (TACIT-25).
"""

from __future__ import annotations

import importlib

import pytest
import torch
from torch import Tensor

from tacit.engine.cross_entropy import cross_entropy
from tacit.engine.logits import IGNORE_INDEX

module = importlib.import_module("tacit.engine.cross_entropy")  # the package has a function of this name
WORDS, ROWS, LENGTH, DRAWS = 40_000, 4, 16, 6


pytestmark = pytest.mark.usefixtures("threads")


def of_the_first_row(logits_BTV: Tensor, ids_BT: Tensor, own: int, others: int) -> tuple[Tensor, Tensor]:
    """Losses of the first row and their gradient, where it has so many labels, and each of the others so many."""
    labels_BT = torch.full_like(ids_BT, IGNORE_INDEX)
    labels_BT[0, :own] = ids_BT[0, :own]
    labels_BT[1:, :others] = ids_BT[1:, :others]
    logits_BTV = logits_BTV.clone().requires_grad_()
    losses_BT = cross_entropy(logits_BTV, labels_BT)
    losses_BT.sum().backward()
    assert logits_BTV.grad is not None
    return losses_BT[0].detach(), logits_BTV.grad[0]


def differing_draws(dtype: torch.dtype) -> int:
    """Of how many draws a row has other bits in some company."""
    generator = torch.Generator().manual_seed(0)
    found = 0
    for _ in range(DRAWS):
        logits_BTV = (torch.randn(ROWS, LENGTH, WORDS, generator=generator) * 3).to(dtype)
        ids_BT = torch.randint(WORDS, (ROWS, LENGTH), generator=generator)
        for own in (1, 3, 7, LENGTH):
            alone = of_the_first_row(logits_BTV, ids_BT, own, 0)
            company = (of_the_first_row(logits_BTV, ids_BT, own, others) for others in (1, 2, 5, LENGTH))
            if not all(torch.equal(*pair) for one in company for pair in zip(alone, one, strict=True)):
                found += 1
                break
    return found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_has_the_same_losses_and_gradient_in_any_company(dtype: torch.dtype) -> None:
    assert differing_draws(dtype) == 0


@pytest.mark.parametrize("words", [30, 40_000])
@pytest.mark.parametrize("positions", [1, 5, 64])
def test_all_parts_have_one_size_and_cover_what_has_a_label(words: int, positions: int) -> None:
    sizes = set()
    for labelled in range(positions + 1):
        labelled_N = torch.arange(positions) < labelled
        parts = [torch.arange(positions)[rows] for rows in module._parts(torch.zeros(positions, words), labelled_N)]
        assert {*range(labelled)} <= {place for part in parts for place in part.tolist()}
        sizes |= {len(part) for part in parts}
    assert len(sizes) == 1
    assert sizes.pop() >= 2


def test_a_row_that_is_added_up_alone_is_another_one() -> None:
    """What the rule is for: torch adds up a lone row of so many words with both threads."""
    torch.manual_seed(0)
    logits_NV = torch.randn(256, WORDS) * 3
    among_N1 = module.log_sum_exp(logits_NV)
    alone_N1 = torch.cat([module.log_sum_exp(row_V[None]) for row_V in logits_NV])
    assert (among_N1 != alone_N1).any()
    by_two_N1 = torch.cat([module.log_sum_exp(row_V.expand(2, WORDS))[:1] for row_V in logits_NV])
    assert torch.equal(among_N1, by_two_N1)


@pytest.mark.parametrize("labelled", [1, 7, 60])
def test_in_bfloat16_the_gradient_is_that_of_float64_rounded(labelled: int) -> None:
    torch.manual_seed(0)
    logits_NV = (torch.randn(64, 300) * 3).bfloat16().requires_grad_()
    labels_N = torch.full((64,), IGNORE_INDEX)
    labels_N[:labelled] = torch.randint(300, (labelled,))
    exact_NV = logits_NV.detach().double().requires_grad_()
    cross_entropy(logits_NV, labels_N).sum().backward()
    torch.nn.functional.cross_entropy(exact_NV, labels_N, reduction="sum").backward()
    assert logits_NV.grad is not None
    assert exact_NV.grad is not None
    assert logits_NV.grad.dtype == torch.bfloat16
    torch.testing.assert_close(logits_NV.grad.double(), exact_NV.grad, rtol=2**-7, atol=1e-4)
