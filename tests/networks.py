"""Small networks of every kind with the special tokens that a test names."""

from __future__ import annotations

from transformers import BertForMaskedLM, GPT2LMHeadModel

from tacit.config import ModelOptions
from tacit.models.kinds import build_model
from tacit.models.lstm import LstmConfig, LstmForCausalLM
from tacit.models.seeded import seeded
from tacit.vocabulary.special import SpecialTokens

__all__ = ["build_bert", "build_gpt2", "build_lstm", "special_of"]


def special_of(vocabulary: int, pad: int = 0, start: int = 2, end: int = 3) -> SpecialTokens:
    """Special tokens with these ids."""
    return SpecialTokens(
        pad=pad, start=start, end=end, mask=None, unknown=None, ids=tuple(sorted({pad, start, end})), size=vocabulary
    )


def build_bert(options: ModelOptions, vocabulary: int, pad: int, seed: int) -> BertForMaskedLM:
    """The BERT that a run with these options begins with."""
    model = build_model(options.model_copy(update={"kind": "bert"}), special_of(vocabulary, pad), seed)
    assert isinstance(model, BertForMaskedLM)
    return model


def build_gpt2(options: ModelOptions, vocabulary: int, pad: int, start: int, end: int, seed: int) -> GPT2LMHeadModel:
    """The GPT-2 that a run with these options begins with."""
    model = build_model(options.model_copy(update={"kind": "gpt2"}), special_of(vocabulary, pad, start, end), seed)
    assert isinstance(model, GPT2LMHeadModel)
    return model


def build_lstm(
    options: ModelOptions, vocabulary: int, pad: int, start: int, end: int, seed: int, tied: bool = False
) -> LstmForCausalLM:
    """The LSTM that a run with these options begins with; or one with its head tied, which no run has."""
    model = build_model(options.model_copy(update={"kind": "lstm"}), special_of(vocabulary, pad, start, end), seed)
    assert isinstance(model, LstmForCausalLM)
    return (
        seeded(LstmForCausalLM, LstmConfig(**{**model.config.to_dict(), "tie_word_embeddings": True}), seed)
        if tied
        else model
    )
