"""Several processes that train one model: ranks take slices of one global draw, and one all-reduce adds their sums.

``torchrun`` starts the processes; ``join`` gives each its `Ranks`. Everything random is addressed by (key, step), so all
ranks draw the same batch and no seed is sent. Tensors travel by torch.distributed: gloo between CPUs, NCCL between GPUs.
A process alone is ``ALONE``, for which nothing is sent; the same code then needs no process group.
"""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch import distributed as dist

from tacit.engine.watch import Watch
from tacit.errors import DataError, LostError, UsageError

if TYPE_CHECKING:
    from torch.distributed.distributed_c10d import Store

__all__ = ["ALONE", "Ranks", "join"]

_BUCKET = 1 << 24
"""Elements that are flattened into one message."""

_PATIENCE = timedelta(days=365)
"""How long a rank waits for another one that works alone; one that dies is noticed at once, and one that is stopped by `Watch`."""

_SILENCE = 25.0
"""Seconds of silence after which a rank is given up."""


@dataclass(frozen=True)
class Ranks:
    """This process among those that train one model.

    Every method but ``slice`` is called by all ranks in the same order. A rank that dies, or does not answer within the
    process group's timeout, ends the others with a `LostError`.

    Args:
        rank: from 0 to world - 1; rank 0 is the first.
        world: number of processes.

    Raises:
        UsageError: the rank is outside the world.
    """

    rank: int = 0
    world: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world:
            raise UsageError(f"rank must be from 0 to world - 1 = {self.world - 1}, not {self.rank}")

    @property
    def first(self) -> bool:
        """Whether this is the rank that holds lock, ledger and checkpoints."""
        return self.rank == 0

    def slice(self, draw: np.ndarray) -> np.ndarray:
        """This rank's part of a draw that all ranks know: every ``world``-th entry.

        The parts are disjoint and make up the draw; they differ in length by at most 1 and may be empty. The first n
        entries of every part make up the first n * world entries of the draw.

            >>> Ranks(1, 3).slice(np.array([4, 7, 9, 12, 20])).tolist()
            [7, 20]
        """
        return draw[self.rank :: self.world]

    def sum_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor by its sum over all ranks, with the same bits on every rank."""
        if self.world == 1:
            return
        with self.plainly("adding up the gradients"):
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
                dist.all_reduce(flat)
                for tensor, part in zip(bucket, _unflatten(flat, bucket), strict=True):
                    tensor.copy_(part)

    def gather(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """The tensors of every rank, at rank 0 (``[]`` at the others): all of them in its memory at once.

        With several ranks in float64, which holds all that float32 does: one rank's sums may have that already where another's,
        of fewer micro-batches, have not, and nobody asks bytes for their type.
        """
        if self.world == 1:
            return [list(tensors)]
        found: list[list[Tensor]] = [[] for _ in range(self.world)] if self.first else []
        with self.plainly("collecting the partial sums for a checkpoint"):
            for bucket in _buckets(tensors):
                flat = torch.cat([tensor.reshape(-1).double() for tensor in bucket]).cpu()
                parts = [torch.empty_like(flat) for _ in found]
                dist.gather(flat, parts if self.first else None)
                for of_rank, part in zip(found, parts, strict=True):
                    of_rank += _unflatten(part, bucket)
        return found

    def decide(self, choice: bool) -> bool:
        """The first rank's choice, at every rank."""
        if self.world == 1:
            return choice
        value = torch.tensor([int(choice)])
        with self.plainly("waiting for rank 0"):
            dist.broadcast(value, 0)
        return bool(value)

    def agree(self, what: str, value: bytes, need: str = "run folder, data and library versions") -> None:
        """Check that all ranks hold the same value.

        Args:
            what: the value is, for the message.
            value: of this rank.
            need: what must be the same for all ranks, then.

        Raises:
            DataError: some rank holds another one; every rank says so.
        """
        if self.world == 1:
            return
        own = torch.tensor(list(hashlib.sha256(value).digest()), dtype=torch.uint8)
        found = [torch.empty_like(own) for _ in range(self.world)]
        with self.plainly(f"comparing {what}"):
            dist.all_gather(found, own)
        for rank, other in enumerate(found):
            if not torch.equal(other, found[0]):
                raise DataError(
                    f"{what}: rank {rank} has another one than rank 0; all processes of a run need the same {need}"
                )

    def tell(self, message: Any) -> None:
        """Send a message from the first rank to all others, which ``hear`` it, however long they have waited; by pickle."""
        with self.plainly("telling the other processes what to do"):
            for rank in range(1, self.world):
                _send(pickle.dumps(message), rank)

    def hear(self) -> Any:
        """What the first rank ``tell``s: wait for it as long as it lives."""
        with self.plainly("waiting for rank 0"):
            return pickle.loads(_receive(0))

    def meet(self) -> None:
        """Wait for all ranks, as long as they live: before work in step, which has the timeout."""
        if self.first:
            with self.plainly("waiting for the other processes"):
                for rank in range(1, self.world):
                    _receive(rank)
            self.tell(None)
        else:
            with self.plainly("waiting for rank 0"):
                _send(b"", 0)
            self.hear()

    @contextmanager
    def plainly(self, doing: str) -> Iterator[None]:
        """What torch.distributed says of a lost process, in a line that says what to do.

        Raises:
            LostError: another process ended, or did not answer in time.
        """
        try:
            yield
        except RuntimeError as error:  # how torch.distributed reports a lost or silent process
            raise LostError(
                f"process {self.rank} of {self.world} stopped while {doing}: another process ended or did not answer in "
                "time; see its message, then run the same command again to continue"
            ) from error


