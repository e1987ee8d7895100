"""Claims that no training decides: section 3.1, propositions 5 to 7, theorem 8, and figures 2 and 6, at the paper's own parameters.

A statement of the paper promises an epsilon at a delta. Beside it stands what training with DP costs for the records that change when
a secret is masked (`tacit.privacy`; proofs in docs/confidentiality.md). There is data for which it costs as much: gradients that turn
round with the secret. So a smaller promise is false.

The paper's epsilons are of Renyi DP, for a record that is added or removed. Its run here is DP-SGD of 10,000 private records, batches
of 256, 10 epochs, delta 8e-5 (appendix A.3), and the noise at which its account says 1 (section 5.4). It prints no noise, and not how
many records are private.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from tacit.privacy.accounting.histogram import gaussian_delta
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.accounting.replacement import Screening, counted, replacement_epsilon, stability
from tacit.privacy.confidentiality.misses import Labels, amplified_epsilon
from tacit.privacy.events import PoissonGaussian, Spend
from tacit.reproduce.writing import Claim

__all__ = [
    "DATA_POINTS",
    "DELTA_OF_PAPER",
    "PAPER_RUN",
    "POLICIES",
    "amplification",
    "bayesian",
    "caught",
    "deduplicated",
    "figure_6",
    "group",
    "implied_by_dp",
    "missed",
    "much_lower",
    "printed_propositions",
    "several",
    "when_gamma_falls",
]

PAPER_RUN = (Spend(PoissonGaussian(256 / 10_000, 2.018), 391),)
DELTA_OF_PAPER = 8e-5
_GAMMA = 0.1
POLICIES = {"policies of tokens": Screening(), "policies that read context": Screening(policy="context")}
"""Without deduplication: what the policies label each token by."""
DATA_POINTS = {
    "data points of several sentences": Screening("keep-first"),
    "each sentence a data point": Screening("keep-first", whole_units=True),
}
"""With policies of tokens, in the order of algorithm 1: copies are looked for first."""


@functools.cache
def printed_propositions() -> tuple[Claim, ...]:
    """All of them; it takes some seconds."""
    found = (
        implied_by_dp(),
        *(caught("proposition 5", panel, screening) for panel, screening in POLICIES.items()),
        *(several(count) for count in (2, 3)),
        *(amplification(panel, screening) for panel, screening in POLICIES.items()),
        *(deduplicated(panel, screening) for panel, screening in DATA_POINTS.items()),
        *(missed(panel, screening) for panel, screening in DATA_POINTS.items()),
        *(caught("theorem 8.1", panel, screening) for panel, screening in DATA_POINTS.items()),
        *(group(share) for share in (0.0, 0.4)),
        *(bayesian(conservative) for conservative in (None, Labels(200, 0))),
        much_lower(),
        *(figure_6(gamma) for gamma in (0.2, 0.3, 0.4, 0.5)),
        *(when_gamma_falls(panel, screening) for panel, screening in POLICIES.items()),
    )
    return tuple(replace(claim, computed=True) for claim in found)


def _promised(delta: float = DELTA_OF_PAPER) -> float:
    """What the paper calls the epsilon of DP-SGD."""
    found = rdp_epsilon(PAPER_RUN, delta)
    assert found is not None  # of Poisson sampling with Gaussian noise
    return found


@functools.cache
def _true(records: int, delta: float = DELTA_OF_PAPER) -> float:
    """Epsilon of the same training for so many replaced records."""
    return replacement_epsilon(PAPER_RUN, delta, records)


def _beside(true: float, promised: float) -> str:
    return f"{true:.2f} at delta 8e-5, where the paper's account says {promised:.2f}"


# Section 3.1 and proposition 5 ------------------------------------------------------------------------------------------


def implied_by_dp(promised: float | None = None) -> Claim:
    """Whether what holds when a record is added or removed holds when it is replaced.

    Args:
        promised: epsilon of DP; None: as the paper accounts it.
    """
    text = (
        "section 3.1: (epsilon, delta)-DP, where a record is added or removed, implies (epsilon, delta)-confidentiality"
    )
    own = _promised() if promised is None else promised
    return Claim(text, "", _true(1) <= own, f"masking a secret replaces its record: {_beside(_true(1), own)}")


def caught(source: str, panel: str, screening: Screening) -> Claim:
    """A secret that the policy catches: the records that change all the same, and what they cost."""
    changed = stability(screening).caught
    numbers = f"masking it changes {counted(changed, 'record') if changed else 'no record'} of the training"
    if changed:
        numbers += f": {_true(changed):.2f} at delta 8e-5"
    return Claim(f"{source}: a secret that the policy catches has epsilon 0", panel, changed == 0, numbers)


def several(count: int, one: float | None = None) -> Claim:
    """The part of proposition 5 on groups, where policies are of tokens and nothing is deduplicated.

    Args:
        count: missed secrets, each in a record of its own.
        one: epsilon of a single secret; None: of its replaced record.
    """
    text = "proposition 5: if a replaced record has epsilon, k missed secrets have k epsilon at k e^(k epsilon) delta"
    promised = count * (_true(1) if one is None else one)
    delta = count * math.exp(promised) * DELTA_OF_PAPER
    numbers = f"{promised:.2f} at delta {delta:.2g}, where {_true(count, delta):.2f} is enough"
    if _true(count, delta) > promised:
        numbers = f"{_true(count, delta):.2f} at delta {delta:.2g}, not {promised:.2f}"
    return Claim(text, f"k = {count}", _true(count, delta) <= promised, numbers)


# Proposition 6 ----------------------------------------------------------------------------------------------------------


def amplification(
    panel: str, screening: Screening, amplified: Callable[[float, float], float] = amplified_epsilon
) -> Claim:
    """The formula in both directions, where the paper proves one; for a Gaussian step whose replaced record costs just epsilon 1.

    Where a caught secret changes its record, the step may tell it from <MASK> as it does a missed one.

    Args:
        amplified: epsilon of the mixture, from that of a miss and the share of misses.
    """
    text = (
        "proposition 6: a share gamma of misses, each of epsilon at delta, has log(1 + gamma (e^epsilon - 1)) at gamma delta "
        "(gamma 0.1, epsilon 1, delta 8e-5; in both directions)"
    )
    leaves_trace = stability(screening).caught > 0
    promised, asked = amplified(1.0, _GAMMA), _GAMMA * DELTA_OF_PAPER
    largest = max(_mixed(promised, 1.0 if leaves_trace else _GAMMA, _distance(1.0, DELTA_OF_PAPER)))
    numbers = f"delta is {largest:.2g} at epsilon {promised:.3f} for a Gaussian step"
    numbers += ": a secret that is caught changes its record, too" if leaves_trace else "; proved for every training"
    return Claim(text, panel, largest <= asked * (1 + 1e-6), numbers)


def _distance(epsilon: float, delta: float) -> float:
    """How far apart the means are of two normal laws of variance 1 that are just (epsilon, delta)-indistinguishable."""
    low, high = 1e-3, 10.0
    for _ in range(80):
        middle = (low + high) / 2
        low, high = (middle, high) if float(gaussian_delta(epsilon, middle)) <= delta else (low, middle)
    return low


def _mixed(epsilon: float, share: float, distance: float) -> tuple[float, float]:
    """The smallest deltas of (1 - share) N(0, 1) + share N(distance, 1) and N(0, 1), in both orders.

    The likelihood ratio rises, so that one law is more than e^epsilon times the other on a half line.
    """
    factor = math.exp(epsilon)

    def crossing(ratio: float) -> float:
        """Where the mixture is ``ratio`` times N(0, 1); minus infinity where it is more everywhere."""
        rest = (ratio - (1 - share)) / share
        return -math.inf if rest <= 0 else math.log(rest) / distance + distance / 2

    above, below = crossing(factor), crossing(1 / factor)
    forward = (1 - share - factor) * ndtr(-above) + share * ndtr(distance - above)
    backward = (1 - factor * (1 - share)) * ndtr(below) - factor * share * ndtr(below - distance)
    return float(forward), float(backward)


# Proposition 7 and theorem 8 --------------------------------------------------------------------------------------------


def deduplicated(panel: str, screening: Screening) -> Claim:
    """One occurrence of a secret, in a sentence that may have copies."""
    text = "proposition 7: deduplication keeps the epsilon of a secret, since masking it changes one record afterwards, too"
    changed = stability(screening).missed
    numbers = f"it changes at most {counted(changed, 'record')}"
    if changed > 1:
        numbers += (
            f", which cost {_true(changed):.2f} at delta 8e-5, and one {_true(1):.2f}: (a, a, m) and (m, a, m), where m is a with "
            "its secret masked, become (a, <MASK>, m) and (m, a, <MASK>)"
        )
    return Claim(text, panel, changed == 1, numbers)


def missed(panel: str, screening: Screening, promised: float | None = None) -> Claim:
    """The part of theorem 8.1 on a secret that the balanced policy misses and the conservative one finds.

    Args:
        promised: epsilon of DP-SGD; None: as the paper accounts it.
    """
    text = "theorem 8.1: a secret that the policy misses has the epsilon of DP-SGD, where a record is added or removed"
    changed, own = stability(screening).missed, _promised() if promised is None else promised
    numbers = f"masking it replaces {counted(changed, 'record')}: {_beside(_true(changed), own)}"
    return Claim(text, panel, _true(changed) <= own, numbers)


_SECRETS = 5


def group(share: float) -> Claim:
    """Theorem 8.2 for five unique secrets, each in a record of its own, with policies of tokens.

    Args:
        share: of them that the policy detects, as the theorem has it; it misses the others.
    """
    text = "theorem 8.2: m unique secrets, of which the policy detects a share gamma, have gamma m times the epsilon of DP-SGD"
    left, one = round((1 - share) * _SECRETS), _promised()

    def stated(times: float) -> tuple[float, float]:
        return times * one, times * math.exp(times * one) * DELTA_OF_PAPER

    promised, own_delta = stated(share * _SECRETS)
    delta = min(max(own_delta, DELTA_OF_PAPER), 0.5)  # nothing has delta 0, and at 1 there is nothing to say
    true = _true(left, delta)
    numbers = f"{promised:.2f} at delta {own_delta:.2g}; the {left} that are missed cost {true:.2f} at {delta:.2g}"
    read, its_delta = stated(left)
    if left and its_delta < 1:
        numbers += f"; read as the share that is missed, it has {read:.2f} at {its_delta:.2g}, where they cost "
        numbers += f"{_true(left, its_delta):.2f}, since records are replaced"
    return Claim(text, f"m = {_SECRETS}, gamma = {share:g}", true <= promised, numbers)


def bayesian(conservative: Labels | None, promised: float | None = None) -> Claim:
    """Theorem 8.3 at gamma 0.1, for policies of tokens.

    Args:
        conservative: secrets that bound what both policies miss, with confidence 0.95, of which figure 2 says delta 8e-5; None: they
            miss none together, and delta is the theorem's.
        promised: epsilon of DP-SGD at 8e-5; None: as the paper accounts it.
    """
    text = (
        "theorem 8.3: with gamma 0.1 the epsilon 1 of DP-SGD becomes log(1 + gamma (e - 1)), at gamma delta + delta_2"
    )
    stated = amplified_epsilon(_promised() if promised is None else promised, _GAMMA)
    share = 0.0 if conservative is None else conservative.upper(0.95)
    delta = _GAMMA * DELTA_OF_PAPER if conservative is None else DELTA_OF_PAPER
    panel = "delta_2 = 0" if conservative is None else f"delta_2 from {conservative.labelled:,} labels, delta 8e-5"
    if conservative is not None and share >= delta:
        numbers = (
            f"with {conservative.missed} of them missed delta_2 is at most {share:.3g}: nothing can be stated at 8e-5"
        )
        return Claim(text, panel, False, numbers)
    true = amplified_epsilon(_true(1, (delta - share) / _GAMMA), _GAMMA)
    return Claim(
        text, panel, true <= stated, f"{true:.3f} for the replaced record, where the formula says {stated:.3f}"
    )


# Figures 2 and 6 --------------------------------------------------------------------------------------------------------


def much_lower() -> Claim:
    """The paper gives no number, and not all that one could be computed from."""
    text = "section 5.2, figure 2: CRT has a much lower epsilon than DP-SGD (gamma 0.1)"
    numbers = (
        "the paper prints neither these epsilons, nor the noise, nor how many records are private; were all 10,000 and the noise "
        f"that of epsilon 1, DP-SGD would have {_true(1):.2f} at delta 8e-5, CRT {_at(_GAMMA):.2f} with policies of tokens and "
        f"{_true(1):.2f} with policies that read context"
    )
    return Claim(text, "", None, numbers)


def _at(gamma: float) -> float:
    """Epsilon of definition 4 at the paper's delta, with policies of tokens that miss a share gamma."""
    return amplified_epsilon(_true(1, DELTA_OF_PAPER / gamma), gamma)


