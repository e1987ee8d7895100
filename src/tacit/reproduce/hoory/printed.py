"""Claims that no training decides: the epsilons of figure 1, of plans alone, and those that the paper prints."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from scipy.optimize import root_scalar
from scipy.special import erfinv, ndtr

from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.histogram import HooryClaim, histogram_delta, histogram_epsilon, hoory_claim
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.events import PoissonGaussian, Spend, ThresholdedHistogram
from tacit.reproduce.hoory.account import account_of, epsilon_of_steps
from tacit.reproduce.hoory.cells import EPSILONS, MAIN, DpTraining, Model, row_of
from tacit.reproduce.hoory.models import models_of
from tacit.reproduce.hoory.scale import Scale
from tacit.reproduce.writing import Claim, Row

__all__ = [
    "batch_in_parts",
    "epsilons_of_figure1",
    "equation_3",
    "gains_of_table_2",
    "growth_with_steps",
    "ordered",
    "plans_of_figure1",
    "printed_epsilons",
    "rounded_epsilons",
    "same_for_all",
    "theorem_1",
]

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
    """Computed, not drawn: undecided only where a scale has no two points to compare."""
    rows = plans_of_figure1(scale)
    points = {varied: [row for row in rows if row["varied"] == varied] for varied in (*_EPSILON_OF, "root")}
    found = [ordered(text, sign, points[varied]) for varied, (text, sign) in _EPSILON_OF.items()]
    return list(_computed([*found, same_for_all(points["root"])]))


def _computed(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    return tuple(replace(claim, computed=True) for claim in claims)


def ordered(text: str, sign: int, points: Sequence[Row]) -> Claim:
    """Whether epsilon rises (or falls, at a sign of -1) from each point to the next."""
    if len(points) < 2:
        return Claim(text, "", None, _FEW)
    found = [row["epsilon"] for row in points]
    holds = all(sign * (after - before) > 0 for before, after in itertools.pairwise(found))
    return Claim(text, "", holds, ", ".join(f"{row['value']:.4g}: {row['epsilon']:.2f}" for row in points))


_FEW = "this scale has no two points to compare"


def same_for_all(points: Sequence[Row]) -> Claim:
    """Whether the epsilons of all batches are within a tenth of one another."""
    text = "section 3.3: noise in proportion to the root of the batch makes epsilon the same for all batches"
    if len(points) < 2:
        return Claim(text, "", None, _FEW)
    found = [row["epsilon"] for row in points]
    numbers = ", ".join(f"batch {row['value']:.4g}, noise {row['noise']:.3g}: {row['epsilon']:.2f}" for row in points)
    return Claim(text, "", max(found) < (1 + _OBLIVIOUS) * min(found), numbers)


# What the paper prints --------------------------------------------------------------------------------------------------

_WORDS, _NOISE = 256, 200.0
_DELTA_VOCABULARY, _DELTA_TRAINING = 1e-9, 1e-8
_RATE, _STEPS = 131_072 / 83e6, 31_250
"""A batch of 83 million examples, and a million steps of which every 32nd applies gradients."""
_NOISE_TRAINING = 2.72
_PARTS = 256 * 32
"""Of a batch: shards, times batches in time. Section 3.3 calls it the parallelism."""


@functools.cache
def printed_epsilons() -> tuple[Claim, ...]:
    """Claims of the printed epsilons of an example, as the paper has them: there are about ten of each text, with other masks."""
    histogram = hoory_claim(_NOISE, _WORDS, _DELTA_VOCABULARY)
    found = (
        theorem_1(),
        Claim(
            "corollary 1: noise 200 and the threshold 982.5 give a vocabulary of 256 words an example delta 1e-9",
            "",
            histogram.smallest_true_delta <= _DELTA_VOCABULARY,
            f"delta is at least {histogram.smallest_true_delta:.3g}",
        ),
        _corollary2(histogram),
        rounded_epsilons(histogram),
        _of_vocabulary(histogram),
        equation_3(),
        batch_in_parts(),
        *growths_with_steps(),
        *_of_training(),
        _of_both(histogram),
        *gains_of_table_2(),
    )
    return _computed(found)


def theorem_1(factor: float = 1.0) -> Claim:
    """The theorem with m = 1 and k = sqrt(N), as the paper applies it, at its noise, delta and words of an example.

    Args:
        factor: of erfinv in the threshold; the paper has none, and the square root of 2 is right.
    """
    text = "theorem 1: the histogram is (epsilon, delta)-DP (noise 200, 256 words an example, delta 1e-9)"
    epsilon_claimed = math.sqrt(_WORDS) / _NOISE * math.sqrt(2 * math.log(2.5 / _DELTA_VOCABULARY))

    def found(factor: float) -> tuple[float, float]:
        threshold = 1 + factor * _NOISE * float(erfinv(1 - _DELTA_VOCABULARY / (2 * _WORDS)))
        return threshold, histogram_delta(_histogram(threshold), epsilon_claimed)

    (threshold, delta), (right, below) = found(factor), found(math.sqrt(2))
    numbers = (
        f"at the threshold {threshold:.1f} delta is {delta:.3g} at its epsilon of {epsilon_claimed:.3f}; "
        f"with a sqrt(2) before erfinv, at {right:.1f}, it is {below:.2g}"
    )
    return Claim(text, "", delta <= _DELTA_VOCABULARY, numbers)


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


def rounded_epsilons(histogram: HooryClaim, printed: Sequence[str] = ("0.517", "0.51")) -> Claim:
    """Whether the paper prints what its own formula gives; a guarantee that is rounded down is none.

    Args:
        printed: epsilons of the vocabulary, as the text and table 2 have them.
    """
    text = f"section 3.2 and table 2: the vocabulary's epsilon is {' and '.join(printed)}, by the paper's own formula"
    holds = all(_agrees(one, histogram.claimed_epsilon) for one in printed)
    cut = "" if holds else ", which is cut off there and not rounded"
    return Claim(text, "", holds, f"corollary 1's formula gives {histogram.claimed_epsilon:.4f}{cut}")


def _agrees(printed: str, value: float) -> bool:
    """Whether a value, rounded to as many digits, is what is printed."""
    return f"{value:.{len(printed.partition('.')[2])}f}" == printed


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
    noise = _less_noise()
    at_28 = epsilon_of_steps(_RATE, noise, _STEPS, _DELTA_TRAINING)
    return [
        Claim(
            "table 2: noise 2.72 of the sum over all shards, batches of 131,072 that are drawn by Poisson sampling from 83 million "
            "examples, and 31,250 steps (every 32nd of a million) have epsilon 0.6 at delta 1e-8",
            "",
            at_06 <= 0.6,
            f"{at_06:.3f}; the paper says neither how batches are drawn nor whether 2.72 is of the sum or of a shard; for batches "
            "that are shuffled or read in order this proves nothing",
        ),
        Claim(
            "table 2: the training with less noise has epsilon 2.8 at delta 1e-8",
            "",
            None,
            f"the paper does not print its noise; where Rényi accounting, as the paper has it, says 2.8 it is {noise:.2f}, and "
            f"epsilon {at_28:.2f}",
        ),
    ]


@functools.cache
def _less_noise() -> float:
    """Where Rényi accounting, as the paper has it, says 2.8."""
    return float(root_scalar(lambda stddev: _renyi(stddev) - 2.8, bracket=(0.5, _NOISE_TRAINING)).root)


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


# Section 3.3 and sums of table 2 ----------------------------------------------------------------------------------------


def equation_3(correlation: float = 0.0) -> Claim:
    """The noise of a batch whose parts have noise of their own, where all parts have one noise multiplier.

    Args:
        correlation: of the noise of two parts: 1 where all are drawn by one generator from one seed.
    """
    text = "equation 3: noise multiplier s in each of P parts of a batch is s sqrt(P) in all, if the parts' noise is independent"
    own = _NOISE_TRAINING / math.sqrt(_PARTS)
    together, alike = (own * math.sqrt(_PARTS + _PARTS * (_PARTS - 1) * shared) for shared in (correlation, 1.0))
    numbers = (
        f"{_PARTS:,} parts of noise {own:.4f} have {together:.2f} together; were all drawn from one seed it would be {alike:.0f}, "
        "which equation 3 does not describe"
    )
    return Claim(text, "", math.isclose(together, _NOISE_TRAINING), numbers)


def batch_in_parts(examples: int = 32) -> Claim:
    """The batch that section 3.3 puts together.

    Args:
        examples: of a shard in one batch in time.
    """
    batch = _PARTS * examples
    text = "section 3.3: 256 shards of 32 examples and 32 batches in time make a batch of 128k examples"
    found = epsilon_of_steps(batch / 83e6, _NOISE_TRAINING, _STEPS, _DELTA_TRAINING)
    numbers = (
        f"they make {batch:,}, with which the training of noise {_NOISE_TRAINING} has epsilon {found:.2f} at delta 1e-8"
    )
    return Claim(text, "", batch in (128_000, 131_072), numbers)


def growths_with_steps() -> list[Claim]:
    """A row for the noise that is printed, and one for that which table 2's other training must have had (`_less_noise`)."""
    return [
        growth_with_steps(f"noise {noise:.3g}", functools.partial(_epsilon_after, noise))
        for noise in (_NOISE_TRAINING, _less_noise())
    ]


