"""At which size everything is: the private corpora, the shared public beginnings, what a model is, and the scales.

Every number that a plan needs (units, steps, noise) is a constant here or solved from constants: none is read from the private text
at run time.

A model's name is that of its row, ``dialogues-general-dp-8``, and where it is a second training of the same row, with other random
numbers in all of it from the first public step on, ``@2`` behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = [
    "DELTA",
    "EPSILONS",
    "FAMILIES",
    "LABELLED",
    "MAIN",
    "SCALES",
    "SLOTS",
    "TESTED",
    "UNITS",
    "Base",
    "DpTraining",
    "Family",
    "Lexicon",
    "Model",
    "PlainTraining",
    "Private",
    "Scale",
    "TaskSize",
    "Trunk",
    "again",
    "row_of",
]

Private = Literal["notes", "dialogues"]
"""Which private corpus: clinical notes (MTSamples), or dialogues with assistants (SGD)."""

UNITS: dict[Private, int] = {"notes": 2200, "dialogues": 10_000}
"""Of each private corpus, as a public statement: about 2,200 notes, about 10,000 dialogues."""
DELTA = 1e-5
EPSILONS = (8.0, 3.0, 1.1)
"""Of the models with DP; the last one is the paper's strongest guarantee, as it states it."""

LABELLED = TESTED = 1000
"""Dialogues that are kept apart for taggers to be trained on, and for all models to be tested on."""

SLOTS = (
    *(
        "city",
        "date",
        "event_name",
        "time",
        "movie_name",
        "destination",
        "title",
        "restaurant_name",
        "appointment_time",
    ),
    *("pickup_date", "check_in_date", "departure_date", "hotel_name", "song_name", "venue", "appointment_date"),
    *("phone_number", "genre", "price", "outbound_departure_time"),
)
"""What is looked for in dialogues: the 20 slots that their published schema's training part fills most often."""


@dataclass(frozen=True)
class Trunk:
    """A model of the general public text, with its vocabulary, which the bases go on from.

    Args:
        replicate: another one is the same with other random numbers.
    """

    replicate: int = 1

    @property
    def name(self) -> str:
        """Of its folder."""
        return f"trunk{again(self.replicate)}"


@dataclass(frozen=True)
class Base:
    """A model from public text, which several models begin with: a trunk that is trained on with a vocabulary and text of its own.

    Args:
        vocabulary: ``general``: words of the general public text; ``likelihood``: the same with the other rule of WordPiece;
            ``public``: of all public text; ``own``: of the private text, without DP; ``dp``: of all public text, or of the general
            one where ``text`` is that, and what a DP release of the private text's words adds.
        text: that it is trained on with: ``general`` (novels, Wikipedia) or ``medical`` (answers to questions about health,
            abstracts, and notes and dialogues of played consultations).
        private: whose words are in the vocabulary: of ``own`` and ``dp``.
        epsilon: of the budget that a DP vocabulary takes its share of: that of the models which begin with it.
        replicate: another one is the same with other random numbers, the vocabulary's noise too.
    """

    vocabulary: Literal["general", "likelihood", "public", "dp", "own"]
    text: Literal["general", "medical"]
    private: Private | None = None
    epsilon: float | None = None
    replicate: int = 1

    @property
    def name(self) -> str:
        """Of its folder."""
        words = "" if self.private is None else f"-{self.private}"
        priced = "" if self.epsilon is None else f"-{self.epsilon:g}"
        return f"{self.vocabulary}{words}{priced}-{self.text}{again(self.replicate)}"

    @property
    def trunk(self) -> Trunk:
        """What it goes on from: one for all bases of a replicate."""
        return Trunk(self.replicate)


def again(replicate: int) -> str:
    """What stands behind a name."""
    return "" if replicate == 1 else f"@{replicate}"


def row_of(name: str) -> str:
    """Of a model's name, without the replicate.

    >>> row_of("dialogues-general-bert@2")
    'dialogues-general-bert'
    """
    return name.split("@")[0]


@dataclass(frozen=True)
class PlainTraining:
    """Ordinary training on the private text: no guarantee."""

    steps: int
    batch: int
    learning_rate: float


