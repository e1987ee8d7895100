"""What each step's update says of some units: their clipped gradients times it, added up while a phase trains.

Whoever sees every noisy sum, as differential privacy allows, tells a unit that is in from one that is not by the product of its
clipped gradient with the sum (Nasr et al. 2023, arXiv 2302.07956; Andrew et al. 2024, arXiv 2302.03098). Under noise of deviation s C
the log-likelihood ratio of a unit with gradient g is <g, sum> / (s C)^2 and a constant, so products are weighed like that over all
steps and phases. What watched units have in common with each other they share with the others in the sum too, and that would drown
the rest: the part of the sum along their mean clipped gradient is left out.

A product is the derivative of the unit's loss along the update, and is found as a central difference of losses, in float64, at a copy
of the weights: two forwards for all units, and one pass of the engine for their norms and their mean.

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
from tacit.privacy.precision import FLOAT32
from tacit.training.plans import DpPlan, Plan
from tacit.training.sequences import SequenceStream
from tacit.training.steps import DpStep, Source, unit_losses, unit_targets

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
        self._twin = torch.nn.Module.double(copy.deepcopy(model))
        self._scale = _scale(plan)
        self._clipping, self._clip_norm = CLIPPINGS[watched.plan.clipping], watched.plan.clip_norm
        exact = compute.model_copy(update={"precision": FLOAT32, "checkpointing": False})
        self._step = _WatchedStep(
            self._twin, watched.plan, exact, Source(watched.stream, source.objective, source.streams)
        )
        self._products_U = np.zeros(watched.stream.units)

    @property
    def products_U(self) -> np.ndarray:
        """Float64 (U,): the log-likelihood ratios so far, but for a constant."""
        return self._products_U

    def restore(self, products_U: np.ndarray) -> None:
        """Go on from what a checkpoint holds."""
        self._products_U = products_U.copy()

    def look(self, step: int) -> None:
        """Add a step's products: after its noise is in ``p.grad``, and before the weights change."""
        own = [parameter for parameter in self._model.parameters() if parameter.requires_grad]
        twins = [parameter for parameter in self._twin.parameters() if parameter.requires_grad]
        updates = [torch.zeros_like(p) if p.grad is None else p.grad for p in own]
        with torch.no_grad():
            for twin, parameter in zip(twins, own, strict=True):
                twin.copy_(parameter)
        norms_U, mean = self._step.norms_and_sum(step)
        apart = _apart([update.double() for update in updates], mean)
        length = math.sqrt(sum(float(part.square().sum()) for part in apart))
        if length == 0 or not math.isfinite(length):
            return
        slopes_U = self._slopes(step, twins, apart, _REACH / length)
        norms_1U = torch.from_numpy(norms_U)[None]
        scales_U = self._clipping.coefficients(norms_1U, self._clip_norm)[0].numpy()
        self._products_U += np.where(np.isfinite(norms_U), self._scale * scales_U * slopes_U, 0.0)

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
    """The engine's pass over all watched units, which is no step of training."""

    def norms_and_sum(self, step: int) -> tuple[np.ndarray, list[Tensor]]:
        """The norm of each unit's gradient (U,), and the sum of the clipped gradients, parameter by parameter."""
        norms_U = np.zeros(self._source.stream.units)
        for units in self._together():
            self.add(units, units, step)
            norms_U[units] = self._clipper.norms[: len(units)].double().cpu().numpy()
        total = [one.double().clone() for one in self.sums()]
        self._clipper.take_rests()
        self._model.zero_grad(set_to_none=True)
        return norms_U, total

    @torch.no_grad()
    def losses(self, step: int) -> np.ndarray:
        """Of each unit, float64 (U,)."""
        found_U, per_unit = np.zeros(self._source.stream.units), self._plan.rows_per_unit
        for units in self._together():
            (chosen, real), *_ = micro_batches(units, self._at_once)
            width = int(self._width_U[units[0]])
            targets, weights_BN = unit_targets(chosen, real, self._plan, self._source, step, width)
            with self._dropout(chosen, real, targets, step):
                losses_B = unit_losses(self._model, self._source.objective, targets, weights_BN)
            found_U[units] = losses_B.double().cpu().numpy().reshape(-1, per_unit).sum(axis=1)[: len(units)]
        return found_U

    def _together(self) -> list[np.ndarray]:
        """All units in micro-batches, each of one width."""
        batches: list[np.ndarray] = []
        for width in np.unique(self._width_U):
            units = np.flatnonzero(self._width_U == width)
            batches += [units[start : start + self._at_once] for start in range(0, len(units), self._at_once)]
        return batches


def _apart(updates: list[Tensor], mean: list[Tensor]) -> list[Tensor]:
    """The updates less their part along another direction."""
    square = sum(float(part.square().sum()) for part in mean)
    if not 0 < square < math.inf:
        return updates
    along = sum(float((part * update).sum()) for part, update in zip(mean, updates, strict=True)) / square
    return [update - along * part for part, update in zip(mean, updates, strict=True)]


def _scale(plan: Plan) -> float:
    """What makes the optimizer's gradient a log-likelihood ratio's slope; without noise any constant will do."""
    if not isinstance(plan, DpPlan):
        return 1.0
    return plan.normaliser / (plan.noise_stddev or plan.clip_norm) ** 2
