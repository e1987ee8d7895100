"""The training loop: it runs a phase, whichever paper the phase comes from.

For a DP phase a step is: pay in the ledger, draw the units, sum their clipped gradients micro-batch by micro-batch, add the
noise once (also when no unit was drawn), divide by the public normaliser, step the optimizer. The optimizer is torch's own.

A step may be as large as it likes: memory is that of a micro-batch, and checkpoints inside it hold the sum so far. With
several ranks, each micro-batch of a rank is a slice of the next ``units at once * world`` entries of the one draw, so that
all ranks are at one place of the draw whenever a checkpoint is due.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.engine.distributed import ALONE, Ranks
from tacit.engine.sharding import has_shards, is_sharded
from tacit.files import refuse_little_room
from tacit.privacy.ledger import Ledger
from tacit.privacy.precision import FLOAT32
from tacit.randomness import KeyedRandomness
from tacit.training.averaging import InterpolateFromStart, IterateAverage
from tacit.training.checkpoint import (
    Progress,
    checkpoint_bytes,
    finished_steps,
    load_checkpoint,
    load_optimizer,
    save_checkpoint,
    save_shards,
    watched_products,
)
from tacit.training.device import processor
from tacit.training.objectives import Objective
from tacit.training.phases import Phase
from tacit.training.recomputing import recomputed
from tacit.training.sequences import SequenceStream
from tacit.training.sharding import shard, sharded_optimizer
from tacit.training.steps import step_of_phase
from tacit.training.sums import as_begun, bind_sums, sums_digest
from tacit.training.unit_rows import Source
from tacit.training.watching import Watch, Watched

__all__ = ["run_phase"]


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
    watched: Watched | None = None,
) -> None:
    """Train ``model`` in place through one phase, from its checkpoint when there is one.

    With several ranks all call this, with the same arguments but for the ledger, which the first one alone needs. It pays
    before it adds its own part, and nothing is noisy and complete without that part: no sum exists unpaid. It alone
    writes the checkpoint.

    Args:
        model: its weights at the phase's start (a checkpoint replaces them). With ``compute.shard`` and several ranks a phase leaves
            its layers sharded, and another phase needs another model.
        phase: what to do; with an event, it must be planned in the ledger under its name.
        stream: the phase's records.
        objective: what the model is asked about the records' rows.
        ledger: needed by a DP phase. Without one, ordinary training is not paid for: its model must stay private.
        streams: keyed randomness of this phase alone; what is drawn depends on all that its sums are made from, too.
        compute: speed options; the precision of a DP phase that has begun stays what it was.
        checkpoint: file of the phase's checkpoint; that of ``phase.previous`` lies beside it.
        on_step: called with the number of finished steps.
        ranks: the processes that train together.
        watched: units of which the checkpoint notes what each update says (`tacit.training.watching`); the first rank does it. They
            change nothing else.

    Raises:
        ValueError: a DP phase has no ledger.
        UsageError: the model cannot compute its activations again, and is asked to.
        DataError: a rank has other weights or records than the first one; or (a LedgerError) the phase began with others, or in
            another precision.
    """
    if phase.plan.needs_ledger and ranks.first and ledger is None:
        raise ValueError("a DP phase needs a ledger")
    optimizer = _optimizer(model, phase)
    if phase.previous is not None:
        load_optimizer(checkpoint.with_name(f"{phase.previous}.pt"), optimizer)
    if phase.event is not None or ranks.world > 1:  # a public phase has no noise, and nothing to hide
        sums = _Sums(model, optimizer, phase, stream, objective, streams)
        made_from = sums.agree(compute, ranks)
        if phase.event is not None:
            if ledger is not None:
                sums.bind(ledger, compute, made_from, finished_steps(checkpoint) == phase.steps)
            streams = streams.child("sums", made_from)
    if compute.shard and ranks.world > 1:  # what decides the noise was looked at whole
        shard(model)
        optimizer = sharded_optimizer(optimizer, model)
    average = None if phase.optimizer.average is None else IterateAverage(model, phase.optimizer.average)
    # from the phase's first weights, so before a checkpoint is loaded
    way = None if phase.optimizer.keep is None else InterpolateFromStart(model, phase.optimizer.keep)
    start = load_checkpoint(checkpoint, model, optimizer, ranks, average)
    ranks.agree(f"the weights and the step at the start of phase {phase.name}", _digest(model, ranks, start))
    model.train()
    source = Source(stream, objective, streams, ranks)
    watch = None
    if watched is not None and ranks.first:
        watch = _watch(Watch(model, watched, phase.plan, compute, source), checkpoint)
    remembered = phase.plan.steps_a_payment - 1  # steps whose noise a later one takes a part of back
    saver = _Saver(checkpoint, model, optimizer, average, watch, compute.checkpoint_seconds, ranks, remembered)
    with recomputed(model, compute), closing(step_of_phase(model, phase, compute, source)) as step_of:
        step_of.remember(start.noise)
        if start.drawn:
            step_of.put_sums(start.sums)
        for step in range(start.step, phase.steps):
            saver.refuse_little_room()  # what is paid for must find room on the disk
            if phase.event is not None and ledger is not None:
                ledger.charge(phase.name, phase.payment_of(step))
            for group in optimizer.param_groups:
                group["lr"] = phase.learning_rate_at(step)
            drawn = start.drawn if step == start.step else 0
            if drawn == 0:
                optimizer.zero_grad(set_to_none=True)
            draw = step_of.draw(step)
            for done in step_of.add_up(step, draw, drawn):
                saver.inside(Progress(step, done, noise=step_of.remembered()), step_of.sums)
            step_of.finish(step)
            if watch is not None:
                watch.look(step, draw)
            optimizer.step()
            last = step + 1 == phase.steps
            if average is not None:
                average.add(step + 1)
                if last:
                    average.apply()
            if way is not None and last:
                way.apply()
            on_step(step + 1)
            saver.between(Progress(step + 1, noise=step_of.remembered()), last)
    ranks.agree(f"the weights at the end of phase {phase.name}", _digest(model, ranks))


@dataclass(frozen=True)
class _Sums:
    """All that the sums of a phase are made from, before it begins."""

    model: PreTrainedModel
    optimizer: torch.optim.Optimizer
    phase: Phase
    stream: SequenceStream
    objective: Objective
    streams: KeyedRandomness

    def agree(self, compute: ComputeOptions, ranks: Ranks) -> str:
        """Their digest, which is that of all ranks."""
        made_from = self._digest(compute)
        ranks.agree(f"what the sums of phase {self.phase.name} are made from", made_from.encode())
        return made_from

    def bind(self, ledger: Ledger, compute: ComputeOptions, made_from: str, done: bool) -> None:
        """Let the ledger know them, or compare with what it knows; a phase that is done may have had another precision."""
        then = as_begun(ledger, self.phase, compute) if done else compute
        bind_sums(ledger, self.phase, made_from if then == compute else self._digest(then), then)
        if not done and compute.precision != FLOAT32:
            ledger.bind(f"the processor that {self.phase.name} is computed on", processor(self.model.device))

    def _digest(self, compute: ComputeOptions) -> str:
        return sums_digest(self.model, self.optimizer, self.phase, self.stream, self.objective, compute, self.streams)


def _watch(watch: Watch, checkpoint: Path) -> Watch:
    """The watch with what it had noted until the checkpoint."""
    if checkpoint.exists():
        watch.restore(watched_products(checkpoint))
    return watch


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
            if is_sharded(parameter):  # no other rank has this part
                continue
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
        watch: Watch | None,
        seconds: float,
        ranks: Ranks,
        remembered: int,
    ) -> None:
        self._path = path
        self._model = model
        self._optimizer = optimizer
        self._average = average
        self._watch = watch
        self._seconds = seconds
        self._ranks = ranks
        self._saved = time.monotonic()
        self._shards = has_shards(model)
        self._bytes = checkpoint_bytes(model, ranks.world, average is not None, remembered)

    def refuse_little_room(self) -> None:
        """Raise `StorageError` where the next checkpoint, which is written beside the last one, would not fit."""
        if self._ranks.first:
            refuse_little_room(self._path.parent, self._bytes)

    def inside(self, progress: Progress, sums: Callable[[], list[torch.Tensor]]) -> None:
        """Inside a step, at a place of the draw that all ranks have reached."""
        if self._ranks.decide(self._due()):
            if self._shards:
                self._write_shards(progress, sums())
            else:
                self._write(progress, self._ranks.gather(sums()))

    def between(self, progress: Progress, last: bool) -> None:
        """After a step."""
        if self._shards:
            if self._ranks.decide(last or self._due()):
                self._write_shards(progress, [])
        elif last or self._due():
            self._write(progress, [])

    def _due(self) -> bool:
        return time.monotonic() - self._saved >= self._seconds

    def _write(self, progress: Progress, sums: list[list[torch.Tensor]]) -> None:
        if self._ranks.first:
            products_U = None if self._watch is None else self._watch.products_U
            save_checkpoint(self._path, self._model, self._optimizer, progress, sums, self._average, products_U)
        self._saved = time.monotonic()

    def _write_shards(self, progress: Progress, sums: list[torch.Tensor]) -> None:
        """Write, at every rank, this rank's part."""
        save_shards(self._path, self._model, self._optimizer, progress, sums, self._average, self._ranks)
        self._saved = time.monotonic()
