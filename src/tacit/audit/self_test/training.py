"""The trainings of the self-test: the steps of a real run (`tacit.training.dp_step.DpStep`), or broken ones, seen from inside.

The attacker sees every noisy sum, as differential privacy allows (Nasr et al. 2023, arXiv 2302.07956).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import torch
from torch import Tensor

from tacit.audit.self_test.model import NextWord, WordTable
from tacit.config import ComputeOptions
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan
from tacit.training.sequences import SequenceStream
from tacit.training.unit_rows import Source

__all__ = ["Trainings", "noisy_sums"]

_MICRO_BATCH = 32
_LEARNING_RATE = 0.01


class Trainings:
    """Trainings on one corpus, one after the other, each from the weights that the model has at the beginning.

    Their steps are made once, since before the first one a model is tried (`DpStep`), which takes several steps' time. The steps of a
    training have the numbers that follow on those of the one before, so that nothing is drawn twice.

    Args:
        made_by: makes the steps: `DpStep`, or a broken one.
        plan: what it pretends to do.
    """

    def __init__(
        self, made_by: type[DpStep], model: WordTable, stream: SequenceStream, plan: DpPlan, streams: KeyedRandomness
    ) -> None:
        self._model = model
        self._plan = plan
        self._begun_VD = model.table.weight.detach().clone()
        self._next = 0
        source = Source(stream, NextWord(), streams)
        self._step_of = made_by(model, plan, ComputeOptions(micro_batch=_MICRO_BATCH), source)

    def sums(self, steps: int) -> Iterator[Tensor]:
        """The noisy sum of each step of the next training, of the table's shape; the model goes on before the next one."""
        table, step_of = self._model.table.weight, self._step_of
        with torch.no_grad():
            table.copy_(self._begun_VD)
        optimizer = torch.optim.SGD(self._model.parameters(), lr=_LEARNING_RATE)
        numbers = range(self._next, self._next + steps)
        self._next = numbers.stop
        for step in numbers:
            optimizer.zero_grad(set_to_none=True)
            for _ in step_of.add_up(step, step_of.draw(step), 0):
                pass
            step_of.finish(step)
            yield torch.zeros_like(table) if table.grad is None else table.grad * self._plan.normaliser
            optimizer.step()

    def close(self) -> None:
        """Leave the model as it is."""
        self._step_of.close()


def noisy_sums(
    made_by: type[DpStep],
    model: WordTable,
    stream: SequenceStream,
    plan: DpPlan,
    steps: int,
    streams: KeyedRandomness,
) -> Iterator[Tensor]:
    """The noisy sums of one training alone (`Trainings`)."""
    with closing(Trainings(made_by, model, stream, plan, streams)) as trainings:
        yield from trainings.sums(steps)
