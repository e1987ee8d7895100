"""The numbers of a confidentiality statement, recomputed from what stands in its certificate and from nothing else.

That the steps, bounds and changed records in it are those of a run is for the ledger and the configuration to show
(`tacit.planning.confidentiality.check_statement`); here they are taken as stated, and epsilon must follow from them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tacit.errors import UsageError
from tacit.privacy.accounting.replacement import Stability
from tacit.privacy.certificate_checks import Check
from tacit.privacy.confidentiality.misses import Labels
from tacit.privacy.confidentiality.statement import statement_of_run, training_steps
from tacit.privacy.events import Spend
from tacit.privacy.strict_json import read_number

__all__ = ["check_restated"]

_NUMBERS = ("epsilon", "delta", "epsilon_missed", "delta_missed")
_WITH_SHARES = 2
"""The form of certificate from which on a statement names them."""

_NAME = "numbers of the confidentiality statement"


def check_restated(spends: Sequence[Spend], certificate: dict[str, Any]) -> list[Check]:
    """One check of a certificate that has a statement; none of the first form, which did not name its bounds on the misses.

    Args:
        spends: as the certificate has them.
    """
    stated = certificate.get("confidentiality")
    if stated is None or certificate["version"] < _WITH_SHARES:
        return []
    try:
        wrong = _different(spends, certificate, stated)
    except (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, UsageError):
        wrong = ["damaged"]
    return [Check(_NAME, not wrong, ", ".join(wrong) or "as recomputed")]


def _different(spends: Sequence[Spend], certificate: dict[str, Any], stated: dict[str, Any]) -> list[str]:
    training = training_steps(spends)
    if training is None:
        return ["nothing was trained with noise"]
    event, steps, others = training
    shares = {share["name"]: share for share in stated["shares"]}
    mine = statement_of_run(
        records=certificate["units"],
        sampling_probability=event.sampling_probability,
        noise_multiplier=event.noise_multiplier,
        steps=steps,
        delta=certificate["epsilons"][0]["delta"],
        stability=Stability(**stated["stability"]),
        gamma=_share(shares.get("gamma")),
        delta_2=_share(shares.get("delta_2")),
        confidence=next((one["confidence"] for one in shares.values() if one["label"] == "measured"), 0.95),
        group_size=stated["group_size"],
        others=others,
        measurement=next((one["measurement"] for one in shares.values() if one["label"] == "measured"), None),
    ).to_dict()
    lines = ("worst_case", "screened", "bayesian")
    wrong = [name for name in lines if not _same_line(mine[name], stated.get(name))]
    wrong += [name for name in ("records", "shares") if mine[name] != stated[name]]
    return wrong


def _share(stated: dict[str, Any] | None) -> float | Labels | None:
    if stated is None:
        return None
    return Labels(stated["labelled"], stated["missed"]) if stated["label"] == "measured" else stated["value"]


def _same_line(mine: dict[str, Any] | None, stated: dict[str, Any] | None) -> bool:
    if mine is None or stated is None:
        return mine is stated
    same = all(math.isclose(read_number(mine[one]), read_number(stated[one]), rel_tol=1e-6) for one in _NUMBERS)
    caught, other = mine["epsilon_caught"], stated["epsilon_caught"]
    if caught is None or other is None:
        same &= caught is other
    else:
        same &= math.isclose(read_number(caught), read_number(other), rel_tol=1e-6)
    return same and mine["status"] == stated["status"]
