"""`PrivateSteps`: the steps of DP-SGD for a training loop of one's own, paid in a ledger.

The order of a step: it is paid (on disk and synced), its units are drawn, each micro-batch is clipped, the noise is added once, and
only then `p.grad` exists (`tacit.loops.step`). All numbers come from one frozen plan.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DataParallel, DistributedDataParallel
from transformers import PreTrainedModel

from tacit.engine import CLIPPINGS, PerExampleClipper
from tacit.engine.noise import on_grid
from tacit.engine.sites import trainable_parameters
from tacit.errors import RefusedError, UsageError
from tacit.loops.folder import LoopFolder, begin_loop
from tacit.loops.step import PrivateStep, Tools, noise_of
from tacit.planning.own_loop import StepPlan
from tacit.privacy.accounting.accountant import joint_epsilon
from tacit.privacy.checks import require_whole
from tacit.privacy.origin import is_marked
from tacit.randomness import KEY_BYTES, KeyedRandomness
from tacit.runs.folder import RunFolder

__all__ = ["PrivateSteps"]


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
        self._tools: Tools | None = None
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
        noise = noise_of(trained)
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
            # noise that has no grid is refused here, before a step is paid for
            rounded = on_grid(loop.dp.noise_multiplier, loop.dp.clip_norm, sum(one.numel() for one in trained.values()))
            self._loop = loop
            self._tools = Tools(
                self._model, loop.dp, clipper, KeyedRandomness(key), noise, os.getpid(), *rounded, self._present
            )
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
    if any(map(is_marked, _configurations(model))):
        raise RefusedError(
            "start-without-certificate",
            "the model was released by tacit from private text, which a ledger of a loop cannot take over yet; start from another "
            "model, or go on by `tacit run` with model.start",
        )


def _configurations(model: nn.Module) -> Iterator[Mapping[str, Any]]:
    """The configurations of each model and adapter in it: also of one that stands under an adapter, or in a module of one's own."""
    for part in model.modules():
        if isinstance(part, PreTrainedModel):
            yield part.config.to_dict()
        # peft is not needed for a model without an adapter, and keeps the configurations of adapters under these two names
        for adapters in (vars(part).get("peft_config"), vars(part).get("_peft_config")):
            if isinstance(adapters, Mapping):
                yield from (adapter.to_dict() for adapter in adapters.values())


def _shapes(trained: Mapping[str, nn.Parameter]) -> str:
    """Names and shapes of what is trained, as a digest."""
    described = repr([(name, tuple(parameter.shape)) for name, parameter in trained.items()])
    return hashlib.sha256(described.encode()).hexdigest()
