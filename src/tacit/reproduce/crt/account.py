"""The epsilons of figures 2 and 6: the paper's, as its authors compute them, and ours, for the same training.

All are about confidentiality (a secret is replaced by <MASK>), the paper's definition 4, and none is the DP epsilon of a release.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tacit.planning.confidentiality import deduplication_of
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.accounting.replacement import (
    Claim,
    Deduplication,
    Screening,
    Stability,
    replacement_epsilon,
    stability,
)
from tacit.privacy.confidentiality.crt_paper import paper_bayesian
from tacit.privacy.confidentiality.misses import amplified_epsilon
from tacit.privacy.confidentiality.statement import statement_of_run
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.reproduce.crt.runs import DEDUPLICATE, DELTA, private_steps
from tacit.reproduce.crt.scale import Cell, Scale

__all__ = ["amplification_rows", "epsilons_after"]

_ALONE = Stability(1, 0)
"""A policy that labels each token by itself: a caught secret leaves no trace."""


def epsilons_after(cell: Cell, scale: Scale, rounds: int) -> dict[str, float | None]:
    """``paper``: as the paper has it; ``ours``: definition 4 with our policies, which read context; ``worst_case``: definition 2.

    None: the arm has no epsilon of that kind to state.
    """
    size = scale.corpora[cell.corpus]
    lines = size.private_lines if cell.arm.startswith("crt") else size.lines
    steps = rounds * private_steps(scale, lines)
    if cell.arm == "dp-sgd":
        return _of_dp_sgd(scale.expected_batch / lines, scale.noise_multiplier, steps)
    if cell.arm.startswith("crt"):
        deduplication = deduplication_of(DEDUPLICATE[cell.arm])
        return _of_crt(scale.expected_batch / lines, scale.noise_multiplier, steps, lines, cell.gamma, deduplication)
    # Redaction alone, and S-DP with an imperfect policy: a missed secret has no protection at all.
    protected = cell.arm != "raw" and cell.gamma == 0
    epsilon = None if cell.arm == "s-dp" and protected else 0.0 if protected else math.inf
    return {"paper": epsilon, "ours": None if protected else math.inf, "worst_case": math.inf}


@functools.cache
def _of_dp_sgd(probability: float, noise: float, steps: int) -> dict[str, float | None]:
    spends = [Spend(PoissonGaussian(probability, noise), steps)]
    replaced = replacement_epsilon(spends, DELTA)
    return {"paper": rdp_epsilon(spends, DELTA), "ours": replaced, "worst_case": replaced}


@functools.cache
def _of_crt(
    probability: float, noise: float, steps: int, lines: int, gamma: float, deduplication: Deduplication
) -> dict[str, float | None]:
    screening = Screening(
        deduplication=deduplication,
        order="redact-first",
        policy="context",
        mask_reserved=True,
        whole_units=True,
    )
    statement = statement_of_run(
        records=lines,
        sampling_probability=probability,
        noise_multiplier=noise,
        steps=steps,
        delta=DELTA,
        stability=stability(screening),
        gamma=gamma,
        delta_2=0.0,
    )
    assert statement.bayesian is not None
    return {
        "paper": statement.bayesian.paper.epsilon,
        "ours": statement.bayesian.epsilon,
        "worst_case": statement.worst_case.epsilon,
    }


def amplification_rows(scale: Scale) -> list[dict[str, Any]]:
    """Figure 6: epsilon of definition 4 against gamma for a few epsilon', by the paper's formula and ours.

    epsilon' is the add-or-remove epsilon that the paper starts from. ``ours`` holds for a policy that labels each token by itself;
    ``ours_context`` for one that reads context, where a caught secret may change its record, and nothing is amplified.
    """
    size = scale.corpora["customersim"]
    probability = scale.expected_batch / size.private_lines
    steps = scale.rounds * private_steps(scale, size.private_lines)
    rows = []
    for noise in (1.2, 1.6, 2.0, 3.0, 6.0):
        spends = [Spend(PoissonGaussian(probability, noise), steps)]
        before, context = rdp_epsilon(spends, DELTA), replacement_epsilon(spends, DELTA)
        for percent in range(0, 55, 5):
            gamma = percent / 100
            rows.append(
                {
                    "noise_multiplier": noise,
                    "epsilon_before": before,
                    "gamma": gamma,
                    "paper": paper_bayesian(spends, DELTA, gamma, 0.0, Claim(1), _ALONE).epsilon,
                    "ours": _amplified(spends, gamma),
                    "ours_context": context,
                }
            )
    return rows


def _amplified(spends: list[Spend], gamma: float) -> float:
    """log(1 + gamma (e^epsilon' - 1)) with the replace-one epsilon' at delta / gamma; at gamma <= delta nothing is left to pay."""
    if gamma <= DELTA:
        return 0.0
    return amplified_epsilon(replacement_epsilon(spends, DELTA / gamma), gamma)
