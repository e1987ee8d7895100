"""One private step of a loop of one's own: the micro-batches of its draw, the clipped sums, and the noise.

Until the noise is added the sums are kept here and `p.grad` is None, so that no optimizer can reach them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from tacit.engine import PerExampleClipper, add_noise_, micro_batches
from tacit.engine.noise import Grid, noise_source
from tacit.engine.places import PlaceWatch
from tacit.engine.sampler import PADDING
from tacit.engine.sites import trainable_parameters
from tacit.engine.total import Kept
from tacit.errors import UsageError
from tacit.loops.shared_draws import SharedDraws
from tacit.privacy.checks import require_whole
from tacit.randomness import KeyedRandomness
from tacit.training.plans import DpPlan

__all__ = ["PrivateStep", "Tools", "noise_of"]


@dataclass(frozen=True)
class Tools:
    """What the steps of one start share.

    Args:
        noise: what the noise is drawn from, as the ledger has it.
        process: that drew the key.
        noise_stddev: of a step's sum, and ``grid``: what both are rounded to.
        present: how many units there are.
        tried: sizes of micro-batches in which no place decided how a row is rounded.
    """

    model: nn.Module
    dp: DpPlan
    clipper: PerExampleClipper
    streams: KeyedRandomness
    noise: str
    process: int
    noise_stddev: float
    grid: Grid | None
    present: int
    tried: set[int] = field(default_factory=set)

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
        if noise_of(trainable_parameters(self.model)) != self.noise:
            raise UsageError("the model was moved to another device; move it before the private steps are begun")


class PrivateStep:
    """One step; `PrivateSteps` makes it, paid and drawn.

    ``number`` counts the steps of all starts from 0, for schedules.
    """

    def __init__(self, number: int, units: np.ndarray, tools: Tools) -> None:
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
        """The units that were drawn, in micro-batches of one size; where nobody was, none, or the first time one of nobody.

        Args:
            size: units in a micro-batch; 1 with weights that a stranger made (docs/own-loop.md), and where ``clipped`` refuses more.

        Yields:
            ``(units, weights)``: the indices of units ``(size,)``, and a weight for each of their rows
            ``(size * sequences_per_unit,)`` on the model's device: 1, or 0 in places that are left over, where the first one of the
            micro-batch stands again (0 where nobody was drawn).
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
        drawn = micro_batches(self._units, self._size)
        # else whether the loop is refused would tell whether anybody was drawn
        if not len(self._units) and self._tools.present and self._is_untried():
            drawn = iter([(np.full(self._size, PADDING), np.zeros(self._size, dtype=bool))])
        for number, (units, real) in enumerate(drawn):
            self._refuse_unclipped()
            self._refuse_unless_begun("go on with its micro-batches")
            self._batch = _Batch(number, real)
            weights = torch.from_numpy(np.repeat(real, per_unit).astype(np.float32)).to(self._device)
            # a place that is left over has a unit of this micro-batch again, so that nobody is read who was not drawn
            yield np.where(units == PADDING, max(0, int(units[0])), units), weights
        self._refuse_unclipped()

    @contextmanager
    def clipped(self) -> Iterator[None]:
        """A context for the forward and backward of one micro-batch; every unit's gradient is clipped at its end.

        What the model changes in itself inside, beside its gradients, is undone: no unit decides how others are computed. Random
        numbers of torch inside (dropout) are drawn from this start's key, and the generator is afterwards as it was.

        In the first one the operations of forward and backward are tried on made-up rows in the same shapes.

        Raises:
            UsageError: not exactly once for each micro-batch; the batch has another number of rows; a place that is left over has a
                gradient. As for the model, see `tacit.engine.PerExampleClipper`.
            RefusedError: ``place-in-batch``: where a row stands among the others decides how it is rounded.
        """
        self._refuse_unless_begun("clip")
        batch = self._batch
        if batch is None or batch.is_clipped:
            raise UsageError(
                f"step {self.number}: clipped() is for each micro-batch of step.micro_batches(...) once: who is clipped twice counts "
                "twice"
            )
        lent, added, kept = False, False, Kept(self._tools.model)
        try:
            with self._own_dropout(batch):
                with self._tools.clipper:
                    with self._places_watched():
                        yield
                    self._refuse_gradients()
                    lent = True
                    self._lend_sums()
                added = True
            self._check_rows(batch)
        except BaseException as error:
            if added or self._tools.clipper.is_torn or not isinstance(error, Exception):
                self.close()  # a part of the sum may be there: it can be neither kept nor made again
            elif lent:  # the engine has refused these rows before it added anything
                self._take_sums()
            raise
        finally:
            kept.put_back()
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
        tools = self._tools
        add_noise_(named, tools.noise_stddev, tools.streams, self.number, tools.grid, rests=rests)
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
    def _own_dropout(self, batch: _Batch) -> Iterator[None]:
        """A seed that a user sets would make dropout a known function of a row's place, which other units decide.

        All micro-batches are computed by one program: torch's attention takes another one where nothing looks at its calls, and which
        micro-batch is the first for a unit, other units decide.
        """
        with torch.random.fork_rng([self._device] if self._device.type == "cuda" else []):
            torch.manual_seed(self._tools.streams.seed("dropout", self.number, batch.number))
            with SharedDraws(len(batch.real) * self._tools.dp.rows_per_unit), _without_fast_paths():
                yield

    @contextmanager
    def _places_watched(self) -> Iterator[None]:
        """The first micro-batch of a size: its operations are tried on made-up equal rows (TACIT-52)."""
        if not self._is_untried():
            yield
            return
        rows = self._size * self._tools.dp.rows_per_unit
        with PlaceWatch(rows, self._size, with_engine=False) as watch:
            yield
        watch.refuse(self._size)
        self._tools.tried.add(self._size)

    def _is_untried(self) -> bool:
        return self._size > 1 and self._size not in self._tools.tried

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


@contextmanager
def _without_fast_paths() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


class _Batch:
    """A micro-batch that was given out."""

    def __init__(self, number: int, real: np.ndarray) -> None:
        self.number = number
        self.real = real
        self.is_clipped = False


def noise_of(trained: Mapping[str, nn.Parameter]) -> str:
    """What the noise of these parameters is drawn from, in words.

    Raises:
        UsageError: they are on several devices, or on one without a source.
    """
    devices = {parameter.device for parameter in trained.values()}
    if len(devices) > 1:
        raise UsageError(f"the model is on several devices ({', '.join(sorted(map(str, devices)))}); put it on one")
    return noise_source(devices.pop()).value
