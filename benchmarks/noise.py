"""The noise of a step by itself: seconds, and memory above sums and parameters.

    python benchmarks/noise.py [--device cuda] [--models bert-base 1.5b] [--repeats 3]

Parameters have the sizes of a model's, and sums are zero. On a GPU it also times as many normals of torch's own generator (Philox,
float64, no key of ours, not rounded), for comparison.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import nn

from tacit.engine import add_noise_
from tacit.engine.noise import on_grid
from tacit.randomness import KeyedRandomness

MODELS: dict[str, list[tuple[int, ...]]] = {
    "bert-base": [(30522, 768), (512, 768), *[(768, 768)] * 48, *[(3072, 768)] * 24, *[(768,)] * 130],
    "1.5b": [(50000, 1600), *[(1600, 1600)] * 192, *[(6400, 1600)] * 96],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["bert-base"])
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    device = torch.device(options.device)
    on_gpu = device.type == "cuda"
    print(torch.cuda.get_device_name(device) if on_gpu else f"{torch.get_num_threads()} threads", torch.__version__)
    for name in options.models:
        parameters = {f"p{place}": parameter_of(size, device) for place, size in enumerate(MODELS[name])}
        numbers = sum(parameter.numel() for parameter in parameters.values())
        found, above = measured(parameters, numbers, options.repeats)
        said = ", ".join(f"{seconds:.2f}" for seconds in found)
        print(f"{name}: {numbers:,} parameters: {said} s" + (f"; {above / 2**20:,.0f} MiB above" if on_gpu else ""))
        if on_gpu:
            seconds = seconds_of(
                lambda own=parameters: [torch.randn_like(one, dtype=torch.float64) for one in own.values()], device
            )
            print(f"  torch's own normals: {seconds:.3f} s")


def parameter_of(size: tuple[int, ...], device: torch.device) -> nn.Parameter:
    parameter = nn.Parameter(torch.zeros(size, device=device))
    parameter.grad = torch.zeros_like(parameter)
    return parameter


def measured(parameters: dict[str, nn.Parameter], numbers: int, repeats: int) -> tuple[list[float], int]:
    """Seconds of each repeat, and bytes above what was there (0 on a CPU)."""
    device, streams = next(iter(parameters.values())).device, KeyedRandomness(bytes(32))
    deviation, grid = on_grid(1.0, 1.0, numbers)
    before = 0
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
    found = [
        seconds_of(lambda at=step: add_noise_(parameters.items(), deviation, streams, at, grid), device)
        for step in range(repeats)
    ]
    return found, torch.cuda.max_memory_allocated(device) - before if device.type == "cuda" else 0


def seconds_of(work: Callable[[], object], device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
