"""The gradients of one step: noisy sums of clipped gradients, or the ordinary mean of a public batch.

Shapes: B rows, T positions, N targets of a row, n uniforms a position; k sequences a unit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.config.base import named
from tacit.engine import CLIPPINGS, PerExampleClipper, add_noise_, micro_batches
from tacit.engine.distributed import ALONE, Ranks
from tacit.engine.noise import Grid
from tacit.engine.sampler import PADDING
from tacit.engine.sharding import has_shards
from tacit.engine.total import Kept
from tacit.failures import is_out_of_memory
from tacit.models.networks import reads_padding
from tacit.models.places import together
from tacit.randomness import KeyedRandomness
from tacit.training.checkpoint import gradients
from tacit.training.dropout import RowDropout, uses_dropout
from tacit.training.objectives import Objective, Targets
from tacit.training.phases import Phase
from tacit.training.plans import DpPlan, PlainPlan
from tacit.training.recomputing import in_precision
from tacit.training.sequences import SequenceStream

__all__ = [
    "ControlStep",
    "DpStep",
    "GridStep",
    "PlainStep",
    "Source",
    "Step",
    "step_of_phase",
    "unit_losses",
    "unit_targets",
]


_BEFORE_ALL = -1
"""A step that no phase has: what is drawn in it, for rows of no unit, is drawn in no other."""


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


def step_of_phase(model: PreTrainedModel, phase: Phase, compute: ComputeOptions, source: Source) -> Step:
    """How the steps of a phase are made."""
    return named(phase.plan.step)(model, phase.plan, compute, source)


class Step(ABC):
    """The gradients of one step, in parts.

    Args:
        at_once: entries of the draw that a rank holds in memory at once.
        source: what the steps read.
    """

    def __init__(self, at_once: int, source: Source) -> None:
        self._at_once = at_once
        self._source = source

    def add_up(self, step: int, draw: np.ndarray, drawn: int) -> Iterator[int]:
        """Add the gradients of the step's draw from entry ``drawn`` on to ``p.grad``, those of this rank's slices.

        After each round of all ranks but the last, it gives how many entries of the draw are done.
        """
        ranks = self._source.ranks
        while drawn < len(draw):
            end = drawn + self.together(draw[drawn : drawn + self._at_once * ranks.world])
            places = ranks.slice(np.arange(drawn, end))
            if len(places):
                self.add(draw[places], places, step)
            else:
                self.add_nothing(draw[drawn], step)
            if end < len(draw):
                yield end
            drawn = end

    def together(self, entries: np.ndarray) -> int:
        """How many entries, from the first on, may be in one micro-batch."""
        return len(entries)

    @abstractmethod
    def draw(self, step: int) -> np.ndarray:
        """The step's draw, the same at every rank."""

    @abstractmethod
    def add(self, chosen: np.ndarray, places: np.ndarray, step: int) -> None:
        """Add the gradients of these entries, which stand at these places of the draw."""

    def add_nothing(self, like: int, step: int) -> None:  # noqa: B027 - most steps have nothing to do then
        """This rank has no entry beside the others', of which ``like`` is the first."""

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


