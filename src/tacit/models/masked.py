"""Masked models: logits at masked positions, and the loss of each row, of any kind by one call.

Shapes: B rows, T positions, K masked slots a row, V vocabulary.
"""

from __future__ import annotations

from torch import Tensor
from transformers import PreTrainedModel

from tacit.config.base import named
from tacit.config.kinds import KINDS, one_of
from tacit.engine.cross_entropy import cross_entropy
from tacit.engine.factors import unit_sums
from tacit.engine.heads import at_positions
from tacit.errors import UsageError
from tacit.models.kinds import MaskedForward, kind_of_model

__all__ = ["masked_logits", "masked_losses"]


def masked_logits(model: PreTrainedModel, ids_BT: Tensor, attention_BT: Tensor, slots_BK: Tensor) -> Tensor:
    """Logits (B, K, V) at the masked positions only, as ``model(ids).logits`` has them there.

    Raises:
        UsageError: the model is of no kind that predicts masked tokens.
    """
    kind = kind_of_model(model)
    if kind is None or kind.is_causal:
        known = one_of(kind for kind in KINDS.values() if not kind.is_causal)
        raise UsageError(f"{type(model).__name__} is no masked language model that is known here; use a {known}")
    if kind.forward is None:
        return at_positions(model(input_ids=ids_BT, attention_mask=attention_BT).logits, slots_BK)
    forward: MaskedForward = named(kind.forward)
    return forward(model, ids_BT, attention_BT, slots_BK)


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
    return unit_sums(losses_BK * weights_BK)
