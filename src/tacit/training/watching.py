"""What each step's update says of some units: their clipped gradients times it, added up while a phase trains.

Whoever sees every noisy sum, as differential privacy allows, tells a unit that is in from one that is not by the product of its
clipped gradient with the sum (Nasr et al. 2023, arXiv 2302.07956; Andrew et al. 2024, arXiv 2302.03098). Under noise of deviation s C
the log-likelihood ratio of a unit with gradient g is <g, sum> / (s C)^2 and a constant, so products are weighed like that over all
steps and phases.

Two things would drown that. All other units are in the sum too; differential privacy holds against somebody who knows these and when
they were drawn (units are drawn independently), so their clipped gradients are taken out of it. What the watched units have in common
with each other is left out too: the part of the sum along their mean clipped gradient.

A product is the derivative of the unit's loss along the update, and is found as a central difference of losses, in float64, at a copy
of the weights: two forwards for all units, and one pass of the engine for their norms and their mean; another one for the others.

The products are functions of noisy sums, of weights made of these, and of the watched units, and stay in run/private with the
checkpoints. Nothing that is trained hangs on them.

Shapes: U watched units.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.engine import CLIPPINGS, micro_batches
from tacit.failures import is_out_of_memory
from tacit.privacy.precision import FLOAT32
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan, Plan
from tacit.training.sequences import SequenceStream
from tacit.training.unit_rows import Source, unit_losses, unit_targets

__all__ = ["Watch", "Watched"]

_REACH = 1e-4
"""How far the weights are moved for a difference, in L2: its relative errors are then some 1e-8."""


@dataclass(frozen=True)
class Watched:
    """Units that are watched, whether they are trained on or not.

    Args:
        stream: their rows, with the keys that they have in training: so their masks and dropout are those of training.
        plan: how a step clips them; of a control without DP that of the phase in whose place it is.
    """

    stream: SequenceStream
    plan: DpPlan


class Watch:
    """The products of one phase.

    Args:
        model: in training, before anything is hooked to it.
        watched: the units.
        plan: of the phase: what the gradients that the optimizer gets are divided by, and their noise.
        compute: speed options.
        source: what the phase's steps read, but for the records.
    """

    def __init__(
        self, model: PreTrainedModel, watched: Watched, plan: Plan, compute: ComputeOptions, source: Source
    ) -> None:
        self._model = model
        self._twin = copy.deepcopy(model)
        torch.nn.Module.double(self._twin)  # transformers' own `double` has no types
        self._scale = _scale(plan)
        self._clipping, self._clip_norm = CLIPPINGS[watched.plan.clipping], watched.plan.clip_norm
        exact = compute.model_copy(update={"precision": FLOAT32, "checkpointing": False})
        self._step = _WatchedStep(
            self._twin, watched.plan, exact, Source(watched.stream, source.objective, source.streams)
        )
        self._others = None
        if isinstance(plan, DpPlan):  # an ordinary step draws rows, and clips no unit
            others = Source(source.stream, source.objective, source.streams)
            self._others = _WatchedStep(copy.deepcopy(self._twin), plan, exact, others)
        keys = {*watched.stream.keys_U}
        self._is_other_U = np.array([key not in keys for key in source.stream.keys_U], dtype=bool)
        self._normaliser = plan.normaliser if isinstance(plan, DpPlan) else 1.0
        self._products_U = np.zeros(watched.stream.units)

    @property
    def products_U(self) -> np.ndarray:
        """Float64 (U,): the log-likelihood ratios so far, but for a constant."""
        return self._products_U

    def restore(self, products_U: np.ndarray) -> None:
        """Go on from what a checkpoint holds."""
        self._products_U = products_U.copy()

    def look(self, step: int, drawn: np.ndarray) -> None:
        """Add a step's products: after its noise is in ``p.grad``, and before the weights change.

        Args:
            drawn: the step's draw, of all ranks.
        """
        try:
            self._products_U += self._products(step, drawn)
        except Exception as error:  # rows at which the model raises say nothing
            if is_out_of_memory(error):
                raise
            self._step.put_back()

    def _products(self, step: int, drawn: np.ndarray) -> np.ndarray:
        """What the step adds (U,)."""
        own = _trainable(self._model)
        twins = self._step.at(own)
        sums = [torch.zeros_like(p).double() if p.grad is None else self._normaliser * p.grad.double() for p in own]
        if self._others is not None:
            self._others.at(own)
            _, others = self._others.norms_and_sum(step, drawn[self._is_other_U[drawn]])
            sums = [total - part for total, part in zip(sums, others, strict=True)]
        norms_U, mean = self._step.norms_and_sum(step, np.arange(len(self._products_U)))
        apart = _apart(sums, mean)
        length = math.sqrt(sum(float(part.square().sum()) for part in apart))
        if length == 0 or not math.isfinite(length):
            return np.zeros_like(self._products_U)
        slopes_U = self._slopes(step, twins, apart, _REACH / length)
        norms_1U = torch.from_numpy(norms_U)[None]
        scales_U = self._clipping.coefficients(norms_1U, self._clip_norm)[0].numpy()
        return np.where(np.isfinite(norms_U), self._scale * scales_U * slopes_U, 0.0)

    def _slopes(self, step: int, twins: list[torch.nn.Parameter], along: list[Tensor], by: float) -> np.ndarray:
        """The derivative of each unit's loss along a direction (U,); the twin's weights are left somewhere near."""
        losses = []
        for moved in (by, -2 * by):
            with torch.no_grad():
                for twin, part in zip(twins, along, strict=True):
                    twin.add_(part, alpha=moved)
            losses.append(self._step.losses(step))
        return (losses[0] - losses[1]) / (2 * by)


class _WatchedStep(DpStep):
    """The engine's pass over units, which is no step of training."""

    @property
    def _begins_in_public(self) -> bool:
        return False  # of an audit's control, which may go on in the midst of a phase

    def at(self, parameters: list[torch.nn.Parameter]) -> list[torch.nn.Parameter]:
        """Take these weights; the own ones are given back."""
        own = _trainable(self._model)
        with torch.no_grad():
            for mine, parameter in zip(own, parameters, strict=True):
                mine.copy_(parameter)
        return own

    def put_back(self) -> None:
        """The model as it was before it raised, but for its weights."""
        self._kept.put_back()

    def norms_and_sum(self, step: int, chosen: np.ndarray) -> tuple[np.ndarray, list[Tensor]]:
        """The norm of each chosen unit's gradient (U,), and the sum of the clipped gradients, parameter by parameter."""
        self._clipper.take_rests()
        self._model.zero_grad(set_to_none=True)  # an error may have left some of an earlier step
        norms_U = np.zeros(self._source.stream.units)
        for units in self._together(chosen):
            self.add(units, units, step)
            norms_U[units] = self._clipper.norms[: len(units)].double().cpu().numpy()
        total = [one.double().clone() for one in self.sums()]
        self._clipper.take_rests()
        self._model.zero_grad(set_to_none=True)
        return norms_U, total

    @torch.no_grad()
    def losses(self, step: int) -> np.ndarray:
        """The loss of each unit, float64 (U,)."""
        found_U, per_unit = np.zeros(self._source.stream.units), self._plan.rows_per_unit
        for units in self._together(np.arange(len(found_U))):
            (chosen, real), *_ = micro_batches(units, self._at_once)
            width = int(self._widths(units[:1])[0])
            targets, weights_BN = unit_targets(chosen, real, self._plan, self._source, step, width)
            with self._dropout(chosen, real, targets, step):
                losses_B = unit_losses(self._model, self._source.objective, targets, weights_BN)
            found_U[units] = losses_B.double().cpu().numpy().reshape(-1, per_unit).sum(axis=1)[: len(units)]
        return found_U

    def _together(self, chosen: np.ndarray) -> list[np.ndarray]:
        """Units in micro-batches, each of one width."""
        batches: list[np.ndarray] = []
        width_B = self._widths(chosen)
        for width in np.unique(width_B):
            units = chosen[width_B == width]
            batches += [units[start : start + self._at_once] for start in range(0, len(units), self._at_once)]
        return batches


def _trainable(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _apart(updates: list[Tensor], mean: list[Tensor]) -> list[Tensor]:
    """The updates less their part along another direction."""
    square = sum(float(part.square().sum()) for part in mean)
    if not 0 < square < math.inf:
        return updates
    along = sum(float((part * update).sum()) for part, update in zip(mean, updates, strict=True)) / square
    return [update - along * part for part, update in zip(mean, updates, strict=True)]


def _scale(plan: Plan) -> float:
    """What makes a product with the noisy sum a log-likelihood ratio; without noise any constant will do."""
    return 1 / (plan.noise_stddev or plan.clip_norm) ** 2 if isinstance(plan, DpPlan) else 1.0
