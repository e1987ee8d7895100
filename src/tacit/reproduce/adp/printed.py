"""Claims that no training decides: the arithmetic that is printed, and what the size of the published noise alone tells."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from tacit.reproduce.adp.epsilons import PRINTED
from tacit.reproduce.adp.tables import PAPER, agrees
from tacit.reproduce.writing import Claim, Row

__all__ = ["PARAMETERS", "acceptable", "nats_of_scale", "printed"]

PARAMETERS = 12 * 12 * 1024**2
"""Of attention and feed-forward layers with the paper's 12 layers of width 1,024, the latter four times as wide; the rest is more."""
_BATCH = 4096


def nats_of_scale(own: float, other: float, parameters: int) -> float:
    """Kullback-Leibler divergence, in nats, of normal noise in so many parameters from such noise of another standard deviation.

    Args:
        own: the standard deviation, in any unit, where the text is in the batch; other: where it is not.
    """
    if own == other:
        return 0.0
    if min(own, other) == 0:
        return math.inf
    ratio = (own / other) ** 2
    return parameters / 2 * (ratio - 1 - math.log(ratio))


def acceptable(with_text: float = 1 / _BATCH, without: float = 0.0) -> Claim:
    """Section 5.3 names no range, but none has an infinite epsilon; undecided where both batches have the same noise.

    Args:
        with_text: the mean rho of a batch, which its noise is multiplied by (equations 5 and 6), with a text of rho 1 in it.
        without: the same without that text; 0 where all others have rho 0, as normalising (equation 4) gives the least private one.
    """
    text = "section 5.3: the privacy guarantee of the published algorithm (epsilon 6.35 and 2.47) is within the acceptable range"
    told = nats_of_scale(with_text, without, PARAMETERS)
    if told == 0:
        return Claim(text, "", None, "the paper names no range, and this noise alone tells nothing", computed=True)
    most = nats_of_scale(1.0, 1 - 1 / _BATCH, PARAMETERS)
    amount = "everything: no epsilon is finite" if math.isinf(told) else f"{told:.1f} nats a step"
    numbers = (
        f"the noise is as large as the mean rho of the batch; where a text changes that from {without:.3g} to {with_text:.3g}, its "
        f"size alone tells {amount}; where all others have rho 1, still {most:.1f} nats in each step that the text is in"
    )
    return Claim(text, "", False if math.isinf(told) else None, numbers, computed=True)


def printed(tables: Mapping[str, Sequence[Row]]) -> list[Claim]:
    """Arithmetic: no model is needed, but for the accountant's word on the published form."""
    losses = ", ".join(
        f"exp({row['loss']:g}) is {math.exp(row['loss']):,.0f}, not {row['perplexity']:,.0f}" for row in PAPER
    )
    at_last = [row["epsilon_sigma_5"] for row in tables["table1-epsilon"]]
    literal = [row["epsilon"] for row in tables["models"] if row["arm"] == "literal"]
    found = [
        Claim("the printed perplexities are those of the printed losses", "", all(map(agrees, PAPER)), losses),
        Claim(
            f"DP-SGD whose epsilon is {PRINTED[1.0]} at sigma 1 has {PRINTED[5.0]} at sigma 5, at some sampling probability",
            "",
            min(at_last) < PRINTED[5.0] + 0.05,
            f"{min(at_last):.2f} to {max(at_last):.2f}",
        ),
        Claim(
            "the published algorithm has a finite epsilon",
            "",
            None if not literal else all(map(math.isfinite, literal)),
            "infinite in every run" if literal and all(map(math.isinf, literal)) else "not run yet",
            "6.35 and 2.47",
        ),
    ]
    return [replace(claim, computed=True) for claim in [*found, acceptable()]]
