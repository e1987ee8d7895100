"""What is run, at which size: the arms, the noise, the insertions of the canary, and the public statements that a plan needs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from tacit.corpus.secrets import SecretFormat, draw_secret_canaries
from tacit.randomness import KeyedRandomness, key_of

__all__ = [
    "ARMS",
    "ARMS_WITH_NOISE",
    "CERTIFIED",
    "DELTA",
    "EXPOSED",
    "MOST_SEEDS",
    "ONE_RECORD",
    "SCALES",
    "Arm",
    "Cell",
    "PrivateText",
    "Scale",
    "ScorerName",
    "Scores",
    "Trial",
    "cells_of",
    "experiment_seed",
    "trials_of",
]

Arm = Literal["plain", "dp-sgd", "dp-sgd-protected", "literal", "strata", "clip-weights"]
ARMS: dict[str, str] = {
    "plain": "No-DP",
    "dp-sgd": "DP-SGD",
    "dp-sgd-protected": "DP-SGD, all protected like the private band",
    "literal": "ADP, literal",
    "strata": "ADP, strata",
    "clip-weights": "ADP, clip weights",
}
"""What is trained how, in words."""

ScorerName = Literal["public", "frequent"]
"""The public models: where all begin, and which scores; and the one whose training text holds the canary."""

CERTIFIED: tuple[Arm, ...] = ("strata", "clip-weights")
"""The forms of adaptive DP that have a guarantee."""

_CANARY = SecretFormat(prefix="My ID is ", digits=6)
DELTA = 1e-5
"""Of every epsilon."""


def experiment_seed(seed: int) -> str:
    """What the public key of a replicate is made from: all its arms share it, so they are compared in pairs."""
    return f"tacit reproduce adp {seed}"


@dataclass(frozen=True)
class PrivateText:
    """What a cell is trained on.

    Args:
        copies: of the replicate's canary.
        deduplicated: each different line once, so that the canary is one record, whatever ``copies`` is.
        seed: of the replicate.
    """

    copies: int
    deduplicated: bool
    seed: int

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"copies{self.copies}{'-distinct' if self.deduplicated else ''}-seed{self.seed}"


@dataclass(frozen=True)
class Cell:
    """One model: trained, measured and attacked.

    Args:
        arm: a key of `ARMS`.
        noise: s, the noise multiplier that DP-SGD has; the certified forms get DP-SGD's epsilon at this noise as their worst case.
            0 without DP.
        copies: how often the canary stands in the private text.
        frequent: score with a public model whose own training text holds the first replicate's canary a thousand times.
        seed: of everything random in it, the canary's number included.
        deduplicated: train on each different line once.
    """

    arm: Arm
    noise: float
    copies: int
    frequent: bool = False
    seed: int = 0
    deduplicated: bool = False

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.arm}-noise{self.noise:g}{'-frequent' if self.frequent else ''}-{self.text.name}"

    @property
    def text(self) -> PrivateText:
        """What it is trained on."""
        return PrivateText(self.copies, self.deduplicated, self.seed)

    @property
    def is_adaptive(self) -> bool:
        """Whether rho matters."""
        return self.arm in ("literal", *CERTIFIED)

    @property
    def scorer(self) -> ScorerName:
        """Which public model its rho comes from."""
        return "frequent" if self.frequent else "public"

    @property
    def scores(self) -> Scores:
        """The scores of its private text; it shares them with other cells."""
        return Scores(self.text, self.scorer)


@dataclass(frozen=True)
class Scores:
    """How surprising a public model finds each line of a private text."""

    text: PrivateText
    scorer: ScorerName

    @property
    def name(self) -> str:
        """The name of their folder."""
        return f"{self.text.name}{'-frequent' if self.scorer == 'frequent' else ''}"


@dataclass(frozen=True)
class Trial:
    """DP-SGD on public text in the private text's place, for the choice of a learning rate: nothing private is read.

    Args:
        noise: s.
        rate: of DP training.
    """

    noise: float
    rate: float

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"rate{self.rate:g}-noise{self.noise:g}"


MOST_SEEDS = 5
"""Replicates at any scale: the public models are asked about the canaries of all, so that a scale goes on from another."""


@dataclass(frozen=True)
class Scale:
    """The size of the whole experiment.

    Args:
        lines: paragraphs of Wikipedia in the private text at most.
        chats: of customers, whose own lines are in the private text too; those after them are for the test.
        units: "about so many" lines of both, as a run states it.
        test_articles, test_chats: at most.
        novels, answers: records of the public text, beside half of the articles of WikiText-2's validation part.
        frequent: copies of the canary in the training text of the other scorer.
        pieces: of the tokenizer.
        model: options of ``model`` in a run's configuration.
        public_steps, batch, public_rate: of ordinary training on public text, where every model begins.
        plain_steps, plain_rate: of ordinary training on private text.
        steps: DP steps of an arm; of strata, together.
        expected_batch: units of a DP step on average.
        rates: of DP training, for each value of s: of ``tried_rates`` the best on public text in the private text's place.
        tried_rates: those that are tried.
        stratum_share: which share of the units has a rho below the threshold, a public statement.
        unlikely_steps: strata: share of the steps that are on the private-like stratum; ``unlikely_rate``, their learning rate over
            that of the others.
        protected: epsilon of the private-like band over the worst case.
        noise: values of s.
        insertions: copies of the canary in the private text.
        canary: the canary's template: of the paper "My ID is 955320", and all 10^6 numbers are candidates.
        secret: its number in the first replicate; the others draw theirs.
        seeds: replicates of every cell.
        device: where models are trained.
    """

    name: str
    lines: int
    chats: int
    units: int
    test_articles: int
    test_chats: int
    novels: int
    answers: int
    pieces: int
    model: dict[str, Any]
    public_steps: int
    batch: int
    public_rate: float
    plain_steps: int
    plain_rate: float
    steps: int
    expected_batch: int
    clip_norm: float
    rates: tuple[float, ...]
    tried_rates: tuple[float, ...]
    threshold: float
    stratum_share: float
    unlikely_steps: float
    unlikely_rate: float
    protected: float
    frequent: int = 1000
    noise: tuple[float, ...] = (1.0, 5.0)
    insertions: tuple[int, ...] = (10, 100, 1000)
    canary: SecretFormat = _CANARY
    secret: int = 955320
    seeds: int = MOST_SEEDS
    device: str = "cpu"

    def rate_of(self, noise: float) -> float:
        """The learning rate of DP training at this s."""
        return self.rates[self.noise.index(noise)]

    def secret_of(self, seed: int) -> int:
        """The canary's number in a replicate: drawn anew in each, so that where nothing is learned their ranks are independent."""
        if seed == 0:
            return self.secret
        return draw_secret_canaries(1, KeyedRandomness(key_of(experiment_seed(seed))), self.canary)[0]

    def canary_text(self, seed: int) -> str:
        """What is planted."""
        return self.canary.text(self.secret_of(seed))


