"""What a model is asked about marked rows: public tokens from released states, or private tokens (Shi et al. 2021).

Two objectives for two phases that take turns. A public gradient without noise shows which records it was drawn from; so the
private phase draws its own sample, in a step of its own, or its sampling would hide nobody.

The noise of the states comes from the uniforms that the loop draws for every row, by the inverse of the normal distribution: so
it is a function of the run's key, the step and the row's place in it, as all randomness here.

Shapes: B rows, T positions, N targets of a row, n uniforms a position, K released states a row, R rows of one release, V
numbers of a state.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.errors import UsageError
from tacit.models.causal import weighted_row_losses
from tacit.models.lstm import LstmForCausalLM, LstmState
from tacit.models.lstm_release import public_hidden, released_state
from tacit.training.marked import split_marks
from tacit.training.objectives import CausalObjective, Targets

__all__ = ["PrivateTokens", "PublicTokens", "normals", "numbers_of_state"]

_CELLS = 2**52
"""Uniforms are taken to the middle of one of so many cells: never 0 or 1, and exact in float64."""


def numbers_of_state(layers: int, width: int) -> int:
    """V: of an LSTM's state, hidden and cell, all layers."""
    return 2 * layers * width


def normals(cells: torch.Tensor) -> torch.Tensor:
    """Standard normals in float64 from whole numbers in [0, 2^52), at most 8.2 in size: half a cell has probability 1e-16."""
    return torch.special.ndtri((cells.double() + 0.5) / _CELLS)


@dataclass(frozen=True)
class PrivateTokens(CausalObjective):
    """The private tokens of marked rows, each from the true tokens before it; every gradient is to be clipped, with noise.

    Args:
        size: of the vocabulary.
    """

    size: int

    def targets(self, ids_BT: np.ndarray, lengths_B: np.ndarray, uniforms_BnT: np.ndarray) -> Targets:
        """The targets of `CausalObjective`, private tokens alone."""
        plain_BT, private_BT = split_marks(ids_BT, self.size)
        every = super().targets(plain_BT, lengths_B, uniforms_BnT)
        return Targets(every.arrays, every.real_BN & private_BT)


@dataclass(frozen=True)
class PublicTokens(CausalObjective):
    """The public tokens of marked rows, from public tokens and released states; its gradient needs neither clip nor noise.

    Args:
        size: of the vocabulary.
        segments: K; a public token counts if at most so many private runs stand before it.
        state_clip: bound on the l2 norm of a state.
        state_noise_multiplier: standard deviation of the noise on each of its numbers, over that bound.
        numbers: V (`numbers_of_state`).
        draws: n, at least K V / T (`draws_for`).
    """

    size: int
    segments: int
    state_clip: float
    state_noise_multiplier: float
    numbers: int
    draws: int

    @staticmethod
    def draws_for(segments: int, numbers: int, length: int) -> int:
        """Uniforms for each position of a row, so that there is one for every number of every released state."""
        return -(-segments * numbers // length)

    def targets(self, ids_BT: np.ndarray, lengths_B: np.ndarray, uniforms_BnT: np.ndarray) -> Targets:
        """N as in `CausalObjective`; the arrays are ids, attention, marks and the noise's cells (B, K, V)."""
        plain_BT, private_BT = split_marks(ids_BT, self.size)
        every = super().targets(plain_BT, lengths_B, uniforms_BnT)
        plain_BT, attention_BT = every.arrays
        begins_BT = private_BT & ~np.pad(private_BT, ((0, 0), (1, 0)))[:, :-1]
        counted_BT = ~private_BT & (begins_BT.cumsum(axis=1) <= self.segments)
        cells = (uniforms_BnT.reshape(len(ids_BT), -1)[:, : self.segments * self.numbers] * _CELLS).astype(np.int64)
        cells_BKV = cells.reshape(len(ids_BT), self.segments, self.numbers)
        return Targets((plain_BT, attention_BT, private_BT, cells_BKV), every.real_BN & counted_BT)

    def losses(self, model: PreTrainedModel, arrays: Sequence[torch.Tensor], weights_BN: torch.Tensor) -> torch.Tensor:
        """The losses of `CausalObjective` at the public tokens, with a released state after every private run."""
        if not isinstance(model, LstmForCausalLM):
            raise UsageError(
                f"selective DP needs an LSTM, not {type(model).__name__}: it releases the state of a recurrent model"
            )
        ids_BT, attention_BT, private_BT, cells_BKV = arrays
        deviation = self.state_clip * self.state_noise_multiplier

        def release(state: LstmState, rows_R: torch.Tensor, number: int) -> LstmState:
            return released_state(state, self.state_clip, deviation * normals(cells_BKV[rows_R, number]))

        hidden_BTH, known_BT = public_hidden(model, ids_BT, private_BT, attention_BT, self.segments, release)
        follows_BT = torch.nn.functional.pad(known_BT, (1, 0))[:, :-1] & ~private_BT.bool()
        if bool((weights_BN[~follows_BT] != 0).any()):
            raise UsageError("a weight stands at a private token, or behind the last released state")
        return weighted_row_losses(model.lm_head, hidden_BTH, ids_BT, weights_BN)
