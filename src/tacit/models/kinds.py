"""The models by their kind in the configuration: building, saving, and what transformers calls them."""

from __future__ import annotations

from pathlib import Path

from transformers import BertForMaskedLM, GPT2LMHeadModel, PreTrainedModel

from tacit.config import ModelOptions
from tacit.models.bert import build_bert, save_bert
from tacit.models.gpt2 import build_gpt2, save_gpt2
from tacit.models.lstm import LstmForCausalLM, build_lstm, save_lstm

__all__ = ["END_ID", "PAD_ID", "START_ID", "build_model", "save_model"]

PAD_ID = 0
START_ID = 2
END_ID = 3
"""[PAD], [CLS] and [SEP] of `tacit.vocabulary.tokenizer.SPECIAL_TOKENS`; a test compares."""


def build_model(options: ModelOptions, vocabulary_size: int, seed: int) -> PreTrainedModel:
    """The untrained model of these options, from a seed."""
    if options.kind == "bert":
        return build_bert(options, vocabulary_size, PAD_ID, seed)
    if options.kind == "gpt2":
        return build_gpt2(options, vocabulary_size, PAD_ID, START_ID, END_ID, seed)
    return build_lstm(options, vocabulary_size, PAD_ID, START_ID, END_ID, seed)


def save_model(model: PreTrainedModel, folder: Path) -> None:
    """Write config.json and model.safetensors, as transformers reads them."""
    if isinstance(model, LstmForCausalLM):
        save_lstm(model, folder)
    elif isinstance(model, GPT2LMHeadModel):
        save_gpt2(model, folder)
    else:
        assert isinstance(model, BertForMaskedLM)
        save_bert(model, folder)
