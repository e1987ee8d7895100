"""BERT-base at logical batch 131,072 on eight GPUs, on paper: what is measured here, and what is taken from a data sheet.

Run ``python benchmarks/cards.py [--page docs/scale.md]``. On one core of this machine it measures a DP micro-batch of BERT-base (its
floating point operations by torch's own counter, and those of ordinary training), how fast targets of units are made, the Poisson
draw of a step over 83 million units, and the noise of a step. A card's own rate is not measured: it is the peak of a data sheet times
a share that trainings reach. So the result says which part is the largest, and its order of magnitude.
"""

from __future__ import annotations

import argparse
import math
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

from tacit.config import ComputeOptions, ModelOptions
from tacit.engine.sampler import poisson_sample
from tacit.models.kinds import build_model
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.masking import Masking
from tacit.training.objectives import MaskedObjective
from tacit.training.plain_step import PlainStep
from tacit.training.plans import DpPlan, PlainPlan
from tacit.training.sequences import SequenceStream
from tacit.training.steps import Step
from tacit.training.unit_rows import Source, unit_targets
from tacit.vocabulary.special import SpecialTokens

UNITS, BATCH, STEPS, CARDS = 83_000_000, 131_072, 10_000, 8
VOCABULARY, LENGTH, ROWS = 30_522, 128, 16
SHAPE = ModelOptions(kind="bert", layers=12, width=768, heads=12, intermediate=3072, length=LENGTH, dropout=0.0)
SPECIAL = SpecialTokens(pad=0, unknown=1, start=2, end=3, mask=4, ids=(0, 1, 2, 3, 4), size=VOCABULARY)
STREAMS = KeyedRandomness(bytes(range(32)))
PEAK, SHARES = 989e12, (0.2, 0.4)
"""Of an H100 SXM in bfloat16 without sparsity, by its data sheet, in operations a second; and what trainings reach of it."""
LINK, HOURLY = 450e9, 3.0
"""NVLink into a card, bytes a second, by the data sheet; dollars a card and hour, as clouds ask."""
STATE = 4 + 4 + 8 + 8  # bytes a parameter: weight, gradient, its sum in float64, two moments
BEGIN, END = "<!-- cards -->", "<!-- end of cards -->"


@dataclass(frozen=True)
class Measured:
    """Of one core of this machine."""

    parameters: int
    operations: float  # of a row with DP
    ordinary: float  # of a row without
    row_seconds: float
    targets_seconds: float  # of a row
    draw_seconds: float
    noise_seconds: float


def _source() -> Source:
    ids_ST = np.random.default_rng(0).integers(5, VOCABULARY, (4 * ROWS, LENGTH)).astype(np.int32)
    ids_ST[:, 0], ids_ST[:, -1] = 2, 3
    units = tuple(f"unit {number}" for number in range(len(ids_ST)))
    stream = SequenceStream(ids_ST, np.full(len(ids_ST), LENGTH), np.arange(len(ids_ST) + 1), units)
    return Source(stream, MaskedObjective(Masking(0.15, 4, SPECIAL.ids, VOCABULARY)), STREAMS)


def _seconds_and_operations(step: Step, model: PreTrainedModel) -> tuple[float, float]:
    """Of one row in a micro-batch, after one that warms up."""
    rows = np.arange(ROWS)
    step.draw(0)
    step.add(rows, rows, 0)
    with FlopCounterMode(display=False) as counter:
        step.add(rows, rows, 0)
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        step.add(rows, rows, 0)
        times.append(time.perf_counter() - begun)
    model.zero_grad(set_to_none=True)
    return min(times) / ROWS, counter.get_total_flops() / ROWS


