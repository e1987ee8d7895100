"""Simulated audits: no bound is above the truth more often than it says, wrong versions are caught, and each shows what it should."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import ArrayLike

from tacit.audit.bounds.bound import Bound
from tacit.audit.bounds.clopper_pearson import ClopperPearson
from tacit.audit.bounds.evidence import Ranks, Scores
from tacit.audit.bounds.gaussian import GaussianDp
from tacit.audit.bounds.guessing_game import GuessingGame
from tacit.audit.bounds.one_run import OneRun
from tacit.audit.bounds.one_run_fdp import OneRunFdp
from tacit.audit.bounds.rates import lower_limit, upper_limit
from tacit.audit.bounds.tradeoff import gaussian_epsilon
from tacit.audit.self_test.simulated import LEVEL, accusations, at_most, gaussian_audits, leaking_audits

AUDITS = 2000


class NumberChosenAfterwards(OneRun):
    """Wrong: the best number of guesses is not paid for."""

    def at_level(self, evidence: Scores, delta: float, level: float) -> tuple[float, Mapping[str, int | float]]:
        return super().at_level(evidence, delta, level * len(self.shares))


class DeltaIgnored(OneRun):
    """Wrong: as if the guarantee were pure."""

    def of_guesses(self, right: int, guesses: int, size: int, delta: float, level: float) -> float:
        return super().of_guesses(right, guesses, size, 0.0, level)


class AbstainingForFree(OneRunFdp):
    """Wrong: as if the guessed examples were all there are."""

    def of_guesses(self, right: int, guesses: int, size: int, delta: float, level: float) -> float:
        return super().of_guesses(right, guesses, guesses, delta, level)


class SameExamples(ClopperPearson):
    """Wrong: the examples that test are copies of those that choose."""

    def at_level(self, evidence: Scores, delta: float, level: float) -> tuple[float, Mapping[str, int | float]]:
        scores_m, included_m = (np.concatenate([part, part]) for part in (evidence.scores_m, evidence.included_m))
        return super().at_level(Scores(scores_m, included_m, np.arange(len(scores_m))), delta, level)


class MuAlone(GaussianDp):
    """Shows mu itself, which is as right as epsilon, and cheaper."""

    def epsilon(self, shown: float, delta: float) -> float:
        return shown


MANY = tuple(share / 10 for share in range(1, 11))


def test_one_run_does_not_accuse_randomised_response() -> None:
    wrong = accusations(OneRun(shares=(1.0,)), leaking_audits(AUDITS, 300, 1.0, 0.0, seed=1), 0.0, 1.0)
    assert at_most(wrong, AUDITS)
    assert wrong > AUDITS * LEVEL / 10  # so a bound that is a little larger would


def test_one_run_with_delta_does_not_accuse_leaks_and_ignoring_delta_does() -> None:
    """m = 300 and delta = 0.02: six leaked coins are among the 30 surest guesses."""
    for bound in (OneRun(shares=(0.1,)), OneRun()):
        assert at_most(accusations(bound, leaking_audits(AUDITS, 300, 1.0, 0.02, seed=2), 0.02, 1.0), AUDITS)
    ignored = accusations(DeltaIgnored(shares=(0.1,)), leaking_audits(AUDITS, 300, 1.0, 0.02, seed=2), 0.02, 1.0)
    assert not at_most(ignored, AUDITS)


@pytest.mark.slow
def test_the_number_of_guesses_is_paid_for() -> None:
    assert at_most(accusations(OneRun(shares=MANY), gaussian_audits(AUDITS, 300, 0.0, seed=3), 0.0, 0.0), AUDITS)
    afterwards = accusations(NumberChosenAfterwards(shares=MANY), gaussian_audits(AUDITS, 300, 0.0, seed=3), 0.0, 0.0)
    assert not at_most(afterwards, AUDITS)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_one_run_fdp_does_not_accuse_a_gaussian_mechanism(mu: float) -> None:
    truth = gaussian_epsilon(mu, 1e-5)
    for bound in (OneRunFdp(), OneRunFdp(shares=(1.0,))):
        assert at_most(accusations(bound, gaussian_audits(AUDITS, 200, mu, seed=4), 1e-5, truth), AUDITS)
    free = accusations(AbstainingForFree(shares=(0.1,)), gaussian_audits(AUDITS, 200, mu, seed=4), 1e-5, truth)
    assert mu == 0 or not at_most(free, AUDITS)


@pytest.mark.slow
def test_clopper_pearson_does_not_accuse_and_the_same_examples_do() -> None:
    assert at_most(accusations(ClopperPearson(), leaking_audits(AUDITS, 200, 1.0, 0.0, seed=5), 0.0, 1.0), AUDITS)
    assert at_most(accusations(ClopperPearson(), gaussian_audits(AUDITS, 200, 0.0, seed=6), 0.0, 0.0), AUDITS)
    same = accusations(SameExamples(choosing=0.5), leaking_audits(AUDITS, 400, 2.0, 0.0, seed=5), 0.0, 2.0)
    assert not at_most(same, AUDITS)


@pytest.mark.parametrize("mu", [0.0, 1.0])
def test_gaussian_dp_does_not_accuse_a_gaussian_mechanism(mu: float) -> None:
    assert at_most(accusations(MuAlone(), gaussian_audits(AUDITS, 200, mu, seed=7), 1e-5, mu), AUDITS)


def test_the_level_is_split_between_the_two_limits() -> None:
    """Randomised response of epsilon ln(97 / 3), at one threshold: both directions can be wrong, each by one limit."""
    generator, number, trials, truth = np.random.default_rng(8), 20_000, 2000, np.log(0.97 / 0.03)
    true, false = generator.binomial(trials, 0.97, number), generator.binomial(trials, 0.03, number)

    def wrong(tail: float) -> int:
        limits: tuple[ArrayLike, ArrayLike] = lower_limit(true, trials, tail), upper_limit(false, trials, tail)
        return int(np.count_nonzero(ClopperPearson().shown(*limits, 0.0) > truth))

    assert at_most(wrong(LEVEL / 2), number)
    assert not at_most(wrong(LEVEL), number)


def test_the_guessing_game_does_not_accuse_randomised_response() -> None:
    generator, secrets, candidates, epsilon = np.random.default_rng(9), 100, 50, 4.0
    found = generator.random((AUDITS, secrets)) < np.exp(epsilon) / (np.exp(epsilon) + candidates - 1)
    audits = [Ranks(np.where(found_T, 1.0, 2.0)) for found_T in found]
    wrong = accusations(GuessingGame(candidates), audits, 0.0, epsilon)
    assert at_most(wrong, AUDITS)
    assert wrong > AUDITS * LEVEL / 4
    assert not at_most(accusations(GuessingGame(candidates + 50), audits, 0.0, epsilon), AUDITS)  # a wrong k is caught


@pytest.mark.parametrize(
    ("bound", "epsilon"),
    [
        (ClopperPearson(), 1.0),
        (OneRun(), 1.57),  # 1.2 where only the highest scores are guessed, and all numbers of guesses are tried
        (OneRunFdp(), 2.27),  # 1.7 there
        (GaussianDp(), 2.9),
    ],
    ids=lambda value: value.name if isinstance(value, Bound) else "",
)
def test_what_is_shown_of_a_gaussian_mechanism(bound: Bound[Scores], epsilon: float) -> None:
    """m = 1,000, mu = 1 and delta 1e-5: the truth is 4.38."""
    shown = [bound.at_level(audit, 1e-5, LEVEL)[0] for audit in gaussian_audits(80, 1000, 1.0, seed=10)]
    assert np.mean(shown) == pytest.approx(epsilon, rel=0.1)
