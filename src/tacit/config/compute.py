"""What changes speed and memory alone: the section ``compute``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, ClassVar, Literal

from pydantic import Field

from tacit.config.base import MOST, Count, Options
from tacit.errors import UsageError

if TYPE_CHECKING:
    from tacit.config.run import RunConfig

__all__ = ["ComputeOptions", "Precision", "check_compute"]

Precision = Literal["float32", "bf16"]


class ComputeOptions(Options):
    """Speed and memory only: changing any of these changes no event and no guarantee; how sums are rounded, it may.

    Args:
        micro_batch: sequences in memory at once.
        threads: torch threads; all cores when not given.
        workers: processes that screen and score a corpus, which take seconds to start; 1 starts none. With Spark on this machine, its
            tasks at once.
        runner: where corpora are read, grouped into units, screened, counted and tokenised: ``local``, or ``spark`` (docs/scale.md).
        counting_memory_mb: MiB that the words of a private vocabulary and their counts may take in memory, where they are released
            with noise; more are counted on disk, in the run's private folder.
        checkpoint_seconds: seconds between checkpoints.
        device: cpu or cuda. A run cannot change it after its start: the normals of the noise are made in another way.
        precision: of forward and backward in training. ``bf16`` is torch's autocast to bfloat16; weights, norms, sums, noise and the
            optimizer stay float32, and evaluation, audit and scores are computed in float32. A private phase that has begun cannot
            change it, nor with bf16 ``micro_batch``; the next phase may. The certificate names phases in bf16.
        checkpointing: keep fewer activations in training, and compute the others a second time in the backward: the same sums. Not
            for an lstm.
        shard: under torchrun each process keeps a part of every layer, of its sums and of its optimizer state (FSDP2);
            embeddings and head stay whole. For models of kind bert, gpt2 and llama, whole
            (no adapter, no ``model.trained``), without ``checkpointing``.
    """

    added_later: ClassVar = frozenset({"precision", "checkpointing", "shard", "runner"})

    micro_batch: Count = 64
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    runner: Literal["local", "spark"] = "local"
    counting_memory_mb: Annotated[int, Field(ge=64, le=MOST)] = 512
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
    precision: Precision = "float32"
    checkpointing: bool = False
    shard: bool = False


_SHARDED_ALIKE = ("bert", "gpt2", "llama")
"""Of other models torch warns that the layers' hooks may meet results that change in place."""


def check_compute(config: RunConfig) -> None:
    """What the model or a phase cannot do is not asked of it."""
    compute, kind = config.compute, config.model.row
    if compute.checkpointing and not kind.has_heads:
        raise UsageError(f"compute.checkpointing: layers of kind {kind.name} cannot be computed again; leave it out")
    partly = config.model.adapter is not None or config.model.trained != "all"
    if compute.shard and (compute.checkpointing or partly):
        raise UsageError(
            "compute.shard: not with an adapter, model.trained, or compute.checkpointing; leave one of them out"
        )
    if compute.shard and kind.name not in _SHARDED_ALIKE:
        raise UsageError(
            f"compute.shard: only models of kind {', '.join(_SHARDED_ALIKE)} were compared with one process; leave it out"
        )
    if compute.shard and config.audit is not None and config.audit.white_box:
        raise UsageError("compute.shard: audit.white_box needs the whole model in each process; leave one of them out")
    if compute.precision != "float32" and config.selective_phases:
        name = config.selective_phases[0].name
        raise UsageError(
            f"compute.precision: the states that phase {name} releases are bounded in float32; leave it out"
        )
