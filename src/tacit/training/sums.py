"""What the sums of a phase are made from, as one digest: randomness is derived from it, and the ledger holds it.

Noise is a function of the key and of an address. Were the address the step alone, two runs with one key (a backup that was restored,
a folder that was copied) would put the same noise on different sums as soon as anything else differs: the tokenizer, the weights at
the start, the corpus, a canary. The difference of the two released models would then be free of noise. So the address of all draws
of a phase, sampling and masks too, holds a digest of everything that its sums depend on. What is the same in all of that gives the
same sums under the same noise, which is one release and not two.

Speed options are no part of it, since the sums do not depend on them but for the last digits of float32. In bfloat16 there are few
digits: the precision is a part, and with it the micro-batch, whose shape may decide how a device rounds. Dropout in ordinary training
is drawn for a micro-batch as a whole: there its size is a part too. Activations that are computed again are the same to the bit.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from types import BuiltinFunctionType, FunctionType

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from tacit.config import ComputeOptions
from tacit.errors import LedgerError
from tacit.privacy.ledger import Ledger
from tacit.privacy.precision import FLOAT32, Rounding, rounding_of, sums_of
from tacit.randomness import KeyedRandomness
from tacit.storage.arrays import Array, row_pieces
from tacit.training.dropout import uses_dropout
from tacit.training.objectives import Objective
from tacit.training.phases import Phase
from tacit.training.plans import DpPlan
from tacit.training.sequences import SequenceStream

__all__ = ["as_begun", "bind_sums", "plain_options", "scores_digest", "sums_digest"]

_OF_NO_SUM = {"_name_or_path", "name_or_path", "transformers_version", "training", "gradient_checkpointing"}
"""Options and attributes of a model on which no gradient depends."""


def sums_digest(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    phase: Phase,
    stream: SequenceStream,
    objective: Objective,
    compute: ComputeOptions,
    streams: KeyedRandomness,
) -> str:
    """A keyed digest of all that decides the sums of a phase beside its randomness; keyed, since the records are private.

    Args:
        model: with the weights that the phase begins with, and all that says what is computed with them.
        optimizer: with the state that the phase begins with: what it makes of the first sum decides the second one.
        phase: the plan, the steps and the optimizer's options.
        stream: the phase's records, with their canaries and their rho.
        objective: what the model is asked about them.
        compute: of which a precision below float32 counts with the micro-batch; else only this, for dropout without clipping.
        streams: of this phase; the digest's key is theirs.
    """
    digest = hashlib.blake2b(key=streams.derive("sums"), digest_size=32, person=b"tacit-sums")
    plan = phase.plan
    by_batch = uses_dropout(model) and not plan.is_dp
    if plan.is_dp:
        # Earlier versions did otherwise, and no phase may mix both. The same holds for the next mark.
        _add(digest, b"sum and noise on a grid")
    if isinstance(plan, DpPlan) and plan.bands is not None and len(plan.bands.counted) > 1:
        _add(digest, b"a micro-batch for each weight")
    ends_as = dataclasses.replace(
        phase.optimizer, average=None, keep=None
    )  # made of the iterates, when all sums are done
    for described in (
        repr(dataclasses.replace(phase, optimizer=ends_as)),
        repr(objective),
        repr(compute.micro_batch if by_batch else None),
    ):
        _add(digest, described.encode())
    rounding = _rounding(compute)
    if rounding != Rounding():
        _add(digest, repr(rounding).encode())
    _add_stream(digest, stream)
    _add_model(digest, model)
    _add(digest, repr([parameter.requires_grad for parameter in model.parameters()]).encode())
    for tensor in _state_of(optimizer):
        _add_tensor(digest, tensor)
    return digest.hexdigest()


def as_begun(ledger: Ledger, phase: Phase, compute: ComputeOptions) -> ComputeOptions:
    """The options that a phase began with, as far as its sums hang on them: what a finished phase is looked at with."""
    begun = rounding_of(ledger, phase.name) or _rounding(compute)
    micro_batch = begun.micro_batch or compute.micro_batch
    return compute.model_copy(update={"precision": begun.precision, "micro_batch": micro_batch})


def _rounding(compute: ComputeOptions) -> Rounding:
    return Rounding() if compute.precision == FLOAT32 else Rounding(compute.precision, compute.micro_batch)


def bind_sums(ledger: Ledger, phase: Phase, made_from: str, compute: ComputeOptions) -> None:
    """Bind the digest of a phase that is paid for: a step that is paid is never run again with other sums.

    Args:
        phase: with an event.
        made_from: `sums_digest`.
        compute: of which the digest holds a precision below float32; it is bound in words too, for the error and the certificate.

    Raises:
        LedgerError: the phase began with other weights, records, tokenizer or options, in another precision, or with an earlier
            version of tacit.
    """
    name = sums_of(phase.name)
    if ledger.bound(name) is None and ledger.spent(phase.name):
        raise LedgerError(
            f"phase {phase.name} was begun by an earlier version of tacit, which drew its noise in another way: end the run with "
            "that version, or use a new run folder"
        )
    begun, now = rounding_of(ledger, phase.name), _rounding(compute)
    if begun not in (None, now):
        raise LedgerError(
            f"phase {phase.name} began with {begun}; with {now} its noise would meet other sums: set it back, and change it when the "
            "phase is done"
        )
    ledger.bind(name, now.bound(made_from))


def scores_digest(
    models: Mapping[str, nn.Module | np.ndarray], stream: SequenceStream, plan: str, streams: KeyedRandomness
) -> str:
    """A digest, as `sums_digest`, of the private evaluation: what decides the sum over the held-out units, without its noise.

    Args:
        models: that are scored, or probabilities of tokens.
        stream: the held-out records.
        plan: the event and all that decides how a unit is scored, in words.
        streams: of the evaluation.
    """
    digest = hashlib.blake2b(key=streams.derive("sums"), digest_size=32, person=b"tacit-sums")
    _add(digest, plan.encode())
    _add_stream(digest, stream)
    for name, model in models.items():
        _add(digest, name.encode())
        if isinstance(model, np.ndarray):
            _add_array(digest, model)
        else:
            _add_model(digest, model)
    return digest.hexdigest()


def _add_stream(digest: hashlib.blake2b, stream: SequenceStream) -> None:
    for array in (stream.ids_ST, stream.lengths_S, stream.starts_U1, stream.rho_U):
        _add_rows(digest, array)
    if stream.counted_ST is not None:
        _add_rows(digest, stream.counted_ST)
    _add_keys(digest, stream.keys_U)


def _add_rows(digest: hashlib.blake2b, array: Array | None) -> None:
    """Add an array by pieces, as `_add_array` adds all of it."""
    if array is None:
        _add_array(digest, None)
        return
    _add(digest, f"{array.dtype} {array.shape} ".encode())
    for piece in row_pieces(array):
        digest.update(np.ascontiguousarray(piece).data)


def _add_keys(digest: hashlib.blake2b, keys: Sequence[str]) -> None:
    """Add keys as `_add` adds the lines of all of them."""
    size = sum(map(len, keys)) + max(0, len(keys) - 1)
    digest.update(size.to_bytes(8, "big"))
    for number, key in enumerate(keys):
        digest.update(f"\n{key}".encode() if number else key.encode())


def _add_model(digest: hashlib.blake2b, model: nn.Module) -> None:
    """The function that it computes, and not its weights alone: of equal weights another activation makes other sums."""
    if isinstance(model, PreTrainedModel):
        options = {name: value for name, value in model.config.to_dict().items() if name not in _OF_NO_SUM}
        _add(digest, json.dumps(options, sort_keys=True, default=str).encode())
    for name, module in model.named_modules():
        _add(digest, repr((name, type(module).__module__, type(module).__qualname__, _numbers_of(module))).encode())
    for name, tensor in (*model.state_dict().items(), *model.named_buffers()):  # some buffers are in no state_dict
        _add(digest, name.encode())
        _add_tensor(digest, tensor)


def plain_options(model: nn.Module) -> list[tuple[str, str, list[tuple[str, str]]]]:
    """The class and the own options of every module, by its name: with the weights, the function that a model computes."""
    return [
        (name, f"{type(module).__module__}.{type(module).__qualname__}", _numbers_of(module))
        for name, module in model.named_modules()
    ]


def _numbers_of(module: nn.Module) -> list[tuple[str, str]]:
    """A module's own options, as far as they are plain values or functions."""
    found = []
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or name in _OF_NO_SUM:
            continue
        if isinstance(value, (int, float, str, tuple, list, torch.dtype)):
            found.append((name, repr(value)))
        elif isinstance(value, dict) and value and all(isinstance(one, (int, float)) for one in value.values()):
            found.append((name, repr(sorted(value.items()))))  # of an adapter, by how much its product counts
        elif isinstance(value, (FunctionType, BuiltinFunctionType)):
            found.append((name, f"{value.__module__}.{value.__qualname__}"))
    return found


def _state_of(optimizer: torch.optim.Optimizer) -> Iterable[Tensor]:
    """All tensors of its state, in the order of the parameters."""
    for _, values in sorted(optimizer.state_dict()["state"].items()):
        for _, value in sorted(values.items()):
            yield value if isinstance(value, Tensor) else torch.tensor(value)


def _add_tensor(digest: hashlib.blake2b, tensor: Tensor) -> None:
    _add_array(digest, tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy(), str(tensor.shape))


def _add_array(digest: hashlib.blake2b, array: np.ndarray | None, shape: str = "") -> None:
    if array is None:
        _add(digest, b"none")
        return
    _add(digest, f"{array.dtype} {array.shape} {shape}".encode())
    digest.update(np.ascontiguousarray(array).data)


def _add(digest: hashlib.blake2b, content: bytes) -> None:
    """Add a content with its length, so that two contents never run into one another."""
    digest.update(len(content).to_bytes(8, "big") + content)
