"""BERT for masked language modelling: transformers' own model, its last layer and head evaluated at masked positions only.

Shapes: B rows, T positions, K masked slots a row, D width, V vocabulary.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import BertConfig, BertForMaskedLM, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bert.modeling_bert import BertLayer
from transformers.utils import logging

from tacit.config import ModelOptions
from tacit.engine.cross_entropy import cross_entropy
from tacit.engine.heads import at_positions
from tacit.errors import UsageError
from tacit.models.given import load_folder
from tacit.models.seeded import seeded

__all__ = ["build_bert", "load_bert", "masked_logits", "masked_losses", "save_bert", "sinusoids"]

_STANDARD = 0.02  # Devlin et al. 2019, whose width is 768
_LONGEST = 1000.0  # of the waves of positions, over 2 pi: a few times the length of a row


def build_bert(options: ModelOptions, vocabulary_size: int, pad_id: int, seed: int) -> BertForMaskedLM:
    """A new BertForMaskedLM with tied embeddings, its weights a function of the seed and of ``options.initializer``."""
    config = BertConfig(
        vocab_size=vocabulary_size,
        hidden_size=options.width,
        num_hidden_layers=options.layers,
        num_attention_heads=options.heads,
        intermediate_size=options.intermediate_width,
        max_position_embeddings=options.length,
        initializer_range=options.width**-0.5 if options.initializer == "scaled" else _STANDARD,
        hidden_dropout_prob=options.dropout,
        attention_probs_dropout_prob=options.dropout,
        pad_token_id=pad_id,
        tie_word_embeddings=True,
    )
    model = seeded(BertForMaskedLM, config, seed)
    if options.initializer == "scaled":
        _init_local_attention(model)
    return model


def _init_local_attention(model: BertForMaskedLM) -> None:
    """Let attention begin with what is alike and near: positions as sinusoids, keys as queries, the output as the values undone.

    After Trockman and Kolter 2023, "Mimetic initialization of self-attention layers", who begin with nearly such products of the
    two pairs of matrices; all weights are trained on their own from there.
    """
    with torch.no_grad():
        table_TD = model.bert.embeddings.position_embeddings.weight
        table_TD.copy_(sinusoids(*table_TD.shape) * model.config.initializer_range)
        for layer in cast(list[BertLayer], list(model.bert.encoder.layer)):
            attention = layer.attention
            attention.self.key.weight.copy_(attention.self.query.weight)
            attention.output.dense.weight.copy_(attention.self.value.weight.T)


def sinusoids(positions: int, width: int) -> Tensor:
    """Positions as sines and cosines (T, D) of mean square 1 (Vaswani et al. 2017, section 3.5; a longest wave ten times ours).

    Neighbours are then told by the same few directions at every position; of random positions each pair is learned on its own.
    """
    frequencies = _LONGEST ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angles = torch.arange(positions, dtype=torch.float64)[:, None] * frequencies
    waves = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)[:, :width]
    return (waves * math.sqrt(2)).float()


def load_bert(folder: Path) -> BertForMaskedLM:
    """The model in a local Hugging Face folder. Raises as `tacit.models.given.load_folder`."""
    return load_folder(BertForMaskedLM, folder)


def save_bert(model: BertForMaskedLM, folder: Path) -> None:
    """Write config.json and model.safetensors."""
    logging.disable_progress_bar()
    model.save_pretrained(folder)


def masked_logits(model: PreTrainedModel, ids_BT: Tensor, attention_BT: Tensor, slots_BK: Tensor) -> Tensor:
    """Logits (B, K, V) at the masked positions only, as ``model(ids).logits`` has them there.

    The head costs K/T of what it does at all positions, and so does most of the last layer: of the other positions it
    needs the keys and the values alone.

    Raises:
        UsageError: the model is no encoder of this kind.
    """
    if not isinstance(model, BertForMaskedLM) or model.config.is_decoder:
        raise UsageError(f"{type(model).__name__} is no masked language model; use a BertForMaskedLM")
    hidden_BTD = model.bert.embeddings(input_ids=ids_BT)
    mask = create_bidirectional_mask(config=model.config, inputs_embeds=hidden_BTD, attention_mask=attention_BT)
    *lower, last = cast(list[BertLayer], list(model.bert.encoder.layer))
    for layer in lower:
        hidden_BTD = layer(hidden_BTD, mask)
    return model.cls(_layer_at(last, hidden_BTD, attention_BT, slots_BK))


def _layer_at(layer: BertLayer, hidden_BTD: Tensor, attention_BT: Tensor, slots_BK: Tensor) -> Tensor:
    """What the layer gives at some positions (B, K, D): its own modules, asked there only."""
    attention = layer.attention.self
    own_BKD = at_positions(hidden_BTD, slots_BK)
    query, key, value = (
        part.unflatten(2, (attention.num_attention_heads, attention.attention_head_size)).transpose(1, 2)
        for part in (attention.query(own_BKD), attention.key(hidden_BTD), attention.value(hidden_BTD))
    )
    seen_BT = attention_BT.bool()
    mask = None if bool(seen_BT.all()) else seen_BT[:, None, None, :]  # without one the kernel is faster
    dropout = attention.dropout.p if attention.training else 0.0
    context = scaled_dot_product_attention(query, key, value, mask, dropout, scale=attention.scaling)
    return layer.feed_forward_chunk(layer.attention.output(context.transpose(1, 2).flatten(2), own_BKD))


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