class DpStep(Step):
    """Noisy clipped gradients of a logical batch of units."""

    def __init__(self, model: PreTrainedModel, plan: DpPlan, compute: ComputeOptions, source: Source) -> None:
        length = source.stream.ids_ST.shape[1]
        every = all_widths(length)
        asked = {source.objective.targets_of(width) for width in every}
        most = max(1, compute.micro_batch // plan.rows_per_unit)
        blank = int(needs_spare_row(compute, source.objective))
        super().__init__(together(model, most, plan.rows_per_unit, every, asked, blank), source)
        self._model = model
        self._plan = plan
        self._compute = compute
        # those of adaptive DP, which are in memory like the units' rho
        self._weights_U = None if plan.bands is None else plan.weights(source.stream.units, source.stream.rho_U)
        # with few micro-batches a step, all units are as wide as the longest
        self._micro_batches_a_step = 0.0 if reads_padding(model) else plan.normaliser / self._at_once
        self._drawn = np.zeros(0, dtype=np.int64)
        self._spare = blank == 1 and self._at_once > 1
        self._drops = uses_dropout(model)
        self._has_shards = has_shards(model)
        self._kept = Kept(model)
        self._clipper = self._new_clipper()
        self._try_blank_rows(length)
        self._clipper = self._new_clipper()

    def _new_clipper(self) -> PerExampleClipper:
        return PerExampleClipper(
            self._model, self._plan.clip_norm, self._plan.rows_per_unit, CLIPPINGS[self._plan.clipping]
        )

    def _try_blank_rows(self, length: int) -> None:
        """What this model, device or precision cannot do at all ends the phase here, by name, before a step is paid for."""
        try:
            self._add_blank(length, _BEFORE_ALL)
        finally:
            self._clipper.close()
            self._model.zero_grad(set_to_none=True)

    def draw(self, step: int) -> np.ndarray:
        """One global Poisson draw, the units with the shortest rows first: in this order whatever the micro-batch."""
        drawn = self._plan.batch(self._source.stream.units, self._source.streams, step)
        if self._weights_U is not None:
            drawn = drawn[self._weights_U[drawn] > 0]
        self._drawn = drawn[np.argsort(self._source.stream.longest_of(drawn), kind="stable")]
        return self._drawn

    def _widths(self, units: np.ndarray) -> np.ndarray:
        """To how many positions the rows of each of these units are padded (B,)."""
        stream = self._source.stream
        return widths(stream.longest_of(units), stream.ids_ST.shape[1], self._micro_batches_a_step)

    def together(self, entries: np.ndarray) -> int:
        """Units of one width, which stand beside each other in the draw."""
        width_B = self._widths(entries)
        others = np.flatnonzero(width_B != width_B[0])
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
        try:
            with self._clip(units, real), self._dropout(units, real, targets, step):
                called = True
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
        source, (stddev, grid) = self._source, self._noise()
        rests = self._clipper.take_rests()
        add_noise_(self._model.named_parameters(), stddev, source.streams, step, source.ranks, grid, rests)
        for parameter in self._model.parameters():
            if parameter.grad is not None:
                parameter.grad.div_(self._plan.normaliser)

    def _noise(self) -> tuple[float, Grid | None]:
        """Standard deviation of the noise on the sum, and what it is rounded to."""
        rho_U = self._source.stream.rho_U
        return self._plan.noise_on(None if rho_U is None else rho_U[self._drawn]), None

    def close(self) -> None:
        """End the clipper."""
        self._clipper.close()


class GridStep(DpStep):
    """A `DpStep` whose sum and noise are rounded to a grid that the clip norm and the number of parameters decide."""

    def _noise(self) -> tuple[float, Grid | None]:
        plan = self._plan
        dimensions = sum(parameter.numel() for parameter in self._model.parameters() if parameter.requires_grad)
        grid = Grid.fine_enough(plan.clip_norm, dimensions)
        return plan.noise_multiplier * grid.sensitivity(plan.clip_norm, dimensions, self._source.ranks.world), grid


class PlainStep(Step):
    """The ordinary mean gradient of a batch of public sequences."""

    def __init__(self, model: PreTrainedModel, plan: PlainPlan, compute: ComputeOptions, source: Source) -> None:
        super().__init__(compute.micro_batch, source)
        self._model = model
        self._plan = plan
        self._compute = compute
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
        lengths_B = stream.lengths_S[chosen]
        width = int(lengths_B.max(initial=1)) if objective.may_be_cut else stream.ids_ST.shape[1]
        ids_BT = stream.ids_ST[chosen, :width].astype(np.int64)
        targets = objective.targets(ids_BT, lengths_B, self._uniforms_BnT[places])
        if stream.counted_ST is not None:
            targets = objective.only(targets, stream.counted_ST[chosen, :width])
        of_row_BN = targets.real_BN / np.maximum(1, targets.real_BN.sum(axis=1, keepdims=True))
        self._add_gradient(targets, of_row_BN / self._plan.batch_size)

    def _add_gradient(self, targets: Targets, weights_BN: np.ndarray) -> None:
        with in_precision(self._compute, self._model.device):
            losses_B = unit_losses(self._model, self._source.objective, targets, weights_BN)
        losses_B.sum().backward()

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


class ControlStep(PlainStep):
    """A `PlainStep` of a model that stays with the curator, before there is a release: rows at which it raises end nothing."""

    def __init__(self, model: PreTrainedModel, plan: PlainPlan, compute: ComputeOptions, source: Source) -> None:
        super().__init__(model, plan, compute, source)
        self._kept = Kept(model)

    def _add_gradient(self, targets: Targets, weights_BN: np.ndarray) -> None:
        try:
            super()._add_gradient(targets, weights_BN)
        except Exception as error:
            if is_out_of_memory(error):
                raise
            self._kept.put_back()


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
    """To how many positions each unit's rows are padded (U,): a function of its longest row and of public numbers alone.

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