def _epsilon_after(noise: float, steps: int) -> float:
    return epsilon_of_steps(_RATE, noise, steps, _DELTA_TRAINING)


def growth_with_steps(panel: str, epsilon_after: Callable[[int], float]) -> Claim:
    """Whether twice the steps cost nearly twice the epsilon; what grows like the root of the steps costs 1.41 times as much.

    The paper names no range; this is from half to twice the steps of table 2. A straight line that does not begin at 0 counts, too: a
    step beyond those of table 2 costs on it as much as one before.

    Args:
        epsilon_after: of a number of steps.
    """
    text = (
        "section 3.3: epsilon increases near-linearly in the steps: twice the steps, at least 1.8 times the epsilon, or further "
        "steps at least 0.9 of the cost of those before"
    )
    half, whole, twice = (epsilon_after(steps) for steps in (_STEPS // 2, _STEPS, 2 * _STEPS))
    steepness = (twice - whole) / (2 * (whole - half))
    numbers = (
        f"{half:.3f}, {whole:.3f} and {twice:.3f} after half, all and twice the {_STEPS:,} steps: {whole / half:.2f} and "
        f"{twice / whole:.2f} times as much (the root of 2 is 1.41); a further step costs {steepness:.2f} of one before"
    )
    holds = min(whole / half, twice / whole) >= 2 * (1 - _OBLIVIOUS) or steepness >= 1 - _OBLIVIOUS
    return Claim(text, panel, holds, numbers)


def gains_of_table_2(printed: Sequence[Sequence[float]] = ((7.4, 3.5), (0.8, 0.5))) -> list[Claim]:
    """Differences of F1 in the text beside those of the table; each of three rounded numbers may be off by 0.05.

    Args:
        printed: of both tasks: what the text gives BERT-DP at the smaller epsilon above BERT, and less noise above that.
    """
    texts = (
        "section 5.1: at epsilon 1.1 BERT-DP's F1 is above BERT's by {}, in table 2",
        "section 5.1: F1 decreases with the smaller epsilon by {}, in table 2",
    )
    table = {"BERT": (76.3, 77.6), "less noise": (84.5, 81.7), "more noise": (83.7, 81.2)}
    pairs = (("more noise", "BERT"), ("less noise", "more noise"))
    claims = []
    for text, own, (better, worse) in zip(texts, printed, pairs, strict=True):
        found = [above - below for above, below in zip(table[better], table[worse], strict=True)]
        holds = all(abs(one - said) <= 3 * 0.05 + 1e-9 for one, said in zip(found, own, strict=True))
        numbers = " and ".join(f"{value:.1f}" for value in found)
        words = text.format(" and ".join(f"{value:g}" for value in own))
        exact = [f"{value:.1f}" for value in found] == [f"{value:.1f}" for value in own]
        claims.append(
            Claim(words, "", holds, numbers if exact or not holds else f"{numbers}, as near as rounding allows")
        )
    return claims
