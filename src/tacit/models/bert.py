"""BERT for masked language modelling: transformers' own model, with a loss that evaluates the head at masked positions only.

Shapes: B rows, T positions, K masked slots a row, D width, V vocabulary.
"""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor
from transformers import BertConfig, BertForMaskedLM, PreTrainedModel
from transformers.utils import logging

from tacit.config import ModelOptions
from tacit.engine.cross_entropy import cross_entropy
from tacit.engine.heads import at_positions
from tacit.errors import UsageError

__all__ = ["build_bert", "load_bert", "masked_logits", "masked_losses", "save_bert"]


def build_bert(options: ModelOptions, vocabulary_size: int, pad_id: int, seed: int) -> BertForMaskedLM:
    """A new BertForMaskedLM with tied embeddings, its weights a function of the seed."""
    config = BertConfig(
        vocab_size=vocabulary_size,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=options.intermediate_width,
        max_position_embeddings=options.length,
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout,
        pad_token_id=pad_id,
        tie_word_embeddings=True,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return BertForMaskedLM(config)


def load_bert(folder: Path) -> BertForMaskedLM:
    """The model in a local Hugging Face folder; never from a hub."""
    return BertForMaskedLM.from_pretrained(folder, local_files_only=True)


def save_bert(model: BertForMaskedLM, folder: Path) -> None:
    """Write config.json and model.safetensors."""
    logging.disable_progress_bar()
    model.save_pretrained(folder)


def masked_logits(model: PreTrainedModel, ids_BT: Tensor, attention_BT: Tensor, slots_BK: Tensor) -> Tensor:
    """Logits (B, K, V) at the masked positions only: the head costs K/T of what it does at all positions.

    Raises:
        UsageError: the model is no BertForMaskedLM.
    """
    if not isinstance(model, BertForMaskedLM):
        raise UsageError(f"{type(model).__name__} is no masked language model; use a BertForMaskedLM")
    hidden_BTD = model.bert(input_ids=ids_BT, attention_mask=attention_BT).last_hidden_state
    return model.cls(at_positions(hidden_BTD, slots_BK))


def masked_losses(
    model: PreTrainedModel,
    ids_BT: Tensor,
    attention_BT: Tensor,
    slots_BK: Tensor,
    labels_BK: Tensor,
    weights_BK: Tensor,
) -> Tensor:
    """Loss of each row (B,): sum over its masked slots of weight times cross-entropy in nats.

    The weights are the caller's 1 / (masked tokens of the row's unit) at real slots and 0 elsewhere, so that a unit's loss is
    the mean over its own masked tokens and no row's loss depends on another row's length.
    """
    logits_BKV = masked_logits(model, ids_BT, attention_BT, slots_BK)
    losses_BK = cross_entropy(logits_BKV, labels_BK, overwrite=True)
    return (losses_BK * weights_BK).sum(dim=1)
