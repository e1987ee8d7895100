"""What correlated noise is worth: ``python benchmarks/correlated.py`` prints the table of docs/guarantees.md.

For each epsilon and number of bands it solves the noise multiplier, and calculates how much noise the sum over all steps holds
(`tacit.training.correlation.noise_in_mean`), compared with one band, which is DP-SGD. Nothing is trained.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence

from tacit.privacy.accounting.calibrate import training_noise
from tacit.training.correlation import banded_column, noise_in_mean


def rows(
    units: int, batch: int, steps: int, epsilons: Sequence[float], every: Sequence[int], delta: float
) -> list[str]:
    """Markdown: a row an epsilon, a column a number of bands."""
    head = ["epsilon", *(f"{bands} bands" for bands in every)]
    found = ["| " + " | ".join(head) + " |", "|--:" * len(head) + "|"]
    for epsilon in epsilons:
        noise: list[float | None] = []
        for bands in every:
            if bands * batch > units:
                noise.append(None)
                continue
            schedule = [(bands * batch / units, math.ceil(steps / bands))]
            noise.append(training_noise(epsilon, delta, schedule) * noise_in_mean(banded_column(bands), steps))
        first = noise[0]
        assert first is not None
        found.append(
            f"| {epsilon:g} | " + " | ".join("-" if one is None else f"{one / first:.2f}" for one in noise) + " |"
        )
    return found


def main() -> None:
    """Two sizes of batch."""
    parser = argparse.ArgumentParser(description="The noise left in the sum of all steps, over that of DP-SGD.")
    parser.add_argument("--units", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=160)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--batches", type=int, nargs="+", default=[100, 500, 2_000])
    options = parser.parse_args()
    for batch in options.batches:
        print(f"\n{options.units:,} units, batches of {batch:,}, {options.steps} steps:\n")
        print(
            "\n".join(rows(options.units, batch, options.steps, (1, 3, 8), (1, 2, 4, 8, 16), options.delta)), flush=True
        )


if __name__ == "__main__":
    main()
