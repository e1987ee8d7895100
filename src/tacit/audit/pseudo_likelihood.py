"""How likely a masked model finds texts: one token hidden at a time (Salazar et al. 2020, arXiv 1910.14659).

Shapes: U units, P hidden places, B of them at a time, T positions.
"""

from __future__ import annotations

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.engine import cross_entropy
from tacit.models.masked import masked_logits
from tacit.randomness import KeyedRandomness
from tacit.training.masking import Masking, single_mask_rows
from tacit.training.sequences import SequenceStream

__all__ = ["pseudo_nats"]

_AT_ONCE = 64


@torch.no_grad()
def pseudo_nats(
    model: PreTrainedModel, stream: SequenceStream, masking: Masking, streams: KeyedRandomness, at_most: int = 32
) -> tuple[np.ndarray, np.ndarray]:
    """(sum over a unit's hidden tokens of -ln of their probability (U,), how many these are (U,)). The model is left in eval mode.

    Args:
        at_most: tokens of a unit that are hidden, one after the other; of more a keyed choice, the same for every model.
    """
    model.eval()
    row_P, place_P, owner_P = _hidden_places(stream, masking, streams, at_most)
    nats_P = np.zeros(len(row_P))
    order = np.argsort(stream.lengths_S[row_P], kind="stable")
    for start in range(0, len(order), _AT_ONCE):
        part = order[start : start + _AT_ONCE]
        lengths_B = stream.lengths_S[row_P[part]]
        ids_BT = stream.ids_ST[row_P[part], : lengths_B.max()].astype(np.int64)
        masked = single_mask_rows(ids_BT, lengths_B, place_P[part], masking)
        ids, attention, slots, labels = (
            torch.from_numpy(array.astype(np.int64)).to(model.device)
            for array in (masked.ids_BT, masked.attention_BT, masked.slots_BK, masked.labels_BK)
        )
        logits_B1V = masked_logits(model, ids, attention, slots)
        nats_P[part] = cross_entropy(logits_B1V, labels)[:, 0].double().cpu().numpy()
    return np.bincount(owner_P, nats_P, stream.units), np.bincount(owner_P, minlength=stream.units)


def _hidden_places(
    stream: SequenceStream, masking: Masking, streams: KeyedRandomness, at_most: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, position and unit of each place (P,)."""
    real_ST = np.arange(stream.ids_ST.shape[1]) < stream.lengths_S[:, None]
    ordinary_ST = real_ST & masking.is_ordinary[np.asarray(stream.ids_ST)]
    found: list[np.ndarray] = [np.zeros((0, 3), dtype=np.int64)]
    for unit, key in enumerate(stream.keys_U):
        rows = stream.rows_of(unit)
        places = np.argwhere(ordinary_ST[rows])
        if len(places) > at_most:
            chosen = streams.generator("pseudo-likelihood", key).choice(len(places), at_most, replace=False)
            places = places[np.sort(chosen)]
        found.append(np.column_stack([rows[places[:, 0]], places[:, 1], np.full(len(places), unit)]))
    row_P, place_P, owner_P = np.concatenate(found).T
    return row_P, place_P, owner_P
