"""The price of exact per-example clipping: time and memory of a training step against an ordinary one and other libraries.

    python benchmarks/engine.py [--cases bert gpt2] [--methods ordinary tacit] [--rounds 15] [--check]
                                [--json FILE] [--markdown [FILE]] [--device cuda] [--load FILE ...]

A step is forward, backward and AdamW. The ordinary step is transformers' own: mean loss, full logits, every parameter.
``engine_parts/cases.py`` has the models, ``engine_parts/methods.py`` the ways to make the step.

Time. Every method of a case has a process of its own, as it has at a user's, and one of them runs at a time. A round runs every
method once, and each round begins with another one; a ratio is the median over the rounds of (method / reference) within the
round, so that other work on the machine meets both.

Memory. Each method runs three steps in a fresh process. The kernel's high-water mark of resident memory (VmHWM) at the
end, less what was resident after the imports, is its peak: parameters, optimizer states, gradients and activations, which
is what decides whether a model fits. The bars judge the ratio of these. Less the interpreter and its libraries, because
their few hundred MiB would pull every ratio of a small model towards 1. "whole peak" is the ratio with them;
"above states" the ratio of what lies above parameters and optimizer states, the strictest. On a GPU the peak is
torch.cuda.max_memory_allocated.

Error. The gradient that the first step gave to the optimizer, against a loop over single rows by autograd: it shows that
a method clips what it should.

Logical batches. Noise is added once a logical batch, so it is in no step above. The last table runs whole logical
batches, noise and optimizer included; the largest runs its first micro-batches only and is extrapolated.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack
from dataclasses import replace
from importlib.metadata import version
from multiprocessing import get_context
from pathlib import Path
from typing import ParamSpec, TypeVar

import torch
from engine_parts.cases import CASES, build, make_batch, row_losses
from engine_parts.methods import (
    CLIP_NORM,
    METHODS,
    Step,
    clipping_error,
    loop_gradient,
    reference_of,
    set_up,
    variant_of,
)
from engine_parts.table import (
    LogicalRow,
    Memory,
    Results,
    Row,
    case_table,
    failed_bars,
    logical_table,
    markdown,
    merge,
    read_and_replace,
)
from torch import Tensor

from tacit.engine import PerExampleClipper, add_noise_
from tacit.engine.noise import on_grid
from tacit.errors import RefusedError
from tacit.randomness import KeyedRandomness

P, R = ParamSpec("P"), TypeVar("R")
MIB = 2**20
MEMORY_STEPS = 3
LOGICAL_CASE = "bert"
LOGICAL_UNITS = (64, 1024, 131_072)
LOGICAL_MOST_MICRO_BATCHES = 64  # 1,024 units in micro-batches of 16; beyond, extrapolated
LOGICAL_REPEATS = 2


def measure_case(case: str, methods: Sequence[str], rounds: int) -> list[Row]:
    """The case's rows: times in rounds, then each method's memory and error in fresh processes."""
    rows = measure_times(case, methods, rounds)
    return [row if row.failure else with_memory_and_error(row) for row in rows]


def with_memory_and_error(row: Row) -> Row:
    error = in_fresh_process(error_of, row.case, row.method) if METHODS[row.method].clips else None
    return replace(row, memory=memory_or_none(row.case, row.method), error=error)


def in_fresh_process(function: Callable[P, R], *arguments: P.args, **named: P.kwargs) -> R:
    """What the function returns in a new interpreter, which ends and gives all its memory back."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()


def memory_or_none(case: str, method: str) -> Memory | None:
    try:
        return in_fresh_process(memory_of, case, method)
    except BrokenProcessPool:  # the kernel ended it, for want of memory
        return None


def measure_times(case: str, methods: Sequence[str], rounds: int) -> list[Row]:
    """Run every method once a round, and never two at the same time, each in a process that it has for itself.

    In one process the memory that one method's allocations leave behind would decide how often another one's meet the kernel:
    after vmap's, nothing of a step is fresh, and everything of it costs another time than in a user's own process.
    """
    with ExitStack() as stack:
        started, failures = {}, {}
        for method in methods:
            process = stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
            failure = failure_of(process, case, method)
            if failure is None:
                started[method] = process
            else:
                failures[method] = failure
        times: dict[str, list[float]] = {method: [] for method in started}
        for turn in range(rounds):
            for method in rotated(list(started), turn):
                times[method].append(started[method].submit(take_turn).result())
    return [
        Row(case, method, reference_of(CASES[case], method), failure=failures[method])
        if method in failures
        else timed_row(case, method, times)
        for method in methods
    ]


