"""The LSTM language model: against the equations written out, in pieces, padded, saved and loaded."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.loss.loss_utils import ForCausalLMLoss

from tacit.config import ModelOptions
from tacit.errors import UsageError
from tacit.models.given import load_folder
from tacit.models.kinds import save_model
from tacit.models.lstm import LstmConfig, LstmForCausalLM, LstmOutput

from ..networks import build_lstm

torch.set_num_threads(1)

VOCABULARY, LENGTH = 30, 9


def tiny(layers: int = 2, tied: bool = False, dropout: float = 0.0, seed: int = 3) -> LstmForCausalLM:
    options = ModelOptions(layers=layers, width=8, length=LENGTH, dropout=dropout)
    return build_lstm(options, VOCABULARY, 0, 2, 3, seed, tied).eval()


def some_ids(rows: int = 4, length: int = LENGTH) -> Tensor:
    return torch.randint(1, VOCABULARY, (rows, length), generator=torch.Generator().manual_seed(1))


def logits_of(output: LstmOutput) -> Tensor:
    assert output.logits is not None
    return output.logits


def by_hand(model: LstmForCausalLM, ids_T: Tensor) -> Tensor:
    """One row, one token, one gate at a time (Hochreiter and Schmidhuber 1997, with forget gates), in float64."""
    named = {name: parameter.detach().double() for name, parameter in model.named_parameters(remove_duplicate=False)}
    layers, width = model.config.num_hidden_layers, model.config.hidden_size
    h, c = torch.zeros(layers, width).double(), torch.zeros(layers, width).double()
    found = []
    for token in ids_T:
        x = named["embedding.weight"][token]
        for layer in range(layers):
            weight_x, weight_h, bias_x, bias_h = (
                named[f"lstm.{kind}_l{layer}"] for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
            )
            i, f, g, o = (weight_x @ x + bias_x + weight_h @ h[layer] + bias_h).chunk(4)
            c[layer] = f.sigmoid() * c[layer] + i.sigmoid() * g.tanh()
            h[layer] = o.sigmoid() * c[layer].tanh()
            x = h[layer].clone()
        found.append(named["lm_head.weight"] @ x + named["lm_head.bias"])
    return torch.stack(found)


# the function ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layers", "tied"), [(1, False), (1, True), (2, False)])
@torch.no_grad()
def test_logits_are_those_of_the_equations(layers: int, tied: bool) -> None:
    model, ids = tiny(layers, tied), some_ids()
    expected = torch.stack([by_hand(model, row) for row in ids])
    torch.testing.assert_close(logits_of(model.double()(ids)), expected, rtol=1e-12, atol=1e-12)


def test_the_papers_shape() -> None:
    """One layer, embedding 200, hidden 200."""
    options = ModelOptions(layers=1, width=200)
    model = build_lstm(options, 1000, 0, 2, 3, seed=1)
    head, lstm = 200 * 1000 + 1000, 4 * 200 * (200 + 200) + 2 * 4 * 200
    assert sum(p.numel() for p in model.parameters()) == 200 * 1000 + lstm + head
    tied = build_lstm(options, 1000, 0, 2, 3, seed=1, tied=True)
    assert sum(p.numel() for p in tied.parameters()) == lstm + head
    assert (model.config.pad_token_id, model.config.bos_token_id, model.config.eos_token_id) == (0, 2, 3)
    assert LstmConfig(vocab_size=1000).hidden_size == 200


def test_weights_are_a_function_of_the_seed_alone() -> None:
    ids, before = some_ids(), torch.get_rng_state()
    with torch.no_grad():
        first = logits_of(tiny()(ids))
        assert torch.equal(torch.get_rng_state(), before)
        torch.manual_seed(99)
        assert torch.equal(logits_of(tiny()(ids)), first)
        assert not torch.equal(logits_of(tiny(seed=4)(ids)), first)


def test_weights_begin_in_their_ranges() -> None:
    model = build_lstm(ModelOptions(layers=2, width=64), 500, 0, 2, 3, seed=1)
    for name, parameter in model.named_parameters():
        largest = parameter.abs().max().item()
        bound = 0.125 if name.startswith("lstm") else 0.1
        assert 0.97 * bound < largest <= bound or (name == "lm_head.bias" and largest == 0), name


@torch.no_grad()
def test_dropout_in_training_only() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # torch warns of dropout in an LSTM of one layer
        model, ids = tiny(layers=1, dropout=0.5), some_ids()
    plain = tiny(layers=1)
    assert torch.equal(logits_of(model(ids)), logits_of(plain(ids)))
    model.train()
    assert not torch.equal(logits_of(model(ids)), logits_of(model(ids)))
    seen: list[Tensor] = []
    model.lstm.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    for dropped in (model.hidden_states(ids)[0], seen[0]):
        assert 0.3 < (dropped == 0).double().mean() < 0.7
    model.dropout.p = 0.0
    assert torch.equal(logits_of(model(ids)), logits_of(plain(ids)))
    assert tiny(layers=2, dropout=0.5).lstm.dropout == 0.5


def test_the_loss_is_transformers_own() -> None:
    model, ids = tiny(), some_ids()
    labels = ids.masked_fill(torch.arange(LENGTH) >= torch.tensor([[9], [7], [3], [1]]), -100)
    output = model(ids, labels=labels)
    expected = ForCausalLMLoss(logits_of(output), labels, VOCABULARY)
    torch.testing.assert_close(output.loss, expected)
    with pytest.raises(AssertionError):  # known wrong: not shifted
        torch.testing.assert_close(torch.nn.functional.cross_entropy(logits_of(output).mT, labels), expected)
    assert model(ids).loss is None


# in pieces -------------------------------------------------------------------------------------------------------------


def in_pieces(model: LstmForCausalLM, ids: Tensor, cuts: list[int], keep_state: bool = True) -> Tensor:
    state, found = None, []
    for piece in ids.tensor_split(cuts, dim=1):
        output = model(piece, state=state)
        state = output.state if keep_state else None
        found.append(logits_of(output))
    return torch.cat(found, dim=1)


@pytest.mark.parametrize("cuts", [[4], [1, 2, 7], list(range(1, LENGTH))])
@torch.no_grad()
def test_pieces_with_their_state_are_the_whole(cuts: list[int]) -> None:
    model, ids = tiny().double(), some_ids()
    whole = model(ids)
    torch.testing.assert_close(in_pieces(model, ids, cuts), logits_of(whole), rtol=1e-12, atol=1e-12)
    with pytest.raises(AssertionError):  # known wrong: every piece begins from nothing
        torch.testing.assert_close(
            in_pieces(model, ids, cuts, keep_state=False), logits_of(whole), rtol=1e-3, atol=1e-3
        )


@torch.no_grad()
def test_the_state_is_that_after_the_last_position() -> None:
    model, ids = tiny().double(), some_ids()
    whole = model(ids).state
    first = model(ids[:, :5]).state
    assert whole is not None
    for one, other in zip(whole, model(ids[:, 5:], state=first).state, strict=True):
        assert one.shape == (2, 4, 8)
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


# padding ---------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_padding_on_the_right_changes_nothing() -> None:
    model, ids = tiny(), some_ids()
    padded, other = ids.clone(), ids.clone()
    padded[:, 6:], other[:, 6:] = 0, 17
    mask = (torch.arange(LENGTH) < 6).long().expand(4, -1)
    found = logits_of(model(padded, attention_mask=mask))[:, :6]
    assert torch.equal(found, logits_of(model(other))[:, :6])
    torch.testing.assert_close(found, logits_of(model(ids[:, :6])))


@pytest.mark.parametrize("mask", [[0, 1, 1], [1, 0, 1]])
def test_padding_on_the_left_or_inside_is_refused(mask: list[int]) -> None:
    with pytest.raises(UsageError, match="on the right"):
        tiny()(some_ids(1, 3), attention_mask=torch.tensor([mask]))


# folders ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layers", "tied"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize("automatic", [False, True])
@torch.no_grad()
def test_what_is_saved_is_loaded_bit_for_bit(tmp_path: Path, layers: int, tied: bool, automatic: bool) -> None:
    model, ids = tiny(layers, tied, dropout=0.25), some_ids()
    save_model(model, tmp_path)
    again = (
        AutoModelForCausalLM.from_pretrained(tmp_path, local_files_only=True)
        if automatic
        else load_folder(LstmForCausalLM, tmp_path)
    )
    assert type(again) is LstmForCausalLM
    named = dict(again.named_parameters())
    assert named.keys() == dict(model.named_parameters()).keys()
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, named[name]), name
    assert (again.lm_head.weight is again.embedding.weight) == tied
    assert torch.equal(logits_of(again.eval()(ids)), logits_of(model(ids)))
    assert torch.equal(logits_of(again(ids[:, :3])), logits_of(model(ids[:, :3])))
    assert again.config.dropout == again.dropout.p == 0.25
    assert (again.config.pad_token_id, again.config.bos_token_id, again.config.eos_token_id) == (0, 2, 3)


def test_a_loaded_model_trains(tmp_path: Path) -> None:
    """nn.LSTM keeps its weights twice: a loader that replaced one list only would train weights that nobody reads."""
    save_model(tiny(), tmp_path)
    model, ids = load_folder(LstmForCausalLM, tmp_path), some_ids()
    model(ids, labels=ids).loss.backward()
    before = logits_of(model(ids)).detach()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            if name.startswith("lstm"):
                parameter -= parameter.grad
    assert not torch.equal(logits_of(model(ids)), before)


def test_the_config_is_found_by_its_type(tmp_path: Path) -> None:
    config = LstmConfig(vocab_size=50, embedding_size=6, hidden_size=4)
    config.save_pretrained(tmp_path)
    found = AutoConfig.from_pretrained(tmp_path)
    assert type(found) is LstmConfig
    assert (found.vocab_size, found.embedding_size, found.hidden_size, found.model_type) == (50, 6, 4, "tacit-lstm")
    assert LstmForCausalLM(found)(torch.ones(2, 3, dtype=torch.int64)).logits.shape == (2, 3, 50)


def test_tied_embeddings_need_one_width() -> None:
    with pytest.raises(UsageError, match="6 for the embedding and 4"):
        LstmForCausalLM(LstmConfig(vocab_size=50, embedding_size=6, hidden_size=4, tie_word_embeddings=True))
