"""`PrivateSteps`: the steps of DP-SGD for a training loop of one's own, paid in a ledger.

The order of a step: it is paid (on disk and synced), its units are drawn, each micro-batch is clipped, the noise is added once, and
only then `p.grad` exists. Until then the clipped sums are kept here, out of the reach of optimizers: `p.grad` is None. All numbers
come from one frozen plan.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from transformers import PreTrainedModel

from tacit.engine import CLIPPINGS, PerExampleClipper, add_noise_, micro_batches
from tacit.engine.noise import noise_source
from tacit.engine.sampler import PADDING
from tacit.engine.sites import trainable_parameters
from tacit.errors import RefusedError, UsageError
from tacit.folder import RunFolder
from tacit.loops.folder import LoopFolder, begin_loop
from tacit.planning.own_loop import StepPlan
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.checks import require_whole
from tacit.privacy.origin import is_marked
from tacit.randomness import KEY_BYTES, KeyedRandomness
from tacit.training.plans import DpPlan

__all__ = ["PrivateStep", "PrivateSteps"]


class PrivateSteps:
    """The private steps of a training loop of one's own: drawn, clipped, noised and paid from one plan.

        plan = tacit.StepPlan(units=12_000, expected_batch=256, clip_norm=1.0, steps=2_000, epsilon=3.0, delta=1e-6)
        with tacit.PrivateSteps(model, plan, "run-folder", present=len(data)) as private:
            for step in private:                                    # the steps that are left
                for units, weights in step.micro_batches(64):       # always 64 indices; weight 0 in the places that are left over
                    with step.clipped():
                        losses = loss_of_each(model, data, units)   # shape (64,): your code
                        (losses * weights).sum().backward()
                step.finish()                                       # now p.grad is there, with its noise
                optimizer.step()
        print(private.epsilon)
        tacit.certify("run-folder", "model-folder")

    What it makes sure of: the ledger has a step before its units are drawn; each unit is drawn independently, with the plan's
    probability; every unit of the draw is clipped in exactly one micro-batch; the noise is added once, also to an empty draw; an
    ordinary backward, a step that is left out, ended twice or not ended is refused in one line. What it cannot know is in the
    certificate as assumptions, and in docs/own-loop.md.

    A step has a ``number`` (of all starts together, from 0, for schedules), ``micro_batches(size)``, ``clipped()``, ``finish()``, and
    ``generator(unit)``: random numbers for a unit, such as for masking its tokens. ``private.paid`` steps were begun,
    ``private.left`` are left, ``private.epsilon`` is the price of those that were begun.

    Stop the program and start it again as you like: it goes on with the steps that were not begun. Weights and optimizer are yours to
    save. A step that was begun is never begun again: a crash loses it. Randomness is a new key at every start, in memory alone.

    Args:
        model: what is trained, on one device, not compiled; exactly the parameters that your optimizer steps on.
        plan: all numbers.
        folder: of the ledger; made where it is not there. Its ``private`` folder (mode 0700) is a place for your checkpoints.
        present: how many units your data really has, ``0`` to ``present - 1``; private. The plan's ``units`` is the public number.

    Raises:
        UsageError: a misuse, in one line; the folder has another plan, is certified, or is in use.
        RefusedError: the model cannot be clipped (docs/engine.md), or ``start-without-certificate``.
        BudgetError: the plan exceeds its budget. Nothing was spent.
        LedgerError: the ledger is missing or damaged, or the folder is of another model.
    """

    def __init__(self, model: nn.Module, plan: StepPlan, folder: str | Path, *, present: int) -> None:
        require_whole("present", present, at_least=0)
        _refuse_model(model)
        self._model = model
        self._plan = plan
        self._folder = RunFolder(Path(folder))
        self._present = int(present)
        self._context = ExitStack()
        self._loop: LoopFolder | None = None
        self._tools: _Tools | None = None
        self._step: PrivateStep | None = None

    @property
    def plan(self) -> StepPlan:
        """The plan."""
        return self._plan

    @property
    def paid(self) -> int:
        """Steps that were begun, by this start and earlier ones."""
        return self._opened().paid

    @property
    def left(self) -> int:
        """Steps that are left."""
        return self._plan.steps - self.paid

    @property
    def epsilon(self) -> float:
        """What all steps that were begun cost together, at the plan's delta; it can be asked for after the end, too."""
        header, spends = self._opened().ledger.header, self._opened().ledger.spends()
        return joint_epsilon(spends, header.delta, header.relation)

    def __enter__(self) -> PrivateSteps:
        if self._loop is not None:
            raise UsageError("these private steps were begun already; make new ones, which go on where the folder is")
        trained = trainable_parameters(self._model)
        noise = _noise_of(trained)
        key = secrets.token_bytes(KEY_BYTES)
        with ExitStack() as context:
            plan = self._plan
            clipper = PerExampleClipper(
                self._model, plan.clip_norm, plan.sequences_per_unit, CLIPPINGS[plan.clipping]
            )  # it refuses a model before there is a folder
            context.callback(clipper.close)
            loop = context.enter_context(begin_loop(self._folder, plan, key, _shapes(trained), noise))
            for name, parameter in trained.items():
                context.callback(parameter.register_hook(partial(_refuse_ordinary, name)).remove)
            self._loop = loop
            self._tools = _Tools(self._model, loop.dp, clipper, KeyedRandomness(key), noise, os.getpid())
            self._context = context.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tools = None
        self._context.close()
        if self._step is not None:
            self._step.close()
        if kind is None:
            self._refuse_unfinished()

    def __iter__(self) -> PrivateSteps:
        return self

    def __next__(self) -> PrivateStep:
        """Pay for the next step and draw its units.

        Raises:
            StopIteration: no step is left.
            UsageError: the last step was not finished.
        """
        loop = self._opened()
        if self._tools is None:
            raise UsageError("the steps are over: their `with` block has ended")
        self._tools.refuse_other_process()
        self._tools.refuse_other_device()
        self._refuse_unfinished()
        if self.left == 0:
            raise StopIteration
        number = loop.pay()
        units = self._tools.dp.batch(self._present, self._tools.streams, number)
        self._step = PrivateStep(number, units, self._tools)
        return self._step

    def _opened(self) -> LoopFolder:
        if self._loop is None:
            raise UsageError("begin the private steps by `with tacit.PrivateSteps(...) as private:`")
        return self._loop

    def _refuse_unfinished(self) -> None:
        if self._step is not None and not self._step.is_finished:
            raise UsageError(
                f"step {self._step.number} was begun and not finished: call step.finish() in every step, since leaving one out may "
                "depend on what was drawn. It is paid, and lost"
            )


