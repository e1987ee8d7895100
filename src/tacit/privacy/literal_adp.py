"""Adaptive-DP-Adam as published (Wu et al. 2022, algorithm 1), and how its batches are told apart by the scale of the noise alone.

The noise on the batch's gradient has standard deviation gamma_B s C, where gamma_B is the mean privacy probability rho of the
batch's records. Each of the d coordinates is another sample of that noise, so the scale is known to a relative error of 1 /
sqrt(2 d). If one of L records is replaced, gamma_B moves by up to 1 / L, and where d is large this is seen in a single step,
whatever s is. A batch whose records all have rho = 0 gets no noise at all. So no epsilon holds.
"""

from __future__ import annotations

import math

from scipy import special

__all__ = ["distinguishing_accuracy", "literal_reason", "nats_a_step"]


def nats_a_step(parameters: int, gamma: float, other: float) -> float:
    """How far apart the noises of two batches are: the Kullback-Leibler divergence of the first from the second, in nats.

    >>> round(nats_a_step(110_000_000, 0.5, 0.5 + 1 / 4096), 1)
    26.2

    Args:
        parameters: d, coordinates of the gradient.
        gamma, other: the batches' mean rho.
    """
    if min(gamma, other) <= 0:
        return 0.0 if gamma == other else math.inf
    log_ratio = 2 * math.log(other / gamma)
    return parameters / 2 * (math.expm1(-log_ratio) + log_ratio)


def distinguishing_accuracy(parameters: int, gamma: float, other: float) -> float:
    """How often one step's sum of squares says which of two equally likely batches it was; 0.5 is chance."""
    one, two = gamma**2, other**2
    return float(special.ndtr(math.sqrt(parameters / 2) * abs(two - one) / (one + two))) if one + two else 0.5


def literal_reason(parameters: int, batch: float, sampling_probability: float, noise_multiplier: float) -> str:
    """The event's words: what was run, and the attack in numbers, for a batch of the expected size whose mean rho is a half."""
    gamma, other = 0.5, 0.5 + 1 / batch
    nats, right = nats_a_step(parameters, gamma, other), 100 * distinguishing_accuracy(parameters, gamma, other)
    return (
        f"literal ADP (Wu et al. 2022): sampling probability {sampling_probability:g}, noise multiplier {noise_multiplier:g} times "
        "the batch's mean rho, a function of the private batch. By the scale of the noise on "
        f"{parameters:,} parameters one step tells a batch of {batch:g} records with mean rho {gamma:g} from the same with one "
        f"record of rho 1 for one of rho 0: {nats:.3g} nats, right in {right:.3g} % of guesses"
    )
