"""What is trained, at which size: the corpora, the shared public beginnings, and every model that table and figures need.

Every number that a plan needs (units, steps, noise) is a constant here or solved from constants: none is read from the private
text at run time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

__all__ = [
    "BASES",
    "DELTA",
    "GENERAL",
    "OWN",
    "PRIVATE",
    "PUBLIC",
    "SCALES",
    "STRONG",
    "UNITS",
    "Base",
    "DpTraining",
    "Model",
    "PlainTraining",
    "Scale",
    "TaskSize",
    "Trunk",
    "models_of",
]

UNITS = 2200
"""Of the private corpus, as a public statement: about 2,200 notes."""
DELTA = 1e-5
_REPEATED = ("bert", "bert-medical", "bert-dp-vocabulary", "bert-m", "bert-dp-8", "bert-dp-3")

Vocabulary = Literal["general", "public", "dp", "own"]


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
        return f"trunk{_again(self.replicate)}"


@dataclass(frozen=True)
class Base:
    """A model from public text, which several models begin with: a trunk that is trained on with a vocabulary and text of its own.

    Args:
        vocabulary: ``general``: words of the general public text; ``public``: of all public text; ``own``: of the notes, without DP;
            ``dp``: of all public text, or of the general one where ``text`` is that, and what a DP release of the notes' words adds.
        text: that it is trained on with: ``general`` (novels, Wikipedia), ``answers`` (to questions about health), or ``medical``
            (these, abstracts, and notes and dialogues of played consultations).
        epsilon: of the budget that a DP vocabulary takes its share of: that of the models which begin with it.
        replicate: another one is the same with other random numbers, the vocabulary's noise too.
    """

    vocabulary: Vocabulary
    text: Literal["general", "answers", "medical"]
    epsilon: float | None = None
    replicate: int = 1

    @property
    def name(self) -> str:
        """Of its folder."""
        priced = "" if self.epsilon is None else f"-{self.epsilon:g}"
        return f"{self.vocabulary}{priced}-{self.text}{_again(self.replicate)}"

    @property
    def trunk(self) -> Trunk:
        """What it goes on from: one for all bases of a replicate."""
        return Trunk(self.replicate)


def _again(replicate: int) -> str:
    return "" if replicate == 1 else f"@{replicate}"


GENERAL = Base("general", "general")
PUBLIC = Base("public", "medical")
PRIVATE = Base("dp", "medical", epsilon=8.0)
STRONG = Base("dp", "medical", epsilon=3.0)
OWN = Base("own", "medical")
PAPER = Base("own", "general")
PAPER_DP = Base("dp", "general", epsilon=8.0)
ANSWERS = Base("dp", "answers", epsilon=8.0)
BASES = (GENERAL, PUBLIC, PRIVATE, STRONG, OWN, PAPER, PAPER_DP, ANSWERS)


@dataclass(frozen=True)
class PlainTraining:
    """Ordinary training on the notes: no guarantee."""

    steps: int
    batch: int
    learning_rate: float


@dataclass(frozen=True)
class DpTraining:
    """DP training on the notes.

    Args:
        steps: of all phases together.
        epsilon: that the noise is solved for, with the vocabulary's price; None: ``noise_factor`` says the noise.
        noise_factor: times the noise multiplier of the scale's ``dp``; where ``epsilon`` is given it has no effect.
        schedule: noise of each of as many phases of equal length, relative to one multiplier; one phase is constant noise.
        text: ``notes``, or ``answers``: health answers in the notes' place, for choices that may read public text alone.
        average, keep: as in a phase.
    """

    steps: int
    expected_batch: int
    sequences: int
    learning_rate: float
    clip_norm: float = 0.5
    epsilon: float | None = 8.0
    noise_factor: float = 1.0
    maskings: int = 1
    average: float | None = 0.9
    keep: float | None = None
    schedule: tuple[float, ...] = (1.0,)
    text: Literal["notes", "answers"] = "notes"


@dataclass(frozen=True)
class Model:
    """One row of a table or point of a figure.

    Args:
        name: unique.
        parts: where it is shown: ``table2``, ``figure1``, ``figure2``, ``tricks``, ``rate``.
        words: what it is, for the tables.
        base: what it begins with.
        training: on the notes; None: it saw public text alone.
        canaries: probability that a sequence of the notes gets a canary; None: there are none.
        tasks: that it is fine-tuned on.

    A second pre-training of the same model, vocabulary and all, is a model of its own, whose name ends in ``@2``.
    """

    name: str
    parts: tuple[str, ...]
    words: str
    base: Base
    training: PlainTraining | DpTraining | None = None
    canaries: float | None = None
    tasks: tuple[str, ...] = ()

    @property
    def row(self) -> str:
        """Of table 2: its name without the replicate."""
        return self.name.split("@")[0]


@dataclass(frozen=True)
class TaskSize:
    """Fine-tuning on one task.

    Args:
        folds: by document; 1: the task's own split into training and test.
        sentences: of the training part, at most, where the split is the task's own.
    """

    folds: int
    epochs: int
    learning_rate: float
    batch: int = 16
    sentences: int | None = None


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
        plain: ordinary training on the notes.
        dp: the DP training of which the others are variations.
        rates: learning rates of DP training that are compared on health answers.
        patterns, canaries_each: of figure 2.
        rates_of_canaries: probabilities of figure 2.
        seeds: fine-tunings of each model on each fold.
        replicates: pre-trainings of the main rows of table 2.
    """

    name: str
    novels: int
    paragraphs: int
    answers: int
    shape: dict[str, Any]
    vocabulary: int
    trunk_steps: int
    base_steps: int
    public_batch: int
    public_rate: float
    plain: PlainTraining
    dp: DpTraining
    rates: tuple[float, ...]
    tasks: dict[str, TaskSize]
    canaries_each: int = 4
    patterns: tuple[str, ...] = ("HS", "HSH", "HHSHH")
    rates_of_canaries: tuple[float, ...] = (0.01, 0.1, 1.0)
    noise_factors: tuple[float, ...] = (2.0, 4.0)
    step_factors: tuple[float, ...] = (0.25, 0.5)
    batch_factors: tuple[float, ...] = (0.25, 0.5)
    vocabulary_options: dict[str, Any] = field(default_factory=lambda: {"max_words": 256})
    seeds: int = 1
    replicates: int = 1
    device: str = "cpu"


