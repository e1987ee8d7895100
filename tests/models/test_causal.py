"""Row losses of causal models: against transformers and plain loops, under padding, and under per-example clipping."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel
from transformers.loss.loss_utils import ForCausalLMLoss

from tacit.config import ModelOptions
from tacit.engine import PerExampleClipper
from tacit.errors import UsageError
from tacit.models.causal import causal_logits, causal_row_losses

from ..networks import build_bert, build_gpt2, build_lstm

torch.set_num_threads(1)

ROWS, LENGTH, VOCABULARY, PER_UNIT, CLIP = 6, 9, 30, 2, 0.5
LENGTHS = torch.tensor([9, 4, 7, 9, 3, 2])  # the last one is [CLS] [SEP]
OPTIONS = ModelOptions(layers=2, width=8, heads=2, length=LENGTH + 3)


def gpt2() -> PreTrainedModel:
    return build_gpt2(OPTIONS, VOCABULARY, 0, 2, 3, seed=5)


def untied_gpt2() -> PreTrainedModel:
    torch.manual_seed(5)
    return GPT2LMHeadModel(
        GPT2Config(vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=8, n_layer=1, n_head=2, tie_word_embeddings=False)
    )


def lstm() -> PreTrainedModel:
    return build_lstm(OPTIONS, VOCABULARY, 0, 2, 3, seed=5)


def tied_lstm() -> PreTrainedModel:
    return build_lstm(OPTIONS, VOCABULARY, 0, 2, 3, seed=5, tied=True)


models = pytest.mark.parametrize("build", [gpt2, untied_gpt2, lstm, tied_lstm])


def ready(build: Callable[[], PreTrainedModel]) -> PreTrainedModel:
    """In float64, without dropout, and with no parameter at the zero or one that it begins with."""
    model = build().double().eval()
    torch.manual_seed(11)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    return model


def rows() -> tuple[Tensor, Tensor]:
    """``[CLS] tokens [SEP]`` and padding."""
    place_T = torch.arange(LENGTH)
    ids_BT = torch.randint(5, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(2))
    attention_BT = (place_T < LENGTHS[:, None]).long()
    ids_BT[:, 0] = 2
    ids_BT[torch.arange(ROWS), LENGTHS - 1] = 3
    return ids_BT * attention_BT, attention_BT


def some_weights(attention_BT: Tensor) -> Tensor:
    """Uneven, of both signs, some of them 0; row 4 has none at all."""
    weights_BT = torch.randn(ROWS, LENGTH, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    weights_BT[(weights_BT.abs() < 0.3) | (attention_BT == 0)] = 0
    weights_BT[:, 0] = 0
    weights_BT[4] = 0
    return weights_BT


def every_token(attention_BT: Tensor) -> Tensor:
    weights_BT = attention_BT.double()
    weights_BT[:, 0] = 0
    return weights_BT


Losses = Callable[[PreTrainedModel, Tensor, Tensor, Tensor], Tensor]


# values ----------------------------------------------------------------------------------------------------------------


def by_loop(model: PreTrainedModel, ids_BT: Tensor, attention_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Each token from the model on the tokens before it, alone in its batch: nothing can leak and nothing is padded."""
    found = []
    for ids_T, length, weights_T in zip(ids_BT, attention_BT.sum(1), weights_BT, strict=True):
        total = torch.zeros((), dtype=torch.float64)
        for t in range(1, int(length)):
            logits_V = model(input_ids=ids_T[None, :t]).logits[0, -1].double()
            total += weights_T[t] * (logits_V.logsumexp(0) - logits_V[ids_T[t]])
        found.append(total)
    return torch.stack(found)


@models
@torch.no_grad()
def test_losses_are_those_of_a_plain_loop(build: Callable[[], PreTrainedModel]) -> None:
    model, (ids_BT, attention_BT) = ready(build), rows()
    weights_BT = some_weights(attention_BT)
    found = causal_row_losses(model, ids_BT, attention_BT, weights_BT)
    torch.testing.assert_close(found, by_loop(model, ids_BT, attention_BT, weights_BT), rtol=1e-10, atol=1e-10)
    assert found[4] == 0
    wrong = unshifted(model, ids_BT, attention_BT, weights_BT)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(found, wrong, rtol=1e-3, atol=1e-3)