def measure() -> Measured:
    """About two minutes."""
    torch.set_num_threads(1)
    source, compute = _source(), ComputeOptions(micro_batch=ROWS, threads=1)
    model = build_model(SHAPE, SPECIAL, 0, None).train()
    plan = DpPlan(sampling_probability=1.0, clip_norm=1.0, noise_multiplier=1.0, normaliser=float(ROWS))
    _, ordinary = _seconds_and_operations(PlainStep(model, PlainPlan(ROWS), compute, source), model)
    step = DpStep(model, plan, compute, source)
    seconds, operations = _seconds_and_operations(step, model)
    step.add(np.arange(ROWS), np.arange(ROWS), 0)
    begun = time.perf_counter()
    step.finish(0)
    noise = time.perf_counter() - begun
    step.close()
    begun = time.perf_counter()
    poisson_sample(UNITS, BATCH / UNITS, STREAMS.generator("sampling", 0))
    draw = time.perf_counter() - begun
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Measured(parameters, operations, ordinary, seconds, _targets(source, plan), draw, noise)


def _targets(source: Source, plan: DpPlan) -> float:
    units, real, begun = np.arange(ROWS), np.ones(ROWS, dtype=bool), time.perf_counter()
    for step in range(50):
        unit_targets(units, real, plan, source, step, LENGTH)
    return (time.perf_counter() - begun) / (50 * ROWS)


def worked_plan(of: Measured) -> str:
    """Markdown."""
    a_card = math.ceil(BATCH / CARDS)
    network = 2 * (CARDS - 1) / CARDS * 4 * of.parameters / LINK
    rows = [
        ("Poisson draw over all units, at every process", "measured", of.draw_seconds),
        (f"targets of {a_card:,} rows, one core a process", "measured", of.targets_seconds * a_card),
        *(
            (
                f"forward and backward, at {share:.0%} of a card's peak",
                "data sheet",
                of.operations * a_card / PEAK / share,
            )
            for share in SHARES
        ),
        ("sum over the cards", "data sheet", network),
    ]
    fixed = of.draw_seconds + of.targets_seconds * a_card + network
    hours = [(fixed + of.operations * a_card / PEAK / share) * STEPS / 3600 for share in reversed(SHARES)]
    cost = [hour * CARDS * HOURLY for hour in hours]
    on_core, on_card = (
        of.draw_seconds + of.targets_seconds * a_card,
        [of.operations * a_card / PEAK / share for share in SHARES],
    )
    size, training = of.parameters / 1e6, of.operations / of.ordinary
    return "\n".join(
        [
            f"BERT-base ({size:.0f} million parameters) at logical batch {BATCH:,} of {UNITS / 1e6:.0f} million units, rows of "
            f"{LENGTH} positions, on {CARDS} cards of {PEAK / 1e12:,.0f} teraflops (bfloat16) and {LINK / 1e9:.0f} GB/s. A row with "
            f"DP takes {of.operations / 1e9:.0f} billion operations, {training:.2f} times those of ordinary training (counted by "
            f"torch), and {of.row_seconds:.2f} s of one core here.",
            "",
            "| a step's | number from | seconds |",
            "|---|---|--:|",
            *(f"| {what} | {source} | {seconds:,.2f} |" for what, source, seconds in rows),
            "",
            f"What breaks first is the one core of a process: draw and targets take {on_core:,.1f} s beside {on_card[1]:,.1f} to "
            f"{on_card[0]:,.1f} s of its card. "
            f"{STEPS:,} steps take {hours[0]:,.0f} to {hours[1]:,.0f} hours and {cost[0]:,.0f} to {cost[1]:,.0f} dollars at "
            f"{HOURLY:g} a card and hour, if each part waits for the one before. Weights, sums and moments are "
            f"{of.parameters * STATE / 1e9:.1f} GB a card, so `compute.shard` is not needed. The noise of a step, "
            f"{of.noise_seconds:.2f} s on one core here, is drawn on the cards, a share at each. No card was measured.",
        ]
    )


def main() -> None:
    """Print it, or put it into a page between its marks."""
    parser = argparse.ArgumentParser(description="BERT-base at logical batch 131,072 on eight GPUs, on paper.")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    text = worked_plan(measure())
    print(text)
    if options.page:
        before, _, rest = options.page.read_text(encoding="utf-8").partition(BEGIN)
        _, _, after = rest.partition(END)
        options.page.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
