"""How long a private step takes a unit of a causal model, with units of a micro-batch together and one at a time.

    python benchmarks/together.py [--device cuda] [--length 256] [--layers 12 --width 768 --vocabulary 50257] [--units 256]

Made-up texts of up to the length in a GPT-2 with random weights; one draw of all units through `tacit.training.dp_step.DpStep`,
three times, the units one at a time being an eighth of them. The trial before a phase is timed apart.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from tacit.config import ComputeOptions, ModelOptions
from tacit.models.kinds import build_model
from tacit.randomness import KeyedRandomness
from tacit.training.device import processor, set_up_torch
from tacit.training.dp_step import DpStep
from tacit.training.objectives import CausalObjective
from tacit.training.plans import DpPlan
from tacit.training.sequences import SequenceStream
from tacit.training.unit_rows import Source
from tacit.vocabulary.special import SpecialTokens

SPECIAL = 5


def texts(units: int, length: int, vocabulary: int) -> SequenceStream:
    """Rows of random tokens, one a unit."""
    generator = np.random.default_rng(1)
    lengths_S = generator.integers(3, length + 1, units).astype(np.int32)
    ids_ST = generator.integers(SPECIAL, vocabulary, (units, length)).astype(np.int32)
    ids_ST[np.arange(length) >= lengths_S[:, None]] = 0
    return SequenceStream(ids_ST, lengths_S, np.arange(units + 1), tuple(str(unit) for unit in range(units)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--precisions", nargs="+", default=["float32", "bf16"])
    for name, value in (("length", 256), ("layers", 12), ("width", 768), ("heads", 12), ("vocabulary", 50257)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--threads", type=int, help="of torch; as many as there are cores when not given")
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument("--micro-batch", type=int, default=32)
    options = parser.parse_args()
    device = set_up_torch(ComputeOptions(device=options.device, threads=options.threads))
    special = SpecialTokens(0, 2, 3, 4, 1, tuple(range(SPECIAL)), options.vocabulary)
    shape = {name: getattr(options, name) for name in ("layers", "width", "heads", "length")}
    model = build_model(ModelOptions.model_validate({"kind": "gpt2", **shape}), special, 1).to(device)

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    print(processor(device))
    for precision in options.precisions:
        for micro_batch in (options.micro_batch, 1):
            units = options.units if micro_batch > 1 else max(1, options.units // 8)
            source = Source(
                texts(units, options.length, options.vocabulary), CausalObjective(), KeyedRandomness(bytes(32))
            )
            compute = ComputeOptions(
                device=options.device, micro_batch=micro_batch, precision=precision, threads=options.threads
            )
            began = now()
            step = DpStep(model, DpPlan(1.0, 0.1, 1.0, float(units)), compute, source)
            tried, each = now() - began, []
            for number in range(3):
                began = now()
                for _ in step.add_up(number, step.draw(number), 0):
                    pass
                each.append((now() - began) / units)
                model.zero_grad()
            step.close()
            times = ", ".join(f"{1e3 * seconds:.1f}" for seconds in each)
            print(f"{precision:8} micro-batches of {micro_batch:3}: {times} ms a unit; trial {tried:.1f} s", flush=True)


if __name__ == "__main__":
    main()
