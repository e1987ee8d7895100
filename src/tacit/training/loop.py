"""The training loop: it runs a phase, whichever paper the phase comes from.

For a DP phase a step is: pay in the ledger, draw the units, sum their clipped gradients micro-batch by micro-batch, add the
noise once (also when no unit was drawn), divide by the public normaliser, step the optimizer. The optimizer is torch's own.

Shapes: B rows, T positions, K masked slots; k sequences a unit.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from transformers import BertForMaskedLM

from tacit.config import ComputeOptions
from tacit.engine import PerExampleClipper, add_noise_, micro_batches
from tacit.models.bert import masked_losses
from tacit.privacy.ledger import Ledger
from tacit.randomness import Streams
from tacit.training.checkpoint import load_checkpoint, save_checkpoint
from tacit.training.masking import Masking, mask_rows
from tacit.training.plans import DpPlan, Phase
from tacit.training.sequences import SequenceStream

__all__ = ["run_phase"]

Batch = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
"""ids_BT, attention_BT, slots_BK, labels_BK, weights_BK: the arguments of `masked_losses` after the model."""


def run_phase(
    model: BertForMaskedLM,
    phase: Phase,
    stream: SequenceStream,
    masking: Masking,
    ledger: Ledger | None,
    streams: Streams,
    compute: ComputeOptions,
    checkpoint: Path,
    on_step: Callable[[int], None] = lambda done: None,
) -> None:
    """Train ``model`` in place through one phase, from its checkpoint when there is one.

    Args:
        model: its weights at the phase's start (a checkpoint replaces them).
        phase: what to do; a DP phase must be planned in the ledger under its name.
        stream: the phase's records.
        masking: how tokens are masked.
        ledger: needed by a DP phase.
        streams: keyed randomness of this phase alone.
        compute: speed options.
        checkpoint: file of the phase's checkpoint.
        on_step: called with the number of finished steps.
    """
    optimizer = _optimizer(model, phase)
    start = load_checkpoint(checkpoint, model, optimizer)
    model.train()
    step_of = _DpStep(model, phase.plan, compute) if isinstance(phase.plan, DpPlan) else _PlainStep(model, compute)
    saved = time.monotonic()
    with step_of:
        for step in range(start, phase.steps):
            if isinstance(phase.plan, DpPlan):
                if ledger is None:
                    raise ValueError("a DP phase needs a ledger")
                ledger.charge(phase.name, step)
                indices = phase.plan.batch(stream.units, streams, step)
            else:
                indices = phase.plan.batch(stream.sequences, streams, step)
            for group in optimizer.param_groups:
                group["lr"] = phase.optimizer.learning_rate_at(step, phase.steps)
            optimizer.zero_grad(set_to_none=True)
            torch.manual_seed(int(streams.generator("dropout", step).integers(2**63)))
            step_of.gradients(indices, stream, masking, streams, step)
            optimizer.step()
            on_step(step + 1)
            if step + 1 == phase.steps or time.monotonic() - saved >= compute.checkpoint_seconds:
                save_checkpoint(checkpoint, model, optimizer, step + 1)
                saved = time.monotonic()


def _optimizer(model: BertForMaskedLM, phase: Phase) -> torch.optim.AdamW:
    options = phase.optimizer
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        parameters,
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.epsilon,
        weight_decay=options.weight_decay,
    )


class _DpStep:
    """Noisy clipped gradients of a logical batch."""

    def __init__(self, model: BertForMaskedLM, plan: DpPlan, compute: ComputeOptions) -> None:
        self._model = model
        self._plan = plan
        self._units_at_once = max(1, compute.micro_batch // plan.sequences_per_unit)
        self._clipper = PerExampleClipper(model, plan.clip_norm, plan.sequences_per_unit)

    def __enter__(self) -> _DpStep:
        return self

    def __exit__(self, *exception: object) -> None:
        self._clipper.close()

    def gradients(
        self, indices: np.ndarray, stream: SequenceStream, masking: Masking, streams: Streams, step: int
    ) -> None:
        for chosen, real in micro_batches(indices, self._units_at_once):
            batch = _unit_batch(chosen, real, self._plan.sequences_per_unit, stream, masking, streams, step)
            with self._clipper:
                masked_losses(self._model, *batch).sum().backward()
        add_noise_(self._model.named_parameters(), self._plan.noise_stddev, streams, step)
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(self._plan.normaliser)


class _PlainStep(nullcontext[None]):
    """The ordinary mean gradient of a batch of public sequences."""

    def __init__(self, model: BertForMaskedLM, compute: ComputeOptions) -> None:
        super().__init__()
        self._model = model
        self._rows_at_once = compute.micro_batch

    def gradients(
        self, indices: np.ndarray, stream: SequenceStream, masking: Masking, streams: Streams, step: int
    ) -> None:
        length = stream.ids_ST.shape[1]
        uniforms = streams.generator("mask", step).random((len(indices), 3, length))
        for start in range(0, len(indices), self._rows_at_once):
            rows = indices[start : start + self._rows_at_once]
            part = uniforms[start : start + self._rows_at_once]
            masked = mask_rows(stream.ids_ST[rows], stream.lengths_S[rows], part, masking)
            weights_BK = masked.real_BK / np.maximum(1, masked.real_BK.sum(axis=1, keepdims=True)) / len(indices)
            batch = _tensors(masked.ids_BT, masked.attention_BT, masked.slots_BK, masked.labels_BK, weights_BK)
            masked_losses(self._model, *batch).sum().backward()


def _unit_batch(
    chosen: np.ndarray,
    real: np.ndarray,
    per_unit: int,
    stream: SequenceStream,
    masking: Masking,
    streams: Streams,
    step: int,
) -> Batch:
    """Rows of a micro-batch of units, ``per_unit`` rows a unit; blank rows have no weight.

    All that is random for a unit comes from (key, step, the unit's own id). Its loss is the mean over all its masked tokens.
    """
    length = stream.ids_ST.shape[1]
    rows = len(chosen) * per_unit
    ids_BT, lengths_B = _blank_rows(rows, stream)
    uniforms_B3T = np.zeros((rows, 3, length))
    for place, unit in enumerate(chosen):
        if not real[place]:
            continue
        generator = streams.generator("unit", step, stream.keys_U[unit])
        own = stream.choose_rows(int(unit), per_unit, generator)
        at = slice(place * per_unit, place * per_unit + len(own))
        ids_BT[at], lengths_B[at] = stream.ids_ST[own], stream.lengths_S[own]
        uniforms_B3T[at] = generator.random((len(own), 3, length))
    masked = mask_rows(ids_BT, lengths_B, uniforms_B3T, masking)
    real_BK = masked.real_BK & (lengths_B > 2)[:, None]
    of_unit_B = np.repeat(real_BK.reshape(len(chosen), -1).sum(axis=1), per_unit)
    weights_BK = real_BK / np.maximum(1, of_unit_B)[:, None]
    return _tensors(masked.ids_BT, masked.attention_BT, masked.slots_BK, masked.labels_BK, weights_BK)


def _blank_rows(rows: int, stream: SequenceStream) -> tuple[np.ndarray, np.ndarray]:
    """Padding rows: all [PAD] (id 0), two positions visible so that attention has something to look at."""
    return np.zeros((rows, stream.ids_ST.shape[1]), dtype=np.int64), np.full(rows, 2, dtype=np.int64)


def _tensors(*arrays: np.ndarray) -> Batch:
    ids, attention, slots, labels, weights = arrays
    return (
        torch.from_numpy(ids.astype(np.int64)),
        torch.from_numpy(attention.astype(np.int64)),
        torch.from_numpy(slots.astype(np.int64)),
        torch.from_numpy(labels.astype(np.int64)),
        torch.from_numpy(weights.astype(np.float32)),
    )
