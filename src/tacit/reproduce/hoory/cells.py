"""What is trained, before any size: the private corpora, the shared public beginnings, families of models, a model.

A model's name is that of its row, ``dialogues-general-dp-8``, and where it is a second training of the same row, with other random
numbers in all of it from the first public step on, ``@2`` behind it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tacit.config.model import Trained

__all__ = [
    "DELTA",
    "EPSILONS",
    "FAMILIES",
    "LABELLED",
    "MAIN",
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
    "Trunk",
    "again",
    "replicate_of",
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
        """The name of its folder."""
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
        """The name of its folder."""
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


def replicate_of(name: str) -> int:
    """Which training of its row a model's name is of.

    >>> replicate_of("dialogues-general-bert@2")
    2
    """
    return int(name.partition("@")[2] or 1)


def row_of(name: str) -> str:
    """The row of a model's name: the name without the replicate.

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
        maskings, average, keep, noise_bands: as in a phase.
        adapter: LoRA of this rank is trained, and nothing else.
        trained: which of the base's parameters are trained, as in ``model.trained``.
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
    noise_bands: int = 1
    schedule: tuple[float, ...] = (1.0,)
    adapter: int | None = None
    trained: Trained = "all"
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
        """The name of its result."""
        return f"lexicon-{self.private}-{self.epsilon:g}"
