"""One training of the self-test: the steps of a real run (`tacit.training.steps.DpStep`), or broken ones, seen from inside.

The attacker sees every noisy sum, as differential privacy allows (Nasr et al. 2023, arXiv 2302.07956).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from tacit.audit.self_test.model import NextWord, WordTable
from tacit.config import ComputeOptions
from tacit.randomness import KeyedRandomness
from tacit.training.plans import DpPlan
from tacit.training.sequences import SequenceStream
from tacit.training.steps import DpStep
from tacit.training.unit_rows import Source

__all__ = ["noisy_sums"]

_MICRO_BATCH = 32
_LEARNING_RATE = 0.01


def noisy_sums(
    made_by: type[DpStep],
    model: WordTable,
    stream: SequenceStream,
    plan: DpPlan,
    steps: int,
    streams: KeyedRandomness,
) -> Iterator[Tensor]:
    """The noisy sum of each step, of the table's shape; the model goes on before the next one.

    Args:
        made_by: makes the steps: `DpStep`, or a broken one.
        plan: what it pretends to do.
    """
    optimizer = torch.optim.SGD(model.parameters(), lr=_LEARNING_RATE)
    step_of = made_by(model, plan, ComputeOptions(micro_batch=_MICRO_BATCH), Source(stream, NextWord(), streams))
    try:
        for step in range(steps):
            optimizer.zero_grad(set_to_none=True)
            for _ in step_of.add_up(step, step_of.draw(step), 0):
                pass
            step_of.finish(step)
            gradient_VD = model.table.weight.grad
            yield torch.zeros_like(model.table.weight) if gradient_VD is None else gradient_VD * plan.normaliser
            optimizer.step()
    finally:
        step_of.close()
