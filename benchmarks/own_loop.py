"""What privacy costs in a loop of one's own, as README.md prints it: whole steps, noise included, beside ordinary ones.

    python benchmarks/own_loop.py [--cases bert gpt2] [--steps 20] [--micro-batches 4]

One process, one model, one optimizer (AdamW): ordinary and private steps take turns, each turn beginning with the other kind, so that
whatever else the machine does meets both. A step is a logical batch of several micro-batches of the case's rows. The ordinary one
adds up the gradients of the mean losses by transformers' own code; the private one clips every row, adds noise once, and divides.
The ratio is the median over the turns of (private / ordinary) within the turn, with its quartiles.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial

import torch
from engine_parts.cases import CASES, OWN, TokenLosses, build, make_batch, mean_loss, row_losses, token_losses
from torch import nn

from tacit.engine import PerExampleClipper, add_noise_, cross_entropy
from tacit.engine.noise import on_grid
from tacit.randomness import KeyedRandomness

LOSSES: dict[str, TokenLosses] = {
    "torch's cross-entropy": token_losses,
    "tacit.engine.cross_entropy": cross_entropy,
    "the same, overwrite=True": partial(cross_entropy, overwrite=True),
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", nargs="+", default=["bert", "gpt2"], choices=sorted(CASES))
    options.add_argument("--steps", type=int, default=20)
    options.add_argument("--micro-batches", type=int, default=4)
    chosen = options.parse_args()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {chosen.steps} turns")
    print("| case | loss | ordinary, ms | private, ms | ratio | quartiles |\n|---|---|---:|---:|---:|---:|")
    for name in chosen.cases:
        for loss in LOSSES:
            print(row(name, loss, chosen.steps, chosen.micro_batches), flush=True)


def row(name: str, loss: str, turns: int, parts: int) -> str:
    """One row of the table."""
    case = CASES[name]
    model, batch = build(case, OWN), make_batch(case, explicit_positions=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    clipper, streams = PerExampleClipper(model, clip_norm=1.0), KeyedRandomness(bytes(32))
    stddev, grid = on_grid(1.0, 1.0, sum(parameter.numel() for parameter in model.parameters()))

    def ordinary(step: int) -> None:
        optimizer.zero_grad()
        for _ in range(parts):
            (mean_loss(case, model, batch) / parts).backward()
        optimizer.step()

    def private(step: int) -> None:
        optimizer.zero_grad()
        for _ in range(parts):
            with clipper:
                row_losses(case, model, batch, LOSSES[loss]).sum().backward()
        add_noise_(model.named_parameters(), stddev, streams, step, grid, rests=clipper.take_rests())
        divide(model, case.shape.batch * parts)
        optimizer.step()

    kinds = [ordinary, private]
    times: dict[Callable[[int], None], list[float]] = {kind: [] for kind in kinds}
    for step in range(-2, turns):  # the first two turns warm up
        for kind in kinds if step % 2 else reversed(kinds):
            begun = time.perf_counter()
            kind(step + 2)
            if step >= 0:
                times[kind].append(time.perf_counter() - begun)
    ratios = [two / one for one, two in zip(times[ordinary], times[private], strict=True)]
    first, middle, third = statistics.quantiles(ratios, n=4)
    plain, clipped = (1000 * statistics.median(times[kind]) for kind in kinds)
    return f"| {name} | {loss} | {plain:.0f} | {clipped:.0f} | {middle:.2f} | {first:.2f} to {third:.2f} |"


def divide(model: nn.Module, expected_batch: int) -> None:
    for parameter in model.parameters():
        if parameter.grad is not None:
            parameter.grad /= expected_batch


if __name__ == "__main__":
    main()
