"""The training loop: it runs a phase, whichever paper the phase comes from.

For a DP phase a step is: pay in the ledger, draw the units, sum their clipped gradients micro-batch by micro-batch, add the
noise once (also when no unit was drawn), divide by the public normaliser, step the optimizer. The optimizer is torch's own.

A step may be as large as it likes: memory is that of a micro-batch, and checkpoints inside it hold the sum so far. With
several ranks, each micro-batch of a rank is a slice of the next ``units at once * world`` entries of the one draw, so that
all ranks are at one place of the draw whenever a checkpoint is due.

Shapes: B rows, T positions, N targets of a row, n uniforms a position; k sequences a unit.
"""

from __future__ import annotations

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.engine import CLIPPINGS, PerExampleClipper, add_noise_, micro_batches
from tacit.engine.distributed import ALONE, Ranks
from tacit.files import refuse_little_room
from tacit.privacy.ledger import Ledger
from tacit.randomness import KeyedRandomness
from tacit.training.averaging import InterpolateFromStart, IterateAverage
from tacit.training.checkpoint import (
    Progress,
    checkpoint_bytes,
    gradients,
    load_checkpoint,
    load_optimizer,
    save_checkpoint,
)
from tacit.training.dropout import RowDropout, uses_dropout
from tacit.training.objectives import Objective, Targets
from tacit.training.plans import DpPlan, Phase, PlainPlan
from tacit.training.sequences import SequenceStream
from tacit.training.sums import bind_sums, sums_digest

__all__ = ["run_phase"]


@dataclass(frozen=True)
class _Source:
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


def run_phase(
    model: PreTrainedModel,
    phase: Phase,
    stream: SequenceStream,
    objective: Objective,
    ledger: Ledger | None,
    streams: KeyedRandomness,
    compute: ComputeOptions,
    checkpoint: Path,
    on_step: Callable[[int], None] = lambda done: None,
    ranks: Ranks = ALONE,
) -> None:
    """Train ``model`` in place through one phase, from its checkpoint when there is one.

    With several ranks all call this, with the same arguments but for the ledger, which the first one alone needs. It pays
    before it adds its own part, and nothing is noisy and complete without that part: no sum exists unpaid. It alone
    writes the checkpoint.

    Args:
        model: its weights at the phase's start (a checkpoint replaces them).
        phase: what to do; with an event, it must be planned in the ledger under its name.
        stream: the phase's records.
        objective: what the model is asked about the records' rows.
        ledger: needed by a DP phase. Without one, ordinary training is not paid for: its model must stay private.
        streams: keyed randomness of this phase alone; what is drawn depends on all that its sums are made from, too.
        compute: speed options.
        checkpoint: file of the phase's checkpoint; that of ``phase.previous`` lies beside it.
        on_step: called with the number of finished steps.
        ranks: the processes that train together.

    Raises:
        ValueError: a DP phase has no ledger.
        DataError: a rank has other weights or records than the first one; or (a LedgerError) the phase began with others.
    """
    if isinstance(phase.plan, DpPlan) and ranks.first and ledger is None:
        raise ValueError("a DP phase needs a ledger")
    optimizer = _optimizer(model, phase)
    if phase.previous is not None:
        load_optimizer(checkpoint.with_name(f"{phase.previous}.pt"), optimizer)
    average = None if phase.optimizer.average is None else IterateAverage(model, phase.optimizer.average)
    # from the phase's first weights, so before a checkpoint is loaded
    way = None if phase.optimizer.keep is None else InterpolateFromStart(model, phase.optimizer.keep)
    if phase.event is not None:  # on public text there is no noise, and nothing to hide
        made_from = sums_digest(model, optimizer, phase, stream, objective, compute, streams)
        ranks.agree(f"what the sums of phase {phase.name} are made from", made_from.encode())
        if ledger is not None:
            bind_sums(ledger, phase, made_from)
        streams = streams.child("sums", made_from)
    start = load_checkpoint(checkpoint, model, optimizer, ranks, average)
    ranks.agree(f"the weights and the step at the start of phase {phase.name}", _digest(model, ranks, start))
    saver = _Saver(checkpoint, model, optimizer, average, compute.checkpoint_seconds, ranks)
    model.train()
    source = _Source(stream, objective, streams, ranks)
    with closing(_step_of(model, phase, compute, source)) as step_of:
        if start.drawn:
            step_of.put_sums(start.sums)
        for step in range(start.step, phase.steps):
            saver.refuse_little_room()  # what is paid for must find room on the disk
            if phase.event is not None and ledger is not None:
                ledger.charge(phase.name, step)
            for group in optimizer.param_groups:
                group["lr"] = phase.learning_rate_at(step)
            drawn = start.drawn if step == start.step else 0
            if drawn == 0:
                optimizer.zero_grad(set_to_none=True)
            for done in step_of.add_up(step, step_of.draw(step), drawn):
                saver.inside(Progress(step, done), step_of.sums)
            step_of.finish(step)
            optimizer.step()
            last = step + 1 == phase.steps
            if average is not None:
                average.add(step + 1)
                if last:
                    average.apply()
            if way is not None and last:
                way.apply()
            on_step(step + 1)
            saver.between(Progress(step + 1), last)
    ranks.agree(f"the weights at the end of phase {phase.name}", _digest(model, ranks))


