"""BERT for masked language modelling: transformers' own model, its last layer and head evaluated at masked positions only.

Shapes: B rows, T positions, K masked slots a row, D width, V vocabulary.
"""

from __future__ import annotations

import math
from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention
from transformers import BertConfig, BertForMaskedLM, PreTrainedModel
from transformers.masking_utils import create_bidirectional_mask
from transformers.models.bert.modeling_bert import BertLayer

from tacit.engine.heads import at_positions
from tacit.errors import UsageError
from tacit.models.seeded import seeded

__all__ = ["logits_at", "scaled_bert", "sinusoids"]

_ASKED_MULTIPLE = 4

_LONGEST = 1000.0  # of the waves of positions, over 2 pi: a few times the length of a row


def scaled_bert(config: BertConfig, seed: int) -> BertForMaskedLM:
    """A new model for a narrow width: weights of standard deviation 1/sqrt(width), and attention that begins with near positions."""
    config.initializer_range = config.hidden_size**-0.5
    model = seeded(BertForMaskedLM, config, seed)
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


def logits_at(model: PreTrainedModel, ids_BT: Tensor, attention_BT: Tensor, slots_BK: Tensor) -> Tensor:
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
    """What the layer gives at some positions (B, K, D): its own modules, asked there only.

    Their number is filled up: attention of an odd number of them is rounded otherwise in a second thread's units (TACIT-52).
    """
    attention, asked = layer.attention.self, slots_BK.shape[1]
    own_BKD = at_positions(hidden_BTD, pad(slots_BK, (0, -asked % _ASKED_MULTIPLE)))
    query, key, value = (
        part.unflatten(2, (attention.num_attention_heads, attention.attention_head_size)).transpose(1, 2)
        for part in (attention.query(own_BKD), attention.key(hidden_BTD), attention.value(hidden_BTD))
    )
    seen_BT = attention_BT.bool()
    mask = None if bool(seen_BT.all()) else seen_BT[:, None, None, :]  # without one the kernel is faster
    dropout = attention.dropout.p if attention.training else 0.0
    context = scaled_dot_product_attention(query, key, value, mask, dropout, scale=attention.scaling)
    context_BKD = context.transpose(1, 2).flatten(2)[:, :asked]
    return layer.feed_forward_chunk(layer.attention.output(context_BKD, own_BKD[:, :asked]))
