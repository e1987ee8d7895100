"""What changes speed alone: the section ``compute``."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tacit.config.base import MOST, Count, Options

__all__ = ["ComputeOptions"]


class ComputeOptions(Options):
    """Speed only: changing any of these changes no event and no guarantee; how sums are rounded, it may.

    Args:
        micro_batch: sequences in memory at once.
        threads: torch threads; all cores when not given.
        workers: processes that screen a corpus.
        counting_memory_mb: MiB of private words to hold in memory when they are counted; more are counted on disk, in the run's
            private folder.
        checkpoint_seconds: seconds between checkpoints.
        device: cpu or cuda. The noise on a GPU is Philox, which is not cryptographic; the ledger and the certificate say so,
            and a run cannot change it after its start.
    """

    micro_batch: Count = 64
    device: Literal["cpu", "cuda"] = "cpu"
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    workers: Annotated[int, Field(ge=1, le=1024)] = 2
    counting_memory_mb: Annotated[int, Field(ge=64, le=MOST)] = 512
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 30.0