SCALES = {
    "laptop": Scale(
        name="laptop",
        novels=8,
        paragraphs=8000,
        answers=16_000,
        shape={"layers": 1, "width": 128, "heads": 2, "length": 64, "initializer": "scaled"},
        vocabulary=4096,
        trunk_steps=2000,
        base_steps=3500,
        public_batch=64,
        public_rate=4e-3,
        plain=PlainTraining(steps=1500, batch=64, learning_rate=3e-3),
        dp=DpTraining(steps=20, expected_batch=800, sequences=4, learning_rate=8e-3),
        rates=(4e-3, 8e-3, 1.6e-2),
        tasks={
            "mtsamples": TaskSize(folds=5, epochs=4, learning_rate=2e-3, batch=8),
            "ncbi-disease": TaskSize(folds=1, epochs=2, learning_rate=2e-3, batch=8, sentences=2000),
        },
        replicates=2,
    ),
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
        plain=PlainTraining(steps=4000, batch=256, learning_rate=5e-4),
        dp=DpTraining(steps=400, expected_batch=2200, sequences=16, learning_rate=1e-3, maskings=4),
        rates=(2.5e-4, 1e-3, 4e-3),
        tasks={
            "mtsamples": TaskSize(folds=5, epochs=30, learning_rate=2e-4),
            "ncbi-disease": TaskSize(folds=1, epochs=10, learning_rate=2e-4),
        },
        canaries_each=10,
        seeds=3,
        replicates=3,
        device="cuda",
    ),
}
"""By name. The paper has BERT-large, 83 million examples, batches of 131,072 and a million steps."""


def models_of(scale: Scale) -> list[Model]:
    """Every model, those of the table first."""
    return [*_table(scale), *_canaries(scale), *_tricks(scale), *_figure(scale), *_rates(scale)]


def _table(scale: Scale) -> list[Model]:
    tasks = tuple(scale.tasks)
    strong = replace(scale.dp, epsilon=STRONG.epsilon)
    rows = (
        ("bert", "BERT: general public text", GENERAL, None),
        ("bert-medical", "BERT, and public medical text", PUBLIC, None),
        ("bert-dp-vocabulary", "the same with the DP vocabulary", PRIVATE, None),
        ("bert-m", "BERT-M: notes without DP, own vocabulary", OWN, scale.plain),
        ("bert-m-general", "BERT-M as in the paper: no medical public text", PAPER, scale.plain),
        ("bert-m-public-vocabulary", "BERT-M with the public vocabulary", PUBLIC, scale.plain),
        ("bert-dp-8", "BERT-DP", PRIVATE, scale.dp),
        ("bert-dp-3", "BERT-DP, stronger", STRONG, strong),
        ("bert-dp-8-public-vocabulary", "BERT-DP with the public vocabulary", PUBLIC, scale.dp),
        ("bert-dp-8-general", "BERT-DP as in the paper: no medical public text", PAPER_DP, scale.dp),
    )
    parts = {"bert-dp-8": ("table2", "figure1", "tricks")}
    once = [
        Model(name, parts.get(name, ("table2",)), words, base, training, tasks=tasks)
        for name, words, base, training in rows
    ]
    again = [
        _replicate(model, number)
        for number in range(2, scale.replicates + 1)
        for model in once
        if model.name in _REPEATED
    ]
    return [*once, *again]


