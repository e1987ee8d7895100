"""The paper's own numbers (CRT; Zhao, Li and Wang 2022, theorem 8), kept only to be shown beside ours.

The paper puts epsilons of add-or-remove, by Renyi DP, where a secret is replaced. `paper_rows` goes from its Bayesian number
to ours, one correction a row; `paper_group` and `paper_bayesian` give its number and, in words, why ours is another. Its
proposition 6 alone is right, for an epsilon of replacement: `amplified` refuses another. Where the paper is wrong, with
proofs: docs/confidentiality.md.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.errors import RefusedError
from tacit.privacy.accounting.accountant import epsilon
from tacit.privacy.accounting.renyi import rdp_epsilon
from tacit.privacy.accounting.replacement import Claim, Screening, Stability, counted, replacement_epsilon
from tacit.privacy.confidentiality.account import confidentiality
from tacit.privacy.confidentiality.misses import Labels, amplified_epsilon, check_share
from tacit.privacy.events import Relation, Spend
from tacit.privacy.strict_json import write_number

__all__ = [
    "PAPER_FORMULAS",
    "Guarantee",
    "PaperNumber",
    "PaperRow",
    "amplified",
    "paper_bayesian",
    "paper_group",
    "paper_rows",
]

PAPER_FORMULAS = (
    ("theorem 8.1", "(epsilon 1[pi misses x], delta)", "replace-one epsilon of the records that change with x"),
    ("proposition 7", "deduplication costs nothing", "masking one copy changes up to 3 records"),
    (
        "theorem 8.2",
        "(gamma m epsilon, gamma m e^(gamma m epsilon) delta)",
        "the records of all missed secrets, replaced at once",
    ),
    ("theorem 8.2", "pi detects a share gamma of the group", "pi misses it"),
    (
        "theorem 8.3",
        "log(1 + gamma (e^epsilon - 1)) at gamma delta + delta_2",
        "epsilon' at (delta - delta_2)/gamma, replace-one",
    ),
    ("appendix A.4", "recall 90 % and 100 % from 200 labels", "upper bounds on what is missed"),
)
"""(where, what the paper has, what we do)"""


@dataclass(frozen=True)
class Guarantee:
    """An (epsilon, delta) with the relation that it was computed for."""

    epsilon: float
    delta: float
    relation: Relation


def amplified(guarantee: Guarantee, gamma: float, delta_2: float = 0.0) -> Guarantee:
    """Proposition 6 and theorem 8.3: (epsilon', delta') becomes (log(1 + gamma (e^epsilon' - 1)), gamma delta' + delta_2).

    Args:
        guarantee: for the replaced record of a secret that the balanced policy missed.
        gamma: share of the secrets under mu that the balanced policy *misses*.
        delta_2: share that both policies miss.

    Raises:
        RefusedError: the guarantee is one of add-or-remove, which says nothing of that size about a replacement.
    """
    if guarantee.relation != "replace":
        raise RefusedError(
            "replace-claim-from-add-or-remove",
            "confidentiality replaces a secret by <MASK>: give an epsilon that was accounted under relation replace",
        )
    check_share("gamma", gamma)
    check_share("delta_2", delta_2)
    return Guarantee(amplified_epsilon(guarantee.epsilon, gamma), gamma * guarantee.delta + delta_2, "replace")


# From the paper's number to ours --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaperRow:
    """One step from the paper's number to ours: what is changed, epsilon of a missed secret, epsilon of the statement."""

    change: str
    epsilon_missed: float
    epsilon: float


def paper_rows(
    spends: Sequence[Spend],
    delta: float,
    *,
    gamma: float | Labels | None = None,
    delta_2: float | Labels | None = None,
    confidence: float = 0.95,
    screening: Screening | None = None,
    claim: Claim | None = None,
) -> tuple[PaperRow, ...]:
    """The paper's epsilon as its authors compute it, then one correction a row; the last row is our statement's."""
    screening, claim = screening or Screening(), claim or Claim()
    ours = confidentiality(
        spends, delta, gamma=gamma, delta_2=delta_2, confidence=confidence, screening=screening, claim=claim
    )
    last = ours.bayesian or ours.worst_case
    share = _point(gamma, 1.0)

    def row(change: str, account: Callable[[float], float | None], share: float) -> PaperRow:
        found = _at_missed_delta(account, delta, share)
        return PaperRow(change, found, amplified_epsilon(found, share))

    rows = [
        row("the paper: add-or-remove, by Renyi DP", lambda left: rdp_epsilon(spends, left), share),
        row("the same by loss distributions, which is tighter", lambda left: epsilon(spends, left), share),
        row("the secret is replaced: replace-one", lambda left: replacement_epsilon(spends, left), share),
    ]
    if isinstance(gamma, Labels):
        upper = gamma.upper(confidence)
        change = f"gamma at its upper bound {upper:.4g}, not {share:.4g}"
        rows.append(row(change, lambda left: replacement_epsilon(spends, left), upper))
    if last.records != 1 or last.delta_2 or (gamma is not None and ours.stability.caught):
        change = f"{counted(last.records, 'record')} replaced, delta_2 {last.delta_2:.3g} taken from delta"
        trace = ", a caught secret leaves a trace" if ours.stability.caught else ""
        rows.append(PaperRow(change + trace, last.epsilon_missed, last.epsilon))
    return tuple(rows)


def _at_missed_delta(account: Callable[[float], float | None], delta: float, share: float) -> float:
    found = account(delta / share) if share > delta else 0.0  # delta / gamma of 1 or more asks for nothing
    return math.inf if found is None else found


def _point(share: float | Labels | None, otherwise: float) -> float:
    """The share as the paper takes it: the estimate itself, not a bound."""
    return otherwise if share is None else share.share if isinstance(share, Labels) else share


# The paper's number in one line, and why ours is another --------------------------------------------------------------


@dataclass(frozen=True)
class PaperNumber:
    """What the paper states for the same training, at which delta, by which theorem, and why ours is another number."""

    source: str
    epsilon: float
    delta: float
    difference: str

    def to_dict(self) -> dict[str, Any]:
        """JSON-ready values; infinity is a word."""
        return dataclasses.asdict(self) | {"epsilon": write_number(self.epsilon)}


def paper_group(
    spends: Sequence[Spend],
    delta: float,
    claim: Claim,
    changed: Stability,
    gamma: float | Labels | None = None,
    public_stream: bool = False,
) -> PaperNumber:
    """Theorem 8.1 for one missed secret; theorem 8.2 for a group of which a share gamma (None: all) is missed.

    Theorem 8.2 is read with "misses", where the paper prints "detects". With ``public_stream`` the statement beside it does not
    assume that the conservative policy marks what the balanced one misses, as both theorems do.
    """
    one, share = _at_missed_delta(lambda left: rdp_epsilon(spends, left), delta, 1.0), _point(gamma, 1.0)
    reasons = ["it takes an add-or-remove epsilon by Renyi DP, where the secret is replaced"]
    if public_stream:
        reasons.append("it assumes that the conservative policy marks whatever the balanced one misses")
    if claim.group_size == 1:
        source, found, own_delta = "theorem 8.1", one if share > 0 else 0.0, delta
    else:
        misses = share * claim.group_size
        source, found = "theorem 8.2", misses * one if misses else 0.0
        own_delta = min(1.0, misses * math.exp(min(found, 700.0)) * delta)
        reasons.append("it multiplies epsilon, at a delta of its own, where all missed secrets are replaced at once")
        if gamma is not None:
            reasons.append("it counts a share of the group, where a whole number of secrets is missed")
    return PaperNumber(source, found, own_delta, _difference(reasons, changed, gamma is not None))


def paper_bayesian(
    spends: Sequence[Spend],
    delta: float,
    gamma: float | Labels,
    delta_2: float | Labels | None,
    claim: Claim,
    changed: Stability,
) -> PaperNumber:
    """Theorem 8.3 as its authors evaluate it, which is `paper_rows`' first row: Renyi DP at delta / gamma, then gamma."""
    share = _point(gamma, 1.0)
    missed = _at_missed_delta(lambda left: rdp_epsilon(spends, left), delta, share)
    reasons = ["it takes an add-or-remove epsilon by Renyi DP at delta / gamma, where the secret is replaced"]
    if isinstance(gamma, Labels) or isinstance(delta_2, Labels):
        reasons.append("it takes the share of labels that were missed, where an upper bound is needed")
    if delta_2 is not None:
        reasons.append("it does not pay delta_2 from the stated delta")
    if claim.group_size > 1:
        reasons.append("it is about one secret, not about a group")
    own_delta = min(1.0, delta + _point(delta_2, 0.0))
    found = amplified_epsilon(missed, share)
    return PaperNumber("theorem 8.3", found, own_delta, _difference(reasons, changed, True))


def _difference(reasons: list[str], changed: Stability, exempts_caught: bool) -> str:
    if changed.missed > 1:
        reasons = [*reasons, f"it counts one changed record, where a masked secret changes up to {changed.missed}"]
    if exempts_caught and changed.caught:
        trace = f"it exempts a caught secret, which still changes {counted(changed.caught, 'record')}"
        reasons = [*reasons, trace]
    return "The paper's number differs: " + "; ".join(reasons) + "."
