"""The ledger's entries, and what they cost together."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from tacit.report.schema.values import Count, Epsilon, Facts, Parameters, Text

__all__ = ["CumulativePoint", "LedgerRow", "UnitsRead"]

UnitsRead = Literal["training units", "held-out units", "all units"]
"""Of a run, or of the earlier one that an entry was taken over from."""


class LedgerRow(Facts):
    """One entry of the ledger.

    Args:
        sequence: the entry's number; rises from row to row.
        stage: which stage of the run made the release.
        mechanism: the mechanism in plain words.
        parameters: what the accountant was told, by name.
        count: how often it ran.
        epsilon_alone: its epsilon at the certified delta if it were the only release.
        partition: which private units it read.
        digest: the first 12 hex digits of the entry's digest.
    """

    sequence: Count
    stage: Text
    mechanism: Text
    parameters: Parameters
    count: Annotated[int, Field(ge=1)]
    epsilon_alone: Epsilon
    partition: UnitsRead
    digest: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{12}$")]


class CumulativePoint(Facts):
    """The joint epsilon of everything released up to and including a stage, at the certified delta."""

    label: Text
    epsilon: Epsilon
