"""What a report says of the proved curve: the trade-off of an attacker, and epsilon of a part of a unit, a unit, and groups."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tacit.config import RunConfig
from tacit.privacy.accounting.tradeoff import PrivacyCurve, group_epsilon, privacy_curve, within_unit_epsilon
from tacit.privacy.events import Relation, Spend
from tacit.privacy.ledger import Ledger
from tacit.privacy.strict_json import read_number
from tacit.report import schema

__all__ = ["proved_curve", "whose_epsilons"]

_SIZES = (2, 3, 5, 10)
_PARTS = {
    "document": "one record of a document, its other records being as they are",
    "user": "one record or document of a user, the user's other texts being as they are",
}
_GROUPS = {
    "record": "a document or a user with at most {} records",
    "document": "a user with at most {} documents",
    "user": "{} users together, such as a family",
}
_GROUPS_OF_PIECES = "a document of at most {} pieces"


def proved_curve(ledger: Ledger, certificate: dict[str, Any]) -> schema.ProvedCurve | None:
    """The trade-off that the ledger's events prove; None where nothing is proved."""
    curve = _curve(ledger, certificate)
    return None if curve is None else schema.ProvedCurve(corners=curve.corners)


def whose_epsilons(config: RunConfig, ledger: Ledger, certificate: dict[str, Any]) -> tuple[schema.WhoseEpsilon, ...]:
    """Epsilon at the certified delta of all whose text one certificate is about, the smallest first; none where nothing is proved."""
    curve = _curve(ledger, certificate)
    return () if curve is None else tuple(_rows(config, ledger, certificate, curve))


def _curve(ledger: Ledger, certificate: dict[str, Any]) -> PrivacyCurve | None:
    if certificate["status"] != "proved":
        return None
    return privacy_curve(ledger.spends(), ledger.header.delta, ledger.header.relation)


def _rows(
    config: RunConfig, ledger: Ledger, certificate: dict[str, Any], curve: PrivacyCurve
) -> Iterator[schema.WhoseEpsilon]:
    spends, delta, relation = ledger.spends(), ledger.header.delta, ledger.header.relation
    unit = config.privacy.unit
    yield _row(
        f"one {config.privacy.unit_name}: the certificate's unit",
        read_number(certificate["epsilons"][0]["epsilon"]),
        certificate["total_variation"],
        of_unit=True,
    )
    if isinstance(unit, str) and unit in _PARTS:
        yield _within(_PARTS[unit], spends, delta, relation, curve)
    words = _GROUPS[unit] if isinstance(unit, str) else _GROUPS_OF_PIECES
    for size in _SIZES:
        epsilon = group_epsilon(spends, delta, relation, size)
        yield _row(words.format(size), epsilon, curve.of_group(size).deltas[0])


def _within(
    who: str, spends: list[Spend], delta: float, relation: Relation, curve: PrivacyCurve
) -> schema.WhoseEpsilon:
    """The row of an attacker who knows all but a part of the unit. Its total variation is that of replacing one unit: one step under
    replace-one, two under add-or-remove.
    """
    epsilon = within_unit_epsilon(spends, delta, relation)
    inverse = math.exp(-epsilon)
    exchange = curve.of_group(1 if relation == "replace" else 2).deltas[0]
    return _row(who, epsilon, min(exchange, (1 - inverse + 2 * delta * inverse) / (1 + inverse)))


def _row(who: str, epsilon: float, total_variation: float, of_unit: bool = False) -> schema.WhoseEpsilon:
    return schema.WhoseEpsilon(who=who, epsilon=epsilon, success=(1 + min(1.0, total_variation)) / 2, of_unit=of_unit)
