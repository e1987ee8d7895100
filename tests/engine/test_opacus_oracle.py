"""Opacus as a second oracle, in float64, on the models whose rows' gradients it computes exactly.

It shares no code with the engine or with the loop in ``checks``: it stores each row's gradient, from hooks and einsums of
its own (``GradSampleModule``), or adds up squared norms layer by layer (ghost clipping). Opacus 1.6 is no oracle for:

    position indices (1, T)      one row's gradient for the whole batch; here they are given as (B, T)
    a table's padding row        it gets a gradient, which torch leaves out
    tied BERT, ALBERT            GradSampleModule fails at the tied bias of the head
    ghost, a shared parameter    refused
    one bias in several layers, a layer that changes its output in place, MultiheadAttention: fails
    a module with a bare parameter and layers inside: wrong without an error (case "fallback")
    nn.LSTM                      fails; its DPLSTM is the same function of the same parameters
"""

from __future__ import annotations

import copy

import pytest
import torch
from opacus import GradSampleModule
from opacus.grad_sample import GradSampleModuleFastGradientClipping
from opacus.layers import DPLSTM
from torch import Tensor, nn
from transformers import BertForMaskedLM

from .cases import CASES, Batch, Case, LstmModel, full_head_losses, id_losses, masked_token_losses, tiny_gpt2, tokens
from .checks import Engine, Losses, Result, assert_close, clip_and_add, norm_of, our_engine, rows_of, trainable

MATERIALISED = [
    *("linear-2d", "linear-3d", "linear-4d", "linear-gram", "layer-norm-2d", "embedding-1d", "conv1d-gram", "rms-norm"),
    *("tied-small", "tied-gram", "frozen", "bert-untied", "gpt2-tied", "gpt2-tied-gram", "gpt2-untied-eager"),
    *("llama", "llama-tied", "lora"),
]
GHOST = [
    *("linear-2d", "linear-3d", "linear-gram", "layer-norm-2d", "embedding-1d", "conv1d-gram", "rms-norm", "frozen"),
    *("bert-untied", "gpt2-untied-eager", "llama", "lora"),
]
ROWS = 5


def positioned_losses(model: nn.Module, batch: Batch) -> Tensor:
    """``full_head_losses`` with position indices (and BERT's segments) of shape (B, T), as Opacus needs them."""
    ids = batch["ids"]
    indices = {"position_ids": torch.arange(ids.shape[1]).repeat(len(ids), 1)}
    if any(isinstance(module, BertForMaskedLM) for module in model.modules()):
        indices["token_type_ids"] = torch.zeros_like(ids)
    logits = model(input_ids=ids, attention_mask=batch["mask"], **indices).logits
    return batch["weight"] * masked_token_losses(logits, batch["labels"])


def losses_for_opacus(case: Case) -> Losses:
    return positioned_losses if case.losses is full_head_losses else case.losses


def opacus_rows(model: nn.Module, batch: Batch, losses: Losses) -> list[dict[str, Tensor]]:
    """The gradient of each row, by parameter."""
    hooked = GradSampleModule(model, loss_reduction="sum")
    losses(hooked, batch).sum().backward()
    return [{name: p.grad_sample[row] for name, p in trainable(model).items()} for row in range(rows_of(batch))]


