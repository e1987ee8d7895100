"""What a report says of the identifiers that a run's screening looks for."""

from __future__ import annotations

from tacit.config import RunConfig
from tacit.report import schema
from tacit.screen_plan import looked_for

__all__ = ["identifier_rows"]


def identifier_rows(config: RunConfig) -> tuple[schema.IdentifierRow, ...]:
    """The 18 identifiers of HIPAA's safe harbour; none of a run whose text is not screened."""
    return tuple(
        schema.IdentifierRow(identifier=row.name, labels=row.labels, note=row.note) for row in looked_for(config)
    )
