"""What a report says of the ledger: its entries, and what they cost together."""

from __future__ import annotations

from tacit.planning import HELD_OUT
from tacit.privacy.accounting.accountant import epsilon, joint_epsilon
from tacit.privacy.events import EVERY_PART, Spend, part_of
from tacit.privacy.ledger import Ledger
from tacit.report import schema

__all__ = ["cumulative", "ledger_rows"]

_UNITS: dict[str, schema.UnitsRead] = {HELD_OUT: "held-out units", EVERY_PART: "all units"}
"""What a ledger's partitions are called, of this run and of earlier ones; any other is training units."""


def ledger_rows(ledger: Ledger) -> tuple[schema.LedgerRow, ...]:
    """Every entry that was paid for, with what it would cost alone."""
    header, plans = ledger.header, ledger.plans
    rows = []
    for row in ledger.rows:
        if row.kind != "spend":
            continue
        plan = plans[row.body["stage"]]
        alone = epsilon([Spend(plan.event, row.count, plan.partition)], header.delta, header.relation)
        rows.append(
            schema.LedgerRow(
                sequence=row.sequence,
                stage=plan.stage,
                mechanism=plan.event.title,
                parameters=plan.event.numbers(),
                count=row.count,
                epsilon_alone=alone,
                partition=_UNITS.get(part_of(plan.partition), "training units"),
                digest=row.digest[:12],
            )
        )
    return tuple(rows)


def cumulative(ledger: Ledger) -> tuple[schema.CumulativePoint, ...]:
    """The joint epsilon after each stage that was paid for."""
    header = ledger.header
    points, so_far = [], []
    for plan in ledger.plans.values():
        count = ledger.spent(plan.stage)
        if count:
            so_far.append(Spend(plan.event, count, plan.partition))
            joint = joint_epsilon(so_far, header.delta, header.relation)
            points.append(schema.CumulativePoint(label=plan.stage, epsilon=joint))
    return tuple(points)