_LAPTOP = Scale(
    name="laptop",
    lines=17_585,
    chats=800,
    units=24_800,
    test_articles=60,
    test_chats=204,
    novels=24,
    answers=8000,
    pieces=2000,
    model={"kind": "gpt2", "layers": 2, "width": 96, "heads": 4, "length": 32},
    public_steps=3000,
    batch=64,
    public_rate=3e-3,
    plain_steps=500,
    plain_rate=3e-3,
    steps=30,
    expected_batch=1024,
    clip_norm=0.5,
    rates=(3e-3, 3e-3),
    tried_rates=(1e-3, 3e-3, 1e-2),
    threshold=0.7,
    stratum_share=0.81,
    unlikely_steps=0.14,
    unlikely_rate=0.1,
    protected=0.25,
    seeds=3,
)

SCALES = {
    "laptop": _LAPTOP,
    "night": replace(_LAPTOP, name="night", seeds=MOST_SEEDS),
    "full": Scale(
        name="full",
        lines=17_585,
        chats=800,
        units=24_800,
        test_articles=60,
        test_chats=204,
        novels=99,
        answers=16_407,
        pieces=8000,
        model={"kind": "gpt2", "layers": 12, "width": 1024, "heads": 16, "length": 64},
        public_steps=20_000,
        batch=64,
        public_rate=3e-4,
        plain_steps=2000,
        plain_rate=3e-4,
        steps=200,
        expected_batch=4096,
        clip_norm=0.5,
        rates=(1.5e-4, 1.5e-4),
        tried_rates=(5e-5, 1.5e-4, 5e-4),
        threshold=0.7,
        stratum_share=0.81,
        unlikely_steps=0.14,
        unlikely_rate=0.1,
        protected=0.25,
        device="cuda",
    ),
}
"""By name. The threshold and the share were chosen with samples of the private text: an experiment's shortcut, which a release
would have to pay for.

The paper's decoder has 12 layers of width 1,024: ``full`` is for one GPU, and nobody has run it.
"""


def cells_of(scale: Scale) -> list[Cell]:
    """Every cell, replicate by replicate, those of the table first.

    Exposure is measured at the first noise. The scorer that has read the canary scores for the first replicate alone: its canary
    is the one that it has read.
    """
    least, first, most = scale.insertions[0], scale.noise[0], scale.insertions[-1]
    cells: list[Cell] = []
    for seed in range(scale.seeds):
        cells.append(Cell("plain", 0.0, least, seed=seed))
        for noise in scale.noise:
            cells += [Cell(arm, noise, least, seed=seed) for arm in ARMS_WITH_NOISE]
        for copies in scale.insertions[1:]:
            cells.append(Cell("plain", 0.0, copies, seed=seed))
            cells += [Cell(arm, first, copies, seed=seed) for arm in EXPOSED]
        cells.append(Cell("plain", 0.0, most, seed=seed, deduplicated=True))
        cells += [Cell(arm, first, most, seed=seed, deduplicated=True) for arm in ONE_RECORD]
    return cells + [Cell(arm, first, scale.insertions[1], True) for arm in CERTIFIED]


def trials_of(scale: Scale) -> list[Trial]:
    """Every learning rate that is tried, at each s."""
    return [Trial(noise, rate) for noise in scale.noise for rate in scale.tried_rates]


ARMS_WITH_NOISE: tuple[Arm, ...] = ("dp-sgd", "dp-sgd-protected", "literal", "strata", "clip-weights")
EXPOSED: tuple[Arm, ...] = ("dp-sgd", "literal", "strata", "clip-weights")
"""Those whose canary is attacked at several insertions."""
ONE_RECORD: tuple[Arm, ...] = ("dp-sgd", *CERTIFIED)
"""Those with a guarantee, which is then of all copies of a line."""
