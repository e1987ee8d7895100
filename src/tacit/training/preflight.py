"""Before anything is spent: what of a given model is trained, how its layers are clipped, and whether its rows are independent.

One step of two made-up units goes through the clipper, so what the engine refuses is refused here, by name.

Shapes: B rows, T positions.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from transformers import PreTrainedModel

from tacit.engine import PerExampleClipper
from tacit.engine.sites import find_sites
from tacit.engine.total import bits_of_weights
from tacit.errors import RefusedError, TacitError
from tacit.failures import is_out_of_memory
from tacit.training.company import refuse_company
from tacit.training.objectives import Objective
from tacit.training.steadiness import refuse_unsteady
from tacit.training.unit_rows import widths
from tacit.vocabulary.special import SpecialTokens

__all__ = ["Layers", "Preflight", "preflight"]


@dataclass(frozen=True)
class Layers:
    """Layers of one class that hold trained parameters.

    Args:
        name: of the class.
        how: their gradients are had: by a rule of their class, by our own LSTM, or by running the layer again for each unit (vmap).
        count: how many there are.
        parameters: trained in them; a tied one counts where it stands first.
    """

    name: str
    how: Literal["rule", "lstm", "fallback"]
    count: int
    parameters: int


@dataclass(frozen=True)
class Preflight:
    """What was found.

    Args:
        trained: parameters that are trained.
        parameters: all of the model.
        layers: those with trained parameters, the largest first.
        frozen: names of parameters that are not trained although their model is; none of an adapted one.
    """

    trained: int
    parameters: int
    layers: tuple[Layers, ...]
    frozen: tuple[str, ...]

    def lines(self) -> list[str]:
        """What was found, in lines for a terminal."""
        said = [f"Model: {self.parameters:,} parameters, of which {self.trained:,} are trained"]
        said += [
            f"  {layer.name}: {layer.count} layers, {layer.parameters:,} parameters, clipped by {_WAYS[layer.how]}"
            for layer in self.layers
        ]
        said += [f"  not trained: {name}" for name in self.frozen[:_NAMED]]
        if len(self.frozen) > _NAMED:
            said.append(f"  not trained: {len(self.frozen) - _NAMED} more")
        return [
            *said,
            "Rows are independent: one unit's loss reached no other unit's rows, and no row changed how others are computed",
        ]


_NAMED = 8  # in full
_WAYS = {"rule": "rule", "lstm": "our own backward pass", "fallback": "running the layer again for each unit"}


def preflight(
    model: PreTrainedModel, objective: Objective, special: SpecialTokens, length: int, rows_per_unit: int
) -> Preflight:
    """Try one step, without any text.

    Args:
        model: as the run begins with it. It is to be made anew for the run, since some change when they are called.
        objective: what it is asked.
        special: of the run's tokenizer.
        length: positions of a row.
        rows_per_unit: rows of a unit.

    Raises:
        RefusedError: a layer cannot be clipped exactly, one row's loss reaches another row, ``unsteady-model``, or ``model-raises``.
        UsageError: a layer flattens the batch, or nothing can be trained.
    """
    sites, weights = find_sites(model), bits_of_weights(model)
    try:
        edges = np.unique(widths(np.arange(2, length + 1), length, math.inf))
        refuse_unsteady(model.train(), objective, special, edges, rows_per_unit)  # first: no row was read before
        _one_step(model, objective, special, length, rows_per_unit)
        _refuse_writes(model, weights)  # in evaluation; what is in training may undo it
        refuse_company(model, objective, special, length)
        _refuse_writes(model, weights)
    except Exception as error:
        if isinstance(error, TacitError) or is_out_of_memory(error):
            raise
        said = (str(error).splitlines() or [""])[0]
        raise RefusedError(
            "model-raises",
            f"a {type(model).__name__} raises at a made-up row ({type(error).__name__}: {said}); mend its weights or config.json, or "
            "take another model",
        ) from error
    counted: set[str] = set()
    layers: Counter[tuple[str, Literal["rule", "lstm", "fallback"]]] = Counter()
    numbers: Counter[tuple[str, Literal["rule", "lstm", "fallback"]]] = Counter()
    for site in sites:
        key = (type(site.module).__name__, site.kind)
        layers[key] += 1
        for name, first in site.names.items():
            if first not in counted:
                counted.add(first)
                numbers[key] += site.module.get_parameter(name).numel()
    found = [Layers(name, how, count, numbers[name, how]) for (name, how), count in layers.items()]
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    adapted = any(".lora_A." in name for name, _ in model.named_parameters())
    frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    return Preflight(
        trained,
        sum(parameter.numel() for parameter in model.parameters()),
        tuple(sorted(found, key=lambda one: -one.parameters)),
        () if adapted else tuple(frozen),
    )


def _refuse_writes(model: PreTrainedModel, weights: dict[str, int]) -> None:
    """No forward writes a parameter: no row could be computed as if those before it had not been."""
    written = [name for name, bits in bits_of_weights(model).items() if bits != weights[name]]
    if written:
        raise RefusedError(
            "unsteady-model",
            f"a {type(model).__name__} writes its own weights while it computes ({written[0]}), so rows decide how later ones are "
            "computed; take another type of model, or another option of its config.json",
        )


def _one_step(
    model: PreTrainedModel, objective: Objective, special: SpecialTokens, length: int, rows_per_unit: int
) -> None:
    """Two units of made-up rows, whose length is no number of rows, so that no dimension is taken for another."""
    rows = 2 * rows_per_unit
    width = next(one for one in range(min(length, 16), length + 1) if one != rows) if length > rows else length
    generator = np.random.default_rng(0)
    ordinary = np.setdiff1d(np.arange(special.size), special.ids)
    ids_BT = generator.choice(ordinary, (rows, width))
    ids_BT[:, 0], ids_BT[:, -1] = special.start, special.end
    uniforms_BnT = generator.random((rows, objective.draws, width))
    targets = objective.targets(ids_BT, np.full(rows, width), uniforms_BnT)
    arrays = [torch.from_numpy(np.ascontiguousarray(array)).long().to(model.device) for array in targets.arrays]
    weights_BN = torch.from_numpy(targets.real_BN.astype(np.float32)).to(model.device)
    was_training = model.training
    clipper = PerExampleClipper(model.eval(), 1.0, rows_per_unit)
    try:
        with clipper:
            objective.losses(model, arrays, weights_BN).sum().backward()
    finally:
        clipper.close()
        model.train(was_training)
        for parameter in model.parameters():
            parameter.grad = None
