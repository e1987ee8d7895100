"""The family of models that every check of the clipper runs on. A layer is added to it by one line in ``CASES``.

A batch is a dict of tensors whose dimension 0 is the example; ``losses`` returns one loss a row. Everything is float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    AlbertConfig,
    AlbertForMaskedLM,
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.mistral.modeling_mistral import MistralRMSNorm
from transformers.models.phi3.modeling_phi3 import Phi3RMSNorm
from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm
from transformers.models.qwen3.modeling_qwen3 import Qwen3RMSNorm
from transformers.pytorch_utils import Conv1D

Batch = dict[str, Tensor]
Losses = Callable[[nn.Module, Batch], Tensor]
IGNORED = -100


@dataclass(frozen=True)
class Case:
    """A model, its batches (by rows and seed) and its per-example losses."""

    build: Callable[[], nn.Module]
    batch: Callable[[int, int], Batch]
    losses: Losses

    def model(self, dtype: torch.dtype = torch.float64) -> nn.Module:
        torch.manual_seed(7)
        model = self.build().to(torch.float64)
        with torch.no_grad():
            for parameter in model.parameters():  # ones and zeros would hide a forgotten weight or bias
                parameter += 0.1 * torch.randn_like(parameter)
        return model.to(dtype)


def take(batch: Batch, rows: list[int]) -> Batch:
    return {name: values[rows] for name, values in batch.items()}


def cast(batch: Batch, dtype: torch.dtype) -> Batch:
    return {name: v.to(dtype) if v.is_floating_point() else v for name, v in batch.items()}


def vectors(*shape: int) -> Callable[[int, int], Batch]:
    """Inputs of a shape a row, and a weight a row so that some norms are below the clip norm and some far above."""

    def batch(rows: int, seed: int) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        x = torch.randn(rows, *shape, generator=generator, dtype=torch.float64)
        return {"x": x, "weight": 10 ** torch.linspace(-2, 2, max(rows, 1), dtype=torch.float64)[:rows]}

    return batch


def tokens(length: int, vocabulary: int) -> Callable[[int, int], Batch]:
    """Token ids with repeats and padding (id 0), their mask, labels at some positions, and a weight a row."""

    def batch(rows: int, seed: int) -> Batch:
        generator = torch.Generator().manual_seed(seed)
        ids = torch.randint(1, vocabulary, (rows, length), generator=generator)
        lengths = torch.randint(2, length + 1, (rows, 1), generator=generator)
        mask = torch.arange(length)[None] < lengths
        labelled = (torch.rand(rows, length, generator=generator) < 0.5) & mask
        labelled[:, 0] = True
        labels = torch.randint(0, vocabulary, (rows, length), generator=generator)
        weight = 10 ** torch.linspace(-2, 2, max(rows, 1), dtype=torch.float64)[:rows]
        return {
            "ids": ids * mask,
            "mask": mask.long(),
            "labels": torch.where(labelled, labels, IGNORED),
            "weight": weight,
        }

    return batch


def square_losses(model: nn.Module, batch: Batch) -> Tensor:
    output = model(batch["x"])
    return batch["weight"] * (output - 0.3).square().flatten(1).sum(1)


def id_losses(model: nn.Module, batch: Batch) -> Tensor:
    """For models of token ids with one output vector a row or a position."""
    return batch["weight"] * (model(batch["ids"]) - 0.3).square().flatten(1).sum(1)


def masked_token_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy over each row's own labelled positions."""
    losses = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED, reduction="none")
    return losses.view(labels.shape).sum(1) / (labels != IGNORED).sum(1).clamp(min=1)


def full_head_losses(model: nn.Module, batch: Batch) -> Tensor:
    """The model exactly as transformers is called: no position ids, logits everywhere."""
    logits = model(input_ids=batch["ids"], attention_mask=batch["mask"]).logits
    return batch["weight"] * masked_token_losses(logits, batch["labels"])


