"""Claims that no training decides: the epsilons of figure 1, of plans alone, and those that the paper prints."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

from scipy.optimize import root_scalar
from scipy.special import ndtr

from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.histogram import HooryClaim, histogram_epsilon, hoory_claim
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.events import PoissonGaussian, Spend, ThresholdedHistogram
from tacit.reproduce.hoory.account import account_of, epsilon_of_steps
from tacit.reproduce.hoory.cells import EPSILONS, MAIN, DpTraining, Model, row_of
from tacit.reproduce.hoory.models import models_of
from tacit.reproduce.hoory.scale import Scale
from tacit.reproduce.writing import Claim, Row

__all__ = ["epsilons_of_figure1", "plans_of_figure1", "printed_epsilons"]

_OBLIVIOUS = 0.1
"""Epsilons that differ by less than a tenth are the same here."""

# Figure 1 ---------------------------------------------------------------------------------------------------------------

_EPSILON_OF = {
    "noise": ("figure 1: more noise, a smaller epsilon", -1),
    "steps": ("figure 1: more steps, a larger epsilon", 1),
    "batch": ("figure 1: a larger batch with the same noise multiplier, a larger epsilon", 1),
}


def plans_of_figure1(scale: Scale) -> list[Row]:
    """``varied``, ``value``, ``noise`` and ``epsilon`` of every point, trained or not; the reference is in every part."""
    models = {row_of(model.name): model for model in models_of(replace(scale, curves=1, tricks=False))}
    reference = models[f"{MAIN['notes']}-dp-{EPSILONS[0]:g}"]
    rows = [_plan(varied, reference, scale) for varied in ("noise", "steps", "batch", "root")]
    rows += [
        _plan(row.split("-")[1], model, scale)
        for row, model in models.items()
        if model.part == "figure1" and not row.startswith("figure1-passes")
    ]
    return sorted(rows, key=lambda row: (row["varied"], row["value"]))


def _plan(varied: str, model: Model, scale: Scale) -> Row:
    training, account = model.training, account_of(model, scale)
    assert isinstance(training, DpTraining)
    (noise,) = account.noise_multipliers
    value = {"noise": noise, "steps": training.steps}.get(varied, training.expected_batch)
    return {"varied": varied, "value": value, "noise": noise, "epsilon": account.joint}


def epsilons_of_figure1(scale: Scale) -> list[Claim]:
    """Computed, not drawn: there is nothing to be undecided about."""
    rows = plans_of_figure1(scale)
    points = {varied: [row for row in rows if row["varied"] == varied] for varied in (*_EPSILON_OF, "root")}
    return [
        *(_ordered(text, sign, points[varied]) for varied, (text, sign) in _EPSILON_OF.items()),
        _root(points["root"]),
    ]


def _ordered(text: str, sign: int, points: Sequence[Row]) -> Claim:
    found = [row["epsilon"] for row in points]
    holds = all(sign * (after - before) > 0 for before, after in itertools.pairwise(found))
    return Claim(text, "", holds, ", ".join(f"{row['value']:.4g}: {row['epsilon']:.2f}" for row in points))


def _root(points: Sequence[Row]) -> Claim:
    text = "section 3.3: noise in proportion to the root of the batch makes epsilon the same for all batches"
    found = [row["epsilon"] for row in points]
    numbers = ", ".join(f"batch {row['value']:.4g}, noise {row['noise']:.3g}: {row['epsilon']:.2f}" for row in points)
    return Claim(text, "", max(found) < (1 + _OBLIVIOUS) * min(found), numbers)


# What the paper prints --------------------------------------------------------------------------------------------------

_WORDS, _NOISE = 256, 200.0
_DELTA_VOCABULARY, _DELTA_TRAINING = 1e-9, 1e-8
_RATE, _STEPS = 131_072 / 83e6, 31_250
"""A batch of 83 million examples, and a million steps of which every 32nd applies gradients."""
_NOISE_TRAINING = 2.72


@functools.cache
def printed_epsilons() -> tuple[Claim, ...]:
    """Claims of the printed epsilons of an example, as the paper has them: there are about ten of each text, with other masks."""
    histogram = hoory_claim(_NOISE, _WORDS, _DELTA_VOCABULARY)
    return (
        Claim(
            "corollary 1: noise 200 and the threshold 982.5 give a vocabulary of 256 words an example delta 1e-9",
            "",
            histogram.smallest_true_delta <= _DELTA_VOCABULARY,
            f"delta is at least {histogram.smallest_true_delta:.3g}",
        ),
        _corollary2(histogram),
        _of_vocabulary(histogram),
        *_of_training(),
        _of_both(histogram),
    )


def _corollary2(histogram: HooryClaim) -> Claim:
    """The proof's own sum: delta of the Gaussian mechanism on the words that are not new, and of the new ones, each by itself.

    The norm of what is left of an example without its l new words is sqrt(N - l), where the proof has N - l. A new word is shown with
    probability delta / N only where erfinv is multiplied by sqrt(2).
    """
    text = "corollary 2: delta stays 1e-9, as its proof adds it up, however many words of an example are new"
    asked = _DELTA_VOCABULARY / _WORDS
    shown = float(ndtr(-(histogram.threshold - 1) / _NOISE))
    largest, meant = (max(_added(new, of_word) for new in range(_WORDS + 1)) for of_word in (shown, asked))
    exact = 1 + 1e-9  # of float64
    numbers = (
        f"up to {largest:.3g}: a new word is shown with probability {shown:.2g}, not {asked:.2g}, for want of a sqrt(2) before "
        f"erfinv; with it, and with the norm sqrt(N - l) in the place of N - l, it is at most {meant:.3g}"
    )
    return Claim(text, "", largest <= _DELTA_VOCABULARY * exact, numbers)


def _added(new: int, of_word: float) -> float:
    known = 1.25 * (_DELTA_VOCABULARY / 1.25) ** (_WORDS / (_WORDS - new)) if new < _WORDS else 0.0
    return known + new * of_word


def _histogram(threshold: float) -> ThresholdedHistogram:
    return ThresholdedHistogram(_NOISE, threshold, _WORDS, "gaussian")


def _of_vocabulary(histogram: HooryClaim) -> Claim:
    printed, right = (
        histogram_epsilon(_histogram(threshold), _DELTA_VOCABULARY)
        for threshold in (histogram.threshold, _right(histogram))
    )
    said = "no epsilon has this delta" if math.isinf(printed) else f"{printed:.3f}"
    return Claim(
        "table 2: the vocabulary of noise 200 and the threshold 982.5 has epsilon 0.51 at delta 1e-9",
        "",
        printed <= 0.52,
        f"{said}; with the threshold {_right(histogram):.1f} it is {right:.3f}",
    )


def _right(histogram: HooryClaim) -> float:
    """The threshold, rounded up: at it delta may be larger by a rounding error."""
    return math.ceil(10 * histogram.correct_threshold) / 10


def _of_training() -> list[Claim]:
    at_06 = epsilon_of_steps(_RATE, _NOISE_TRAINING, _STEPS, _DELTA_TRAINING)
    noise = float(root_scalar(lambda stddev: _renyi(stddev) - 2.8, bracket=(0.5, _NOISE_TRAINING)).root)
    at_28 = epsilon_of_steps(_RATE, noise, _STEPS, _DELTA_TRAINING)
    return [
        Claim(
            "table 2: noise 2.72, batches of 131,072 of 83 million examples and 31,250 steps have epsilon 0.6 at delta 1e-8",
            "",
            at_06 <= 0.6,
            f"{at_06:.3f}",
        ),
        Claim(
            "table 2: the training with less noise has epsilon 2.8 at delta 1e-8",
            "",
            None,
            f"the paper does not print its noise; where Rényi accounting, as the paper has it, says 2.8 it is {noise:.2f}, and "
            f"epsilon {at_28:.2f}",
        ),
    ]


def _steps(noise: float) -> Spend:
    return Spend(PoissonGaussian(_RATE, noise), _STEPS)


def _renyi(noise: float) -> float:
    found = rdp_epsilon((_steps(noise),), _DELTA_TRAINING, "add-or-remove")
    assert found is not None  # of Poisson sampling with Gaussian noise
    return found


def _of_both(histogram: HooryClaim) -> Claim:
    delta = _DELTA_VOCABULARY + _DELTA_TRAINING
    printed, right = (
        epsilon([Spend(_histogram(threshold), 1), _steps(_NOISE_TRAINING)], delta)
        for threshold in (histogram.threshold, _right(histogram))
    )
    said = "no epsilon has this delta" if math.isinf(printed) else f"{printed:.3f}"
    return Claim(
        "abstract: vocabulary and training together have epsilon 1.1 (delta 1.1e-8, the sum of both)",
        "",
        printed <= 1.1,
        f"{said}; with the threshold {_right(histogram):.1f} it is {right:.3f}",
    )