def failure_of(process: ProcessPoolExecutor, case: str, method: str) -> str | None:
    """Why a method does not run; None when it is set up in its process."""
    try:
        return process.submit(begin, case, method).result()
    except BrokenProcessPool:
        return "fails: ended by the kernel, for want of memory"


_own_step: list[Callable[[], float]] = []
"""In a method's process: its turn."""


def begin(case: str, method: str) -> str | None:
    """Set the method up and run it twice; why that fails, or None."""
    warnings.simplefilter("ignore")  # of the libraries that are timed
    try:
        step = set_up(CASES[case], method)
        for _ in range(2):
            step.run()
            forget_gradients(step)
    except Exception as error:  # whatever a library raises is this row's result, not the end of the run
        return reason(error)

    def turn() -> float:
        seconds = seconds_of(step.run, CASES[case].device)
        forget_gradients(step)
        return seconds

    _own_step.append(turn)
    return None


def take_turn() -> float:
    """Seconds of one step of this process's method."""
    return _own_step[0]()


def error_of(case: str, method: str) -> float:
    """The clipping error of a method's first step."""
    warnings.simplefilter("ignore")
    step = set_up(CASES[case], method)
    step.run()
    return clipping_error(step, loop_gradient(CASES[case], variant_of(CASES[case], method)))


