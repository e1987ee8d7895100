"""What is run, at which size: the corpora, the models, the arms and the sweep over the screening policy's misses.

Every number that a plan needs (units, steps) is a constant here: none is read from the private text at run time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

__all__ = [
    "ARMS",
    "GAMMAS",
    "SCALES",
    "UTILITY_GAMMA",
    "Arm",
    "Cell",
    "CorpusSize",
    "Panel",
    "Scale",
    "Shadows",
    "Trunk",
    "cells_of",
    "corpora_of",
    "shadows_of",
    "trunks_of",
]

Arm = Literal[
    "raw",
    "redacted",
    "dp-sgd",
    "s-dp",
    "crt",
    "public-lines",
    "noiseless",
    "crt-copies",
    "redacted-exact",
    "crt-exact",
]
ARMS: dict[str, str] = {
    "raw": "not private",
    "redacted": "redaction alone",
    "dp-sgd": "DP-SGD",
    "s-dp": "S-DP",
    "crt": "CRT",
    "public-lines": "CRT's lines without noise alone",
    "noiseless": "CRT's lines, all without noise",
    "crt-copies": "CRT, none",
    "redacted-exact": "redaction alone, exact",
    "crt-exact": "CRT, exact",
}
"""What is trained on what, in words; a word after the comma is the deduplication, where it is not the usual one."""

GAMMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares of the secrets that the balanced policy is made to miss (figures 3 to 5)."""
UTILITY_GAMMA = 0.1
"""Where utility is compared, as in figure 2."""


@dataclass(frozen=True)
class Trunk:
    """The public training that all models of a panel begin with: no comparison is one of public texts."""

    corpus: str
    model: str

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"trunk-{self.corpus}-{self.model}"


@dataclass(frozen=True)
class Shadows:
    """The shadow models of the membership attack: of all arms of a replicate, since these attack some of the same pairs."""

    corpus: str
    model: str
    seed: int

    @property
    def trunk(self) -> Trunk:
        """Where they begin."""
        return Trunk(self.corpus, self.model)

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"shadows-{self.corpus}-{self.model}-seed{self.seed}"


@dataclass(frozen=True)
class Cell:
    """One model: trained, attacked and measured.

    Args:
        corpus: customersim or multiwoz.
        model: lstm or gpt2.
        arm: a key of `ARMS`.
        gamma: share of the secrets that the balanced policy misses; 0 where nothing is screened.
        copies: how often each canary is planted.
        seed: of everything random in it.
    """

    corpus: str
    model: str
    arm: Arm
    gamma: float = 0.0
    copies: int = 20
    seed: int = 0

    @property
    def trunk(self) -> Trunk:
        """Where it begins."""
        return Trunk(self.corpus, self.model)

    @property
    def shadows(self) -> Shadows:
        """What its losses are compared with."""
        return Shadows(self.corpus, self.model, self.seed)

    @property
    def name(self) -> str:
        """The name of its files."""
        return f"{self.corpus}-{self.model}-{self.arm}-gamma{self.gamma:g}-copies{self.copies}-seed{self.seed}"


@dataclass(frozen=True)
class CorpusSize:
    """How much of a corpus, and the public statements about it.

    Args:
        dialogues: of the training part; test_dialogues: of the test part.
        lines: "about so many" lines (turns) in these dialogues.
        private_lines: about so many of them in the private stream of the screening.
        membership_pairs: lines of the training part whose secrets are attacked where no policy finds one, and as many with secrets
            that are not in it; 0: nobody is attacked. There are no more, but in SGD.
        public: the corpus whose dialogues are public here, and ``public_dialogues`` of them are read.
        known_words: words of the trade that the conservative policy is told are ordinary.
        known_dialogues: so many public dialogues make a word ordinary too, where it is written in small letters; 0: none does.
    """

    dialogues: int
    test_dialogues: int
    lines: int
    private_lines: int
    membership_pairs: int
    public: str
    public_dialogues: int
    known_words: tuple[str, ...] = ()
    known_dialogues: int = 0


@dataclass(frozen=True)
class Panel:
    """The models that are compared with one another.

    Args:
        gammas: of CRT and redaction alone.
        selective: of S-DP, which is of an LSTM alone.
        seeds: replicates of every cell.
    """

    corpus: str
    model: str
    gammas: tuple[float, ...] = GAMMAS
    selective: tuple[float, ...] = ()
    seeds: int = 5


@dataclass(frozen=True)
class Scale:
    """The size of the whole experiment.

    Args:
        corpora: by name.
        models: options of ``model`` in a run's configuration, by kind.
        panels: in the order in which they are trained.
        trunk_steps: ordinary steps on public text before all else.
        rounds: how often the phases are run by turns.
        points: of figure 2, after so many equal shares of the rounds; it divides ``rounds``.
        passes: over the text that is trained on without noise, in all rounds together.
        batch: sequences of an ordinary step.
        expected_batch: units of a DP step on average.
        private_passes: over the text that is trained on with noise, likewise.
        epsilon: of every arm that has a finite one, at `tacit.reproduce.crt.runs.DELTA`: of replacing one line of the text that is
            trained on with noise.
        group: sentences of a group in the group attack.
        ablation: whether copies and deduplication are varied too (CustomerSim, LSTM, first seed).
        digits: of a canary's secret; all numbers of so many digits are its candidates.
        shadow_models: of the membership attack, in each `Shadows`; an even number.
        device: where models are trained.
    """

    name: str
    corpora: dict[str, CorpusSize]
    models: dict[str, dict[str, Any]]
    panels: tuple[Panel, ...]
    trunk_steps: int
    rounds: int
    points: int
    passes: int
    batch: int
    expected_batch: int
    private_passes: int
    epsilon: float
    learning_rate: dict[str, float]
    private_learning_rate: dict[str, float]
    group: int = 20
    ablation: bool = True
    digits: int = 6
    shadow_models: int = 4
    device: str = "cpu"


