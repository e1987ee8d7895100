"""The epsilons of figures 2 and 6: the paper's, as its authors compute them, and ours, for the same training.

All are about confidentiality (a secret is replaced by <MASK>), the paper's definition 4, and none is the DP epsilon of a release.
"""

from __future__ import annotations

import functools
import math
from typing import Any

from tacit.config import RunConfig
from tacit.planning.confidentiality import deduplication_of
from tacit.planning.selective import run_account
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
from tacit.reproduce.crt.runs import DEDUPLICATE, DELTA, noisy_lines, private_steps
from tacit.reproduce.crt.scale import Cell, Scale

__all__ = ["amplification_rows", "amplified_as_quoted", "epsilons_after", "noise_of"]

_ALONE = Stability(1, 0)
"""A policy that labels each token by itself: a caught secret leaves no trace."""


def noise_of(cell: Cell, scale: Scale) -> float:
    """The least noise multiplier, to 1 in 1,000, at which all rounds of an arm meet ``scale.epsilon``.

    DP-SGD, CRT and S-DP's gradients are all solved for one epsilon of the same kind: that of replacing one line of what they train
    on with noise. 1 where nothing is trained on with noise.
    """
    if cell.arm not in _NOISY:
        return 1.0
    size = scale.corpora[cell.corpus]
    lines = noisy_lines(cell, size)
    drawn_from = size.lines if cell.arm == "s-dp" else lines  # its stream has all lines
    return _solved(scale.expected_batch / drawn_from, scale.rounds * private_steps(scale, lines), scale.epsilon)


_NOISY = ("dp-sgd", "crt", "crt-copies", "crt-exact", "s-dp")


@functools.cache
def _solved(probability: float, steps: int, wanted: float) -> float:
    low, high = 0.1, 100.0  # at ``high`` it is met
    while high / low > 1.001:
        middle = math.sqrt(low * high)
        found = replacement_epsilon([Spend(PoissonGaussian(probability, middle), steps)], DELTA)
        low, high = (low, middle) if found <= wanted else (middle, high)
    return high


def epsilons_after(cell: Cell, scale: Scale, rounds: int, config: RunConfig | None = None) -> dict[str, float | None]:
    """The epsilons after the first rounds of a cell, at `DELTA`.

    ``paper``: as the paper has it; ``ours``: definition 4 with our policies, which read context; ``worst_case``: definition 2;
    ``selective``: when the private tokens of one line are replaced, for S-DP whose policy misses nothing.
    None: the arm has no epsilon of that kind to state.

    Args:
        config: of the run, for S-DP's.
    """
    size = scale.corpora[cell.corpus]
    lines = noisy_lines(cell, size)
    noise, steps = noise_of(cell, scale), rounds * private_steps(scale, lines)
    found: dict[str, float | None]
    if cell.arm == "dp-sgd":
        found = _of_dp_sgd(scale.expected_batch / lines, noise, steps)
    elif cell.arm.startswith("crt"):
        deduplication = deduplication_of(DEDUPLICATE[cell.arm])
        found = _of_crt(scale.expected_batch / lines, noise, steps, lines, cell.gamma, deduplication)
    elif cell.arm == "public-lines":
        found = {"paper": 0.0, "ours": 0.0, "worst_case": math.inf}
    else:
        # Redaction alone, and S-DP with an imperfect policy: a missed secret has no protection at all.
        protected = cell.arm != "raw" and cell.gamma == 0
        epsilon = None if cell.arm == "s-dp" and protected else 0.0 if protected else math.inf
        found = {"paper": epsilon, "ours": None if protected else math.inf, "worst_case": math.inf}
    return found | {"selective": _selective(cell, rounds, config)}


def _selective(cell: Cell, rounds: int, config: RunConfig | None) -> float | None:
    if cell.arm != "s-dp" or config is None:
        return None
    if cell.gamma > 0:
        return math.inf
    account = run_account(config.model_copy(update={"rounds": rounds}))
    assert account is not None
    return account.together


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
    rows = []
    for noise in (1.2, 1.6, 2.0, 3.0, 6.0):
        spends = _spends_of_figure6(scale, noise)
        before = rdp_epsilon(spends, DELTA)
        for percent in range(0, 55, 5):
            rows.append({"noise_multiplier": noise, "epsilon_before": before, **_at_gamma(spends, percent / 100)})
    return rows


def amplified_as_quoted(scale: Scale, epsilon_before: float = 1.0, gamma: float = 0.1) -> dict[str, float]:
    """A row of figure 6 at an epsilon' that the paper quotes in its text."""
    low, high = 0.3, 100.0
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        found = rdp_epsilon(_spends_of_figure6(scale, middle), DELTA)
        assert found is not None  # there is a Renyi bound of every event under add-or-remove
        low, high = (low, middle) if found <= epsilon_before else (middle, high)
    return _at_gamma(_spends_of_figure6(scale, high), gamma)


def _spends_of_figure6(scale: Scale, noise: float) -> list[Spend]:
    lines = scale.corpora["customersim"].private_lines
    return [Spend(PoissonGaussian(scale.expected_batch / lines, noise), scale.rounds * private_steps(scale, lines))]


def _at_gamma(spends: list[Spend], gamma: float) -> dict[str, float]:
    return {
        "gamma": gamma,
        "paper": paper_bayesian(spends, DELTA, gamma, 0.0, Claim(1), _ALONE).epsilon,
        "ours": _amplified(spends, gamma),
        "ours_context": replacement_epsilon(spends, DELTA),
    }


def _amplified(spends: list[Spend], gamma: float) -> float:
    """log(1 + gamma (e^epsilon' - 1)) with the replace-one epsilon' at delta / gamma; at gamma <= delta nothing is left to pay."""
    if gamma <= DELTA:
        return 0.0
    return amplified_epsilon(replacement_epsilon(spends, DELTA / gamma), gamma)