def gathered_head_losses(model: BertForMaskedLM, batch: Batch, positions: int = 3) -> Tensor:
    """The head on the first labelled positions of each row only: (B, K, d) instead of (B, T, d)."""
    hidden = model.bert(input_ids=batch["ids"], attention_mask=batch["mask"]).last_hidden_state
    order = (batch["labels"] == IGNORED).long().argsort(dim=1, stable=True)[:, :positions]
    logits = model.cls(hidden.gather(1, order[:, :, None].expand(-1, -1, hidden.shape[2])))
    return batch["weight"] * masked_token_losses(logits, batch["labels"].gather(1, order))


def tiny_bert(vocabulary: int = 40, tied: bool = True, dropout: float = 0.0) -> BertForMaskedLM:
    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=16,
        tie_word_embeddings=tied,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    return BertForMaskedLM(config)


def tiny_gpt2(vocabulary: int = 30, tied: bool = True, dropout: float = 0.0, attention: str = "sdpa") -> nn.Module:
    config = GPT2Config(
        vocab_size=vocabulary,
        n_positions=12,
        n_embd=8,
        n_layer=2,
        n_head=2,
        tie_word_embeddings=tied,
        resid_pdrop=dropout,
        embd_pdrop=dropout,
        attn_pdrop=dropout,
        attn_implementation=attention,
        use_cache=False,
    )
    return GPT2LMHeadModel(config)


def tiny_llama(tied: bool = False) -> nn.Module:
    config = LlamaConfig(
        vocab_size=30,
        hidden_size=8,
        intermediate_size=12,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=12,
        tie_word_embeddings=tied,
        use_cache=False,
    )
    return LlamaForCausalLM(config)


def tiny_albert() -> nn.Module:
    """Two passes through one and the same layer, and a small table that is widened."""
    config = AlbertConfig(
        vocab_size=30,
        embedding_size=6,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=12,
        max_position_embeddings=12,
    )
    return AlbertForMaskedLM(config)


def tiny_lora() -> nn.Module:
    """Adapters of peft on GPT-2's attention; all else is frozen."""
    options = LoraConfig(r=2, target_modules=["c_attn", "c_proj"], fan_in_fan_out=True, init_lora_weights=False)
    return get_peft_model(tiny_gpt2(), options)


class LstmModel(nn.Module):
    """Table, LSTM, output layer; tied or not, batch first or not."""

    def __init__(self, layers: int = 1, batch_first: bool = True, tied: bool = False, dropout: float = 0.0) -> None:
        super().__init__()
        self.batch_first = batch_first
        self.table = nn.Embedding(20, 5)
        self.lstm = nn.LSTM(5, 5, num_layers=layers, batch_first=batch_first, dropout=dropout)
        self.head = nn.Linear(5, 20)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        output = self.lstm(x)[0] if self.batch_first else self.lstm(x.transpose(0, 1))[0].transpose(0, 1)
        return self.head(output)


class Gain(nn.Module):
    """A layer without a rule: a bare parameter, with a layer inside that has one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gain, self.inner = nn.Parameter(torch.ones(width)), nn.Linear(width, width)

    def forward(self, x: Tensor, shift: Tensor, scale: float = 1.0) -> dict[str, Tensor]:
        mixed = self.gain * torch.tanh(self.inner(x)) * scale + self.gain.sum() * shift
        return {"mixed": mixed, "squared": self.gain**2 * x}


class Strength(nn.Module):
    """A parameter without dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.strength = nn.Parameter(torch.tensor(1.3))

    def forward(self, x: Tensor) -> Tensor:
        return self.strength * torch.tanh(x)


