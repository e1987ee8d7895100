"""From drawn units to the rows of a micro-batch: which rows, how wide they are padded, their targets and weights.

Shapes: U units, B rows, T positions, N targets of a row, n uniforms a position.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.engine.distributed import ALONE, Ranks
from tacit.randomness import KeyedRandomness
from tacit.training.objectives import Objective, Targets
from tacit.training.plans import DpPlan
from tacit.training.sequences import SequenceStream

__all__ = ["WIDTHS", "Source", "all_widths", "needs_spare_row", "unit_losses", "unit_targets", "widths"]


@dataclass(frozen=True)
class Source:
    """What all steps of a phase read.

    Args:
        stream: the phase's records.
        objective: what the model is asked about rows.
        streams: keyed randomness of this phase alone, and of all that its sums are made from (`tacit.training.sums`).
        ranks: the processes that share every step.
    """

    stream: SequenceStream
    objective: Objective
    streams: KeyedRandomness
    ranks: Ranks = ALONE


def unit_losses(model: PreTrainedModel, objective: Objective, targets: Targets, weights_BN: np.ndarray) -> torch.Tensor:
    """The loss of each row (B,), of targets and weights as `unit_targets` gives them."""
    arrays = [torch.from_numpy(array.astype(np.int64)).to(model.device) for array in targets.arrays]
    return objective.losses(model, arrays, torch.from_numpy(weights_BN.astype(np.float32)).to(model.device))


WIDTHS: tuple[tuple[float, tuple[float, ...]], ...] = (
    (12.0, (1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4, 1.0)),
    (3.0, (1 / 8, 1 / 4, 1 / 2, 1.0)),
    (0.0, (1.0,)),
)
"""From so many micro-batches a step the shares of the longest row. Each width leaves a micro-batch of a step half empty, and the wide
ones cost most, so few micro-batches have few widths (docs/decisions/0009-a-units-shape-is-its-own.md has what was measured)."""


_EDGE = 8
"""Widths are multiples of it, but for a longest row that is none: so that no place differs (`tacit.models.places`)."""


def all_widths(length: int) -> set[int]:
    """Every width that rows of a stream may be padded to, however many micro-batches a step has."""
    return {int(width) for least, _ in WIDTHS for width in widths(np.arange(2, length + 1), length, least)}


def widths(longest_U: np.ndarray, length: int, micro_batches_a_step: float) -> np.ndarray:
    """The width to which each unit's rows are padded (U,): a function of its longest row and of public numbers alone.

    Args:
        longest_U: length of each unit's longest row.
        length: of the stream's rows.
        micro_batches_a_step: as expected.
    """
    shares = next(shares for least, shares in WIDTHS if micro_batches_a_step >= least)
    exact = np.ceil(length * np.array(shares)).astype(np.int64)
    edges = np.unique(np.minimum(length, -(-exact // _EDGE) * _EDGE))
    return edges[np.searchsorted(edges, np.minimum(longest_U, length))]


def needs_spare_row(compute: ComputeOptions, objective: Objective) -> bool:
    """Whether a blank row has to stand in every micro-batch, so that none is without padding.

    transformers gives a model no mask where no row is padded, and what then computes the attention may round otherwise: in bfloat16
    a float32 mask makes float32 of the scores, and on a GPU a kernel of its own takes those without a mask. Whether some row is
    padded is decided by other units.
    """
    return objective.tells_padding and (compute.precision != "float32" or compute.device != "cpu")


def unit_targets(
    chosen: np.ndarray, real: np.ndarray, plan: DpPlan, source: Source, step: int, width: int
) -> tuple[Targets, np.ndarray]:
    """Targets and weights of a micro-batch of units, ``plan.rows_per_unit`` rows of a width each; blank rows have no weight.

    All that is random for a unit comes from (key, step, the unit's own id). Its loss is the mean over all its targets.
    """
    stream, objective, per_unit = source.stream, source.objective, plan.rows_per_unit
    rows = len(chosen) * per_unit
    ids_BT, lengths_B = _blank_rows(rows, stream)
    uniforms_BnT = np.zeros((rows, objective.draws, stream.ids_ST.shape[1]))
    counted_BT = None if stream.counted_ST is None else np.zeros(ids_BT.shape, dtype=bool)
    for place, unit in enumerate(chosen):
        if not real[place]:
            continue
        generator = source.streams.generator("unit", step, stream.keys_U[int(unit)])
        own = stream.choose_rows(int(unit), plan.sequences_per_unit, generator).repeat(plan.maskings)
        at = slice(place * per_unit, place * per_unit + len(own))
        ids_BT[at], lengths_B[at] = stream.ids_ST[own], stream.lengths_S[own]
        uniforms_BnT[at] = generator.random((len(own), *uniforms_BnT.shape[1:]))
        if counted_BT is not None and stream.counted_ST is not None:
            counted_BT[at] = stream.counted_ST[own]
    targets = objective.targets(ids_BT[:, :width], lengths_B, uniforms_BnT[:, :, :width])
    if counted_BT is None:
        real_BN = targets.real_BN & (lengths_B > 2)[:, None]
    else:  # nothing counts in a blank row, and a row of a conversation may have two tokens
        real_BN = objective.only(targets, counted_BT[:, :width]).real_BN
    of_unit_B = np.repeat(real_BN.reshape(len(chosen), -1).sum(axis=1), per_unit)
    return targets, real_BN / np.maximum(1, of_unit_B)[:, None]


def _blank_rows(rows: int, stream: SequenceStream) -> tuple[np.ndarray, np.ndarray]:
    """Rows that fill a micro-batch: without weight, so any id will do; two positions visible, for attention to look at."""
    return np.zeros((rows, stream.ids_ST.shape[1]), dtype=np.int64), np.full(rows, 2, dtype=np.int64)
