"""What a row of a ledger may hold, by its kind. A valid digest shows that a row is as it was written, not that tacit wrote it."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from tacit.errors import UsageError
from tacit.privacy.events import EVENTS, Event, Relation, event_from_dict
from tacit.privacy.strict_json import what_is_wrong

__all__ = ["Digest", "LedgerHeader", "LedgerRow", "Number", "StagePlan", "Strict", "check_event", "check_rows"]

MOST_STEPS = 10**9
"""Of one stage; far beyond any training, and little enough for every accountant."""

Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
"""SHA-256 in hexadecimal digits."""

Number = Annotated[float, Field(ge=0)] | Literal["infinity"]
"""JSON has no infinity: it is a word."""


class Strict(BaseModel):
    """Values of exactly these names and types: no boolean is a number, and no text is one."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False, hide_input_in_errors=True)


@dataclass(frozen=True)
class LedgerHeader:
    """What the whole run promises; the first row.

    Args:
        unit: the privacy unit, such as ``user``.
        relation: the neighbouring relation of every epsilon of this ledger.
        units: the publicly stated number of units.
        epsilon: the budget; no stage may be planned beyond it. Infinite when heuristics were allowed.
        delta: the delta at which the budget is counted.
        config_digest: SHA-256 of the run's configuration without its speed options.
        key_commitment: fingerprint of the run's secret key.
    """

    unit: str
    relation: Relation
    units: int
    epsilon: float
    delta: float
    config_digest: str
    key_commitment: str


@dataclass(frozen=True)
class StagePlan:
    """A stage as planned: its event may run ``limit`` times on one partition of the units."""

    stage: str
    event: Event
    limit: int
    partition: str


class _Open(Strict):
    unit: str
    relation: Relation
    units: Annotated[int, Field(ge=0)]
    epsilon: Number
    delta: Annotated[float, Field(gt=0, lt=1)]
    config_digest: str
    key_commitment: str


class _Plan(Strict):
    stage: str
    event: dict[str, Any]
    limit: Annotated[int, Field(ge=1, le=MOST_STEPS)]
    partition: Annotated[str, Field(min_length=1)]


class _Bind(Strict):
    name: str
    value: str


class _Spend(Strict):
    stage: str


class _Release(Strict):
    manifest: Digest


_BODIES: dict[str, type[Strict]] = {
    "open": _Open,
    "plan": _Plan,
    "bind": _Bind,
    "spend": _Spend,
    "release": _Release,
}


@dataclass(frozen=True)
class LedgerRow:
    """A row as stored; ``body`` is parsed JSON."""

    sequence: int
    kind: str
    body: dict[str, Any]
    first: int
    count: int
    digest: str


def check_event(values: dict[str, Any]) -> Event:
    """The event of these fields, each of the type that its kind has.

    Raises:
        ValueError: an unknown kind, or fields that no mechanism has.
    """
    try:
        event = event_from_dict(values)
        fields = {name: value for name, value in values.items() if name != "kind"}
        _adapter(EVENTS[values["kind"]]).validate_json(json.dumps(fields), strict=True)
    except ValidationError as error:
        raise ValueError(f"event: {what_is_wrong(error)}") from None
    except (UsageError, AttributeError, LookupError, TypeError, ArithmeticError):
        raise ValueError("event: of no mechanism that this version knows") from None
    return event


@functools.cache
def _adapter(kind: type[Event]) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def check_rows(rows: Sequence[LedgerRow]) -> None:
    """Check every body by its kind, and the rows together: one beginning, no stage twice, nothing paid that was not planned.

    Raises:
        ValueError: which row, and what is wrong with it.
    """
    limits: dict[str, int] = {}
    paid: dict[str, int] = {}
    bound: set[str] = set()
    for row in rows:
        try:
            _check_body(row)
            if row.kind == "plan":
                _once(row.body["stage"], limits, "planned")
                limits[row.body["stage"]] = row.body["limit"]
            elif row.kind == "bind":
                _once(row.body["name"], bound, "bound")
                bound.add(row.body["name"])
            elif row.kind == "spend":
                _pay(row, limits, paid)
        except ValueError as error:
            raise ValueError(f"row {row.sequence}: {error}") from None


def _check_body(row: LedgerRow) -> None:
    if type(row.first) is not int or type(row.count) is not int:
        raise ValueError("first and count are not whole numbers")
    if row.kind not in _BODIES or (row.kind == "open") != (row.sequence == 0):
        raise ValueError("a kind of row that does not belong there")
    try:
        _BODIES[row.kind].model_validate(row.body)
    except ValidationError as error:
        raise ValueError(what_is_wrong(error)) from None
    if row.kind == "plan":
        check_event(row.body["event"])
    if row.kind != "spend" and (row.first, row.count) != (0, 0):
        raise ValueError(f"a row of kind {row.kind} that counts something")


def _once(name: str, known: Any, what: str) -> None:
    if name in known:
        raise ValueError(f"a name that is {what} twice")


def _pay(row: LedgerRow, limits: dict[str, int], paid: dict[str, int]) -> None:
    stage = row.body["stage"]
    if stage not in limits:
        raise ValueError("a stage is paid that was not planned")
    before = paid.get(stage, 0)
    if row.first != before or row.count < 1 or before + row.count > limits[stage]:
        raise ValueError("steps of a stage are paid twice, left out, or beyond what was planned")
    paid[stage] = before + row.count
