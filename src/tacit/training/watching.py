"""What each step's update says of some units: their clipped gradients times it, added up while a phase trains.

Whoever sees every noisy sum, as differential privacy allows, tells a unit that is in from one that is not by the product of its
clipped gradient with the sum (Nasr et al. 2023, arXiv 2302.07956; Andrew et al. 2024, arXiv 2302.03098). Under noise of deviation s C
the log-likelihood ratio of a unit with gradient g is <g, sum> / (s C)^2 and a constant, so products are weighed like that over all
steps and phases. What watched units have in common with each other they share with the others in the sum too, and that would drown
the rest: of every gradient the part along their mean is left out. Gradients are those of plain autograd, unit by unit: nothing of the
engine's norms and sums is in them.

The products are functions of noisy sums, of weights made of these, and of the watched units, and stay in run/private with the
checkpoints. Nothing that is trained hangs on them: no random number is drawn, and no gradient is added.

Shapes: U watched units.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedModel

from tacit.engine import CLIPPINGS
from tacit.engine.sites import trainable_parameters
from tacit.training.plans import DpPlan, Plan
from tacit.training.sequences import SequenceStream
from tacit.training.steps import Source, unit_losses, unit_targets

__all__ = ["Watch", "Watched"]

_AT_ONCE = 64


@dataclass(frozen=True)
class Watched:
    """Units that are watched, whether they are trained on or not.

    Args:
        stream: their rows, with the keys that they have in training: so their masks are those of training.
        plan: how a step clips them; of a control without DP that of the phase in whose place it is.
    """

    stream: SequenceStream
    plan: DpPlan


class Watch:
    """The products of one phase.

    Args:
        model: in training.
        watched: the units.
        plan: of the phase: what the gradients that the optimizer gets are divided by, and their noise.
        source: what the phase's steps read, but for the records.
        width: to how many positions the rows are padded.
    """

    def __init__(self, model: PreTrainedModel, watched: Watched, plan: Plan, source: Source, width: int) -> None:
        self._model = model
        self._parameters = trainable_parameters(model)
        self._watched = watched
        self._scale = _scale(plan)
        self._source = Source(watched.stream, source.objective, source.streams)
        self._width = width
        self._clipping = CLIPPINGS[watched.plan.clipping]
        self._group_of = self._clipping.groups(list(self._parameters))
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
        updates = {
            name: self._scale * parameter.grad.double()
            for name, parameter in self._parameters.items()
            if parameter.grad is not None
        }
        with _as_in_evaluation(self._model):
            updates = self._apart(updates, step)
            for unit in range(self._watched.stream.units):
                self._products_U[unit] += self._product(unit, step, updates)

    def _apart(self, updates: Mapping[str, Tensor], step: int) -> dict[str, Tensor]:
        """The updates less their part along the mean gradient: the same products as without that part of each gradient."""
        units = np.arange(self._watched.stream.units)
        mean = {name: torch.zeros_like(update) for name, update in updates.items()}
        for some in np.array_split(units, max(1, -(-len(units) // _AT_ONCE))):
            for name, gradient in self._gradients(some, step).items():
                if gradient is not None and name in mean:
                    mean[name] += gradient.double()
        square = sum(float(one.square().sum()) for one in mean.values())
        if not 0 < square < math.inf:
            return dict(updates)
        along = sum(float((mean[name] * update).sum()) for name, update in updates.items()) / square
        return {name: update - along * mean[name] for name, update in updates.items()}

    def _product(self, unit: int, step: int, updates: Mapping[str, Tensor]) -> float:
        """The clipped gradient of a unit times the update; 0 where its norm is no finite number, as in training."""
        gradients = self._gradients(np.array([unit]), step)
        squares_G = torch.zeros(max(self._group_of) + 1, dtype=torch.float64)
        products_G = torch.zeros_like(squares_G)
        for group, (name, gradient) in zip(self._group_of, gradients.items(), strict=True):
            if gradient is not None:
                exact = gradient.double()
                squares_G[group] += exact.square().sum().cpu()
                products_G[group] += (exact * updates[name]).sum().cpu() if name in updates else 0.0
        scales_G = self._clipping.coefficients(squares_G.sqrt()[:, None], self._watched.plan.clip_norm)[:, 0]
        return float((scales_G * products_G).sum()) if bool(squares_G.isfinite().all()) else 0.0

    def _gradients(self, units: np.ndarray, step: int) -> dict[str, Tensor | None]:
        """Of the sum of these units' losses, by the name of the parameter."""
        real = np.ones(len(units), dtype=bool)
        targets, weights_BN = unit_targets(units, real, self._watched.plan, self._source, step, self._width)
        loss = unit_losses(self._model, self._source.objective, targets, weights_BN).sum()
        found = torch.autograd.grad(loss, list(self._parameters.values()), allow_unused=True)
        return dict(zip(self._parameters, found, strict=True))


def _scale(plan: Plan) -> float:
    """What makes the optimizer's gradient a log-likelihood ratio's slope; without noise any constant will do."""
    if not isinstance(plan, DpPlan):
        return 1.0
    return plan.normaliser / (plan.noise_stddev or plan.clip_norm) ** 2


@contextmanager
def _as_in_evaluation(model: PreTrainedModel) -> Iterator[None]:
    """Without dropout, which would draw; cuDNN has no backward of a recurrent layer then."""
    is_training = model.training
    model.eval()
    try:
        with torch.backends.cudnn.flags(enabled=False):
            yield
    finally:
        model.train(is_training)
