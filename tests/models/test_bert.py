"""Logits at masked positions are those of the whole model there, and so are their gradients, with and without padding."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformers import BertForMaskedLM, GPT2Config, GPT2LMHeadModel

from tacit.config import ModelOptions
from tacit.engine import PerExampleClipper, at_positions
from tacit.errors import UsageError
from tacit.models.masked import masked_logits, masked_losses

from ..networks import build_bert

V, B, T, K = 40, 4, 11, 3


def model_of(layers: int, dropout: float = 0.0) -> BertForMaskedLM:
    options = ModelOptions(layers=layers, width=16, heads=2, intermediate=24, length=T, dropout=dropout)
    model = build_bert(options, V, 0, 5)
    torch.nn.Module.double(model)
    return model


def batch(padded: bool) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, V, (B, T), generator=generator)
    lengths = torch.tensor([T, 7, 4, 9] if padded else [T] * B)
    attention = (torch.arange(T) < lengths[:, None]).long()
    slots = torch.stack([torch.randperm(int(length), generator=generator)[:K] for length in lengths])
    slots[0, -1] = slots[0, 0]  # a spare slot points somewhere too
    return ids * attention, attention, slots


def whole(model: BertForMaskedLM, ids: Tensor, attention: Tensor, slots: Tensor) -> Tensor:
    return at_positions(model(input_ids=ids, attention_mask=attention).logits, slots)


def careless(model: BertForMaskedLM, ids: Tensor, attention: Tensor, slots: Tensor) -> Tensor:
    """Known wrong: the last layer looks at padding too."""
    return masked_logits(model, ids, torch.ones_like(attention), slots)


def check(logits_of: Callable[..., Tensor], layers: int, padded: bool, train: bool = True) -> None:
    model, other, inputs = model_of(layers).train(train), model_of(layers).train(train), batch(padded)
    found, expected = logits_of(model, *inputs), whole(other, *inputs)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    upstream = torch.randn(found.shape, dtype=found.dtype, generator=torch.Generator().manual_seed(2))
    found.backward(upstream)
    expected.backward(upstream)
    for (name, one), two in zip(model.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad, rtol=1e-9, atol=1e-11, msg=name)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("layers", [1, 3])
def test_logits_and_gradients_are_those_of_the_whole_model(layers: int, padded: bool) -> None:
    check(masked_logits, layers, padded)


def test_a_last_layer_that_sees_padding_is_caught() -> None:
    with pytest.raises(AssertionError):
        check(careless, 2, padded=True)


def test_dropout_is_that_of_the_layer() -> None:
    """The mean over many draws is not far from the model without dropout, and two draws differ; in eval mode they do not."""
    model, inputs = model_of(1, dropout=0.3), batch(True)
    model.train()
    draws = torch.stack([masked_logits(model, *inputs).detach() for _ in range(3)])
    assert not torch.equal(draws[0], draws[1])
    model.eval()
    assert torch.equal(masked_logits(model, *inputs), masked_logits(model, *inputs))


def test_each_row_is_clipped_by_itself() -> None:
    ids, attention, slots = batch(True)
    labels = torch.randint(5, V, slots.shape, generator=torch.Generator().manual_seed(3))
    weights = torch.full(slots.shape, 1 / K, dtype=torch.float64)
    model = model_of(2)
    with PerExampleClipper(model, 1.0) as clipper:
        masked_losses(model, ids, attention, slots, labels, weights).sum().backward()
    for row in range(B):
        alone = model_of(2)
        some = slice(row, row + 1)
        masked_losses(alone, ids[some], attention[some], slots[some], labels[some], weights[some]).sum().backward()
        norm = torch.cat([p.grad.flatten() for p in alone.parameters() if p.grad is not None]).norm()
        torch.testing.assert_close(clipper.norms[row], norm, rtol=1e-9, atol=0)


def test_another_kind_of_model_is_named() -> None:
    other = GPT2LMHeadModel(GPT2Config(vocab_size=V, n_positions=T, n_embd=16, n_layer=1, n_head=2))
    with pytest.raises(UsageError, match="GPT2LMHeadModel"):
        masked_logits(other, *batch(False))


@pytest.mark.parametrize("width", [16, 48])
def test_scaled_weights_have_the_spread_of_the_width_and_positions_that_are_told_by_their_distance(width: int) -> None:
    options = ModelOptions(layers=2, width=width, heads=2, length=40, initializer="scaled")
    model = build_bert(options, 500, 0, seed=3)
    assert model.config.initializer_range == width**-0.5  # a head of the released model follows it
    for weight in (model.bert.encoder.layer[1].output.dense.weight, model.bert.embeddings.word_embeddings.weight[1:]):
        assert math.isclose(float(weight.detach().std()), width**-0.5, rel_tol=0.1)
    for layer in model.bert.encoder.layer:
        attention = layer.attention
        assert torch.equal(attention.self.key.weight, attention.self.query.weight)
        assert torch.equal(attention.output.dense.weight, attention.self.value.weight.T)
    assert looks_near(model) > 1.5 * looks_near(
        build_bert(options.model_copy(update={"initializer": "standard"}), 500, 0, 3)
    )
    positions = model.bert.embeddings.position_embeddings.weight.detach()
    assert torch.allclose(positions.square().mean(), torch.tensor(1 / width))
    products = positions @ positions.T
    assert is_of_distance(products)
    assert float(products[0, 0]) > 1.2 * float(products[0, 5])
    standard = build_bert(options.model_copy(update={"initializer": "standard"}), 500, 0, seed=3)
    own = standard.bert.embeddings.position_embeddings.weight.detach()  # the known-wrong table
    assert math.isclose(float(own.detach().std()), 0.02, rel_tol=0.1)
    assert not is_of_distance(own @ own.T)


def looks_near(model: BertForMaskedLM) -> float:
    """Share of the first layer's attention that positions give to those at most three away, in a row of random tokens."""
    ids = torch.randint(5, 500, (8, 40), generator=torch.Generator().manual_seed(2))
    model.set_attn_implementation("eager")
    attentions = model.eval()(input_ids=ids, output_attentions=True).attentions
    assert attentions is not None
    near_TT = (torch.arange(40)[:, None] - torch.arange(40)).abs() <= 3
    return float((attentions[0].detach() * near_TT).sum(-1).mean())


def is_of_distance(products_TT: torch.Tensor) -> bool:
    return all(
        torch.allclose(line, line[:1].expand_as(line), atol=1e-5)
        for line in (products_TT.diagonal(distance) for distance in range(len(products_TT)))
    )