def reason(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [""]
    if isinstance(error, RefusedError):
        return f"refused: {lines[0]}"
    return f"fails: {type(error).__name__}: {lines[0][:200]}"


def rotated(names: list[str], turn: int) -> list[str]:
    """The names from another one on each turn: rotated(["a", "b", "c"], 1) == ["b", "c", "a"]."""
    start = turn % len(names) if names else 0
    return names[start:] + names[:start]


def seconds_of(step: Callable[[], None], device: str) -> float:
    gc.collect()
    synchronise(device)
    start = time.perf_counter()
    step()
    synchronise(device)
    return time.perf_counter() - start


def forget_gradients(step: Step) -> None:
    """Between the turns of a method, so that its rows' gradients do not fill the memory that the others need."""
    step.optimizer.zero_grad(set_to_none=True)


def synchronise(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def timed_row(case: str, method: str, times: dict[str, list[float]]) -> Row:
    """The row's ratios are within rounds; without its reference's times it has none."""
    reference = reference_of(CASES[case], method)
    ratios = [one / other for one, other in zip(times[method], times.get(reference, []), strict=False)]
    quartiles = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else None
    return Row(
        case,
        method,
        reference,
        milliseconds=1000 * statistics.median(times[method]),
        ratio=statistics.median(ratios) if ratios else None,
        quartiles=(quartiles[0], quartiles[2]) if quartiles else None,
    )


def memory_of(case: str, method: str) -> Memory:
    """Of this process, which must do nothing else."""
    warnings.simplefilter("ignore")  # of the libraries that are measured
    on_gpu = CASES[case].device == "cuda"
    imports = 0.0 if on_gpu else status_mib("VmRSS")
    step = set_up(CASES[case], method)
    for _ in range(MEMORY_STEPS):
        step.run()
    peak = torch.cuda.max_memory_allocated() / MIB if on_gpu else status_mib("VmHWM")
    return Memory(imports, states_mib(step), peak)


def states_mib(step: Step) -> float:
    """Parameters, frozen ones too, and the optimizer's tensors, each counted once."""
    states = [tensor for state in step.optimizer.state.values() for tensor in state.values()]
    tensors = [*step.model.parameters(), *(tensor for tensor in states if isinstance(tensor, Tensor))]
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors) / MIB


def status_mib(field: str) -> float:
    """A field of /proc/self/status, which is in KiB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:")) / 1024


def forget_peak() -> None:
    """Set VmHWM back to what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")


def measure_logical(case_name: str) -> list[LogicalRow]:
    """Whole logical batches in turn, twice; medians."""
    case = CASES[case_name]
    model, batch = build(case, "own"), make_batch(case, explicit_positions=False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    clipper = PerExampleClipper(model, CLIP_NORM)
    streams = KeyedRandomness(bytes(32))
    stddev, grid = on_grid(1.0, CLIP_NORM, sum(parameter.numel() for parameter in model.parameters()))

    def micro_batches(count: int) -> None:
        for _ in range(count):
            with clipper:
                row_losses(case, model, batch).sum().backward()

    def noise() -> None:
        add_noise_(model.named_parameters(), stddev, streams, 0, grid)

    def divide_and_step() -> None:
        for parameter in model.parameters():
            parameter.grad.div_(case.shape.batch)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    found: dict[int, list[tuple[float, float, float, float]]] = {units: [] for units in LOGICAL_UNITS}
    micro_batches(1)
    noise()
    divide_and_step()
    for _ in range(LOGICAL_REPEATS):
        for units in LOGICAL_UNITS:
            forget_peak()
            run = min(units // case.shape.batch, LOGICAL_MOST_MICRO_BATCHES)
            parts = [seconds_of(part, "cpu") for part in (lambda n=run: micro_batches(n), noise, divide_and_step)]
            found[units].append((*parts, status_mib("VmHWM")))
    clipper.close()
    return [logical_row(case_name, units, case.shape.batch, values) for units, values in found.items()]


def logical_row(case: str, units: int, micro_batch: int, values: list[tuple[float, float, float, float]]) -> LogicalRow:
    """From (micro-batches, noise, optimizer) in seconds and the peak in MiB; linear in the micro-batches that did not run."""
    count = units // micro_batch
    run = min(count, LOGICAL_MOST_MICRO_BATCHES)
    clipping, noise, optimizer = (statistics.median(v[i] for v in values) for i in range(3))
    total = clipping * count / run + noise + optimizer
    peak = max(v[3] for v in values)
    return LogicalRow(case, units, count, run, 1000 * total / units, 1000 * noise, noise / total, peak)


def machine(device: str) -> str:
    """Cores, threads, card and versions; no name of the machine."""
    card = f"{torch.cuda.get_device_name()}; " if device == "cuda" else ""
    libraries = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "opacus", "peft"))
    cores = len(os.sched_getaffinity(0))
    return f"{card}{cores} cores, {torch.get_num_threads()} threads, float32 unless said; {libraries}"


def with_references(case: str, methods: Sequence[str]) -> list[str]:
    """The case's methods that are wanted, and what they are divided by, in the case's order."""
    wanted = set(methods) & set(CASES[case].methods)
    wanted |= {reference_of(CASES[case], method) for method in wanted}
    return [method for method in CASES[case].methods if method in wanted]


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=sorted(CASES), metavar="CASE", help=" ".join(CASES))
    parser.add_argument("--methods", nargs="+", choices=sorted(METHODS), metavar="METHOD", help=" ".join(METHODS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="cuda adds the cases for a GPU")
    parser.add_argument("--no-logical", action="store_true", help="leave out the table of logical batches")
    parser.add_argument("--check", action="store_true", help="exit 1 when a bar is missed")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the results")
    parser.add_argument("--load", type=Path, nargs="+", metavar="FILE", help="show saved results, measure nothing")
    parser.add_argument(
        "--markdown",
        nargs="?",
        const="-",
        metavar="FILE",
        help="print the page's block, or put it between FILE's markers",
    )
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> Results:
    """What the options ask for; each case is printed as soon as it is there."""
    gpu = options.device == "cuda" and torch.cuda.is_available()
    if options.device == "cuda" and not gpu:
        print("no GPU here: the cases for one are left out\n")
    cases = options.cases or [name for name, case in CASES.items() if case.device == "cpu" or options.device == "cuda"]
    rows: list[Row] = []
    print(f"{machine('cuda' if gpu else 'cpu')}; {options.rounds} rounds\n", flush=True)
    for case in cases:
        if CASES[case].device == "cpu" or gpu:
            found = measure_case(case, with_references(case, options.methods or list(METHODS)), options.rounds)
            print(case_table(case, found), end="\n\n", flush=True)
            rows += found
    logical = [] if options.no_logical or LOGICAL_CASE not in cases else in_fresh_process(measure_logical, LOGICAL_CASE)
    if logical:
        print(logical_table(logical), flush=True)
    return Results(f"{machine('cuda' if gpu else 'cpu')}; {options.rounds} rounds", tuple(rows), tuple(logical))


def show_loaded(paths: Sequence[Path]) -> Results:
    results = merge([Results.from_json(json.loads(path.read_text())) for path in paths])
    print(markdown(results, "saved results"))
    return results


def main() -> int:
    options = parse()
    results = show_loaded(options.load) if options.load else measure(options)
    if options.json:
        options.json.write_text(json.dumps(results.to_json(), indent=1) + "\n")
    block = markdown(results, "python benchmarks/engine.py")
    if options.markdown == "-":
        print(block)
    elif options.markdown:
        read_and_replace(Path(options.markdown), block)
    failed = failed_bars(results)
    judged = sum(row.method in CASES[row.case].bars for row in results.rows)
    print("\n".join(["", f"{judged} methods have bars, {len(failed)} miss theirs", *failed]))
    return 1 if options.check and failed else 0


if __name__ == "__main__":
    sys.exit(main())