@models
@torch.no_grad()
def test_losses_are_transformers_own(build: Callable[[], PreTrainedModel]) -> None:
    """The library's mean over the batch's labels, with its attention mask."""
    model, (ids_BT, attention_BT) = ready(build), rows()
    labels_BT = ids_BT.masked_fill(attention_BT == 0, -100)
    logits_BTV = model(input_ids=ids_BT, attention_mask=attention_BT).logits
    expected = ForCausalLMLoss(logits_BTV.float(), labels_BT, VOCABULARY)  # its losses are float32
    found = causal_row_losses(model, ids_BT, attention_BT, every_token(attention_BT))
    torch.testing.assert_close((found.sum() / (LENGTHS - 1).sum()).float(), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("build", [gpt2, lstm])
@torch.no_grad()
def test_float32_agrees_with_float64(build: Callable[[], PreTrainedModel]) -> None:
    model, (ids_BT, attention_BT) = ready(build), rows()
    weights_BT = every_token(attention_BT)
    expected = causal_row_losses(model, ids_BT, attention_BT, weights_BT)
    found = causal_row_losses(model.float(), ids_BT, attention_BT, weights_BT.float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-5)


@models
@torch.no_grad()
def test_logits_are_the_models_own(build: Callable[[], PreTrainedModel]) -> None:
    model, (ids_BT, attention_BT) = ready(build), rows()
    found = causal_logits(model, ids_BT, attention_BT)
    expected = model(input_ids=ids_BT, attention_mask=attention_BT).logits
    real_BT = attention_BT.bool()
    torch.testing.assert_close(found[real_BT], expected[real_BT], rtol=1e-10, atol=1e-10)


# what a loss depends on --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("build", [gpt2, lstm])
@torch.no_grad()
def test_padding_changes_no_loss(build: Callable[[], PreTrainedModel]) -> None:
    model, (ids_BT, attention_BT) = ready(build), rows()
    weights_BT = every_token(attention_BT)
    found = causal_row_losses(model, ids_BT, attention_BT, weights_BT)
    for filler in (0, 17):
        more = (F.pad(ids_BT, (0, 3)), F.pad(attention_BT, (0, 3)), F.pad(weights_BT, (0, 3)))
        ids = more[0].masked_fill(more[1] == 0, filler)
        torch.testing.assert_close(causal_row_losses(model, ids, *more[1:]), found, rtol=1e-12, atol=1e-12)
    for row, length in enumerate(LENGTHS.tolist()):
        alone = [x[row : row + 1, :length] for x in (ids_BT, attention_BT, weights_BT)]
        torch.testing.assert_close(causal_row_losses(model, *alone)[0], found[row], rtol=1e-12, atol=1e-12)


@models
@torch.no_grad()
def test_a_token_is_predicted_from_those_before_it_only(build: Callable[[], PreTrainedModel]) -> None:
    model, (ids_BT, attention_BT) = ready(build), rows()
    for t in (1, 4, LENGTH - 1):
        weights_BT = torch.zeros(ROWS, LENGTH, dtype=torch.float64)
        weights_BT[:, t] = 1.0
        weights_BT *= attention_BT
        found = causal_row_losses(model, ids_BT, attention_BT, weights_BT)
        later, own, before = ids_BT.clone(), ids_BT.clone(), ids_BT.clone()
        later[:, t + 1 :], own[:, t], before[:, t - 1] = 9, 9, 9
        assert torch.equal(causal_row_losses(model, later, attention_BT, weights_BT), found)
        some_B = attention_BT[:, t].bool()
        for changed in (own, before):
            assert (causal_row_losses(model, changed, attention_BT, weights_BT) != found)[some_B].any()


@pytest.mark.parametrize("build", [gpt2, lstm])
def test_rows_of_one_position_have_no_loss(build: Callable[[], PreTrainedModel]) -> None:
    ones_B1 = torch.ones(3, 1, dtype=torch.int64)
    found = causal_row_losses(build(), ones_B1, ones_B1, torch.zeros(3, 1))
    assert torch.equal(found, torch.zeros(3))


# refusals --------------------------------------------------------------------------------------------------------------


def test_a_weight_without_a_prediction_is_refused() -> None:
    model, (ids_BT, attention_BT) = lstm(), rows()
    first, padded = every_token(attention_BT), every_token(attention_BT)
    first[3, 0], padded[1, 4] = 1e-9, 1e-9
    for weights_BT in (first, padded):
        with pytest.raises(UsageError, match="position 0 or at padding"):
            causal_row_losses(model, ids_BT, attention_BT, weights_BT)


def test_padding_before_a_token_is_refused() -> None:
    ids_BT, attention_BT = rows()
    for flipped_BT in (attention_BT.flip(1), attention_BT.clone().index_fill_(1, torch.tensor([1]), 0)):
        for call in (causal_logits, lambda *rest: causal_row_losses(*rest, torch.zeros(ROWS, LENGTH))):
            with pytest.raises(UsageError, match="on the right"):
                call(gpt2(), ids_BT, flipped_BT)


def test_another_kind_of_model_is_refused() -> None:
    bert = build_bert(OPTIONS, VOCABULARY, 0, 1)
    with pytest.raises(UsageError, match="BertForMaskedLM is no causal model"):
        causal_logits(bert, *rows())


# clipping --------------------------------------------------------------------------------------------------------------


def unshifted(model: PreTrainedModel, ids_BT: Tensor, attention_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Known wrong: the hidden state at t is asked for token t, which it has seen."""
    logits_BTV = causal_logits(model, ids_BT, attention_BT)
    return (F.cross_entropy(logits_BTV.mT, ids_BT, reduction="none") * weights_BT).sum(1)


def batch_mean(model: PreTrainedModel, ids_BT: Tensor, attention_BT: Tensor, weights_BT: Tensor) -> Tensor:
    """Known wrong: a mean over the batch's tokens, so one row's length changes the gradient of the others."""
    losses_B = causal_row_losses(model, ids_BT, attention_BT, (weights_BT != 0).to(weights_BT))
    return losses_B / (weights_BT != 0).sum()


def unit_weights(attention_BT: Tensor) -> Tensor:
    """1 / (predicted tokens of the row's unit), as the loop gives them, some units scaled far above the clip norm."""
    weights_BT = every_token(attention_BT)
    of_unit_U = weights_BT.view(-1, PER_UNIT * LENGTH).sum(1)
    scale_U = torch.tensor([0.01, 1.0, 100.0])
    return weights_BT * (scale_U / of_unit_U).repeat_interleave(PER_UNIT)[:, None]


def clipped(
    losses: Losses, model: PreTrainedModel, batch: tuple[Tensor, Tensor, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Norms and sum of the clipper."""
    model.zero_grad()
    clipper = PerExampleClipper(model, CLIP, PER_UNIT)
    with clipper:
        losses(model, *batch).sum().backward()
    clipper.close()
    return clipper.norms, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def clipped_by_loop(model: PreTrainedModel, batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """The oracle: a row at a time, without padding, through transformers' own logits and torch's own cross-entropy."""
    named = dict(model.named_parameters())
    total = {name: torch.zeros_like(parameter) for name, parameter in named.items()}
    norms = []
    for unit in range(ROWS // PER_UNIT):
        of_unit = {name: torch.zeros_like(parameter) for name, parameter in named.items()}
        for row in range(unit * PER_UNIT, (unit + 1) * PER_UNIT):
            ids_T, weights_T = (x[row, : LENGTHS[row]] for x in (batch[0], batch[2]))
            logits_TV = model(input_ids=ids_T[None]).logits[0]
            loss = (F.cross_entropy(logits_TV[:-1], ids_T[1:], reduction="none") * weights_T[1:]).sum()
            found = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
            for name, gradient in zip(named, found, strict=True):
                of_unit[name] += 0 if gradient is None else gradient
        norms.append(torch.cat([gradient.flatten() for gradient in of_unit.values()]).norm())
        for name, gradient in of_unit.items():
            total[name] += gradient * min(1.0, CLIP / norms[-1].item())
    return torch.stack(norms), total


def check_clipping(losses: Losses, build: Callable[[], PreTrainedModel]) -> None:
    model, (ids_BT, attention_BT) = ready(build), rows()
    batch = ids_BT, attention_BT, unit_weights(attention_BT)
    (norms, sums), (right_norms, right_sums) = clipped(losses, model, batch), clipped_by_loop(model, batch)
    assert right_norms.min() < CLIP < right_norms.max()
    torch.testing.assert_close(norms, right_norms, rtol=1e-8, atol=0)
    for name, expected in right_sums.items():
        torch.testing.assert_close(sums.get(name, torch.zeros_like(expected)), expected, rtol=1e-7, atol=1e-9, msg=name)


@models
def test_clipped_sums_are_those_of_a_loop(build: Callable[[], PreTrainedModel]) -> None:
    check_clipping(causal_row_losses, build)


@models
@pytest.mark.parametrize("wrong", [unshifted, batch_mean])
def test_the_check_of_clipping_catches(build: Callable[[], PreTrainedModel], wrong: Losses) -> None:
    with pytest.raises(AssertionError):
        check_clipping(wrong, build)


@pytest.mark.parametrize("build", [gpt2, tied_lstm])
def test_gradients_outside_a_context_are_autograds(build: Callable[[], PreTrainedModel]) -> None:
    model, (ids_BT, attention_BT) = ready(build), rows()
    weights_BT = some_weights(attention_BT)
    parameters = list(model.parameters())
    found = torch.autograd.grad(causal_row_losses(model, ids_BT, attention_BT, weights_BT).sum(), parameters)
    logits_BTV = model(input_ids=ids_BT, attention_mask=attention_BT).logits[:, :-1]
    losses = F.cross_entropy(logits_BTV.mT, ids_BT[:, 1:], reduction="none") * weights_BT[:, 1:]
    for one, other in zip(found, torch.autograd.grad(losses.sum(), parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@models
def test_blank_rows_add_nothing(build: Callable[[], PreTrainedModel]) -> None:
    """As the loop fills a micro-batch: all padding id, two positions visible, no weight."""
    model, (ids_BT, attention_BT) = ready(build), rows()
    weights_BT = unit_weights(attention_BT)
    _, sums = clipped(causal_row_losses, model, (ids_BT, attention_BT, weights_BT))
    blank_BT = torch.zeros(4, LENGTH, dtype=torch.int64)
    two_BT = (torch.arange(LENGTH) < 2).long().expand(4, -1)
    more = torch.cat([ids_BT, blank_BT]), torch.cat([attention_BT, two_BT]), torch.cat([weights_BT, blank_BT.double()])
    norms, with_blanks = clipped(causal_row_losses, model, more)
    assert torch.equal(norms[3:], torch.zeros(2).double())
    for name, expected in sums.items():
        torch.testing.assert_close(with_blanks[name], expected, rtol=1e-9, atol=1e-12)
