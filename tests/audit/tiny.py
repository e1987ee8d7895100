"""Tiny causal models and tokenizers, and the scores of all candidates one whole text at a time, for the tests of exact ranks."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import GPT2Config, GPT2LMHeadModel

from tacit.corpus.secrets import SecretFormat

START = 1
FORM = SecretFormat(digits=3)
BARE = SecretFormat(prefix="", digits=3)
MERGES = [("1", "2"), ("12", "3"), ("0", "0"), ("9", "9"), ("00", "0"), ("5", "7"), ("i", "s"), ("is", ":")]


def tokenizer_with(merges: list[tuple[str, str]], characters: str = "0123456789MyIDis:x") -> Tokenizer:
    pieces = ["<unk>", "<s>", *dict.fromkeys(characters), *(one + other for one, other in merges)]
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    tokenizer = Tokenizer(BPE(vocabulary, merges, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return tokenizer


MERGING = tokenizer_with(MERGES)
DIGITS = tokenizer_with([])


class TinyLstm(nn.Module):
    """An LSTM with the interface that `StateScorer` asks for, or with that of any causal model."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.table, self.lstm = nn.Embedding(vocabulary, 8), nn.LSTM(8, 12, num_layers=2, batch_first=True)
        self.head = nn.Linear(12, vocabulary)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None, state: Any = None) -> SimpleNamespace:
        hidden, state = self.lstm(self.table(input_ids), state)
        return SimpleNamespace(logits=self.head(hidden), state=state)


def sharpened(model: nn.Module) -> nn.Module:
    """Float64, and weights so large that the predictions differ."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.7 * torch.randn(parameter.shape, generator=generator))
    return model.double().eval()


@functools.cache
def tiny_lstm() -> nn.Module:
    return sharpened(TinyLstm(MERGING.get_vocab_size()))


@functools.cache
def tiny_gpt2() -> nn.Module:
    config = GPT2Config(vocab_size=MERGING.get_vocab_size(), n_positions=24, n_embd=16, n_layer=2, n_head=2)
    return sharpened(GPT2LMHeadModel(config))


# the oracle ----------------------------------------------------------------------------------------------------------


@torch.no_grad()
def steps_of(model: nn.Module, ids: list[int], start: list[int]) -> np.ndarray:
    """Log-probability of each token, with transformers' convention, one whole sequence at a time."""
    whole = torch.tensor([start + ids])
    logits = model(input_ids=whole, attention_mask=torch.ones_like(whole)).logits[0]
    labels = torch.tensor([-100] * (len(start) - 1) + ids)
    losses = F.cross_entropy(logits[:-1], labels, reduction="none", ignore_index=-100)
    return -losses[len(start) - 1 :].numpy()


@functools.cache
def brute_steps(kind: str, form: SecretFormat) -> list[np.ndarray]:
    model = {"gpt2": tiny_gpt2, "lstm": tiny_lstm}[kind]()
    texts = [form.text(secret) for secret in range(form.candidates)]
    return [steps_of(model, MERGING.encode(text).ids, [START]) for text in texts]


def brute(kind: str, form: SecretFormat) -> np.ndarray:
    return np.array([steps.sum() for steps in brute_steps(kind, form)])


def silent() -> Tokenizer:
    """A tokenizer that knows nothing and has no unknown token: it drops every character."""
    return Tokenizer(BPE({"~": 0}, []))