def opacus_engine(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
    rows = opacus_rows(model, batch, losses)
    return clip_and_add(rows, [norm_of(row) for row in rows], clip_norm)


def ghost_norms(model: nn.Module, batch: Batch, losses: Losses) -> Tensor:
    hooked = GradSampleModuleFastGradientClipping(model, max_grad_norm=1.0, loss_reduction="sum")
    losses(hooked, batch).sum().backward()
    return hooked.get_norm_sample()


def check_against_opacus(engine: Engine, case: Case) -> None:
    """Norms and clipped sums, with a clip norm that about half of the rows exceed."""
    batch, losses = case.batch(ROWS, 3), losses_for_opacus(case)
    norms = torch.stack([norm_of(row) for row in opacus_rows(case.model(), batch, losses)])
    clip_norm = norms.median().item()
    assert_close(
        engine(case.model(), batch, case.losses, clip_norm), opacus_engine(case.model(), batch, losses, clip_norm)
    )


@pytest.mark.parametrize("name", MATERIALISED)
def test_norms_and_sums_are_those_of_opacus(name: str) -> None:
    check_against_opacus(our_engine, CASES[name])


@pytest.mark.parametrize("name", GHOST)
def test_norms_are_those_of_ghost_clipping(name: str) -> None:
    case = CASES[name]
    batch = case.batch(ROWS, 3)
    expected = ghost_norms(case.model(), batch, losses_for_opacus(case))
    norms = our_engine(case.model(), batch, case.losses, 1.0).norms
    torch.testing.assert_close(norms, expected, rtol=1e-9, atol=0)


def with_dplstm(model: LstmModel) -> LstmModel:
    """The same function of the same parameters, with Opacus' layer in the LSTM's place."""
    changed, lstm = copy.deepcopy(model), model.lstm
    layer = DPLSTM(lstm.input_size, lstm.hidden_size, lstm.num_layers, batch_first=lstm.batch_first)
    layer.to(torch.float64).load_state_dict(lstm.state_dict())
    changed.lstm = layer
    return changed


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("tied", [False, True])
def test_an_lstm_agrees_with_dplstm(layers: int, tied: bool) -> None:
    case = Case(lambda: LstmModel(layers, tied=tied), tokens(6, 20), id_losses)
    batch, model = case.batch(ROWS, 3), case.model()
    assert isinstance(model, LstmModel)
    theirs = with_dplstm(model)
    with torch.no_grad():
        torch.testing.assert_close(theirs(batch["ids"]), model(batch["ids"]))
    rows = opacus_rows(theirs, batch, id_losses)
    norms = [norm_of(row) for row in rows]
    clip_norm = torch.stack(norms).median().item()
    assert_close(our_engine(model, batch, id_losses, clip_norm), clip_and_add(rows, norms, clip_norm))


def from_untied(model: nn.Module, batch: Batch, clip_norm: float, cross_term: bool) -> Result:
    """A tied GPT-2 from the rows' gradients of its untied twin; the table's and the output layer's are added, in which
    the norm's cross term is, or not."""
    untied = tiny_gpt2(tied=False).to(torch.float64)
    untied.load_state_dict(model.state_dict())
    rows = opacus_rows(untied, batch, positioned_losses)
    parted = [norm_of(row) for row in rows]
    for row in rows:
        row["transformer.wte.weight"] = row["transformer.wte.weight"] + row.pop("lm_head.weight")
    return clip_and_add(rows, [norm_of(row) for row in rows] if cross_term else parted, clip_norm)


def with_cross_term(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
    return from_untied(model, batch, clip_norm, cross_term=True)


def no_cross_term(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
    """Known wrong: the norm as if the input table and the output layer were two parameters."""
    return from_untied(model, batch, clip_norm, cross_term=False)


def batch_mean(model: nn.Module, batch: Batch, losses: Losses, clip_norm: float) -> Result:
    """Known wrong: the batch's mean loss, so that every row is scaled by 1 / B before it is clipped."""
    return our_engine(model, batch, lambda m, b: losses(m, b) / ROWS, clip_norm)


@pytest.mark.parametrize("wrong", [no_cross_term, batch_mean])
def test_wrong_engines_differ_from_opacus(wrong: Engine) -> None:
    with pytest.raises(AssertionError):
        check_against_opacus(wrong, CASES["gpt2-tied"])


def test_the_check_passes_a_right_engine() -> None:
    """The same detour through the untied twin, with the cross term: what fails above is the term's absence."""
    check_against_opacus(with_cross_term, CASES["gpt2-tied"])