def figure_6(gamma: float, promised: float | None = None) -> Claim:
    """The curve of epsilon' 1 beside the point that the text has: of the figure itself no number is printed.

    Args:
        promised: epsilon; None: by the paper's formula, which gives 0.12 at gamma 0.1.
    """
    text = "figure 6: redaction makes epsilon' 1 the epsilon of definition 4 that the paper's formula gives"
    paper = amplified_epsilon(_promised(DELTA_OF_PAPER / gamma), gamma) if promised is None else promised
    numbers = (
        f"{paper:.3f}; replace-one, policies of tokens {_at(gamma):.3f}, policies that read context {_true(1):.3f}"
    )
    return Claim(text, f"gamma = {gamma:g}", _at(gamma) <= paper, numbers)


def when_gamma_falls(panel: str, screening: Screening, gammas: Sequence[float] = (0.5, 0.4, 0.3, 0.2, 0.1)) -> Claim:
    """Whether epsilon falls from each gamma to the next."""
    text = "section 5.4, figure 6: the smaller gamma, the smaller epsilon of definition 4 (epsilon' 1)"
    found = [_true(1) if stability(screening).caught else _at(gamma) for gamma in gammas]
    numbers = ", ".join(f"{gamma:g}: {epsilon:.2f}" for gamma, epsilon in zip(gammas, found, strict=True))
    return Claim(text, panel, bool((np.diff(found) < 0).all()), numbers)
