"""Masks drawn on the fly (Devlin et al. 2019): 15 % of a row's own tokens; of these 80 % [MASK], 10 % random, 10 % kept.

A row's masks are a function of that row and of its own uniforms, never of another row. A fixed number K of slots a row keeps
shapes constant: rows with fewer masked tokens have slots of weight 0.

Shapes: B rows, T positions, K slots.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

__all__ = ["MaskedRows", "Masking", "mask_rows", "single_mask_rows"]


@dataclass(frozen=True)
class Masking:
    """What masking needs to know of the tokenizer.

    Args:
        probability: share of a row's tokens that is predicted.
        mask_id: id of [MASK].
        special_ids: ids that are no text: never masked, never drawn as a random replacement.
        vocabulary_size: number of ids.
    """

    probability: float
    mask_id: int
    special_ids: Sequence[int]
    vocabulary_size: int

    @cached_property
    def ordinary(self) -> np.ndarray:
        """The ids that may be masked and drawn, ascending."""
        return np.setdiff1d(np.arange(self.vocabulary_size), self.special_ids)

    @cached_property
    def is_ordinary(self) -> np.ndarray:
        """Whether each id may be masked and drawn: `ordinary` as a flag for every id."""
        return np.isin(np.arange(self.vocabulary_size), self.ordinary)

    def slots(self, length: int) -> int:
        """K for rows of this many positions."""
        return math.ceil(self.probability * length)


@dataclass(frozen=True)
class MaskedRows:
    """A masked micro-batch: inputs with masks, the slots' positions, the true ids there, and which slots are real."""

    ids_BT: np.ndarray
    attention_BT: np.ndarray
    slots_BK: np.ndarray
    labels_BK: np.ndarray
    real_BK: np.ndarray


def mask_rows(ids_BT: np.ndarray, lengths_B: np.ndarray, uniforms_B3T: np.ndarray, masking: Masking) -> MaskedRows:
    """Mask rows by given uniforms in [0, 1): the first of the three orders the positions, the second chooses what happens to
    a chosen position, the third the random replacement.

    A row with n ordinary tokens gets max(1, round(probability n)) masked ones (none when n = 0).
    """
    rows, length = ids_BT.shape
    slots = masking.slots(length)
    attention_BT = np.arange(length) < lengths_B[:, None]
    ordinary_BT = attention_BT & masking.is_ordinary[ids_BT]
    order_BT = np.where(ordinary_BT, uniforms_B3T[:, 0], 2.0)
    slots_BK = np.argsort(order_BT, axis=1, kind="stable")[:, :slots]
    ordinary_B = ordinary_BT.sum(axis=1)
    wanted_B = np.where(ordinary_B > 0, np.maximum(1, np.round(masking.probability * ordinary_B)), 0)
    real_BK = np.arange(slots) < np.minimum(wanted_B, slots)[:, None]
    slots_BK = np.where(real_BK, slots_BK, 0)
    labels_BK = np.take_along_axis(ids_BT, slots_BK, axis=1)
    action_BK = np.take_along_axis(uniforms_B3T[:, 1], slots_BK, axis=1)
    draw_BK = np.take_along_axis(uniforms_B3T[:, 2], slots_BK, axis=1)
    random_BK = masking.ordinary[(draw_BK * len(masking.ordinary)).astype(ids_BT.dtype)]
    shown_BK = np.where(action_BK < 0.8, masking.mask_id, np.where(action_BK < 0.9, random_BK, labels_BK))
    masked_BT = ids_BT.copy()
    row_BK = np.broadcast_to(np.arange(rows)[:, None], slots_BK.shape)
    masked_BT[row_BK[real_BK], slots_BK[real_BK]] = shown_BK[real_BK]
    return MaskedRows(masked_BT, attention_BT, slots_BK, labels_BK, real_BK)


def single_mask_rows(
    ids_BT: np.ndarray, lengths_B: np.ndarray, positions_B: np.ndarray, masking: Masking
) -> MaskedRows:
    """One given position of each row replaced by [MASK], for the audit."""
    rows = np.arange(len(ids_BT))
    masked_BT = ids_BT.copy()
    masked_BT[rows, positions_B] = masking.mask_id
    slots_BK = positions_B[:, None]
    labels_BK = np.take_along_axis(ids_BT, slots_BK, axis=1)
    attention_BT = np.arange(ids_BT.shape[1]) < lengths_B[:, None]
    return MaskedRows(masked_BT, attention_BT, slots_BK, labels_BK, np.ones_like(slots_BK, dtype=bool))
