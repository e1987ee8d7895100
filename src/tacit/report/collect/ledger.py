"""What a report says of the ledger: its entries, and what they cost together."""

from __future__ import annotations

from dataclasses import asdict

from tacit.planning import HELD_OUT, TRAINING
from tacit.privacy.accounting.accountant import epsilon, joint_epsilon
from tacit.privacy.events import (
    BandedPoissonGaussian,
    Event,
    Gaussian,
    PoissonGaussian,
    Spend,
    ThresholdedHistogram,
    WeightedHistogram,
    WordCounts,
)
from tacit.privacy.ledger import Ledger
from tacit.report import schema

__all__ = ["cumulative", "ledger_rows", "parameters"]

_MECHANISMS: dict[type, str] = {
    ThresholdedHistogram: "thresholded word histogram with integer Gaussian noise",
    BandedPoissonGaussian: "DP-SGD step, each unit clipped by its band of rho (weight 0: it takes no part)",
    WeightedHistogram: "choice of words by weight, integer Gaussian noise, threshold",
    WordCounts: "counts of the chosen words, integer Gaussian noise",
    PoissonGaussian: "DP-SGD step: Poisson sampling, clipping, Gaussian noise",
    Gaussian: "Gaussian noise on bounded sums",
}


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
                mechanism=_MECHANISMS.get(type(plan.event), "release without a guarantee"),
                parameters=parameters(plan.event),
                count=row.count,
                epsilon_alone=alone,
                partition=HELD_OUT if plan.partition == HELD_OUT else TRAINING,
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


def parameters(event: Event) -> dict[str, int | float | str]:
    """The public numbers of an event, by name."""
    bands = {"weights_of_rho": event.bands.words()} if isinstance(event, BandedPoissonGaussian) else {}
    return bands | {name: value for name, value in asdict(event).items() if isinstance(value, int | float | str)}
