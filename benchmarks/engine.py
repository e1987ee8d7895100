"""Time of a clipped step against an ordinary one, in one interleaved run: medians of ratios.

    python benchmarks/engine.py [--json] [--rounds 15]

Case: transformers' BertForMaskedLM with tied embeddings, batch 16, 128 positions, 4 layers, width 256, vocabulary 8,192,
float32. "ordinary" is the mean loss over all positions and its backward; "clipped" is per-example losses inside
`PerExampleClipper`. Both with the full head, and with the head at 20 masked positions of 128.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

from tacit.config import ModelOptions
from tacit.engine import PerExampleClipper
from tacit.models.bert import build_bert, masked_losses

BATCH, LENGTH, VOCABULARY = 16, 128, 8192


def cases() -> dict[str, Callable[[], None]]:
    """The four steps, on one model."""
    options = ModelOptions(layers=4, width=256, heads=4, length=LENGTH)
    model = build_bert(options, VOCABULARY, pad_id=0, seed=0)
    model.train()
    clipper = PerExampleClipper(model, clip_norm=1.0)
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, VOCABULARY, (BATCH, LENGTH), generator=generator)
    labels = torch.randint(5, VOCABULARY, (BATCH, LENGTH), generator=generator)
    attention = torch.ones_like(ids)

    def losses(slots: int) -> torch.Tensor:
        positions = torch.arange(slots).expand(BATCH, -1)
        weights = torch.full((BATCH, slots), 1.0 / slots)
        return masked_losses(model, ids, attention, positions, labels[:, :slots], weights)

    def ordinary(slots: int) -> None:
        model.zero_grad(set_to_none=True)
        losses(slots).mean().backward()

    def clipped(slots: int) -> None:
        model.zero_grad(set_to_none=True)
        with clipper:
            losses(slots).sum().backward()

    def opened(step: Callable[[int], None], slots: int) -> Callable[[], None]:
        return lambda: step(slots)

    return {
        f"{name}, head at {slots} of {LENGTH}": opened(step, slots)
        for slots in (LENGTH, 20)
        for name, step in (("ordinary", ordinary), ("clipped", clipped))
    }


def measure(rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds of every case and its median ratio to the ordinary step with the full head."""
    steps = cases()
    for step in steps.values():
        step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            start = time.perf_counter()
            step()
            times[name].append(time.perf_counter() - start)
    reference = next(iter(times.values()))
    return {
        name: {
            "milliseconds": 1000 * statistics.median(found),
            "ratio": statistics.median(one / other for one, other in zip(found, reference, strict=True)),
        }
        for name, found in times.items()
    }


def main() -> None:
    """Print the table or, with --json, its numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure(options.rounds)
    if options.json:
        print(json.dumps(found, indent=1))
        return
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, {options.rounds} interleaved rounds")
    for name, values in found.items():
        print(f"{name:<32} {values['milliseconds']:8.1f} ms   {values['ratio']:.2f} x")


if __name__ == "__main__":
    main()