class WithoutRules(nn.Module):
    """Layers that go to the fallback: bare parameters, a convolution, a learned token before the others."""

    def __init__(self) -> None:
        super().__init__()
        self.gain, self.convolution, self.last = Gain(4), nn.Conv1d(4, 3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        output = self.gain(x, shift=torch.ones(1, 4, dtype=x.dtype, device=x.device), scale=0.7)
        total = torch.relu_(output["mixed"]) + output["squared"]
        return self.last(self.convolution(total.transpose(1, 2)).transpose(1, 2))


class OwnToken(nn.Module):
    """The whole model goes to the fallback for its one bare parameter; its layers keep their rules."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.first, self.second = nn.Parameter(torch.zeros(1, 1, 4)), nn.Linear(4, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        longer = torch.cat([self.token.expand(len(x), -1, -1), self.first(x)], 1)
        return self.second(torch.tanh(longer + longer.mean(1, keepdim=True)))


class BorrowedTable(nn.Module):
    """User code that reads a table outside the embedding's own call (an output layer by hand): to be refused."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return F.linear(self.table(ids), self.table.weight)


class TiedTable(nn.Module):
    """A table used as input embedding and as output weight, with a layer between; large enough for the Gram form or not."""

    def __init__(self, vocabulary: int, width: int, padding_idx: int | None) -> None:
        super().__init__()
        self.table = nn.Embedding(vocabulary, width, padding_idx=padding_idx)
        self.middle = nn.Linear(width, width)
        self.head = nn.Linear(width, vocabulary)
        self.head.weight = self.table.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(torch.tanh(self.middle(self.table(ids))))


class SharedPositions(nn.Module):
    """Positions of shape (1, T) pass an embedding and a layer before they meet the batch; one vector (1,) is shared by all."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(11, 4), nn.Embedding(6, 3)
        self.widen, self.kind = nn.Linear(3, 4), nn.Embedding(2, 4)

    def forward(self, ids: Tensor) -> Tensor:
        places = torch.arange(ids.shape[1], device=ids.device)[None]
        mixed = self.tokens(ids) * self.widen(torch.tanh(self.positions(places)))
        return mixed + self.kind(torch.ones(1, dtype=torch.long, device=ids.device))[:, None]


class ReusedLayers(nn.Module):
    """A linear layer called twice on different lengths, a table called twice, and one bias in two kinds of layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table, self.shared = nn.Embedding(9, width), nn.Linear(width, width)
        self.normalise = nn.LayerNorm(width)
        self.normalise.bias = self.shared.bias

    def forward(self, ids: Tensor) -> Tensor:
        once = self.shared(input=self.table(ids))
        again = self.shared(self.normalise(torch.tanh(once))[:, 1:])
        return again + self.table(ids.flip(1))[:, 1:]


class Unreached(nn.Module):
    """A layer that the forward never calls, and one whose output is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused, self.ignored = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        self.ignored(x)
        return self.used(x)


def partly_frozen() -> nn.Module:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.LayerNorm(4), nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    model[0].requires_grad_(False)
    model[2].weight.requires_grad_(False)
    model[3].weight.requires_grad_(False)
    model[5].bias.requires_grad_(False)
    return model


def in_place() -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 6), nn.ReLU(inplace=True), nn.Linear(6, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)
    )


def sequence(*layers: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*(layer() for layer in layers))


CASES: dict[str, Case] = {
    "linear-2d": Case(
        sequence(lambda: nn.Linear(5, 4), nn.Tanh, lambda: nn.Linear(4, 3, bias=False)), vectors(5), square_losses
    ),
    "linear-3d": Case(
        sequence(lambda: nn.Linear(5, 4), nn.Tanh, lambda: nn.Linear(4, 3)), vectors(6, 5), square_losses
    ),
    "linear-4d": Case(
        sequence(lambda: nn.Linear(3, 2, bias=False), nn.Tanh, lambda: nn.Linear(2, 3)), vectors(2, 4, 3), square_losses
    ),
    "linear-gram": Case(
        sequence(lambda: nn.Linear(30, 20), nn.Tanh, lambda: nn.Linear(20, 30)), vectors(3, 30), square_losses
    ),
    "layer-norm-2d": Case(sequence(lambda: nn.LayerNorm(5), lambda: nn.Linear(5, 2)), vectors(5), square_losses),
    "layer-norm-two-dims": Case(
        sequence(lambda: nn.LayerNorm((3, 4)), nn.Tanh, lambda: nn.LayerNorm(4, bias=False), lambda: nn.Linear(4, 2)),
        vectors(2, 3, 4),
        square_losses,
    ),
    "embedding-padding": Case(
        sequence(lambda: nn.Embedding(8, 4, padding_idx=0), lambda: nn.LayerNorm(4), lambda: nn.Linear(4, 3)),
        tokens(7, 8),
        id_losses,
    ),
    "embedding-large": Case(
        sequence(lambda: nn.Embedding(300, 5, padding_idx=0), nn.Tanh, lambda: nn.Linear(5, 3)), tokens(9, 8), id_losses
    ),
    "embedding-1d": Case(
        sequence(lambda: nn.Embedding(8, 4), nn.Tanh, lambda: nn.Linear(4, 3)),
        tokens(7, 8),
        lambda model, batch: id_losses(model, batch | {"ids": batch["ids"][:, 0].contiguous()}),
    ),
    "tied-small": Case(lambda: TiedTable(6, 4, None), tokens(8, 6), id_losses),
    "tied-gram": Case(lambda: TiedTable(60, 12, None), tokens(5, 9), id_losses),
    "tied-gram-padding": Case(lambda: TiedTable(60, 12, 0), tokens(5, 9), id_losses),
    "shared-positions": Case(SharedPositions, tokens(6, 11), id_losses),
    "reused-small": Case(lambda: ReusedLayers(3), tokens(6, 9), id_losses),
    "reused-gram": Case(lambda: ReusedLayers(24), tokens(4, 9), id_losses),
    "unreached": Case(Unreached, vectors(4, 3), square_losses),
    "frozen": Case(partly_frozen, vectors(4, 3), square_losses),
    "number": Case(
        sequence(partial(nn.Linear, 3, 4), Strength, partial(nn.Linear, 4, 2)), vectors(4, 3), square_losses
    ),
    "in-place": Case(in_place, vectors(4, 3), square_losses),
    "bert-tied": Case(tiny_bert, tokens(7, 40), full_head_losses),
    "bert-tied-gram": Case(lambda: tiny_bert(vocabulary=400), tokens(7, 400), full_head_losses),
    "bert-untied": Case(lambda: tiny_bert(tied=False), tokens(7, 40), full_head_losses),
    "conv1d-gram": Case(
        sequence(lambda: Conv1D(20, 30), nn.Tanh, lambda: Conv1D(2, 20)), vectors(3, 30), square_losses
    ),
    "rms-norm": Case(
        sequence(lambda: nn.RMSNorm(5), nn.Tanh, lambda: nn.RMSNorm((3, 5), eps=1e-3), lambda: nn.Linear(5, 2)),
        vectors(3, 5),
        square_losses,
    ),
    **{
        f"norm-of-{rule.__name__}": Case(
            sequence(partial(rule, 5), nn.Tanh, lambda: nn.Linear(5, 2)), vectors(3, 5), square_losses
        )
        for rule in (LlamaRMSNorm, MistralRMSNorm, Qwen2RMSNorm, Qwen3RMSNorm, Phi3RMSNorm)
    },
    "lstm": Case(LstmModel, tokens(6, 20), id_losses),
    "lstm-layers-tied": Case(lambda: LstmModel(layers=2, batch_first=False, tied=True), tokens(8, 20), id_losses),
    "fallback": Case(WithoutRules, vectors(5, 4), square_losses),
    "fallback-whole-model": Case(OwnToken, vectors(5, 4), square_losses),
    "fallback-attention": Case(
        sequence(lambda: nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)),
        vectors(5, 4),
        square_losses,
    ),
    "gpt2-tied": Case(tiny_gpt2, tokens(7, 30), full_head_losses),
    "gpt2-tied-gram": Case(lambda: tiny_gpt2(vocabulary=300), tokens(7, 300), full_head_losses),
    "gpt2-untied-eager": Case(lambda: tiny_gpt2(tied=False, attention="eager"), tokens(7, 30), full_head_losses),
    "llama": Case(tiny_llama, tokens(7, 30), full_head_losses),
    "llama-tied": Case(lambda: tiny_llama(tied=True), tokens(7, 30), full_head_losses),
    "albert": Case(tiny_albert, tokens(7, 30), full_head_losses),
    "lora": Case(tiny_lora, tokens(7, 30), full_head_losses),
    "bert-gathered-head": Case(lambda: tiny_bert(vocabulary=90), tokens(7, 90), gathered_head_losses),
}