def _optimizer(model: PreTrainedModel, phase: Phase) -> torch.optim.AdamW:
    options = phase.optimizer
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    return torch.optim.AdamW(
        parameters,
        lr=options.learning_rate,
        betas=options.betas,
        eps=options.epsilon,
        weight_decay=options.weight_decay,
    )


def _digest(model: PreTrainedModel, ranks: Ranks, progress: Progress | None = None) -> bytes:
    """What ranks compare; one process has nothing to compare with."""
    digest = hashlib.sha256(repr(progress).encode())
    if ranks.world > 1:
        for parameter in model.parameters():
            digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
    return digest.digest()


class _Saver:
    """Writes the phase's checkpoint when its time has come, by the first rank's clock."""

    def __init__(
        self,
        path: Path,
        model: PreTrainedModel,
        optimizer: torch.optim.Optimizer,
        average: IterateAverage | None,
        seconds: float,
        ranks: Ranks,
    ) -> None:
        self._path = path
        self._model = model
        self._optimizer = optimizer
        self._average = average
        self._seconds = seconds
        self._ranks = ranks
        self._saved = time.monotonic()
        self._bytes = checkpoint_bytes(model, ranks.world, average is not None)

    def refuse_little_room(self) -> None:
        """Raise `StorageError` where the next checkpoint, which is written beside the last one, would not fit."""
        if self._ranks.first:
            refuse_little_room(self._path.parent, self._bytes)

    def inside(self, progress: Progress, sums: Callable[[], list[torch.Tensor]]) -> None:
        """Inside a step, at a place of the draw that all ranks have reached."""
        if self._ranks.decide(self._due()):
            self._write(progress, self._ranks.gather(sums()))

    def between(self, progress: Progress, last: bool) -> None:
        """After a step."""
        if last or self._due():
            self._write(progress, [])

    def _due(self) -> bool:
        return time.monotonic() - self._saved >= self._seconds

    def _write(self, progress: Progress, sums: list[list[torch.Tensor]]) -> None:
        if self._ranks.first:
            save_checkpoint(self._path, self._model, self._optimizer, progress, sums, self._average)
        self._saved = time.monotonic()


def _step_of(model: PreTrainedModel, phase: Phase, compute: ComputeOptions, source: _Source) -> _Step:
    if isinstance(phase.plan, DpPlan):
        return _DpStep(model, phase.plan, compute, source)
    return _PlainStep(model, phase.plan, compute, source)


class _Step(ABC):
    """The gradients of one step, in parts.

    Args:
        at_once: entries of the draw that a rank holds in memory at once.
        source: what the steps read.
    """

    def __init__(self, at_once: int, source: _Source) -> None:
        self._at_once = at_once
        self._source = source

    def add_up(self, step: int, draw: np.ndarray, drawn: int) -> Iterator[int]:
        """Add the gradients of the step's draw from entry ``drawn`` on to ``p.grad``, those of this rank's slices.

        After each round of all ranks but the last, it gives how many entries of the draw are done.
        """
        ranks = self._source.ranks
        a_round = self._at_once * ranks.world
        for begin in range(drawn, len(draw), a_round):
            end = min(begin + a_round, len(draw))
            places = ranks.slice(np.arange(begin, end))
            if len(places):
                self.add(draw[places], places, step)
            if end < len(draw):
                yield end

    @abstractmethod
    def draw(self, step: int) -> np.ndarray:
        """The step's draw, the same at every rank."""

    @abstractmethod
    def add(self, chosen: np.ndarray, places: np.ndarray, step: int) -> None:
        """Add the gradients of these entries, which stand at these places of the draw."""

    @abstractmethod
    def sums(self) -> list[torch.Tensor]:
        """What this rank has added up so far, of each trainable parameter."""

    @abstractmethod
    def put_sums(self, sums: Sequence[torch.Tensor]) -> None:
        """Go on from `sums`."""

    @abstractmethod
    def finish(self, step: int) -> None:
        """From the sums to what the optimizer gets, the same at every rank."""

    @abstractmethod
    def close(self) -> None:
        """Leave the model as it was."""