@dataclass(frozen=True)
class DpTraining:
    """DP training on the private text.

    Args:
        steps: of all phases together.
        epsilon: that the noise is solved for, with the vocabulary's price; None: ``noise_factor`` says the noise.
        noise_factor: times the noise multiplier of the corpus's own DP training; where ``epsilon`` is given it has no effect.
        schedule: noise of each of as many phases of equal length, relative to one multiplier; one phase is constant noise.
        masked: share of the pieces that are masked; the measured loss has 15 % of them.
        maskings, average, keep: as in a phase.
        adapter: LoRA of this rank is trained, and nothing else.
        on: ``private``, or ``stand-in``: public text in the private text's place, for choices that may read public text alone.
    """

    steps: int
    expected_batch: int
    sequences: int
    learning_rate: float
    clip_norm: float = 0.5
    epsilon: float | None = 8.0
    noise_factor: float = 1.0
    maskings: int = 1
    masked: float = 0.15
    average: float | None = 0.9
    keep: float | None = None
    schedule: tuple[float, ...] = (1.0,)
    adapter: int | None = None
    on: Literal["private", "stand-in"] = "private"


@dataclass(frozen=True)
class Family:
    """Models of one private corpus, one vocabulary and the same public text: their masked losses compare.

    Args:
        words: what they share, for the tables.
        base: what they begin with.
        plain: whether one is trained without DP.
        epsilons: of those with DP.
        bert: whether the base itself is a row: it is not where its vocabulary comes from the private text without DP.
    """

    private: Private
    words: str
    base: Base
    plain: bool = True
    epsilons: tuple[float, ...] = ()
    bert: bool = True


FAMILIES: dict[str, Family] = {
    "dialogues-general": Family("dialogues", "public vocabulary", Base("general", "general"), epsilons=EPSILONS),
    "dialogues-dp": Family(
        "dialogues", "DP vocabulary", Base("dp", "general", "dialogues", EPSILONS[0]), epsilons=EPSILONS[:1]
    ),
    "dialogues-own": Family("dialogues", "own vocabulary, without DP", Base("own", "general", "dialogues"), bert=False),
    "dialogues-likelihood": Family(
        "dialogues", "public vocabulary, WordPiece by likelihood", Base("likelihood", "general"), plain=False
    ),
    "notes-public": Family("notes", "public vocabulary", Base("public", "medical"), epsilons=EPSILONS),
    "notes-dp": Family("notes", "DP vocabulary", Base("dp", "medical", "notes", EPSILONS[0]), epsilons=EPSILONS[:1]),
    "notes-own": Family("notes", "own vocabulary, without DP", Base("own", "medical", "notes"), bert=False),
    "notes-general": Family(
        "notes", "public vocabulary, no medical public text", Base("general", "general"), epsilons=EPSILONS[:1]
    ),
}
"""By name: that of their rows, before ``bert`` (public text alone), ``bert-m`` (without DP) and ``dp-8`` (epsilon)."""

MAIN: dict[Private, str] = {"dialogues": "dialogues-general", "notes": "notes-public"}
"""The family in which everything but the private training is the same for all models."""


@dataclass(frozen=True)
class Model:
    """One row of a table or point of a figure.

    Args:
        name: unique.
        part: where it is shown: ``table2``, ``figure1``, ``figure2`` or ``tricks``.
        words: what it is, for the tables.
        private: the corpus that it is trained on, or a stand-in of which stands in its place.
        base: what it begins with.
        training: on the private text; None: it saw public text alone.
        canaries: probability that a sequence of the private text gets a canary; None: there are none.
        tasks: that it is fine-tuned on.
    """

    name: str
    part: Literal["table2", "figure1", "figure2", "tricks"]
    words: str
    private: Private
    base: Base
    training: PlainTraining | DpTraining | None = None
    canaries: float | None = None
    tasks: tuple[str, ...] = ()

    @property
    def replicate(self) -> int:
        """Which training of its row it is."""
        return self.base.replicate


@dataclass(frozen=True)
class Lexicon:
    """A DP vocabulary as large as its budget makes it, from private words alone: nothing is trained with it."""

    private: Private
    epsilon: float

    @property
    def name(self) -> str:
        """Of its result."""
        return f"lexicon-{self.private}-{self.epsilon:g}"


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