def _replicate(model: Model, number: int) -> Model:
    """The same model pre-trained again; it is in table 2 alone, on the task whose interval is over folds."""
    return replace(
        model,
        name=f"{model.name}{_again(number)}",
        parts=("table2",),
        base=replace(model.base, replicate=number),
        tasks=model.tasks[:1],
    )


def _canaries(scale: Scale) -> list[Model]:
    """With and without DP; and where the canaries are most frequent, at the epsilon of the paper's figure, which is 1."""
    most = max(scale.rates_of_canaries)
    rows: list[tuple[str, Base, DpTraining | PlainTraining, float]] = [
        row
        for rate in scale.rates_of_canaries
        for row in (("dp", PRIVATE, scale.dp, rate), ("control", PRIVATE, scale.plain, rate))
    ]
    rows.append(("dp-as-in-paper", PUBLIC, replace(scale.dp, epsilon=1.0), most))
    return [
        Model(f"canaries-{name}-{rate:g}", ("figure2",), "canaries", base, training, canaries=rate)
        for name, base, training, rate in rows
    ]


def _tricks(scale: Scale) -> list[Model]:
    """Each is the DP training with one thing changed, told by the masked loss; by F1 where the pieces are others."""
    dp, small = scale.dp, max(1, scale.dp.expected_batch // 4)
    rows = (
        (
            "small-batch",
            f"batches of {small}, four times the steps",
            PRIVATE,
            replace(dp, expected_batch=small, steps=4 * dp.steps),
        ),
        ("no-average", "the last iterate, no mean", PRIVATE, replace(dp, average=None)),
        ("one-sequence", "one sequence of a note a step", PRIVATE, replace(dp, sequences=1)),
        ("maskings", "one sequence of a note, with four maskings", PRIVATE, replace(dp, sequences=1, maskings=4)),
        ("falling-noise", "noise that falls by half in two phases", PRIVATE, replace(dp, schedule=(1.4, 0.7))),
        ("low-rate", "a quarter of the learning rate", PRIVATE, replace(dp, learning_rate=dp.learning_rate / 4)),
        ("keep-half", "half of the way from the public weights", PRIVATE, replace(dp, keep=0.5)),
        ("answers-only", "of medical text, health answers alone before the notes", ANSWERS, dp),
        ("no-medical", "no medical text before the notes, nor a DP vocabulary", GENERAL, dp),
    )
    return [
        Model(f"trick-{name}", ("tricks",), words, base, own, tasks=() if base == PRIVATE else ("mtsamples",))
        for name, words, base, own in rows
    ]


def _figure(scale: Scale) -> list[Model]:
    """Figure 1: noise, steps and batch, each alone, the noise multiplier else that of the reference."""
    fixed = replace(scale.dp, epsilon=None)
    points = [
        *(("noise", factor, replace(fixed, noise_factor=factor)) for factor in scale.noise_factors),
        *(
            ("steps", factor, replace(fixed, steps=max(1, round(factor * fixed.steps))))
            for factor in scale.step_factors
        ),
        *(
            ("batch", factor, replace(fixed, expected_batch=max(1, round(factor * fixed.expected_batch))))
            for factor in scale.batch_factors
        ),
    ]
    return [
        Model(
            f"figure1-{name}-{factor:g}", ("figure1",), f"{name} times {factor:g}", PRIVATE, own, tasks=("mtsamples",)
        )
        for name, factor, own in points
    ]


def _rates(scale: Scale) -> list[Model]:
    """The learning rate, on public text in the notes' place: nothing private is read."""
    return [
        Model(
            f"rate-{rate:g}",
            ("rate",),
            f"learning rate {rate:g}",
            GENERAL,
            replace(scale.dp, learning_rate=rate, text="answers"),
        )
        for rate in scale.rates
    ]