class _DpStep(_Step):
    """Noisy clipped gradients of a logical batch of units."""

    def __init__(self, model: PreTrainedModel, plan: DpPlan, compute: ComputeOptions, source: _Source) -> None:
        super().__init__(max(1, compute.micro_batch // plan.rows_per_unit), source)
        self._model = model
        self._plan = plan
        self._longest_U = _longest_rows(source.stream)
        self._weights_U = plan.weights(source.stream.units, source.stream.rho_U)
        self._drawn = np.zeros(0, dtype=np.int64)
        self._clipper = PerExampleClipper(model, plan.clip_norm, plan.rows_per_unit, CLIPPINGS[plan.clipping])
        self._drops = uses_dropout(model)

    def draw(self, step: int) -> np.ndarray:
        """One global Poisson draw, the units with the shortest rows first: a micro-batch then has little padding to compute."""
        drawn = self._plan.batch(self._source.stream.units, self._source.streams, step)
        drawn = drawn[self._weights_U[drawn] > 0]
        self._drawn = drawn[np.argsort(self._longest_U[drawn], kind="stable")]
        return self._drawn

    def add(self, chosen: np.ndarray, places: np.ndarray, step: int) -> None:
        """Each unit's gradient is clipped; blank rows fill the micro-batch."""
        source = self._source
        for units, real in micro_batches(chosen, self._at_once):
            targets, weights_BN = _unit_targets(units, real, self._plan, source, step)
            with self._clip(units, real), self._dropout(units, real, targets, step):
                _losses(self._model, source.objective, targets, weights_BN).sum().backward()

    def _clip(self, units: np.ndarray, real: np.ndarray) -> PerExampleClipper:
        """The context that clips these units, each at its own weight where the plan has bands."""
        if self._plan.bands is None:
            return self._clipper
        return self._clipper.weighted(torch.from_numpy(np.where(real, self._weights_U[units], 1.0)))

    def _dropout(
        self, units: np.ndarray, real: np.ndarray, targets: Targets, step: int
    ) -> AbstractContextManager[object]:
        """The context in which a unit's rows are dropped by its own seed, whatever rows stand beside them."""
        if not self._drops:
            return nullcontext()
        stream, per_unit, seed = self._source.stream, self._plan.rows_per_unit, self._source.streams.seed
        keys = [stream.keys_U[unit] if is_real else "" for unit, is_real in zip(units, real, strict=True)]
        seeds = [seed("dropout", step, key, row) for key in keys for row in range(per_unit)]
        positions = targets.arrays[0].shape[1]
        return RowDropout(seeds, positions, stream.ids_ST.shape[1], self._model.device)

    def sums(self) -> list[torch.Tensor]:
        gradients(self._model)  # makes those that nothing was added to
        return self._clipper.sums()

    def put_sums(self, sums: Sequence[torch.Tensor]) -> None:
        self._clipper.put_sums(sums)

    def finish(self, step: int) -> None:
        """Noise once for all ranks, then the public normaliser."""
        source = self._source
        rho_U = source.stream.rho_U
        stddev = self._plan.noise_on(None if rho_U is None else rho_U[self._drawn])
        rests = self._clipper.take_rests()
        add_noise_(self._model.named_parameters(), stddev, source.streams, step, source.ranks, rests=rests)
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(self._plan.normaliser)

    def close(self) -> None:
        """End the clipper."""
        self._clipper.close()


class _PlainStep(_Step):
    """The ordinary mean gradient of a batch of public sequences."""

    def __init__(self, model: PreTrainedModel, plan: PlainPlan, compute: ComputeOptions, source: _Source) -> None:
        super().__init__(compute.micro_batch, source)
        self._model = model
        self._plan = plan
        self._uniforms_BnT = np.zeros((0, 0, 0))

    def draw(self, step: int) -> np.ndarray:
        """Rows, the shortest first, with the uniforms of all of them."""
        source = self._source
        shape = self._plan.batch_size, source.objective.draws, source.stream.ids_ST.shape[1]
        self._uniforms_BnT = source.streams.generator("mask", step).random(shape)
        drawn = self._plan.batch(source.stream.sequences, source.streams, step)
        return drawn[np.argsort(source.stream.lengths_S[drawn], kind="stable")]

    def add(self, chosen: np.ndarray, places: np.ndarray, step: int) -> None:
        """Rows of the batch, each with its share of the mean. Dropout has a seed for each micro-batch."""
        torch.manual_seed(self._source.streams.seed("dropout", step, int(places[0])))
        stream, objective = self._source.stream, self._source.objective
        ids_BT = stream.ids_ST[chosen].astype(np.int64)
        targets = objective.targets(ids_BT, stream.lengths_S[chosen], self._uniforms_BnT[places])
        of_row_BN = targets.real_BN / np.maximum(1, targets.real_BN.sum(axis=1, keepdims=True))
        _losses(self._model, objective, targets, of_row_BN / self._plan.batch_size).sum().backward()

    def sums(self) -> list[torch.Tensor]:
        return gradients(self._model)

    def put_sums(self, sums: Sequence[torch.Tensor]) -> None:
        trainable = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        for parameter, total in zip(trainable, sums, strict=True):
            parameter.grad = total.to(device=parameter.device, dtype=parameter.dtype, copy=True)

    def finish(self, step: int) -> None:
        """The sum over the ranks."""
        self._source.ranks.sum_(gradients(self._model))

    def close(self) -> None:
        """Nothing was changed."""


def _longest_rows(stream: SequenceStream) -> np.ndarray:
    """Length of each unit's longest row (U,)."""
    longest_U = np.zeros(stream.units, dtype=np.int64)
    np.maximum.at(longest_U, np.repeat(np.arange(stream.units), np.diff(stream.starts_U1)), stream.lengths_S)
    return longest_U


def _losses(model: PreTrainedModel, objective: Objective, targets: Targets, weights_BN: np.ndarray) -> torch.Tensor:
    arrays = [torch.from_numpy(array.astype(np.int64)).to(model.device) for array in targets.arrays]
    return objective.losses(model, arrays, torch.from_numpy(weights_BN.astype(np.float32)).to(model.device))


def _unit_targets(
    chosen: np.ndarray, real: np.ndarray, plan: DpPlan, source: _Source, step: int
) -> tuple[Targets, np.ndarray]:
    """Targets and weights of a micro-batch of units, ``plan.rows_per_unit`` rows a unit; blank rows have no weight.

    All that is random for a unit comes from (key, step, the unit's own id). Its loss is the mean over all its targets.
    """
    stream, objective, per_unit = source.stream, source.objective, plan.rows_per_unit
    rows = len(chosen) * per_unit
    ids_BT, lengths_B = _blank_rows(rows, stream)
    uniforms_BnT = np.zeros((rows, objective.draws, stream.ids_ST.shape[1]))
    for place, unit in enumerate(chosen):
        if not real[place]:
            continue
        generator = source.streams.generator("unit", step, stream.keys_U[unit])
        own = stream.choose_rows(int(unit), plan.sequences_per_unit, generator).repeat(plan.maskings)
        at = slice(place * per_unit, place * per_unit + len(own))
        ids_BT[at], lengths_B[at] = stream.ids_ST[own], stream.lengths_S[own]
        uniforms_BnT[at] = generator.random((len(own), *uniforms_BnT.shape[1:]))
    targets = objective.targets(ids_BT, lengths_B, uniforms_BnT)
    real_BN = targets.real_BN & (lengths_B > 2)[:, None]
    of_unit_B = np.repeat(real_BN.reshape(len(chosen), -1).sum(axis=1), per_unit)
    return targets, real_BN / np.maximum(1, of_unit_B)[:, None]


def _blank_rows(rows: int, stream: SequenceStream) -> tuple[np.ndarray, np.ndarray]:
    """Rows that fill a micro-batch: without weight, so any id will do; two positions visible, for attention to look at."""
    return np.zeros((rows, stream.ids_ST.shape[1]), dtype=np.int64), np.full(rows, 2, dtype=np.int64)
