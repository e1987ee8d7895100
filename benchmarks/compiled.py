"""What torch.compile of a model's blocks would give an ordinary step: the clipper refuses compiled blocks (docs/engine.md).

    python benchmarks/compiled.py [--cases bert gpt2 llama-100m] [--rounds 9]

Forward and backward of one batch, in turns within one process: ordinary; ordinary with every block compiled (inductor); clipped.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from engine_parts.cases import CASES, OWN, build, make_batch, mean_loss, row_losses
from torch import __version__ as torch_version
from torch import get_num_threads, nn

from tacit.engine import PerExampleClipper, cross_entropy


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--cases", nargs="+", default=["bert", "gpt2", "llama-100m"], choices=sorted(CASES))
    options.add_argument("--rounds", type=int, default=9)
    chosen = options.parse_args()
    print(f"torch {torch_version}, {get_num_threads()} threads, {chosen.rounds} rounds")
    print("| case | step | ms | ratio | quartiles | compiling, s |\n|---|---|---:|---:|---:|---:|")
    for name in chosen.cases:
        for row in rows(name, chosen.rounds):
            print(row, flush=True)


def rows(name: str, rounds: int) -> list[str]:
    """The rows of one case; a ratio is the median over the rounds of (step / ordinary) within the round."""
    steps = {"ordinary": _ordinary(name, False), "compiled": _ordinary(name, True), "clipped": _clipped(name)}
    first = {kind: _seconds(step) for kind, step in steps.items()}
    times: dict[str, list[float]] = {kind: [] for kind in steps}
    for number in range(rounds):
        for kind in steps if number % 2 else reversed(steps):
            times[kind].append(_seconds(steps[kind]))
    lines = []
    for kind, own in times.items():
        low, middle, high = statistics.quantiles(
            (one / plain for one, plain in zip(own, times["ordinary"], strict=True)), n=4
        )
        shown = f"{first[kind]:.0f}" if kind == "compiled" else "-"
        lines.append(
            f"| {name} | {kind} | {1000 * statistics.median(own):.0f} | {middle:.2f} | {low:.2f} to {high:.2f} | {shown} |"
        )
    return lines


def _ordinary(name: str, compiled: bool) -> Callable[[], None]:
    case = CASES[name]
    model, batch = build(case, OWN), make_batch(case, explicit_positions=False)
    for block in _blocks(model) if compiled else ():
        block.compile()

    def step() -> None:
        model.zero_grad()
        mean_loss(case, model, batch).backward()

    return step


def _clipped(name: str) -> Callable[[], None]:
    case = CASES[name]
    model, batch = build(case, OWN), make_batch(case, explicit_positions=False)
    clipper = PerExampleClipper(model, clip_norm=1.0)

    def step() -> None:
        model.zero_grad()
        with clipper:
            row_losses(case, model, batch, cross_entropy).sum().backward()

    return step


def _blocks(model: nn.Module) -> nn.ModuleList:
    return max((part for part in model.modules() if isinstance(part, nn.ModuleList)), key=len)


def _seconds(step: Callable[[], None]) -> float:
    begun = time.perf_counter()
    step()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