ALONE = Ranks()
"""One process: nothing is sent."""


@contextmanager
def join(device: str = "cpu", timeout_seconds: float = 1800.0, silence_seconds: float = _SILENCE) -> Iterator[Ranks]:
    """This process's place among those that ``torchrun`` started; `ALONE` without it.

        with join() as ranks:
            ...

    When any of them fails, ends or is silent, all end. An error that leaves the ``with`` goes to the others, where an
    `OtherRankError` takes its place; one that does not come so far, since it waits or works, is ended from outside.

    A process group that exists already is used and left as it is; for ``decide``, ``agree``, ``tell``, ``hear`` and
    ``meet`` it needs gloo for CPU tensors.

    Args:
        device: ``cpu`` (gloo), or ``cuda``: NCCL for the sums, gloo for the rest; the process then uses the GPU of its
            local rank.
        timeout_seconds: how long a rank waits for the others while they work in step.
        silence_seconds: how long a rank may be stopped, or out of reach, whatever it does.

    Raises:
        UsageError: another device.
    """
    if device not in ("cpu", "cuda"):
        raise UsageError(f"device must be cpu or cuda, not {device}")
    if dist.is_available() and dist.is_initialized():
        yield Ranks(dist.get_rank(), dist.get_world_size())
    elif dist.is_available() and dist.is_torchelastic_launched() and int(os.environ["WORLD_SIZE"]) > 1:
        if device == "cuda":
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        with _joined("gloo" if device == "cpu" else "cpu:gloo,cuda:nccl", timeout_seconds, silence_seconds) as mine:
            yield mine
    else:
        yield ALONE


@contextmanager
def _joined(backend: str, timeout_seconds: float, silence_seconds: float) -> Iterator[Ranks]:
    """Join the process group that torchrun's environment names, and watch it.

    After an error the group is left to the end of the process: to take it down may wait for those that are lost.
    """
    from torch.distributed.rendezvous import rendezvous  # not in every build of torch

    mine = Ranks(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    timeout = timedelta(seconds=timeout_seconds)
    with mine.plainly("joining the others"):
        store, *_ = next(rendezvous("env://", timeout=timeout))
        watch = Watch(_connect, mine.rank, mine.world, silence_seconds)
        watch.start()
    try:
        with mine.plainly("joining the others"):
            dist.init_process_group(backend, store=store, rank=mine.rank, world_size=mine.world, timeout=timeout)
        yield mine
    except BaseException as error:
        instead = watch.fail(error)
        if instead is None:
            raise
        raise instead from error
    watch.end()
    dist.destroy_process_group()


def _connect() -> Store:
    """The store of torchrun's processes, by a connection that nobody else waits on; of this start alone."""
    from torch.distributed.distributed_c10d import PrefixStore  # not in every build of torch

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    patience = timedelta(seconds=5)
    tcp = dist.TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=patience)  # pyright: ignore[reportPrivateImportUsage]
    return PrefixStore(f"tacit/{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", tcp)


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Neighbours of one dtype and device together, up to `_BUCKET` elements; a larger tensor is alone."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        alike = bucket and (bucket[0].dtype, bucket[0].device) == (tensor.dtype, tensor.device)
        if bucket and not (alike and sum(t.numel() for t in bucket) + tensor.numel() <= _BUCKET):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


def _unflatten(flat: Tensor, shapes_of: Sequence[Tensor]) -> list[Tensor]:
    parts = flat.split([tensor.numel() for tensor in shapes_of])
    return [part.view(tensor.shape) for part, tensor in zip(parts, shapes_of, strict=True)]


def _send(message: bytes, rank: int) -> None:
    _wait(dist.isend(torch.tensor([len(message)]), rank))
    if message:
        _wait(dist.isend(torch.frombuffer(bytearray(message), dtype=torch.uint8), rank))


def _receive(rank: int) -> bytes:
    size = torch.zeros(1, dtype=torch.int64)
    _wait(dist.irecv(size, rank))
    message = torch.empty(int(size), dtype=torch.uint8)
    if len(message):
        _wait(dist.irecv(message, rank))
    return message.numpy().tobytes()


def _wait(work: dist.Work | None) -> None:
    assert work is not None  # None is for ranks outside the group; the default group has them all
    work.wait(_PATIENCE)