_LENGTH = 40
_SHOP = ("floor", "lamp", "lipstick", "ordered", "phone", "placed", "pot", "robot", "shipped", "track", "verify")
"""Of the robot's script and the catalogue of CustomerSim's shop: what it would tell its own policy."""
_LAPTOP = Scale(
    name="laptop",
    corpora={
        "customersim": CorpusSize(1000, 250, 8_500, 3_000, 1004, "sgd", 1000, _SHOP),
        "multiwoz": CorpusSize(1511, 250, 21_800, 15_700, 826, "sgd", 3000, known_dialogues=20),
        "sgd": CorpusSize(2000, 250, 40_000, 28_000, 0, "multiwoz", 1511, known_dialogues=20),
    },
    models={
        "lstm": {"kind": "lstm", "layers": 1, "width": 200, "length": _LENGTH},
        "gpt2": {"kind": "gpt2", "layers": 2, "width": 128, "heads": 4, "length": _LENGTH},
    },
    panels=(
        Panel("customersim", "lstm", selective=GAMMAS),
        Panel("customersim", "gpt2", (0.1,)),
        Panel("multiwoz", "lstm", (0.1,), seeds=3),
    ),
    trunk_steps=600,
    rounds=8,
    points=2,
    passes=2,
    batch=64,
    expected_batch=512,
    private_passes=6,
    epsilon=4.0,
    learning_rate={"lstm": 5e-3, "gpt2": 2e-3},
    private_learning_rate={"lstm": 4e-2, "gpt2": 2e-2},
)

_NIGHT = replace(
    _LAPTOP,
    name="night",
    panels=(
        Panel("customersim", "lstm", selective=GAMMAS),
        Panel("customersim", "gpt2"),
        Panel("multiwoz", "lstm", selective=GAMMAS, seeds=3),
        Panel("multiwoz", "gpt2", (0.1, 0.5), seeds=3),
        Panel("sgd", "lstm", (0.1,), seeds=3),
    ),
)

SCALES = {
    "laptop": _LAPTOP,
    "night": _NIGHT,
    "full": Scale(
        name="full",
        corpora={
            "customersim": CorpusSize(10_000, 1000, 85_000, 30_000, 9272, "sgd", 12_174, _SHOP),
            "multiwoz": CorpusSize(1511, 1000, 21_800, 15_700, 826, "sgd", 12_174, known_dialogues=20),
            "sgd": CorpusSize(4_000, 1000, 80_000, 56_000, 0, "multiwoz", 1511, known_dialogues=20),
        },
        models={
            "lstm": {"kind": "lstm", "layers": 1, "width": 200, "length": 64},
            "gpt2": {"kind": "gpt2", "layers": 6, "width": 768, "heads": 12, "length": 64},
        },
        panels=tuple(
            Panel(corpus, model) for corpus in ("customersim", "multiwoz", "sgd") for model in ("lstm", "gpt2")
        ),
        trunk_steps=20_000,
        rounds=40,
        points=10,
        passes=10,
        batch=64,
        expected_batch=2048,
        private_passes=20,
        epsilon=4.0,
        learning_rate={"lstm": 3e-3, "gpt2": 5e-4},
        private_learning_rate={"lstm": 3e-3, "gpt2": 5e-4},
        shadow_models=16,
        device="cuda",
    ),
}
"""By name. ``night`` has more panels and gammas, of the sizes of ``laptop``. ``full`` is for a GPU, and nobody has run it.

The paper trains each model five times.
"""


def corpora_of(scale: Scale) -> list[str]:
    """The corpora that a panel is of."""
    return list(dict.fromkeys(panel.corpus for panel in scale.panels))


def trunks_of(scale: Scale) -> list[Trunk]:
    """One for each panel."""
    return [Trunk(panel.corpus, panel.model) for panel in scale.panels]


def shadows_of(scale: Scale) -> list[Shadows]:
    """One for each panel and seed in which somebody is attacked."""
    panels = [panel for panel in scale.panels if scale.corpora[panel.corpus].membership_pairs]
    return [Shadows(panel.corpus, panel.model, seed) for panel in panels for seed in range(panel.seeds)]


def cells_of(scale: Scale) -> list[Cell]:
    """Every cell: all panels of the first seed, then those of the next; what only shows copies and deduplication is last."""
    cells: list[Cell] = []
    for seed in range(max(panel.seeds for panel in scale.panels)):
        for panel in scale.panels:
            cells += _panel(panel, seed) if seed < panel.seeds else []
    if scale.ablation:
        cells += _sweep("customersim", "lstm", ("redacted-exact", "crt-exact", "crt-copies"), (0.5,), 0)
        for copies in (1, 10, 100):
            cells += [Cell("customersim", "lstm", arm, 0.5, copies) for arm in ("redacted", "crt")]
    return cells


def _panel(panel: Panel, seed: int) -> list[Cell]:
    cells = _sweep(panel.corpus, panel.model, ("redacted", "crt"), panel.gammas, seed)
    cells += _sweep(panel.corpus, panel.model, ("public-lines", "noiseless"), (UTILITY_GAMMA,), seed)
    cells += _sweep(panel.corpus, panel.model, ("raw", "dp-sgd"), (0.0,), seed)
    return cells + _sweep(panel.corpus, panel.model, ("s-dp",), panel.selective, seed)


def _sweep(corpus: str, model: str, arms: tuple[Arm, ...], gammas: tuple[float, ...], seed: int) -> list[Cell]:
    return [Cell(corpus, model, arm, gamma, seed=seed) for arm in arms for gamma in gammas]
