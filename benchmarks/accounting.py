"""What the loss of one sampled Gaussian step costs to put on its grid, beside dp-accounting's own; the numbers are the same.

Run ``python benchmarks/accounting.py [--repeats 7]``. The two are timed in turn; the ratio is the median of the ratios of neighbours
in time, beside the smallest and the largest of them.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from dp_accounting import NeighboringRelation
from dp_accounting.pld import privacy_loss_distribution as pld

from tacit.privacy.accounting.sampled_gaussian import gaussian_pld
from tacit.privacy.events import Relation

_LIBRARY: dict[Relation, NeighboringRelation] = {
    "add-or-remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
    "replace": NeighboringRelation.REPLACE_ONE,
}
SETTINGS: list[tuple[float, float, float, Relation]] = [
    (1.0, 0.01, 1e-4, "add-or-remove"),
    (1.0, 0.01, 2e-5, "add-or-remove"),
    (0.5, 0.3, 1e-4, "add-or-remove"),
    (1.0, 0.01, 1e-4, "replace"),
]


def seconds(call: Callable[[], object]) -> float:
    """Of one call."""
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def row(stddev: float, probability: float, grid: float, relation: Relation, repeats: int) -> str:
    """A line of the table."""

    def library() -> object:
        return pld.from_gaussian_mechanism(
            stddev,
            value_discretization_interval=grid,
            sampling_prob=probability,
            neighboring_relation=_LIBRARY[relation],
        )

    def own() -> object:
        return gaussian_pld(stddev, relation, grid, sampling_probability=probability)

    own()
    pairs = [(seconds(library), seconds(own)) for _ in range(repeats)]
    ratios = [slow / fast for slow, fast in pairs]
    slow, fast = (statistics.median(times) for times in zip(*pairs, strict=True))
    spread = f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
    return f"| {stddev:g} | {probability:g} | {grid:g} | {relation} | {slow:.2f} s | {fast:.2f} s | {spread} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    print("| noise | sampled | grid | relation | dp-accounting | tacit | ratio |\n|---|---|---|---|---|---|---|")
    for setting in SETTINGS:
        print(row(*setting, options.repeats), flush=True)


if __name__ == "__main__":
    main()
