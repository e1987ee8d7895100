"""What a run needs of a machine: operations, seconds and memory, all rough."""

from __future__ import annotations

import math
import os
import sys

from tacit.config import ComputeOptions, RunConfig
from tacit.config.shape import ModelShape, adapter_parameters, shape_of, trained_of
from tacit.errors import UsageError
from tacit.planning.vocabulary import vocabulary_size

__all__ = [
    "disk_bytes",
    "memory_bytes",
    "memory_of_machine",
    "model_parameters",
    "refuse_too_large",
    "row_flops",
    "seconds_of",
    "sequence_flops",
    "trained_parameters",
    "training_bytes",
]

_FLOPS_PER_SECOND = 6e10
"""What two laptop cores reach on these small models (measured by `tacit demo`); only for the expected time."""


def seconds_of(flops: float) -> float:
    """Expected time of so many floating-point operations."""
    return flops / _FLOPS_PER_SECOND


def sequence_flops(config: RunConfig) -> float:
    """Forward and backward of one sequence of a run."""
    shape = shape_of(config.model)
    head = _head_positions(config) * (vocabulary_size(config) + shape.width) * shape.width
    return row_flops(shape, config.model.length, head)


def row_flops(shape: ModelShape, length: int, head: float) -> float:
    """Forward and backward of one row: six times parameters times positions.

    Args:
        head: parameters times positions of what is above the layers.
    """
    return 6.0 * (length * shape.layers * shape.kind.layer_cost(shape, length) + head)


def model_parameters(config: RunConfig) -> int:
    """Parameters of the model, with an adapter's."""
    own = shape_of(config.model).parameters(vocabulary_size(config))
    return own if config.model.adapter is None else own + trained_parameters(config)


def trained_parameters(config: RunConfig) -> int:
    """The parameters that are trained: all, an adapter's, or about as many as ``model.trained`` says."""
    options = config.model
    if options.adapter is not None:
        return adapter_parameters(options.adapter, options.resolved_folder)
    whole = shape_of(options).parameters(vocabulary_size(config))
    if options.trained == "all":
        return whole
    return min(whole, trained_of(options.trained, options.resolved_folder))


def memory_bytes(config: RunConfig) -> int:
    """What a run needs of memory."""
    logits = 4 * _head_positions(config) * vocabulary_size(config)
    shape, trained = shape_of(config.model), trained_parameters(config)
    needed = training_bytes(shape, config.model.length, config.compute, trained, logits)
    return needed + 4 * (model_parameters(config) - trained)


def refuse_too_large(config: RunConfig) -> None:
    """Refuse a given model that this machine cannot hold, before it is loaded.

    Raises:
        UsageError: its weights, with what training keeps beside those that are trained, are more than all memory there is.
    """
    trained, machine = trained_parameters(config), memory_of_machine()
    needed = 4 * (model_parameters(config) + 4 * trained)
    if machine is not None and needed > machine:
        raise UsageError(
            f"the model with what its training keeps takes {needed / 1e9:.1f} GB in float32, and this machine has "
            f"{machine / 1e9:.1f} GB of memory; take a smaller model, or model.adapter, which trains a small part of it"
        )


def memory_of_machine() -> int | None:
    """Bytes of memory that the machine has; None where it does not say it in the way of POSIX."""
    names = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
    if sys.platform == "win32" or any(name not in os.sysconf_names for name in names):
        return None
    return os.sysconf(names[0]) * os.sysconf(names[1])


def disk_bytes(config: RunConfig) -> int:
    """What a run leaves on disk, about: a checkpoint a phase (weights and two moments), one beside it, the release, and its stores.

    Of the stores those of the private text: of ``privacy.units`` as many rows as a step takes of one, and about as much text as ids.
    """
    trained, released = trained_parameters(config), model_parameters(config)
    control = 2 if config.audit is not None and config.audit.control else 1
    checkpoints = config.rounds * len(config.phases) * control
    if config.audit is not None and config.audit.membership is not None:
        checkpoints += config.audit.membership.shadow_models
    kinds = (
        2 if control == 2 and config.audit is not None and config.audit.coins is not None else 1
    )  # the control's rows
    rows = config.privacy.units * max((phase.sequences_per_unit for phase in config.dp_phases), default=1)
    stores = rows * config.model.length * (1 + kinds)
    return 4 * (trained * (3 * checkpoints + 5) + released + stores)


def training_bytes(shape: ModelShape, length: int, compute: ComputeOptions, parameters: int, head: int) -> int:
    """Weights, gradients, two Adam moments, and what one micro-batch keeps, plus the libraries.

    Of a layer, its inputs and the gradients at its outputs stay in float32 until the norms are known. The other activations are half
    as large in bfloat16, and those of one layer at a time where they are computed again.

    Args:
        length: positions of a row.
        compute: rows in memory at once, precision, and whether activations are computed again.
        head: numbers that the head keeps of one row.
    """
    factors = 10 * shape.width + 2 * shape.intermediate
    others = 6 * shape.width + (shape.heads or 0) * length
    size = 4 if compute.precision == "float32" else 2
    layers = 1 if compute.checkpointing else shape.layers
    activations = length * (4 * shape.layers * factors + size * layers * others) + 4 * head
    return 4 * 5 * parameters + compute.micro_batch * activations + 600_000_000


def _head_positions(config: RunConfig) -> int:
    """Positions of a sequence at which the head is evaluated."""
    length = config.model.length
    return length if config.model.is_causal else math.ceil(config.masking_probability * length)
