"""The games in which an attacker who sees every noisy sum guesses the coins of canaries, and the scores by which it guesses.

A coin decides whether a canary is in the corpus at all: neighbours by adding or removing. A game is played in one training or in
several; independent trainings, each with coins of its own, are together one mechanism whose coins are as private as theirs, so
every bound for one run holds for all of them.

Shapes: m canaries of a training, n trainings.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from tacit.audit.bounds.evidence import Scores
from tacit.audit.self_test.model import WordTable, canary_row, derivatives, stream_of, word_table
from tacit.audit.self_test.training import Trainings, noisy_sums
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.events import Spend
from tacit.randomness import KeyedRandomness, key_of
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan

__all__ = ["Crowd", "Game", "Solo"]


@dataclass(frozen=True)
class Game(ABC):
    """What is trained, and how it is attacked.

    Args:
        plan: what every step pretends to do.
        steps: of a training.
        trainings: at size 1.
    """

    plan: DpPlan
    steps: int
    trainings: int

    @property
    @abstractmethod
    def canaries(self) -> int:
        """m, of one training."""

    @abstractmethod
    def attacks(self, made_by: type[DpStep], included_nm: np.ndarray, streams: KeyedRandomness) -> Iterator[np.ndarray]:
        """The scores (m,) after each training with the canaries whose coins say so; a function of what was released alone."""

    def claimed(self, delta: float) -> float:
        """The epsilon of a training by the account of its plan."""
        return epsilon([Spend(self.plan.event, self.steps)], delta)

    def play(
        self, made_by: type[DpStep], trainings: int, streams: KeyedRandomness, on_training: Callable[[], None]
    ) -> Scores:
        """The scores of so many trainings; ``on_training`` is called after each."""
        included_nm = streams.generator("coins").random((trainings, self.canaries)) < 0.5
        found: list[np.ndarray] = []
        for scores_m in self.attacks(made_by, included_nm, streams):
            found.append(scores_m)
            on_training()
        scores = np.concatenate(found)
        return Scores(scores, included_nm.ravel(), streams.generator("order").permutation(len(scores)))


def _alike(step: int, canary_m: np.ndarray) -> np.ndarray:
    return np.ones(len(canary_m))


@dataclass(frozen=True)
class Crowd(Game):
    """Many canaries in one training (Steinke et al. 2023), one word each.

    A canary's score is its gradient times the noisy sums (Nasr et al. 2023; Andrew et al. 2024, arXiv 2302.03098).

    Args:
        weights: how much a step counts for each canary (m,), from the step's number and the canaries' numbers.
        words: m, a multiple of 64.
    """

    weights: Callable[[int, np.ndarray], np.ndarray] = _alike
    words: int = 1024

    @property
    def canaries(self) -> int:
        return self.words

    def attacks(self, made_by: type[DpStep], included_nm: np.ndarray, streams: KeyedRandomness) -> Iterator[np.ndarray]:
        for training, included_m in enumerate(included_nm):
            yield self._attack(made_by, included_m, streams.child("training", training))

    def _attack(self, made_by: type[DpStep], included_m: np.ndarray, streams: KeyedRandomness) -> np.ndarray:
        model, members = word_table(self.words, streams), np.flatnonzero(included_m).tolist()
        stream = stream_of([canary_row(word) for word in members], members, 3)
        scores_m, word_m = np.zeros(self.words), np.arange(self.words)
        for step, sum_VD in enumerate(noisy_sums(made_by, model, stream, self.plan, self.steps, streams)):
            scores_m += self.weights(step, word_m) * derivatives(model, word_m, sum_VD)
        return scores_m


_ONE_START = KeyedRandomness(key_of("the weights that all trainings of a Solo begin with"))
"""So that their scores can be compared."""

Score = Callable[[WordTable, Iterator[Tensor]], float]
"""From the model and the noisy sum of each step, one after the other, a canary's score."""


@dataclass(frozen=True)
class Solo(Game):
    """One canary a training, beside a few others that are always there (Jagielski et al. 2020).

    Args:
        score: of the canary, which is word 0.
        length: of the canary, in words.
        others: units of three words, all of them word 1.
    """

    score: Score
    length: int = 3
    others: int = 0

    @property
    def canaries(self) -> int:
        return 1

    def attacks(self, made_by: type[DpStep], included_nm: np.ndarray, streams: KeyedRandomness) -> Iterator[np.ndarray]:
        """There are two corpora, with the canary and without it, and the steps of each are made once."""
        with ExitStack() as opened:
            known: dict[bool, tuple[WordTable, Trainings]] = {}
            for is_in in included_nm[:, 0].tolist():
                if is_in not in known:
                    model, trainings = self._on_one_corpus(
                        made_by, is_in, streams.child("with" if is_in else "without")
                    )
                    known[is_in] = model, opened.enter_context(closing(trainings))
                model, trainings = known[is_in]
                yield np.array([self.score(model, trainings.sums(self.steps))])

    def _on_one_corpus(
        self, made_by: type[DpStep], is_in: bool, streams: KeyedRandomness
    ) -> tuple[WordTable, Trainings]:
        model = word_table(16, _ONE_START)
        rows = [canary_row(1)] * self.others + [canary_row(0, self.length)] * int(is_in)
        stream = stream_of(rows, list(range(len(rows))), self.length)
        return model, Trainings(made_by, model, stream, self.plan, streams)
