"""Judging with power: a mean over seeds and documents with its interval, against a bound, or at its null beside a positive control.

Three verdicts: True, a claim shows; False, it does not; None, undecided: the interval holds the bound, or the control has no power.

Shapes: S seeds, D test documents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from scipy import stats

from tacit.audit.inference import Estimate

__all__ = [
    "FEWEST",
    "TOLD_ALONE",
    "above",
    "all_at_null",
    "all_of",
    "any_of",
    "at_null",
    "below",
    "beside_controls",
    "fishers",
    "log_ratio",
    "over_documents",
    "over_seeds",
    "paired",
]


FEWEST = 3
"""Trainings that a claim on a way of training needs, whatever one model shows."""


TOLD_ALONE = 0.05
"""A p-value below it is told where nothing else is asked: what claims that nothing was found is held to it, however many they are."""


def over_seeds(value_S: np.ndarray, within: float, within_df: float, level: float) -> Estimate:
    """The mean of independent replicates of one experiment, whose test documents (or attacked lines) are the same in all.

    Two things are drawn: the seeds, and the documents. The variance of the mean is at most the sum of var(seeds) / S and
    ``within``. The squared margin is the sum of both estimates, each times the square of its own quantile of Student's t. That covers
    at every level, whatever share each has: the tail of a squared normal number is convex, so the tail at a mean of two bounds is at
    most the mean of their tails, and each of these is the level. Satterthwaite's degrees of freedom do not: at a level of 0.0004 and
    with three seeds they miss up to 29 times as often as they should. One seed has no interval: nothing is told from anything.

    Args:
        value_S: a number of each seed.
        within: variance that the mean has from the draw of the documents alone.
        within_df: degrees of freedom of that estimate.
        level: both tails together; already divided by the number of claims.
    """
    mean, seeds = float(value_S.mean()), len(value_S)
    if seeds < 2:
        return Estimate(mean, -math.inf, math.inf)
    between = float(value_S.var(ddof=1)) / seeds
    quantiles = [float(stats.t.isf(level / 2, df)) for df in (seeds - 1, within_df)]
    margin = math.hypot(quantiles[0] * math.sqrt(between), quantiles[1] * math.sqrt(within))
    return Estimate(mean, mean - margin, mean + margin)


def paired(difference_SD: np.ndarray, level: float) -> Estimate:
    """The mean of a difference that was measured on the same documents with the same seeds; see `over_seeds`."""
    documents = difference_SD.shape[1]
    within = float(difference_SD.mean(axis=0).var(ddof=1)) / documents
    return over_seeds(difference_SD.mean(axis=1), within, documents - 1, level)


def over_documents(difference_D: np.ndarray, level: float) -> Estimate:
    """The mean of a difference between two models, over the draw of documents alone: it says nothing of other trainings."""
    mean, error = float(difference_D.mean()), float(difference_D.std(ddof=1)) / math.sqrt(len(difference_D))
    margin = float(stats.t.isf(level / 2, len(difference_D) - 1)) * error
    return Estimate(mean, mean - margin, mean + margin)


def log_ratio(own_SD: np.ndarray, other_SD: np.ndarray, tokens_D: np.ndarray, level: float) -> Estimate:
    """The log of a ratio of perplexities: (nats of one model - nats of the other) / tokens, over seeds and documents.

    Args:
        own_SD, other_SD: nats of each document, under the models of each seed.
        tokens_D: of each document, the same for both models.
    """
    return paired((own_SD - other_SD) / tokens_D.mean(), level)


def fishers(p_values: Sequence[float]) -> float:
    """One p-value of independent ones, by Fisher's rule."""
    return float(stats.chi2.sf(-2 * sum(map(math.log, p_values)), 2 * len(p_values)))


def below(estimate: Estimate, bound: float) -> bool | None:
    """Whether a number is below a bound."""
    return True if estimate.high < bound else False if estimate.low > bound else None


def above(estimate: Estimate, bound: float) -> bool | None:
    """Whether a number is above a bound."""
    return below(Estimate(-estimate.value, -estimate.high, -estimate.low), -bound)


def at_null(own: Estimate, null: float, control: Estimate | None) -> bool | None:
    """Whether an attack finds nothing, beside the same attack on a model that must give something away.

    It shows only where less is found than in the control, beyond doubt: the control is told to be above the null, the own number is
    not, and its interval ends before the control's begins.
    """
    if above(own, null):
        return False
    has_power = control is not None and above(control, null) is True and own.high < control.low
    return True if has_power else None


def beside_controls(holds: bool | None, controls: Mapping[str, bool | None]) -> tuple[bool | None, str, str]:
    """A claim beside models that have nothing of what it is about, and of which it must not hold.

    Args:
        controls: whether the claim holds of each, by its name; None: that is undecided, or was not run.

    Returns:
        The verdict, which is undecided where a control's is; who passes too; and words on what is undecided, or nothing.
    """
    passing = " and ".join(name for name, found in controls.items() if found)
    unsure = " or ".join(name for name, found in controls.items() if found is None)
    if not holds or passing or not unsure:
        return holds, passing, ""
    return None, "", f"; not told whether {unsure} passes too"


def all_at_null(attacks: Sequence[tuple[Estimate, Estimate | None]], null: float) -> bool | None:
    """Whether each of several attacks finds nothing, beside the same attacks on a model that must give something away.

    One that finds something is enough for no. That none does shows the strongest, which certainly finds most in the control: so it
    has power where any has.

    Args:
        attacks: what each finds, and what it finds in the control.
        null: what is found where there is nothing.
    """
    verdicts = [at_null(own, null, control) for own, control in attacks]
    if False in verdicts:
        return False
    certain = [-math.inf if control is None else control.low for _, control in attacks]
    return verdicts[certain.index(max(certain))]


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """A claim of several: false where one is, undecided where one is, and where there is none."""
    found: Sequence[bool | None] = list(verdicts)
    return False if False in found else None if None in found or not found else True


def any_of(verdicts: Iterable[bool | None]) -> bool | None:
    """A claim that one of several is enough for: true where one is, undecided where none is and one is undecided."""
    found: Sequence[bool | None] = list(verdicts)
    return True if True in found else None if None in found or not found else False
