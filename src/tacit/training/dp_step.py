"""Noisy sums of clipped gradients: a step of DP training.

Shapes: B units, N targets of a unit's row.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.engine import CLIPPINGS, PerExampleClipper, add_noise_, micro_batches
from tacit.engine.clipper import Use
from tacit.engine.noise import Grid, on_grid
from tacit.engine.places import PlaceWatch
from tacit.engine.sampler import PADDING
from tacit.engine.sharding import has_shards
from tacit.engine.total import Kept, sum_of_bits
from tacit.failures import is_out_of_memory
from tacit.models.networks import reads_padding
from tacit.models.places import together
from tacit.training.checkpoint import gradients
from tacit.training.dropout import RowDropout, uses_dropout
from tacit.training.objectives import Targets
from tacit.training.plans import DpPlan, NoiselessPlan
from tacit.training.recomputing import in_precision
from tacit.training.steps import Step
from tacit.training.unit_rows import Source, all_widths, needs_spare_row, unit_losses, unit_targets, widths

__all__ = ["DpStep"]

_BEFORE_ALL = -1
"""A step that no phase has: what is drawn in it, for rows of no unit, is drawn in no other."""


class DpStep(Step):
    """Noisy clipped gradients of a logical batch of units."""

    def __init__(self, model: PreTrainedModel, plan: DpPlan, compute: ComputeOptions, source: Source) -> None:
        length = source.stream.ids_ST.shape[1]
        every = all_widths(length)
        asked = {source.objective.targets_of(width) for width in every}
        most = max(1, compute.micro_batch // plan.rows_per_unit)
        blank = int(needs_spare_row(compute, source.objective))
        at_once = together(model, most, plan.rows_per_unit, every, asked, blank)
        super().__init__(at_once, source)
        self._model = model
        self._plan = plan
        self._compute = compute
        # those of adaptive DP, which are in memory like the units' rho
        self._weights_U = None if plan.bands is None else plan.weights(source.stream.units, source.stream.rho_U)
        # with few micro-batches a step, all units are as wide as the longest
        self._reads_padding = reads_padding(model)
        self._drawn = np.zeros(0, dtype=np.int64)
        self._set_at_once(at_once, blank)
        self._drops = uses_dropout(model)
        self._has_shards = has_shards(model)
        self._kept = Kept(model)
        if plan.is_on_grid:
            self._noise()  # noise that has no grid is refused here, before a step is paid for
        if not self._are_tried(every, length):
            self._set_at_once(1, blank)
            self._are_tried(every, length)
        # else they would cut a draw otherwise: some units would count twice, and some not at all
        alike = "kind of processor, number of threads, and libraries"
        cut = f"{self._at_once}, {self._micro_batches_a_step}, {self._spare}"
        source.ranks.agree("how many units stand together", cut.encode(), alike)
        source.ranks.agree("the bits of a made-up micro-batch", b"".join(self._bits), alike)
        self._clipper = self._new_clipper("tried")

    def _set_at_once(self, at_once: int, blank: int) -> None:
        """How many units stand together, and what hangs on it."""
        self._at_once = at_once
        bounds = 1 if self._plan.bands is None else len(self._plan.bands.counted)  # each has micro-batches of its own
        self._micro_batches_a_step = 0.0 if self._reads_padding else self._plan.normaliser / at_once / bounds
        self._spare = blank == 1 and at_once > 1

    def _new_clipper(self, use: Use) -> PerExampleClipper:
        plan = self._plan
        return PerExampleClipper(self._model, plan.clip_norm, plan.rows_per_unit, CLIPPINGS[plan.clipping], use=use)

    def _are_tried(self, widths: set[int], length: int) -> bool:
        """Whether so many units may stand together on this device: no place among them decided how a number is rounded.

        What this model, device or precision cannot do at all ends the phase here, by name, before a step is paid for.

        With the most memory that a micro-batch may take: neither how many targets a unit has nor whether its parts cancel may decide
        whether there is enough. Whether rows are independent is asked here and in no step, where a refusal could depend on who was
        drawn: in the widest rows, and in those of which a dimension is as large as the number of rows, which a model may take for it.
        """
        rows, targets_of = (self._at_once + self._spare) * self._plan.rows_per_unit, self._source.objective.targets_of
        alike = {width for width in widths if {width, targets_of(width)} & {1, rows}} | {length}
        self._clipper = self._new_clipper("trial")
        self._bits: list[bytes] = []
        is_shared = self._source.ranks.world > 1
        watch = PlaceWatch(rows, self._at_once + self._spare)
        self._tried = watch if self._at_once > 1 else nullcontext()  # alone a unit has one place
        try:
            for width in sorted(widths if self._at_once > 1 else alike, reverse=True):
                self._add_blank(width, _BEFORE_ALL)
                if is_shared:
                    self._bits.append(self._clipper.norms.cpu().numpy().tobytes())
            if is_shared and not self._has_shards:  # of sharded layers each rank has its own
                self._bits += [str(sum_of_bits(total)).encode() for total in self.sums()]
        except Exception as error:
            if self._begins_in_public or is_out_of_memory(error):
                raise
            self._kept.put_back()
        finally:
            self._clipper.close()
            self._model.zero_grad(set_to_none=True)
        return not watch.differing

    @property
    def _begins_in_public(self) -> bool:
        """Whether the weights at its start say nothing about the private text but what is paid for: then whether the model raises
        at them does not either."""
        return not isinstance(self._plan, NoiselessPlan)

    def draw(self, step: int) -> np.ndarray:
        """One global Poisson draw: those that count least first, and of them the shortest; in this order whatever the micro-batch."""
        drawn = self._plan.batch(self._source.stream.units, self._source.streams, step)
        if self._weights_U is not None:
            drawn = drawn[self._weights_U[drawn] > 0]
        self._drawn = drawn[np.lexsort((self._source.stream.longest_of(drawn), self._counts(drawn)))]
        return self._drawn

    def _counts(self, units: np.ndarray) -> np.ndarray:
        """How much each of these units counts (B,)."""
        return np.ones(len(units)) if self._weights_U is None else self._weights_U[units]

    def _widths(self, units: np.ndarray) -> np.ndarray:
        """The widths to which the rows of each of these units are padded (B,)."""
        stream = self._source.stream
        return widths(stream.longest_of(units), stream.ids_ST.shape[1], self._micro_batches_a_step)

    def together(self, entries: np.ndarray) -> int:
        """Units of one width and one weight, which stand beside each other in the draw.

        A micro-batch is added up in float32. Beside units that count thousands of times as much, their rounding, which one unit more
        changes by its place, would be more than what a unit of a small weight may move the sum by (TACIT-58).
        """
        width_B, count_B = self._widths(entries), self._counts(entries)
        others = np.flatnonzero((width_B != width_B[0]) | (count_B != count_B[0]))
        return int(others[0]) if len(others) else len(entries)

    def add(self, chosen: np.ndarray, places: np.ndarray, step: int) -> None:
        """Each unit's gradient is clipped.

        Units of one width share a micro-batch, and blank rows fill it. So the shape of all that is computed for a unit is a
        function of its own text and of public numbers, and with it how its norm is rounded: who stands beside it changes nothing.
        """
        width = int(self._widths(chosen[:1])[0])
        for units, real in micro_batches(chosen, self._at_once):
            self._add(units, real, width, step)

    def add_nothing(self, like: int, step: int) -> None:
        """Where layers are sharded, every rank runs as many micro-batches of one shape, since weights are gathered from all."""
        if not self._has_shards:
            return
        self._add_blank(int(self._widths(np.array([like]))[0]), step)

    def _add_blank(self, width: int, step: int) -> None:
        """A micro-batch without a unit."""
        self._add(np.full(self._at_once, PADDING, dtype=np.int64), np.zeros(self._at_once, dtype=bool), width, step)

    def _add(self, units: np.ndarray, real: np.ndarray, width: int, step: int) -> None:
        """One micro-batch. Where the model raises, each unit is computed alone, with blank rows in the others' places.

        One that raises alone adds nothing: whether it does is a function of its own text, and no error shows it.
        """
        if self._spare:
            units, real = np.append(units, PADDING), np.append(real, False)
        if self._is_added(units, real, width, step) or real.sum() == 1:
            return
        for place in np.flatnonzero(real):
            alone = np.arange(len(units)) == place
            self._is_added(np.where(alone, units, PADDING), alone, width, step)

    def _is_added(self, units: np.ndarray, real: np.ndarray, width: int, step: int) -> bool:
        """Add these units together; if the model raises at them, nothing is added. The model is then as it was before."""
        source, called = self._source, False
        targets, weights_BN = unit_targets(units, real, self._plan, source, step, width)
        if step == _BEFORE_ALL:
            targets = source.objective.all_counted(targets)
            weights_BN = targets.real_BN / np.maximum(1, targets.real_BN.sum(axis=1, keepdims=True))
        try:
            with self._clip(units, real), self._dropout(units, real, targets, step):
                called = True
                with self._tried if step == _BEFORE_ALL else nullcontext():
                    with in_precision(self._compute, self._model.device):
                        losses_B = unit_losses(self._model, source.objective, targets, weights_BN)
                    losses_B.sum().backward()
            return True
        except Exception as error:
            # sharded layers: the other ranks wait in the midst of the same micro-batch, and nothing can be computed again
            is_public = not called or not real.any()
            if is_public or self._has_shards or self._clipper.is_torn or is_out_of_memory(error):
                raise
        finally:
            self._kept.put_back()
        return False

    def _clip(self, units: np.ndarray, real: np.ndarray) -> AbstractContextManager[object]:
        """The context that clips these units, each at its own weight where the plan has bands."""
        if self._weights_U is None:
            return self._clipper
        weights_B = np.ones(len(units))
        weights_B[real] = self._weights_U[units[real]]  # there may be no unit at all
        return self._clipper.weighted(torch.from_numpy(weights_B))

    def _dropout(
        self, units: np.ndarray, real: np.ndarray, targets: Targets, step: int
    ) -> AbstractContextManager[object]:
        """The context in which a unit's rows are dropped by its own seed, whatever rows stand beside them."""
        if not self._drops:
            return nullcontext()
        stream, per_unit, seed = self._source.stream, self._plan.rows_per_unit, self._source.streams.seed
        keys = [stream.keys_U[int(unit)] if is_real else "" for unit, is_real in zip(units, real, strict=True)]
        seeds = [seed("dropout", step, key, row) for key in keys for row in range(per_unit)]
        length = stream.ids_ST.shape[1]
        whole = {
            targets.real_BN.shape[1]: self._source.objective.targets_of(length),
            targets.arrays[0].shape[1]: length,
        }
        return RowDropout(seeds, whole, self._model.device)

    def sums(self) -> list[torch.Tensor]:
        gradients(self._model)  # makes those that nothing was added to
        return self._clipper.sums()

    def put_sums(self, sums: Sequence[torch.Tensor]) -> None:
        self._clipper.put_sums(sums)

    def finish(self, step: int) -> None:
        """Noise once for all ranks, then the public normaliser."""
        self.add_noise(step)
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(self._plan.normaliser)

    def add_noise(self, step: int) -> None:
        """Add the noise of the plan to what was summed; all ranks' sums become one."""
        source, (stddev, grid) = self._source, self._noise()
        rests = self._clipper.take_rests()
        add_noise_(self._model.named_parameters(), stddev, source.streams, step, grid, source.ranks, rests)

    def _noise(self) -> tuple[float, Grid | None]:
        """Standard deviation of the noise on the sum, and what it is rounded to."""
        plan, rho_U = self._plan, self._source.stream.rho_U
        if not plan.is_on_grid:
            return plan.noise_on(None if rho_U is None else rho_U[self._drawn]), None
        dimensions = sum(parameter.numel() for parameter in self._model.parameters() if parameter.requires_grad)
        return on_grid(plan.noise_multiplier, plan.clip_norm, dimensions, plan.smallest_weight)

    def close(self) -> None:
        """End the clipper."""
        self._clipper.close()
