"""Memory of a process that trains with noise, whole and sharded: `python benchmarks/sharded_memory.py` prints the table of docs.

Each row is one run of a DP phase on so many gloo processes of this machine. What is held between two steps is counted tensor by
tensor (weights, gradients, sums in float64, AdamW's moments); the peak is the process's resident memory over what it was before the
model was made.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import socket
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from torch import nn

from tacit.config import ComputeOptions, ModelOptions
from tacit.engine.distributed import join
from tacit.engine.sharding import is_sharded
from tacit.models.kinds import build_model
from tacit.privacy.ledger import Ledger, LedgerHeader
from tacit.randomness import KeyedRandomness
from tacit.training.loop import run_phase
from tacit.training.objectives import CausalObjective
from tacit.training.phases import AdamOptions, Phase
from tacit.training.plans import DpPlan
from tacit.training.sequences import SequenceStream
from tacit.vocabulary.special import SpecialTokens

PLAN = DpPlan(sampling_probability=0.5, clip_norm=1.0, noise_multiplier=1.0, normaliser=4.0, sequences_per_unit=1)
LENGTH, VOCABULARY, UNITS, STEPS = 32, 1000, 8, 2
MIB = 2**20


def special() -> SpecialTokens:
    """Ids without a tokenizer."""
    return SpecialTokens(pad=0, unknown=1, start=2, end=3, mask=None, ids=(0, 1, 2, 3), size=VOCABULARY)


def stream() -> SequenceStream:
    """Random rows of full length."""
    ids = np.random.default_rng(0).integers(5, VOCABULARY, (UNITS, LENGTH)).astype(np.int32)
    return SequenceStream(ids, np.full(UNITS, LENGTH), np.arange(UNITS + 1), tuple(f"unit {n}" for n in range(UNITS)))


def resident() -> int:
    """The most memory that this process has had, in bytes (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def held(model: nn.Module) -> int:
    """Bytes of weights, float64 sums and two moments, of what this process has of each."""
    parts = [p.to_local() if is_sharded(p) else p for p in model.parameters()]
    return sum(part.numel() for part in parts) * (4 + 4 + 8 + 8)  # weight, gradient, its sum in float64, two moments


def measure(rank: int, world: int, port: int, options: argparse.Namespace, answer: Connection) -> None:
    """One process."""
    os.environ |= {"TORCHELASTIC_RUN_ID": "benchmark", "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ |= {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.set_num_threads(1)
    folder = Path(options.folder)
    with join() as ranks:
        shape = ModelOptions(kind="gpt2", layers=options.layers, width=options.width, heads=8, length=LENGTH)
        before = resident()
        model = build_model(shape, special(), 0, None)
        phase = Phase("private", "private", PLAN, STEPS, AdamOptions(1e-3))
        ledger = None
        if ranks.first:
            ledger = Ledger.create(
                folder / "ledger.sqlite", LedgerHeader("user", "add-or-remove", 100, 1e9, 1e-5, "-", "-")
            )
            ledger.plan("private", PLAN.event, STEPS)
        compute = ComputeOptions(micro_batch=1, threads=1, checkpoint_seconds=1e9, shard=world > 1)
        run_phase(
            model,
            phase,
            stream(),
            CausalObjective(),
            ledger,
            KeyedRandomness(bytes(32)),
            compute,
            folder / "private.pt",
            ranks=ranks,
        )
        answer.send((held(model), resident() - before))


def row(world: int, options: argparse.Namespace) -> tuple[int, int]:
    """The largest numbers of any process."""
    context = multiprocessing.get_context("spawn")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options.folder = folder
        pipes = [context.Pipe(duplex=False) for _ in range(world)]
        processes = [
            context.Process(target=measure, args=(rank, world, port, options, theirs))
            for rank, (_, theirs) in enumerate(pipes)
        ]
        for process in processes:
            process.start()
        answers = [ours.recv() for ours, _ in pipes]
        for process in processes:
            process.join()
    return max(held for held, _ in answers), max(peak for _, peak in answers)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    options = parser.parse_args()
    print("| processes | held between steps, MiB a process | peak, MiB a process |\n|---|---|---|")
    for world in (1, 2, 4):
        between, peak = row(world, options)
        print(f"| {world} | {between / MIB:,.0f} | {peak / MIB:,.0f} |", flush=True)


if __name__ == "__main__":
    main()