@dataclass(frozen=True)
class _Tools:
    """What the steps of one start share.

    Args:
        noise: what the noise is drawn from, as the ledger has it.
        process: that drew the key.
    """

    model: nn.Module
    dp: DpPlan
    clipper: PerExampleClipper
    streams: KeyedRandomness
    noise: str
    process: int

    def refuse_other_process(self) -> None:
        """Raises:
        UsageError: this process is a copy of the one that drew the key.
        """
        if os.getpid() != self.process:
            raise UsageError(
                "this process is a fork of the one that began the steps; both would draw the same noise: begin them after the fork"
            )

    def refuse_other_device(self) -> None:
        """Raises:
        UsageError: the model was moved, so that its noise would be of another source than the certificate says.
        """
        if _noise_of(trainable_parameters(self.model)) != self.noise:
            raise UsageError("the model was moved to another device; move it before the private steps are begun")


class PrivateStep:
    """One step; `PrivateSteps` makes it, paid and drawn.

    ``number`` counts the steps of all starts from 0, for schedules.
    """

    def __init__(self, number: int, units: np.ndarray, tools: _Tools) -> None:
        self.number = number
        self._units = units
        self._tools = tools
        self._trained = trainable_parameters(tools.model)
        self._device = next(iter(self._trained.values())).device
        self._sums: dict[nn.Parameter, Tensor | None] = dict.fromkeys(self._trained.values())
        self._batch: _Batch | None = None
        self._size = 0
        self._clipped = 0
        self._state: Literal["begun", "finished", "over"] = "begun"
        for parameter in self._trained.values():
            parameter.grad = None

    @property
    def is_finished(self) -> bool:
        """Whether its gradient was given out."""
        return self._state == "finished"

    def micro_batches(self, size: int) -> Iterator[tuple[np.ndarray, Tensor]]:
        """The units that were drawn, in micro-batches of one size; none, where nobody was drawn.

        Args:
            size: units in a micro-batch.

        Yields:
            ``(units, weights)``: the indices of units ``(size,)``, and a weight for each of their rows
            ``(size * sequences_per_unit,)`` on the model's device: 1, or 0 in places that are left over, where the index is 0.
            Multiply the losses by it.

        Raises:
            UsageError: it was called before in this step; the last micro-batch was not clipped.
        """
        self._refuse_unless_begun("draw its micro-batches")
        if self._size:
            raise UsageError(
                f"step {self.number}: its micro-batches were given out already; each unit counts once in a step"
            )
        require_whole("the size of a micro-batch", size, at_least=1)
        self._size = int(size)
        return self._give_out()

    def _give_out(self) -> Iterator[tuple[np.ndarray, Tensor]]:
        per_unit = self._tools.dp.rows_per_unit
        for number, (units, real) in enumerate(micro_batches(self._units, self._size)):
            self._refuse_unclipped()
            self._refuse_unless_begun("go on with its micro-batches")
            self._batch = _Batch(number, real)
            weights = torch.from_numpy(np.repeat(real, per_unit).astype(np.float32)).to(self._device)
            yield np.where(units == PADDING, 0, units), weights
        self._refuse_unclipped()

    @contextmanager
    def clipped(self) -> Iterator[None]:
        """A context for the forward and backward of one micro-batch; every unit's gradient is clipped at its end.

        Random numbers of torch inside (dropout) are drawn from this start's key, and the generator is afterwards as it was.

        Raises:
            UsageError: not exactly once for each micro-batch; the batch has another number of rows; a place that is left over has a
                gradient. As for the model, see `tacit.engine.PerExampleClipper`.
        """
        self._refuse_unless_begun("clip")
        batch = self._batch
        if batch is None or batch.is_clipped:
            raise UsageError(
                f"step {self.number}: clipped() is for each micro-batch of step.micro_batches(...) once: who is clipped twice counts "
                "twice"
            )
        computed = False
        try:
            with self._own_dropout(batch.number), self._tools.clipper:
                yield
                self._refuse_gradients()
                computed = True
                self._lend_sums()
            self._check_rows(batch)
        except BaseException:
            if computed:  # a part of the sum may be there: it can be neither kept nor made again
                self.close()
            raise
        self._take_sums()
        batch.is_clipped = True
        self._clipped += 1

    def finish(self) -> None:
        """Add the noise once and divide by the expected batch: ``p.grad`` of every parameter is there now.

        Also where nobody was drawn.

        Raises:
            UsageError: a second time; some of the units that were drawn are not clipped yet; ``p.grad`` was set by somebody else, or
                parameters were frozen, unfrozen or replaced meanwhile.
        """
        if self.is_finished:
            raise UsageError(f"step {self.number} was finished already: one step has one noisy gradient")
        self._refuse_unless_begun("finish")
        self._tools.refuse_other_process()
        self._refuse_unclipped()
        if len(self._units) and (not self._size or self._clipped < -(-len(self._units) // self._size)):
            raise UsageError(
                f"step {self.number}: some units that were drawn are in no micro-batch that was clipped; go through all of "
                "step.micro_batches(...) before finish()"
            )
        self._refuse_gradients()
        self._lend_sums()
        try:
            self._add_noise()
        except BaseException:
            self.close()  # without the noise nothing of it is left
            raise
        self._sums = {}
        self._state = "finished"

    def _add_noise(self) -> None:
        dp, rests = self._tools.dp, self._tools.clipper.take_rests()
        named = self._tools.model.named_parameters()
        add_noise_(named, dp.noise_on(None), self._tools.streams, self.number, rests=rests)
        for parameter in self._trained.values():
            assert parameter.grad is not None
            parameter.grad.div_(dp.normaliser)

    def close(self) -> None:
        """No more of this step, unless it is finished: its sums are forgotten."""
        if not self.is_finished:
            for parameter in self._sums:
                parameter.grad = None
            self._sums = {}
            self._state = "over"

    def generator(self, unit: int) -> np.random.Generator:
        """Random numbers for a unit in this step, from their beginning, such as for masking its tokens: of this start's secret key.

        They depend on nothing but the unit's index and the step, whatever stands beside it in the micro-batch.
        """
        return self._tools.streams.generator("unit", self.number, int(unit))

    # inside ----------------------------------------------------------------------------------------------------------

    @contextmanager
    def _own_dropout(self, batch: int) -> Iterator[None]:
        """A seed that a user sets would make dropout a known function of a row's place, which other units decide."""
        with torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
            torch.manual_seed(self._tools.streams.seed("dropout", self.number, batch))
            yield

    def _check_rows(self, batch: _Batch) -> None:
        """A row without its weight would let another unit count twice, and so would rows of nobody in the draw."""
        norms = self._tools.clipper.norms
        wrong = ""
        if len(norms) != len(batch.real):
            wrong = f"the batch had {len(norms)} units and {len(batch.real)} were given out: one row for each, in their order"
        elif not batch.real.all():
            over = norms[torch.from_numpy(~batch.real).to(norms.device)]
            if bool((over.isfinite() & (over != 0)).any()):  # one that is not finite adds exactly zero
                wrong = "a place that is left over has a gradient: multiply the losses by the weights before the sum"
        if wrong:
            raise UsageError(f"step {self.number}: {wrong}. The step is lost")

    def _lend_sums(self) -> None:
        for parameter, total in self._sums.items():
            parameter.grad = total

    def _take_sums(self) -> None:
        for parameter in self._sums:
            self._sums[parameter], parameter.grad = parameter.grad, None

    def _refuse_gradients(self) -> None:
        now = trainable_parameters(self._tools.model)
        if {id(one) for one in now.values()} != {id(one) for one in self._trained.values()}:
            raise UsageError(
                "parameters were frozen, unfrozen or replaced inside a step; begin new private steps after it"
            )
        for name, parameter in now.items():
            if parameter.grad is not None:
                raise UsageError(
                    f"{name}.grad was set inside step {self.number}; gradients come from step.finish() alone"
                )

    def _refuse_unclipped(self) -> None:
        if self._batch is not None and not self._batch.is_clipped:
            raise UsageError(
                f"step {self.number}: a micro-batch was given out and not clipped; a unit without a loss has loss 0, inside of "
                "step.clipped()"
            )

    def _refuse_unless_begun(self, what: str) -> None:
        if self._state != "begun":
            raise UsageError(f"step {self.number} is over; it cannot {what} any more")


class _Batch:
    """A micro-batch that was given out."""

    def __init__(self, number: int, real: np.ndarray) -> None:
        self.number = number
        self.real = real
        self.is_clipped = False


def _refuse_ordinary(name: str, gradient: Tensor) -> None:
    """A hook on a parameter, for as long as the private steps are open."""
    raise UsageError(
        f"{name} got an ordinary gradient: while private steps are open, every backward of the model is inside step.clipped()"
    )


def _refuse_model(model: nn.Module) -> None:
    if isinstance(model, DataParallel | DistributedDataParallel):
        raise UsageError("give the model itself and not one that is wrapped for several devices (docs/distributed.md)")
    if (
        torch.distributed.is_available()
        and torch.distributed.is_initialized()
        and torch.distributed.get_world_size() > 1
    ):
        raise UsageError(
            "private steps run in one process: start the program without several ranks (docs/distributed.md)"
        )
    if isinstance(model, PreTrainedModel) and is_marked(model.config.to_dict()):
        raise RefusedError(
            "start-without-certificate",
            "the model was released by tacit from private text, which a ledger of a loop cannot take over yet; start from another "
            "model, or go on by `tacit run` with model.start",
        )


def _noise_of(trained: Mapping[str, nn.Parameter]) -> str:
    """What the noise of these parameters is drawn from, in words.

    Raises:
        UsageError: they are on several devices, or on one without a source.
    """
    devices = {parameter.device for parameter in trained.values()}
    if len(devices) > 1:
        raise UsageError(f"the model is on several devices ({', '.join(sorted(map(str, devices)))}); put it on one")
    return noise_source(devices.pop()).value


def _shapes(trained: Mapping[str, nn.Parameter]) -> str:
    """Names and shapes of what is trained, as a digest."""
    described = repr([(name, tuple(parameter.shape)) for name, parameter in trained.items()])
    return hashlib.sha256(described.encode()).hexdigest()
