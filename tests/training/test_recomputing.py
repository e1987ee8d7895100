"""Activations that are computed again give the same sums to the bit, with dropout by rows too, and in either precision."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM
from transformers import PreTrainedModel as Model

from tacit.config import ComputeOptions, ModelOptions
from tacit.engine import PerExampleClipper, causal_losses, cross_entropy
from tacit.errors import UsageError
from tacit.randomness import KeyedRandomness
from tacit.training.dropout import RowDropout, uses_dropout
from tacit.training.plain_step import PlainStep
from tacit.training.plans import PlainPlan
from tacit.training.recomputing import in_precision, recomputed
from tacit.training.unit_rows import Source

from ..networks import build_lstm
from .phases import KEY, dropping_bert, same, train
from .streams import LENGTH, OBJECTIVE, random_units, stream_of

torch.set_num_threads(1)

ROWS, T, V = 4, 9, 50
AGAIN = ComputeOptions(checkpointing=True)


def bert(dropout: float) -> Model:
    config = BertConfig(
        vocab_size=V,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=T,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return BertForMaskedLM(config)


def gpt2(dropout: float) -> Model:
    config = GPT2Config(
        vocab_size=V,
        n_embd=16,
        n_layer=2,
        n_head=2,
        n_positions=T,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
    )
    return GPT2LMHeadModel(config)


def llama(dropout: float) -> Model:
    config = LlamaConfig(
        vocab_size=V,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=T,
        attention_dropout=dropout,
    )
    return LlamaForCausalLM(config)


def made(build: Callable[[float], Model], dropout: float) -> Model:
    torch.manual_seed(0)
    return build(dropout).train()


def losses_of(model: Model, ids: Tensor) -> Tensor:
    if isinstance(model, BertForMaskedLM):
        return cross_entropy(model(ids).logits, ids).sum(1)
    hidden = model.base_model(ids, use_cache=False).last_hidden_state
    head = model.get_output_embeddings()
    assert isinstance(head, torch.nn.Linear)
    return causal_losses(head, hidden, ids)


def sums(model: Model, compute: ComputeOptions, seed: int = 5) -> Tensor:
    """Of two micro-batches, clipped; the first one is probed too."""
    ids = torch.randint(0, V, (2, ROWS, T), generator=torch.Generator().manual_seed(1))
    seeds = [seed + row for row in range(ROWS)]
    with recomputed(model, compute):
        clipper = PerExampleClipper(model, 0.5)
        for batch in ids:
            with clipper, RowDropout(seeds, {}, model.device):
                with in_precision(compute, model.device):
                    losses = losses_of(model, batch)
                losses.sum().backward()
        found = torch.cat([own.double().flatten() for own in clipper.sums()])
        clipper.close()
    return found


@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("build", [bert, gpt2, llama])
def test_sums_are_the_same_to_the_bit(build: Callable[[float], Model], dropout: float, precision: str) -> None:
    compute = AGAIN.model_copy(update={"precision": precision})
    plain = sums(made(build, dropout), compute.model_copy(update={"checkpointing": False}))
    assert torch.equal(sums(made(build, dropout), compute), plain)
    assert uses_dropout(made(build, dropout)) == (dropout > 0)
    other = sums(made(build, dropout), compute, seed=50)
    assert torch.equal(other, plain) == (dropout == 0)  # the masks matter


@pytest.mark.parametrize("build", [bert, gpt2, llama])
def test_masks_that_are_drawn_anew_are_caught(build: Callable[[float], Model], monkeypatch: pytest.MonkeyPatch) -> None:
    plain = sums(made(build, 0.3), ComputeOptions())
    monkeypatch.setattr(RowDropout, "go_to", lambda self, states: None)  # known wrong: the generators are not put back
    assert float((sums(made(build, 0.3), AGAIN) - plain).norm() / plain.norm()) > 1e-3


def test_fewer_activations_are_kept() -> None:
    """What the backward needs and has not yet: bytes that the graph saves in the forward."""

    def kept(compute: ComputeOptions) -> int:
        model, saved = made(gpt2, 0.0), dict[int, int]()

        def packed(tensor: Tensor) -> Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        clipper = PerExampleClipper(model, 0.5) if not compute.checkpointing else None
        with recomputed(model, compute), torch.autograd.graph.saved_tensors_hooks(packed, lambda tensor: tensor):
            clipper = clipper or PerExampleClipper(model, 0.5)
            with clipper:
                losses = losses_of(model, torch.zeros(ROWS, T, dtype=torch.int64))
                found = sum(saved.values())
                losses.sum().backward()
        clipper.close()
        return found

    assert kept(AGAIN) < 0.5 * kept(ComputeOptions())


def test_the_model_is_as_before() -> None:
    model = made(bert, 0.0)
    hooks = sum(len(module._forward_hooks) for module in model.modules())
    with recomputed(model, AGAIN):
        assert model.is_activation_checkpointing
    assert not model.is_activation_checkpointing
    assert sum(len(module._forward_hooks) for module in model.modules()) == hooks


def test_a_model_without_layers_to_compute_again_is_one_line() -> None:
    model = build_lstm(ModelOptions(layers=1, width=8, length=LENGTH), 20, 0, 2, 3, 1)
    with (
        pytest.raises(UsageError, match=r"compute\.checkpointing: a LstmForCausalLM has no layers"),
        recomputed(model, AGAIN),
    ):
        pass


# in a phase ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_a_phase_ends_the_same_to_the_bit(dropout: float, tmp_path: Path) -> None:
    stream = stream_of(random_units(8))
    ends = []
    for checkpointing in (False, True):
        folder = tmp_path / str(checkpointing)
        folder.mkdir()
        compute = {"checkpointing": checkpointing}
        ends.append(train(folder, stream, checkpoint_seconds=1e9, dropout=dropout, compute=compute))
    assert same(*ends)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_ordinary_training_is_the_same_to_the_bit(dropout: float) -> None:
    stream = stream_of(random_units(8))

    def gradients(compute: ComputeOptions) -> Tensor:
        model = dropping_bert(dropout).train()
        source = Source(stream, OBJECTIVE, KeyedRandomness(KEY))
        with recomputed(model, compute), closing(PlainStep(model, PlainPlan(6), compute, source)) as step:
            for _ in step.add_up(0, step.draw(0), 0):
                pass
            return torch.cat([own.flatten().clone() for own in step.sums()])

    options = {"micro_batch": 4, "threads": 1}
    assert torch.equal(gradients(ComputeOptions(**options)), gradients(ComputeOptions(**options, checkpointing=True)))
