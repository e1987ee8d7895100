"""The models by their kind in the configuration: building, or starting from a folder, and saving."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer
from transformers import BertForMaskedLM, GPT2LMHeadModel, PreTrainedModel

from tacit.config import ModelOptions
from tacit.models.bert import build_bert, save_bert
from tacit.models.given import load_folder
from tacit.models.gpt2 import build_gpt2, save_gpt2
from tacit.models.lstm import LstmForCausalLM, build_lstm, save_lstm
from tacit.models.transfer import with_vocabulary
from tacit.vocabulary.given import read_given
from tacit.vocabulary.special import SpecialTokens

__all__ = ["build_model", "save_model"]

_CLASSES: dict[str, type[PreTrainedModel]] = {
    "bert": BertForMaskedLM,
    "gpt2": GPT2LMHeadModel,
    "lstm": LstmForCausalLM,
}

_DROPOUT = {
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "gpt2": ("resid_pdrop", "embd_pdrop", "attn_pdrop"),
    "lstm": ("dropout",),
}


def build_model(
    options: ModelOptions, special: SpecialTokens, seed: int, tokenizer: Tokenizer | None = None
) -> PreTrainedModel:
    """The model that a run begins with: new, its weights a function of the seed, or that of ``options.folder``.

    Args:
        options: kind and shape.
        special: of the run's tokenizer.
        seed: also of the rows of a given model's table for tokens that were added to its tokenizer.
        tokenizer: of the run; needed with ``options.new_vocabulary`` alone.

    Raises:
        DataError: the folder has no whole model of this kind.
    """
    if options.folder is not None:
        return _from_folder(options, special, seed, tokenizer)
    if options.kind == "bert":
        return build_bert(options, special.size, special.pad, seed)
    if options.kind == "gpt2":
        return build_gpt2(options, special.size, special.pad, special.start, special.end, seed)
    return build_lstm(options, special.size, special.pad, special.start, special.end, seed)


def _from_folder(
    options: ModelOptions, special: SpecialTokens, seed: int, tokenizer: Tokenizer | None
) -> PreTrainedModel:
    dropout = dict.fromkeys(_DROPOUT[options.kind], options.dropout)
    model = load_folder(_CLASSES[options.kind], options.resolved_folder, dropout)
    if options.new_vocabulary:
        assert isinstance(model, BertForMaskedLM)  # check of the configuration
        assert tokenizer is not None
        return with_vocabulary(model, read_given(options.resolved_folder), tokenizer, special)
    if options.is_causal:  # a BERT keeps its own: its embedding knows the padding
        model.config.pad_token_id = special.pad
        model.config.bos_token_id, model.config.eos_token_id = special.start, special.end
    if special.size > model.config.vocab_size:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model.resize_token_embeddings(special.size, mean_resizing=False)
    return model


def save_model(model: PreTrainedModel, folder: Path) -> None:
    """Write config.json and model.safetensors, as transformers reads them."""
    if isinstance(model, LstmForCausalLM):
        save_lstm(model, folder)
    elif isinstance(model, GPT2LMHeadModel):
        save_gpt2(model, folder)
    else:
        assert isinstance(model, BertForMaskedLM)
        save_bert(model, folder)
