"""Simulated audits: scores under a mechanism whose privacy is known exactly, so that every bound above it is a false accusation.

Each bound meets the mechanism on which it has least room: randomised response where nothing but epsilon is assumed, and a Gaussian
mechanism where its curve is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from tacit.audit.bounds.bound import Bound
from tacit.audit.bounds.clopper_pearson import ClopperPearson
from tacit.audit.bounds.evidence import Scores
from tacit.audit.bounds.gaussian import GaussianDp
from tacit.audit.bounds.one_run import OneRun
from tacit.audit.bounds.one_run_fdp import OneRunFdp
from tacit.audit.bounds.tradeoff import gaussian_epsilon
from tacit.audit.self_test.games import Crowd
from tacit.audit.self_test.model import GRADIENT_NORM
from tacit.randomness import KeyedRandomness
from tacit.training.dp_step import DpStep
from tacit.training.plans import DpPlan

__all__ = [
    "CALIBRATIONS",
    "LEVEL",
    "Calibration",
    "accusations",
    "at_most",
    "calibrations",
    "gaussian_audits",
    "leaking_audits",
]

LEVEL = 0.05
"""How often a bound of 95 % may be above the truth."""

CALIBRATIONS = 5
"""Rows of `calibrations`."""

_DELTA = 1e-5
_EXAMPLES = 200
_MU = 1.0
_EPSILON = 1.0
_SHOWN = 40
_SHOWN_EXAMPLES = 1000


@dataclass(frozen=True)
class Calibration:
    """How often one bound accused something that was right.

    Args:
        what: was audited.
        audits, accused: how many, and in how many the bound was above the truth.
        shown: the mean of audits with 1,000 examples of a Gaussian mechanism with mu 1, whose epsilon is 4.38; None: not looked at.
        least: what it has to show there.
    """

    what: str
    bound: str
    audits: int
    accused: int
    shown: float | None = None
    least: float = 0.0

    @property
    def is_right(self) -> bool:
        """Whether that agrees with 5 %, and enough was shown."""
        return at_most(self.accused, self.audits) and (self.shown is None or self.shown >= self.least)


_TRIED: tuple[tuple[Bound[Scores], bool, float], ...] = (
    (ClopperPearson(), False, 1.0),
    (OneRun(shares=(1.0,)), False, 1.2),
    (OneRunFdp(shares=(1.0,)), True, 1.7),
    (GaussianDp(), True, 2.9),
)
"""A bound that is simulated, whether on a Gaussian mechanism, and what its default must show of one with mu 1."""


def calibrations(audits: int, streams: KeyedRandomness) -> Iterator[Calibration]:
    """One after the other: each bound on so many simulated scores, and one on as many trainings of the correct engine."""
    for number, (bound, is_gaussian, to_show) in enumerate(_TRIED):
        seed = streams.seed("simulated", number)
        if is_gaussian:
            simulated, delta = gaussian_audits(audits, _EXAMPLES, _MU, seed), _DELTA
            what, truth = f"Gaussian mechanism, mu {_MU:g}", gaussian_epsilon(_MU, _DELTA)
        else:
            simulated, delta = leaking_audits(audits, _EXAMPLES, _EPSILON, 0.0, seed), 0.0
            what, truth = f"randomised response, epsilon {_EPSILON:g}", _EPSILON
        accused = accusations(bound, simulated, delta, truth)
        yield Calibration(what, bound.name, audits, accused, _shown(type(bound)(), streams), 0.9 * to_show)
    yield _of_the_engine(audits, streams)


def _shown(bound: Bound[Scores], streams: KeyedRandomness) -> float:
    examples = gaussian_audits(_SHOWN, _SHOWN_EXAMPLES, 1.0, streams.seed("shown"))
    return float(np.mean([bound.at_level(audit, _DELTA, LEVEL)[0] for audit in examples]))


def _of_the_engine(audits: int, streams: KeyedRandomness) -> Calibration:
    """Trainings of one step of the correct engine, which is a Gaussian mechanism of exactly this mu."""
    noise = 1 / _MU
    game = Crowd(DpPlan(1.0, GRADIENT_NORM / 4, noise, normaliser=32), steps=1, trainings=1, words=64)
    evidence = (game.play(DpStep, 1, streams.child("engine", number), lambda: None) for number in range(audits))
    accused = accusations(GaussianDp(), evidence, _DELTA, gaussian_epsilon(_MU, _DELTA))
    return Calibration(f"the correct engine, mu {_MU:g}", GaussianDp.name, audits, accused)


def accusations(bound: Bound[Scores], audits: Iterator[Scores], delta: float, truth: float) -> int:
    """How many audits have a bound above the truth."""
    return sum(bound.at_level(audit, delta, LEVEL)[0] > truth + 1e-9 for audit in audits)


def at_most(wrong: int, audits: int, level: float = LEVEL) -> bool:
    """Whether so many wrong bounds are plausible where each is wrong with probability at most ``level``. False alarms: 1e-6."""
    return wrong <= int(binom.ppf(1 - 1e-6, audits, level))


def gaussian_audits(number: int, size: int, mu: float, seed: int) -> Iterator[Scores]:
    """Independent scores N(mu, 1) of members and N(0, 1) of others: exactly mu-GDP."""
    generator = np.random.default_rng(seed)
    for _ in range(number):
        included_m = generator.random(size) < 0.5
        yield Scores(generator.normal(size=size) + mu * included_m, included_m, generator.permutation(size))


def leaking_audits(number: int, size: int, epsilon: float, delta: float, seed: int) -> Iterator[Scores]:
    """Each coin is told with probability delta, and goes through randomised response else: exactly (epsilon, delta)."""
    generator = np.random.default_rng(seed)
    for _ in range(number):
        included_m = generator.random(size) < 0.5
        told_m = generator.random(size) < delta
        lies_m = ~told_m & (generator.random(size) < 1 / (1 + np.exp(epsilon)))
        scores_m = np.where(included_m ^ lies_m, 1.0, -1.0) * (1 + told_m + generator.random(size) / 2)
        yield Scores(scores_m, included_m, generator.permutation(size))
