"""What is run, at which size: the corpora, the models, the arms and the sweep over the screening policy's misses.

Every number that a plan needs (units, steps) is a constant here: none is read from the private text at run time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["ARMS", "GAMMAS", "SCALES", "Arm", "Cell", "CorpusSize", "Scale", "cells_of"]

Arm = Literal["raw", "redacted", "dp-sgd", "s-dp", "crt", "crt-copies", "redacted-exact", "crt-exact"]
ARMS: dict[str, str] = {
    "raw": "not private",
    "redacted": "redaction alone",
    "dp-sgd": "DP-SGD",
    "s-dp": "S-DP",
    "crt": "CRT",
    "crt-copies": "CRT, none",
    "redacted-exact": "redaction alone, exact",
    "crt-exact": "CRT, exact",
}
"""What is trained on what, in words; a word after the comma is the deduplication, where it is not the usual one."""

GAMMAS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)
"""Shares of the secrets that the balanced policy is made to miss (figures 3 to 5)."""


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
    def name(self) -> str:
        """Of its files."""
        return f"{self.corpus}-{self.model}-{self.arm}-gamma{self.gamma:g}-copies{self.copies}-seed{self.seed}"


@dataclass(frozen=True)
class CorpusSize:
    """How much of a corpus, and the public statements about it.

    Args:
        dialogues: of the training part; test_dialogues: of the test part.
        lines: "about so many" lines (turns) in these dialogues.
        private_lines: about so many of them in the private stream of the screening.
        membership_pairs: lines of the training part whose secrets are attacked, at most, and as many with secrets that are not in it.
        known_words: words of the trade that the conservative policy is told are ordinary.
    """

    dialogues: int
    test_dialogues: int
    lines: int
    private_lines: int
    membership_pairs: int
    known_words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scale:
    """The size of the whole experiment.

    Args:
        corpora: by name.
        models: options of ``model`` in a run's configuration, by kind.
        rounds: how often the phases are run by turns.
        points: of figure 2, after so many equal shares of the rounds; it divides ``rounds``.
        passes: over the text that is trained on without noise, in all rounds together.
        batch: sequences of an ordinary step.
        expected_batch: units of a DP step on average.
        private_passes: over the text that is trained on with noise, likewise; more of them cost more epsilon.
        noise_multiplier: of every DP phase of every arm.
        group: sentences of a group in the group attack.
        seeds: replicates of every cell.
        digits: of a canary's secret; all numbers of so many digits are its candidates.
        device: where models are trained.
    """

    name: str
    corpora: dict[str, CorpusSize]
    models: dict[str, dict[str, Any]]
    rounds: int
    points: int
    passes: int
    batch: int
    expected_batch: int
    private_passes: int
    noise_multiplier: float
    learning_rate: dict[str, float]
    private_learning_rate: dict[str, float]
    group: int = 20
    seeds: int = 1
    digits: int = 6
    device: str = "cpu"


_LENGTH = 40
_SHOP = ("floor", "lamp", "lipstick", "ordered", "phone", "placed", "pot", "robot", "shipped", "track", "verify")
"""Of the robot's script and the catalogue of CustomerSim's shop: what it would tell its own policy."""
SCALES = {
    "laptop": Scale(
        name="laptop",
        corpora={
            "customersim": CorpusSize(2000, 250, 17_000, 6_000, 1500, _SHOP),
            "multiwoz": CorpusSize(999, 250, 14_700, 12_000, 826),
        },
        models={
            "lstm": {"kind": "lstm", "layers": 1, "width": 200, "length": _LENGTH},
            "gpt2": {"kind": "gpt2", "layers": 2, "width": 128, "heads": 4, "length": _LENGTH},
        },
        rounds=8,
        points=4,
        passes=2,
        batch=64,
        expected_batch=1024,
        private_passes=12,
        noise_multiplier=3.0,
        learning_rate={"lstm": 5e-3, "gpt2": 2e-3},
        private_learning_rate={"lstm": 4e-2, "gpt2": 2e-2},
    ),
    "full": Scale(
        name="full",
        corpora={
            "customersim": CorpusSize(10_000, 1000, 85_000, 30_000, 3000, _SHOP),
            "multiwoz": CorpusSize(999, 1000, 14_700, 12_000, 826),
        },
        models={
            "lstm": {"kind": "lstm", "layers": 1, "width": 200, "length": 64},
            "gpt2": {"kind": "gpt2", "layers": 6, "width": 768, "heads": 12, "length": 64},
        },
        rounds=40,
        points=10,
        passes=10,
        batch=64,
        expected_batch=2048,
        private_passes=20,
        noise_multiplier=2.0,
        learning_rate={"lstm": 3e-3, "gpt2": 5e-4},
        private_learning_rate={"lstm": 3e-3, "gpt2": 5e-4},
        seeds=5,
        device="cuda",
    ),
}
"""By name. The paper trains each model five times. ``full`` is for a GPU, and nobody has run it."""


def cells_of(scale: Scale) -> list[Cell]:
    """Every cell, those first without which there is no figure."""
    cells: list[Cell] = []
    for seed in range(scale.seeds):
        cells += _sweep("customersim", "lstm", ("redacted", "crt"), GAMMAS, seed)
        cells += _sweep("customersim", "lstm", ("raw", "dp-sgd"), (0.0,), seed)
        cells += _sweep("customersim", "lstm", ("s-dp",), GAMMAS, seed)
        cells += _sweep(
            "customersim", "gpt2", ("redacted", "crt"), GAMMAS if scale.name == "full" else (0.0, 0.1, 0.3, 0.5), seed
        )
        cells += _sweep("customersim", "gpt2", ("raw", "dp-sgd"), (0.0,), seed)
        cells += _sweep(
            "multiwoz", "lstm", ("redacted", "crt", "s-dp"), GAMMAS if scale.name == "full" else (0.0, 0.5), seed
        )
        cells += _sweep("multiwoz", "lstm", ("raw", "dp-sgd"), (0.0,), seed)
        cells += _sweep("customersim", "lstm", ("redacted-exact", "crt-exact", "crt-copies"), (0.5,), seed)
        for copies in (1, 10, 100):
            cells += [Cell("customersim", "lstm", arm, 0.5, copies, seed) for arm in ("redacted", "crt")]
        if scale.name == "full":
            cells += _sweep("multiwoz", "gpt2", ("redacted", "crt"), GAMMAS, seed)
            cells += _sweep("multiwoz", "gpt2", ("raw", "dp-sgd"), (0.0,), seed)
    return cells


def _sweep(corpus: str, model: str, arms: tuple[Arm, ...], gammas: tuple[float, ...], seed: int) -> list[Cell]:
    return [Cell(corpus, model, arm, gamma, seed=seed) for arm in arms for gamma in gammas]
