"""What a model is asked about its rows: masked tokens (BERT), or every next token (GPT-2, LSTM).

The loop knows an objective only by the targets it makes of rows and by its losses, so every phase runs with either.

Shapes: B rows, T positions, N targets of a row, n uniforms a position.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.errors import UsageError
from tacit.models.causal import causal_row_losses
from tacit.models.masked import masked_losses
from tacit.training.masking import Masking, mask_rows

__all__ = ["CausalObjective", "MaskedObjective", "Objective", "Targets"]


@dataclass(frozen=True)
class Targets:
    """What the losses of a micro-batch need.

    Args:
        arrays: integers, dimension 0 the row; the objective's own ``losses`` knows what they are.
        real_BN: which of a row's N targets count.
    """

    arrays: tuple[np.ndarray, ...]
    real_BN: np.ndarray


class Objective(ABC):
    """How rows become targets and targets losses.

    ``draws``: uniforms that it wants for each position of a row.
    ``may_be_cut``: whether no row needs the padding behind it, so that rows may be cut where the longest of a batch ends.
    """

    draws: int
    may_be_cut: bool = False

    @property
    def tells_padding(self) -> bool:
        """Whether the model is told which positions are padding: not where rows may be cut, for what comes later is hidden anyway."""
        return not self.may_be_cut

    @abstractmethod
    def targets(self, ids_BT: np.ndarray, lengths_B: np.ndarray, uniforms_BnT: np.ndarray) -> Targets:
        """The targets of rows; a row's are a function of that row, its own uniforms and T, never of another row."""

    def targets_of(self, length: int) -> int:
        """N for rows of T = ``length``."""
        return length

    def only(self, targets: Targets, counted_BT: np.ndarray) -> Targets:
        """The targets at tokens that count, as a response's (`SequenceStream.counted_ST`).

        Raises:
            UsageError: this objective asks for no next tokens.
        """
        raise UsageError(
            "tokens of a response are learned by a causal model alone; give this one rows that count as a whole"
        )

    def all_counted(self, targets: Targets) -> Targets:
        """The targets of the same rows, in which every one counts: made-up rows that have a loss, for a trial."""
        return Targets(targets.arrays, np.ones_like(targets.real_BN))

    @abstractmethod
    def losses(self, model: PreTrainedModel, arrays: Sequence[torch.Tensor], weights_BN: torch.Tensor) -> torch.Tensor:
        """Loss of each row (B,): the sum over its targets of weight times cross-entropy in nats."""


@dataclass(frozen=True)
class MaskedObjective(Objective):
    """Masked tokens, drawn on the fly; the head is evaluated at their positions only."""

    masking: Masking
    draws = 3

    def targets(self, ids_BT: np.ndarray, lengths_B: np.ndarray, uniforms_BnT: np.ndarray) -> Targets:
        """N is the number of slots of a row."""
        masked = mask_rows(ids_BT, lengths_B, uniforms_BnT, self.masking)
        return Targets((masked.ids_BT, masked.attention_BT, masked.slots_BK, masked.labels_BK), masked.real_BK)

    def targets_of(self, length: int) -> int:
        return self.masking.slots(length)

    def losses(self, model: PreTrainedModel, arrays: Sequence[torch.Tensor], weights_BN: torch.Tensor) -> torch.Tensor:
        """`tacit.models.masked.masked_losses`."""
        ids_BT, attention_BT, slots_BK, labels_BK = arrays
        return masked_losses(model, ids_BT, attention_BT, slots_BK, labels_BK, weights_BN)


@dataclass(frozen=True)
class CausalObjective(Objective):
    """Every token but the first, from those before it; the end token too."""

    draws = 0
    may_be_cut = True

    def targets(self, ids_BT: np.ndarray, lengths_B: np.ndarray, uniforms_BnT: np.ndarray) -> Targets:
        """N is T: the target at position t is the token there."""
        place_T = np.arange(ids_BT.shape[1])
        attention_BT = place_T < lengths_B[:, None]
        return Targets((ids_BT, attention_BT), attention_BT & (place_T > 0))

    def only(self, targets: Targets, counted_BT: np.ndarray) -> Targets:
        return Targets(targets.arrays, targets.real_BN & counted_BT)

    def all_counted(self, targets: Targets) -> Targets:
        ids_BT, _ = targets.arrays
        later_BT = np.broadcast_to(np.arange(ids_BT.shape[1]) > 0, ids_BT.shape)
        return Targets((ids_BT, np.ones(ids_BT.shape, dtype=bool)), later_BT)

    def losses(self, model: PreTrainedModel, arrays: Sequence[torch.Tensor], weights_BN: torch.Tensor) -> torch.Tensor:
        """`tacit.models.causal.causal_row_losses`."""
        ids_BT, attention_BT = arrays
        return causal_row_losses(model, ids_BT, attention_BT, weights_BN)
