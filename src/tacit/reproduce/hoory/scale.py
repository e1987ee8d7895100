"""At which size everything is: a scale, and the scales that there are.

Every number that a plan needs (units, steps, noise) is a constant here or solved from constants: none is read from the private text
at run time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tacit.reproduce.hoory.cells import FAMILIES, TESTED, DpTraining, PlainTraining, Private

__all__ = ["SCALES", "Scale", "TaskSize"]


@dataclass(frozen=True)
class TaskSize:
    """Fine-tuning on one task.

    Args:
        private: the models of which corpus are fine-tuned on it.
        folds: by document; 1: a split of its own into training and test.
        labelled: documents of the training part, at most, where there is one.
    """

    private: Private
    folds: int
    epochs: int
    learning_rate: float
    batch: int = 16
    labelled: int | None = None


@dataclass(frozen=True)
class Scale:
    """The size of the whole experiment.

    Args:
        novels, paragraphs: of the general public text, at most.
        answers: health answers, at most.
        shape: options of ``model`` in a run's configuration.
        vocabulary: pieces of each tokenizer.
        trunk_steps, base_steps: of public training, one after the other.
        public_batch, public_rate: of both.
        plain: ordinary training on each private corpus.
        dp: the DP training on each, of which the others are variations.
        tasks: by name.
        replicates: trainings of every row of a family, from the first public step on; a family that is not here is not run.
        patterns, canaries_each, rates_of_canaries: of figure 2.
        noise_factors, step_factors, batch_factors: of figure 1.
        curves: trainings of each of its points, other than the family's own.
        tested: dialogues of seen and of unseen services that models are tested on, each at most.
        tricks: whether the changes of the DP training are tried on the stand-in.
        lexicons: epsilons of vocabularies whose size is the budget's.
        seeds: fine-tunings of each model on each fold.
    """

    name: str
    novels: int
    paragraphs: int
    answers: int
    shape: Mapping[str, Any]
    vocabulary: int
    trunk_steps: int
    base_steps: int
    public_batch: int
    public_rate: float
    plain: Mapping[Private, PlainTraining]
    dp: Mapping[Private, DpTraining]
    tasks: Mapping[str, TaskSize]
    replicates: Mapping[str, int]
    canaries_each: int = 4
    patterns: tuple[str, ...] = ("HS", "HSH", "HHSHH")
    rates_of_canaries: tuple[float, ...] = (0.01, 0.1, 1.0)
    curves: int = 3
    tested: int = TESTED
    noise_factors: tuple[float, ...] = (2.0, 4.0)
    step_factors: tuple[float, ...] = (0.25, 0.5)
    batch_factors: tuple[float, ...] = (0.25, 0.5)
    tricks: bool = True
    lexicons: tuple[float, ...] = (1.0, 4.0)
    vocabulary_options: Mapping[str, Any] = field(default_factory=lambda: {"max_words": 256})
    seeds: int = 1
    device: str = "cpu"


_LAPTOP = Scale(
    name="laptop",
    novels=8,
    paragraphs=8000,
    answers=16_000,
    shape={"layers": 1, "width": 128, "heads": 2, "length": 64, "initializer": "scaled"},
    vocabulary=4096,
    trunk_steps=2000,
    base_steps=2000,
    public_batch=64,
    public_rate=2e-3,
    plain={
        "dialogues": PlainTraining(steps=1500, batch=64, learning_rate=3e-3),
        "notes": PlainTraining(steps=1500, batch=64, learning_rate=3e-3),
    },
    dp={
        "dialogues": DpTraining(steps=160, expected_batch=500, sequences=2, learning_rate=1.6e-2, masked=0.3),
        "notes": DpTraining(steps=40, expected_batch=400, sequences=4, learning_rate=1.6e-2, masked=0.3),
    },
    tasks={
        "dialogues-50": TaskSize("dialogues", folds=1, epochs=20, learning_rate=2e-3, batch=8, labelled=50),
        "dialogues-200": TaskSize("dialogues", folds=1, epochs=8, learning_rate=2e-3, batch=8, labelled=200),
        "dialogues-1000": TaskSize("dialogues", folds=1, epochs=4, learning_rate=2e-3, batch=16, labelled=1000),
        "mtsamples": TaskSize("notes", folds=5, epochs=4, learning_rate=2e-3, batch=8),
        "ncbi-disease": TaskSize("notes", folds=1, epochs=4, learning_rate=2e-3, batch=8),
    },
    replicates={"dialogues-general": 3, "notes-public": 3},
    rates_of_canaries=(1.0,),
    curves=0,
    tricks=False,
)

_NIGHT = replace(
    _LAPTOP,
    name="night",
    replicates={**dict.fromkeys(FAMILIES, 3), "dialogues-general": 5, "notes-public": 5},
    rates_of_canaries=(0.01, 0.1, 1.0),
    curves=3,
    tricks=True,
)

SCALES = {
    "laptop": _LAPTOP,
    "night": _NIGHT,
    "full": Scale(
        name="full",
        novels=99,
        paragraphs=1_000_000,
        answers=16_000,
        shape={"layers": 6, "width": 512, "heads": 8, "length": 128, "initializer": "scaled"},
        vocabulary=8192,
        trunk_steps=15_000,
        base_steps=5000,
        public_batch=256,
        public_rate=1e-3,
        plain={
            "dialogues": PlainTraining(steps=4000, batch=256, learning_rate=5e-4),
            "notes": PlainTraining(steps=4000, batch=256, learning_rate=5e-4),
        },
        dp={
            "dialogues": DpTraining(steps=200, expected_batch=5000, sequences=8, learning_rate=1e-3),
            "notes": DpTraining(steps=400, expected_batch=2200, sequences=16, learning_rate=1e-3, maskings=4),
        },
        tasks={
            name: replace(size, epochs=4 * size.epochs, learning_rate=2e-4, batch=16)
            for name, size in _LAPTOP.tasks.items()
        },
        replicates=dict.fromkeys(FAMILIES, 3),
        canaries_each=10,
        seeds=3,
        device="cuda",
    ),
}
"""By name. ``night`` has models of the size of ``laptop``: more trainings of each row, and all that has no power with few of them.

The paper has BERT-large, 83 million examples, batches of 131,072 and a million steps.
"""
