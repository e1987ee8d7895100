"""What each model spends: the DP vocabulary and the private training in one joint account, and the noise that a budget asks for.

The vocabulary and the base's public training are a run of their own here, so that models can share them. A model's epsilon is of both
runs together, as if they were one: each note, or dialogue, may be in both.
"""

from __future__ import annotations

import functools
import json
import math
from dataclasses import dataclass, replace

from tacit.config import RunConfig
from tacit.planning.vocabulary import vocabulary_event, vocabulary_releases
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.calibrate import scaled_noise
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.reproduce.hoory.cells import DELTA, UNITS, Base, DpTraining, Lexicon, Model, Private
from tacit.reproduce.hoory.scale import Scale

__all__ = [
    "Account",
    "account_of",
    "epsilon_of_steps",
    "lexicon_epsilon",
    "noises_of",
    "vocabulary_config",
    "vocabulary_spends",
]

_RELATION = "add-or-remove"
_SHARE = 0.5  # of epsilon: less leaves the counts so noisy that the pieces are those of public text


@dataclass(frozen=True)
class Account:
    """A model's price.

    Args:
        noise_multipliers: of each DP phase.
        vocabulary: epsilon of the vocabulary alone; 0 where it reads no private text.
        training: epsilon of the training alone.
        joint: of both; infinite where private text is read without noise.
    """

    noise_multipliers: tuple[float, ...]
    vocabulary: float
    training: float
    joint: float


def vocabulary_config(scale: Scale) -> dict[str, object]:
    """The section ``vocabulary`` of the DP base, without its word list."""
    options = {"method": "weighted", "size": scale.vocabulary, "epsilon_share": _SHARE, "counts_share": 0.9}
    return {**options, **scale.vocabulary_options}


@functools.cache
def _vocabulary_spends(private: Private, budget: float, section: str) -> tuple[Spend, ...]:
    values = {
        "run": "unused",
        "privacy": {"unit": "document", "units": UNITS[private], "budget": {"epsilon": budget, "delta": DELTA}},
        "private": {"path": "unused"},
        "vocabulary": json.loads(section),
        "phases": [
            {"name": "public", "plan": "plain", "stream": "public", "steps": 1, "learning_rate": 1, "batch_size": 1}
        ],
    }
    event = vocabulary_event(RunConfig.model_validate(values))
    return tuple(Spend(release, 1) for release in vocabulary_releases(event).values())


def vocabulary_spends(base: Base, scale: Scale) -> tuple[Spend, ...]:
    """What a base's vocabulary costs: something for the DP one alone; ``own`` is not paid for, and its models have no epsilon."""
    if base.vocabulary != "dp":
        return ()
    assert base.private is not None  # of every DP vocabulary, as its epsilon
    assert base.epsilon is not None
    return _vocabulary_spends(base.private, base.epsilon, json.dumps(vocabulary_config(scale), sort_keys=True))


def lexicon_epsilon(lexicon: Lexicon, scale: Scale) -> float:
    """The epsilon of the vocabulary alone, which gets its share of the budget."""
    section = json.dumps(vocabulary_config(scale), sort_keys=True)
    return _epsilon(_vocabulary_spends(lexicon.private, lexicon.epsilon, section))


def _training_spends(private: Private, training: DpTraining, noises: tuple[float, ...]) -> tuple[Spend, ...]:
    """The spends of phases of equal length; with correlated noise a cycle of steps costs what one step does."""
    rate = training.noise_bands * training.expected_batch / UNITS[private]
    payments = math.ceil(training.steps // len(noises) / training.noise_bands)
    return tuple(Spend(PoissonGaussian(rate, noise), payments) for noise in noises)


def epsilon_of_steps(rate: float, noise: float, steps: int, delta: float) -> float:
    """The epsilon of DP-SGD steps for an example more or less."""
    return epsilon([Spend(PoissonGaussian(rate, noise), steps)], delta, _RELATION)


@functools.cache
def _epsilon(spends: tuple[Spend, ...]) -> float:
    """Many models differ in what costs nothing, and share their price."""
    return epsilon(spends, DELTA, _RELATION)


def noises_of(private: Private, base: Base, training: DpTraining, scale: Scale) -> tuple[float, ...]:
    """The noise multiplier of each phase: solved for the training's epsilon, or a factor of the corpus's own DP training's noise.

    Raises:
        BudgetError: no noise meets it.
    """
    if training.epsilon is None:
        own = scale.dp[private]
        (reference,) = noises_of(private, base, replace(own, epsilon=own.epsilon or 8.0), scale)
        return (training.noise_factor * reference,)
    vocabulary = vocabulary_spends(base, scale)
    of_noise = replace(training, sequences=1, learning_rate=0.0, maskings=1, masked=0.15, average=None, keep=None)
    return _solved(vocabulary, private, of_noise)  # solved once for all that differ in nothing else


@functools.cache
def _solved(vocabulary: tuple[Spend, ...], private: Private, training: DpTraining) -> tuple[float, ...]:
    def noises(multiplier: float) -> tuple[float, ...]:
        return tuple(multiplier * factor for factor in training.schedule)

    def spends(multiplier: float) -> list[Spend]:
        return [*vocabulary, *_training_spends(private, training, noises(multiplier))]

    assert training.epsilon is not None
    solved = scaled_noise(training.epsilon, DELTA, spends, _RELATION)
    return noises(solved)


def account_of(model: Model, scale: Scale) -> Account:
    """The price of a model, from the plan alone."""
    spends = vocabulary_spends(model.base, scale)
    of_words = _epsilon(spends) if spends else 0.0
    training = model.training
    if isinstance(training, DpTraining):
        noises = noises_of(model.private, model.base, training, scale)
        own = _training_spends(model.private, training, noises)
        return Account(noises, of_words, _epsilon(own), _epsilon(spends + own))
    if training is not None or model.base.vocabulary == "own":
        return Account((), of_words, math.inf, math.inf)
    return Account((), of_words, 0.0, of_words)
